// The singular value decomposition of m × n matrices for n ≥ 6: reduction to bidiagonal form (bidiagonal.hpp), QR
// iteration in lockstep (golub_kahan.hpp), rotations recorded and applied later in wavefronts (replay.hpp), sorting.
// Wide matrices are transposed while they are read, so m ≥ n everywhere below. The three variants are those of
// solver.hpp.
#pragma once
#include "bidiagonal.hpp"
#include "golub_kahan.hpp"
#include "order.hpp"
#include "solver.hpp"

namespace SG_NS {
namespace {

// Measured on AVX2, as in solver.hpp.
constexpr int svd_small_up_to = 24, svd_medium_up_to = 128;

// Where the results of matrix `first` and those after it go. U and Vh are null if only values are wanted.
template <class T> struct SvdOutput { T *U, *S, *Vh; };

template <class T, int G> struct SvdSolver {
  typedef Vec<T> V;
  typedef GolubKahan<T, G> Iteration;
  static constexpr int W = Simd<T>::W, pad = Basis<T>::pad, NV = 4;
  typedef Lanes<T> LM;
  typedef Single<T> SM;

  Variant kind;
  bool wide, vectors;
  int m, n, ld, lr;  // ld, lr: vectors of a column of A, of a row of right reflectors
  V *a, *right, *z, *work, *row, *D[G], *E[G], *L[G], *B[G];
  V *left, *tau, *dots;
  typename Iteration::Record R[G], Q[G];  // recorded rotations of V and of U
  Basis<T> U[G], Vb[G], page;
  Replay<T, G> replay;
  T* factor;
  int* order;

  static Variant variant(int m, int n) {
    return m <= svd_small_up_to && n <= svd_small_up_to ? small_d : m * n <= svd_medium_up_to * svd_medium_up_to ? medium_d : large_d;
  }

  size_t layout(int rows, int cols, bool with_vectors, char* base) {
    Arena mem{base, 0};
    wide = rows < cols, vectors = with_vectors;
    m = wide ? cols : rows, n = wide ? rows : cols, kind = variant(m, n);
    ld = (m + W - 1) / W * (kind == large_d ? 1 : W), lr = (n + W - 1) / W * (kind == large_d ? 1 : W);
    replay.layout(mem, n, kind == small_d);
    const size_t recorded = (size_t)replay.keep * replay.record;
    a = mem.take<V>((size_t)n * ld), right = mem.take<V>((size_t)n * lr);
    z = mem.take<V>((size_t)(m + W) * NV), work = mem.take<V>(2 * (size_t)(ld + lr)), row = mem.take<V>(n + W);
    for (int g = 0; g < G; g++) {
      D[g] = shifted(mem.take<V>(n + 2), 1), E[g] = shifted(mem.take<V>(n + 2), 1), L[g] = shifted(mem.take<V>(n + 2), 1);
      B[g] = shifted(mem.take<V>(n + 2), 1);
      for (auto* r : {&R[g], &Q[g]}) r->s = mem.take<V>(recorded), r->t = mem.take<V>(recorded);
      if (!vectors) continue;
      U[g].q = mem.take<V>(U[g].shape(m, n, kind == small_d)), Vb[g].q = mem.take<V>(Vb[g].shape(n, n, kind == small_d));
    }
    if (vectors && kind == small_d) page.q = mem.take<V>(page.shape(m, n, false));
    left = mem.take<V>(n), tau = mem.take<V>(n), dots = mem.take<V>((size_t)(n / 2 + 1) * 4);
    factor = mem.take<T>(n), order = mem.take<int>((size_t)W * n);
    return mem.used;
  }
  static V* shifted(V* p, int k) { return p ? p + k : p; }

  // ---- reading: a holds the columns of the tall matrix ----
  Scale<V> load_group(const T* A, int count, const T* end) {
    const int64_t stride = (int64_t)m * n;
    V largest = {}, poison = {};
    if (wide)
      for (int j = 0; j < n; j++) gather(A + (int64_t)j * m, stride, count, end, m, a + j * ld);
    else
      for (int i = 0; i < m; i++) {
        gather(A + (int64_t)i * n, stride, count, end, n, row);
        for (int j = 0; j < n; j++) a[j * ld + i] = row[j];
      }
    for (int j = 0; j < n; j++)
      for (int i = 0; i < m; i++) {
        V x = a[j * ld + i];
        largest = vmax<T>(vabs<T>(x), largest), poison += x * T(0);
      }
    Scale<V> s = scale_of<T>(largest, poison);
    for (int j = 0; j < n; j++)
      for (int i = 0; i < m; i++) a[j * ld + i] = scaled<T>(a[j * ld + i], s);
    return s;
  }
  void load_one(const T* A, const Scale<V>& s, int k) {
    const T lift = s.lift[k], up = s.up[k];
    for (int j = 0; j < n; j++) {
      T* to = (T*)(a + j * ld);
      const int64_t from = wide ? (int64_t)j * m : j, step = wide ? 1 : n;
      for (int i = 0; i < m; i++) to[i] = s.good[k] != 0 ? A[from + i * step] * lift * up : T(0);
      for (int i = m; i < ld * W; i++) to[i] = 0;
    }
  }

  // ---- reduction ----
  Scale<V> reduce_lanes(const T* A, int count, const T* end, int g) {
    Scale<V> s = load_group(A, count, end);
    bidiagonalise<LM>(a, ld, m, n, right, lr, D[g], E[g], left, tau, work);
    if (!vectors) return s;
    form_lanes(a, ld, n, 0, left, U[g], count);
    form_lanes(right, lr, n - 2, 1, tau, Vb[g], count);
    return s;
  }
  void form_lanes(const V* from, int step, int reflectors, int offset, const V* t, Basis<T>& to, int count) {
    auto dot = (V(*)[2][2])dots;
    to.clear();
    pair_dots<LM>(from, step, reflectors, to.rows, dot);
    for (int j = 0; j < n; j += NV) {
      reflected_columns<LM, NV>(from, step, reflectors, offset, to.rows, t, dot, j, z);
      for (int c = 0; c < NV && j + c < n; c++) to.take(z + c, NV, n - 1 - j - c, count);
    }
  }
  Scale<V> reduce_single(const T* A, int count, int g) {
    V largest = {}, poison = {};
    const int64_t size = (int64_t)m * n;
    for (int k = 0; k < count; k++) survey(A + k * size, size, largest, poison, k);
    Scale<V> s = scale_of<T>(largest, poison);
    for (int i = 0; i < n; i++) D[g][i] = E[g][i] = V{};
    if (vectors) U[g].clear(), Vb[g].clear();
    for (int k = 0; k < count; k++) {
      load_one(A + k * size, s, k);
      T *d = replay.sine, *e = replay.tangent;
      bidiagonalise<SM>(a, ld, m, n, right, lr, d, e, (T*)left, (T*)tau, work);
      for (int i = 0; i < n; i++) D[g][i][k] = d[i], E[g][i][k] = i < n - 1 ? e[i] : T(0);
      if (!vectors) continue;
      form_single(a, ld, n, 0, (const T*)left, U[g], k);
      form_single(right, lr, n - 2, 1, (const T*)tau, Vb[g], k);
    }
    return s;
  }
  void form_single(const V* from, int step, int reflectors, int offset, const T* t, Basis<T>& to, int k) {
    auto dot = (T(*)[2][2])dots;
    pair_dots<SM>(from, step, reflectors, to.rows, dot);
    for (int j = 0; j < n; j += NV * W) {
      reflected_columns<SM, NV>(from, step, reflectors, offset, to.rows, t, dot, j, z);
      for (int c = 0; c < NV && j + c * W < n; c++) to.take_single(z + c, NV, k, n - 1 - j - c * W, -1);
    }
  }

  // ---- iteration ----
  // Lanes that did not converge are left with a nonzero E. The limit is that of solver.hpp.
  void iterate(const int* count) {
    Iteration it;
    for (int g = 0; g < G; g++) it.D[g] = D[g], it.E[g] = E[g], it.B[g] = B[g];
    it.start(n);
    if (vectors) return record_and_apply(it, count);
    for (int k = 0; k < 30 * n && it.prepare(); k++) it.template sweep<false>(nullptr, nullptr, 0);
  }
  void record_and_apply(Iteration& it, const int* count) {
    typename Iteration::Record r[G], q[G];
    int kept = 0;
    for (int k = 0; k < 30 * n && it.prepare(); k++) {
      const int at = kept * replay.record + pad;
      for (int g = 0; g < G; g++) r[g] = {R[g].s + at, R[g].t + at}, q[g] = {Q[g].s + at, Q[g].t + at};
      replay.note(kept, it);
      it.template sweep<true>(r, q, pad);
      if (++kept == replay.keep) apply(kept, count), kept = 0;
    }
    if (kept) apply(kept, count);
  }
  void apply(int sweeps, const int* count) {
    for (int g = 0; g < G && count[g]; g++) {
      replay.apply(Vb[g], R[g].s, R[g].t, g, count[g], sweeps);
      replay.apply(U[g], Q[g].s, Q[g].t, g, count[g], sweeps);
    }
  }

  // ---- sort and write ----
  int write(int g, int count, Scale<V> s, const SvdOutput<T>& out) {
    Mask<T>* rank = (Mask<T>*)work;
    V stuck = {};
    for (int i = 0; i < n; i++) {
      stuck = E[g][i] != 0 ? splat<T>(1) : stuck;
      L[g][i] = vabs<T>(D[g][i]);
    }
    s.good = stuck != 0 ? V{} : s.good;
    ranks<T>(L[g], n, rank);
    for (int i = 0; i < n; i++) {
      V value = unscaled<T>(L[g][i], s);
      for (int k = 0; k < count; k++) {
        int r = n - 1 - (int)rank[i][k];
        out.S[(int64_t)k * n + r] = value[k], order[k * n + r] = i;
      }
    }
    if (vectors) write_basis(g, count, s, Vb[g], false, wide ? out.U : out.Vh, !wide);
    if (vectors) write_basis(g, count, s, U[g], true, wide ? out.Vh : out.U, wide);
    int failed = 0;
    for (int k = 0; k < count; k++) failed += s.good[k] == 0;
    return failed;
  }
  // Left vectors take the signs of D, so that singular values are positive.
  void write_basis(int g, int count, const Scale<V>& s, Basis<T> basis, bool sign, T* out, bool transposed) {
    const int64_t size = (int64_t)basis.rows * n;
    if (kind == small_d) {
      page.shape(basis.rows, n, false);
      page.take_lanes(basis, count);
      basis = page;
    }
    for (int k = 0; k < count; k++, out += size) {
      if (s.good[k] == 0) {
        for (int64_t i = 0; i < size; i++) out[i] = (T)__builtin_nanf("");
        continue;
      }
      for (int i = 0; i < n; i++) factor[i] = sign && D[g][i][k] < 0 ? T(-1) : T(1);
      if (transposed) basis.write_transposed(k, order + k * n, factor, out);
      else basis.write(k, order + k * n, factor, out);
    }
  }

  // Decomposes up to G·W matrices. left_over: the number of matrices from A to the end of the batch, which limits vector
  // loads. Returns the number of matrices that failed.
  int solve(const T* A, const SvdOutput<T>& out, int total, int64_t left_over) {
    int count[G], failed = 0;
    Scale<V> s[G];
    const int64_t mn = (int64_t)m * n;
    for (int g = 0; g < G; g++) {
      count[g] = total - g * W < 0 ? 0 : total - g * W < W ? total - g * W : W;
      if (!count[g]) {
        for (int i = 0; i < n; i++) D[g][i] = E[g][i] = V{};
        continue;
      }
      const T* from = A + g * W * mn;
      s[g] = kind == large_d ? reduce_single(from, count[g], g) : reduce_lanes(from, count[g], A + left_over * mn, g);
    }
    iterate(count);
    const int64_t u = (wide ? n : m) * (int64_t)n * W, v = (wide ? m : n) * (int64_t)n * W;
    for (int g = 0; g < G && count[g]; g++) {
      SvdOutput<T> to{vectors ? out.U + g * u : nullptr, out.S + (int64_t)g * W * n, vectors ? out.Vh + g * v : nullptr};
      failed += write(g, count[g], s[g], to);
    }
    return failed;
  }
};

}  // namespace
}  // namespace SG_NS
