// An orthonormal basis for every matrix of a group of W: where its columns are kept, rotated, and written out.
//
// Two layouts. In lanes, entry (i, j) of all matrices is one vector, q[i·columns + pad + j]. In panels, every matrix
// has its own memory, and vectors run along the columns; a panel is a block of up to PV·W rows, with the columns one
// after another, so that it stays in the first-level cache while it is rotated. `pad` unused columns on both sides
// leave room for the wavefronts of rotations.hpp.
#pragma once
#include "rotations.hpp"

namespace SG_NS {
namespace {

template <class T> struct Basis {
  typedef Vec<T> V;
  typedef Lanes<T> LM;
  typedef Single<T> SM;
  static constexpr int W = Simd<T>::W, pad = 4, PV = 4, M = 2;  // M: sweeps applied at once
  static_assert(M <= pad && 4 <= pad, "padding must hold the wavefront");
  V* q;
  int rows, n, columns, blocks;  // columns: n with padding; blocks: vectors a column
  bool lanes;
  int matrices;  // in panels

  size_t shape(int rows_, int n_, bool lanes_, int matrices_ = W) {  // returns the number of vectors needed
    rows = rows_;
    n = n_;
    columns = n + 2 * pad;
    blocks = (rows + W - 1) / W;
    lanes = lanes_;
    matrices = matrices_;
    return lanes ? (size_t)rows * columns + W : (size_t)matrices * blocks * columns;
  }
  void clear() {
    for (size_t i = 0; i < (size_t)(lanes ? rows : matrices * blocks) * columns; i++) q[i] = V{};
  }

  int panels() const { return (blocks + PV - 1) / PV; }
  int width(int p) const {
    int left = blocks - p * PV;
    return left < PV ? left : PV;
  }
  V* panel(int lane, int p) const { return q + ((size_t)lane * blocks + p * PV) * columns; }
  V* column(int m, int b, int j) const {
    int p = b / PV;
    return panel(m, p) + (pad + j) * width(p) + b % PV;
  }

  // Takes column j of `count` matrices from vectors z[i·step], one matrix per lane.
  SG_ONCE void take(const V* z, int step, int j, int count) {
    if (lanes) {
      for (int i = 0; i < rows; i++) q[i * columns + pad + j] = z[i * step];
      return;
    }
    for (int b = 0; b < blocks; b++) {
      V r[W];
      for (int k = 0; k < W; k++) r[k] = b * W + k < rows ? z[(b * W + k) * step] : V{};
      transpose(r);
      for (int m = 0; m < count; m++) *column(m, b, j) = r[m];
    }
  }
  // Takes up to W columns of matrix m; their row i is z[i·step]: columns j, j + way, j + 2·way, …
  SG_ONCE void take_single(const V* z, int step, int m, int j, int way) {
    for (int b = 0; b < blocks; b++) {
      V r[W];
      for (int k = 0; k < W; k++) r[k] = b * W + k < rows ? z[(b * W + k) * step] : V{};
      transpose(r);
      for (int k = 0; k < W && j + k * way >= 0 && j + k * way < n; k++) *column(m, b, j + k * way) = r[k];
    }
  }
  // The columns of another basis that is kept in lanes.
  void take_lanes(const Basis& from, int count) {
    for (int j = 0; j < n; j++) take(from.q + pad + j, columns, j, count);
  }

  SG_ONCE void rotate_lanes(const V* s, const V* t, int record, int sweeps, const int* low, const int* high) {
    constexpr int R = 4;
    int i = 0;
    for (; i + R <= rows; i += R)
      apply_sweeps<LM, R, M>(q + i * columns + pad, 1, columns, s + pad, t + pad, record, sweeps, low, high);
    for (; i < rows; i++)
      apply_sweeps<LM, 1, 4>(q + i * columns + pad, 1, columns, s + pad, t + pad, record, sweeps, low, high);
  }
  void rotate_single(int m, const T* s, const T* t, int record, int sweeps, const int* low, const int* high) {
    for (int p = 0; p < panels(); p++) rotate_single(m, p, s, t, record, sweeps, low, high);
  }
  SG_ONCE void rotate_single(int m, int p, const T* s, const T* t, int record, int sweeps, const int* low,
                             const int* high) {
    rotate_panel<PV>(panel(m, p), width(p), s, t, record, sweeps, low, high);
  }
  // A panel of R vectors of rows; the last panel may be narrower.
  template <int R>
  void rotate_panel(V* z, int vectors, const T* s, const T* t, int record, int sweeps, const int* low,
                    const int* high) {
    if (vectors == R)
      apply_sweeps<SM, R, (R == 1 ? 4 : M)>(z + pad * R, R, 1, s + pad, t + pad, record, sweeps, low, high);
    else if constexpr (R > 1) rotate_panel<R - 1>(z, vectors, s, t, record, sweeps, low, high);
  }

  // The columns in the given order, times factor[order[j]], as a row-major rows × n matrix. x + 0 turns −0 into +0. A
  // full-width store may overrun into the next row, which is written afterwards, but not beyond the end of the matrix.
  SG_ONCE void write(int m, const int* order, const T* factor, T* out) const {
    const T* end = out + (int64_t)rows * n;
    for (int b = 0; b < blocks; b++)
      for (int j = (n - 1) / W * W; j >= 0; j -= W) {
        V r[W];
        for (int k = 0; k < W; k++) r[k] = j + k < n ? written(m, b, order[j + k], factor) : V{};
        transpose(r);
        for (int k = 0; k < W && b * W + k < rows; k++) put(out + (int64_t)(b * W + k) * n + j, r[k], end, n - j);
      }
  }
  // The columns as rows of an n × rows matrix, otherwise as in write.
  SG_ONCE void write_transposed(int m, const int* order, const T* factor, T* out) const {
    const T* end = out + (int64_t)rows * n;
    for (int j = 0; j < n; j++)
      for (int b = 0; b < blocks; b++)
        put(out + (int64_t)j * rows + b * W, written(m, b, order[j], factor), end, rows - b * W);
  }
  SG_INLINE V written(int m, int b, int j, const T* factor) const { return *column(m, b, j) * factor[j] + T(0); }
  static SG_INLINE void put(T* to, V x, const T* end, int left) {
    if (end - to >= W) store(to, x);
    else memcpy(to, &x, sizeof(T) * (size_t)(left < W ? left : W));
  }
};

}  // namespace
}  // namespace SG_NS
