// The singular value decomposition of m × n matrices, real (usually for n ≥ 6) or complex: reduction to bidiagonal form
// (bidiagonal.hpp, complex_bidiagonal.hpp), QR iteration in lockstep (golub_kahan.hpp), rotations recorded and applied
// later in wavefronts (eigh/recorded_sweeps.hpp), sorting. Wide matrices are transposed while they are read, so m ≥ n
// everywhere below. There are the same three variants as in eigh/lanes_solver.hpp.
#pragma once
#include "golub_kahan.hpp"
#include "../simd/sorting.hpp"
#include "../eigh/lanes_solver.hpp"
#include "real_or_complex.hpp"

namespace SG_NS {
namespace {

// Where the results of matrix `first` and those after it go. U and Vh are null if only values are wanted.
template <class T> struct SvdOutput {
  T *U, *S, *Vh;
};

template <class Field, int G> struct SvdSolver {
  typedef typename Field::T T;
  typedef Vec<T> V;
  typedef GolubKahan<T, G> Iteration;
  static constexpr int W = Simd<T>::W, pad = Basis<T>::pad, NV = 4, parts = Field::parts;
  typedef Lanes<T> LM;
  typedef Single<T> SM;

  Variant kind;
  bool wide, vectors;
  int m, n, ld, lr;  // ld, lr: vectors of a column of A, of a row of right reflectors, in each part
  V *a, *right, *z, *work, *row, *D[G], *E[G], *L[G], *B[G];
  V *left, *tau, *dots;
  typename Iteration::Record R[G], Q[G];  // recorded rotations of V and of U
  Basis<T> U[G], Vb[G], page;
  Replay<T, G> replay;
  T *factor, *flat;
  int* order;

  static Variant variant(int m, int n) {
    constexpr int small = Field::small_up_to, medium = Field::medium_up_to;
    return m <= small && n <= small ? small_d : m * n <= medium * medium ? medium_d : large_d;
  }

  // alone: there is one matrix, so that lanes would be empty.
  size_t layout(int rows, int cols, bool with_vectors, bool alone, char* base) {
    Arena mem{base, 0};
    wide = rows < cols;
    vectors = with_vectors;
    m = wide ? cols : rows;
    n = wide ? rows : cols;
    kind = alone ? large_d : variant(m, n);
    const int matrices = alone ? 1 : W;
    ld = (m + W - 1) / W * (kind == large_d ? 1 : W);
    lr = (n + W - 1) / W * (kind == large_d ? 1 : W);
    replay.layout(mem, n, kind == small_d);
    const size_t recorded = (size_t)replay.keep * replay.record;
    a = mem.take<V>((size_t)n * ld * parts);
    right = mem.take<V>((size_t)n * lr * parts);
    z = mem.take<V>((size_t)(m + W) * NV * parts);
    work = mem.take<V>(2 * (size_t)(ld + lr) * parts);
    row = mem.take<V>((size_t)m * parts + W);
    for (int g = 0; g < G; g++) {
      D[g] = shifted(mem.take<V>(n + 2), 1);
      E[g] = shifted(mem.take<V>(n + 2), 1);
      L[g] = shifted(mem.take<V>(n + 2), 1);
      B[g] = shifted(mem.take<V>(n + 2), 1);
      for (auto* r : {&R[g], &Q[g]}) {
        r->s = mem.take<V>(recorded);
        r->t = mem.take<V>(recorded);
      }
      if (!vectors) continue;
      U[g].q = mem.take<V>(U[g].shape(parts * m, n, kind == small_d, matrices));
      Vb[g].q = mem.take<V>(Vb[g].shape(parts * n, n, kind == small_d, matrices));
    }
    if (vectors && kind == small_d) page.q = mem.take<V>(page.shape(parts * m, n, false));
    left = mem.take<V>((size_t)n * parts);
    tau = mem.take<V>((size_t)n * parts);
    dots = mem.take<V>((size_t)(n / 2 + 1) * 4);
    factor = mem.take<T>(n);
    order = mem.take<int>((size_t)W * n);
    flat = mem.take<T>(parts > 1 && vectors ? (size_t)parts * m * n : 0);
    return mem.used;
  }
  static V* shifted(V* p, int k) { return p ? p + k : p; }

  // ---- reading: a holds the columns of the tall matrix ----
  Scale<V> load_group(const T* A, int count, const T* end) {
    const int64_t stride = (int64_t)m * n * parts;
    const int lines = wide ? n : m, length = wide ? m : n;  // of the matrix in memory
    V largest = {}, poison = {};
    for (int i = 0; i < lines; i++) {
      gather(A + (int64_t)i * length * parts, stride, count, end, length * parts, row);
      for (int j = 0; j < length; j++)
        for (int c = 0; c < parts; c++) {
          const V x = row[j * parts + c];
          (wide ? a[(i * parts + c) * ld + j] : a[(j * parts + c) * ld + i]) = x;
          largest = vmax<T>(vabs<T>(x), largest);
          poison += x * T(0);
        }
    }
    Scale<V> s = scale_of<T>(largest, poison);
    for (int j = 0; j < n * parts; j++)
      for (int i = 0; i < m; i++) a[j * ld + i] = scaled<T>(a[j * ld + i], s);
    return s;
  }
  void load_one(const T* A, const Scale<V>& s, int k) {
    const T lift = s.lift[k], up = s.up[k];
    const bool good = s.good[k] != 0;
    for (int j = 0; j < n; j++)
      for (int c = 0; c < parts; c++) {
        T* to = (T*)(a + (j * parts + c) * ld);
        const T* from = A + (wide ? (int64_t)j * m : j) * parts + c;
        const int64_t step = (wide ? 1 : n) * parts;
        for (int i = 0; i < m; i++) to[i] = good ? from[i * step] * lift * up : T(0);
        for (int i = m; i < ld * W; i++) to[i] = 0;
      }
  }

  // ---- reduction ----
  Scale<V> reduce_lanes(const T* A, int count, const T* end, int g) {
    Scale<V> s = load_group(A, count, end);
    Field::template reduce<LM>(a, ld, m, n, right, lr, D[g], E[g], left, tau, work);
    if (!vectors) return s;
    form_lanes(a, ld, n, 0, left, U[g], count);
    form_lanes(right, lr, n - Field::unreflected, 1, tau, Vb[g], count);
    return s;
  }
  void form_lanes(V* from, int step, int reflectors, int offset, const V* t, Basis<T>& to, int count) {
    const int length = to.rows / parts;
    to.clear();
    Field::template prepare<LM>(from, step, reflectors, length, dots);
    for (int j = 0; j < n; j += NV) {
      Field::template columns<LM, NV>(from, step, n, reflectors, offset, length, t, dots, j, z);
      for (int c = 0; c < NV && j + c < n; c++) to.take(z + c, NV, n - 1 - j - c, count);
    }
  }
  Scale<V> reduce_single(const T* A, int count, int g) {
    const int64_t size = (int64_t)m * n * parts;
    const Scale<V> s = survey_all(A, count);
    for (int i = 0; i < n; i++) D[g][i] = E[g][i] = V{};
    if (vectors) {
      U[g].clear();
      Vb[g].clear();
    }
    for (int k = 0; k < count; k++) {
      reduce_one(A + k * size, s, g, k);
      if (!vectors) continue;
      form_single(a, ld, n, 0, (const T*)left, U[g], k);
      form_single(right, lr, n - Field::unreflected, 1, (const T*)tau, Vb[g], k);
    }
    return s;
  }
  Scale<V> survey_all(const T* A, int count) {
    const int64_t size = (int64_t)m * n * parts;
    V largest = {}, poison = {};
    for (int k = 0; k < count; k++) survey(A + k * size, size, largest, poison, k);
    return scale_of<T>(largest, poison);
  }
  void reduce_one(const T* A, const Scale<V>& s, int g, int k) {
    load_one(A, s, k);
    T *d = replay.sine, *e = replay.tangent;
    Field::template reduce<SM>(a, ld, m, n, right, lr, d, e, (T*)left, (T*)tau, work);
    for (int i = 0; i < n; i++) {
      D[g][i][k] = d[i];
      E[g][i][k] = i < n - 1 ? e[i] : T(0);
    }
  }
  void form_single(V* from, int step, int reflectors, int offset, const T* t, Basis<T>& to, int k) {
    Field::template prepare<SM>(from, step, reflectors, to.rows / parts, (T*)dots);
    for (int j = 0; j < n; j += NV * W) form_columns(from, step, reflectors, offset, t, to, k, j, z);
  }
  // NV·W columns from column j on; own: memory as z.
  void form_columns(V* from, int step, int reflectors, int offset, const T* t, Basis<T>& to, int k, int j, V* own) {
    Field::template columns<SM, NV>(from, step, n, reflectors, offset, to.rows / parts, t, (const T*)dots, j, own);
    for (int c = 0; c < NV && j + c * W < n; c++) to.take_single(own + c, NV, k, n - 1 - j - c * W, -1);
  }

  // ---- iteration ----
  // Lanes that did not converge are left with a nonzero E. eigh/lanes_solver.hpp has the same limit.
  Iteration started() {
    Iteration it;
    for (int g = 0; g < G; g++) {
      it.D[g] = D[g];
      it.E[g] = E[g];
      it.B[g] = B[g];
    }
    it.start(n);
    return it;
  }
  void iterate(const int* count) {
    Iteration it = started();
    if (vectors) record_and_apply(it, count);
    else iterate_values(it);
  }
  void iterate_values(Iteration& it) {
    for (int k = 0; k < 30 * n && it.prepare(); k++) it.template sweep<false>(nullptr, nullptr, 0);
  }
  void record_and_apply(Iteration& it, const int* count) {
    typename Iteration::Record r[G], q[G];
    int kept = 0;
    for (int k = 0; k < 30 * n && it.prepare(); k++) {
      const int at = kept * replay.record + pad;
      for (int g = 0; g < G; g++) {
        r[g] = {R[g].s + at, R[g].t + at};
        q[g] = {Q[g].s + at, Q[g].t + at};
      }
      replay.note(kept, it);
      it.template sweep<true>(r, q, pad);
      if (++kept == replay.keep) {
        apply(kept, count);
        kept = 0;
      }
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
    Mask<T>* rank = (Mask<T>*)row;
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
        out.S[(int64_t)k * n + r] = value[k];
        order[k * n + r] = i;
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
      else Field::write(basis, k, order + k * n, factor, out, flat);
    }
  }

  // Decomposes up to G·W matrices. left_over: the number of matrices from A to the end of the batch, which limits
  // vector loads. Returns the number of matrices that failed.
  int solve(const T* A, const SvdOutput<T>& out, int total, int64_t left_over) {
    Scale<V> s[G];
    const int64_t mn = (int64_t)m * n * parts;
    const int64_t u = (wide ? n : m) * (int64_t)n * W * parts, v = (wide ? m : n) * (int64_t)n * W * parts;
    auto reduce = [&](int g, int count) {
      for (int i = 0; !count && i < n; i++) D[g][i] = E[g][i] = V{};
      if (!count) return;
      const T* from = A + g * W * mn;
      s[g] = kind == large_d ? reduce_single(from, count, g) : reduce_lanes(from, count, A + left_over * mn, g);
    };
    return in_groups<G, W>(
        total, reduce, [&](const int* count) { iterate(count); },
        [&](int g, int count) {
          T *U = vectors ? out.U + g * u : nullptr, *Vh = vectors ? out.Vh + g * v : nullptr;
          return write(g, count, s[g], {U, out.S + (int64_t)g * W * n, Vh});
        });
  }
};

}  // namespace
}  // namespace SG_NS
