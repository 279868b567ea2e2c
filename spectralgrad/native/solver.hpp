// d ≥ 5: reduction to tridiagonal form (tridiagonal.hpp), QL iteration in lockstep (ql.hpp), rotations recorded and
// applied later in wavefronts (replay.hpp), sorting (order.hpp).
// Three variants of this pipeline:
//   small   everything with one matrix per lane;
//   medium  reduction and QL with one matrix per lane, rotations one matrix at a time: a matrix is then rotated by its
//           own sweeps only, and its Q stays in the first-level cache;
//   large   as medium, but with the reduction one matrix at a time as well, because W matrices no longer fit the cache.
#pragma once
#include "order.hpp"
#include "ql.hpp"
#include "replay.hpp"
#include "tridiagonal.hpp"

namespace SG_NS {
namespace {

// Measured on AVX2: above these sizes W matrices no longer fit the first-level and the second-level cache.
// known_from: from this size on the eigenvalues are computed first and used as shifts (ql.hpp).
constexpr int small_up_to = 24, medium_up_to = 128, known_from = 12;

enum Variant { small_d, medium_d, large_d };

template <class T, int G> struct Solver {
  typedef Vec<T> V;
  static constexpr int W = Simd<T>::W, pad = Basis<T>::pad, NV = 4, NB = 2, lanes = G * W;
  typedef Lanes<T> LM;
  typedef Single<T> SM;

  Variant kind;
  int n, ld;
  V *a, *z, *work, *D[G], *E[G], *L[G], *S[G], *Tn[G];
  Basis<T> Q[G];
  Replay<T, G> replay;
  V *tau, *dots;
  T* factor;
  int* perm;

  static Variant variant(int n) { return n <= small_up_to ? small_d : n <= medium_up_to && n <= 16 * W ? medium_d : large_d; }

  size_t layout(int size, char* base) {
    Arena m{base, 0};
    n = size, kind = variant(n);
    const int rows = (n + W - 1) / W;
    ld = kind == large_d ? rows : (n + LM::block - 1) / LM::block * LM::block;
    replay.layout(m, n, kind == small_d);
    const size_t recorded = (size_t)replay.keep * replay.record;
    a = m.take<V>((size_t)n * ld + W);
    z = m.take<V>((size_t)rows * W * NV);
    work = m.take<V>(3 * (size_t)ld);
    for (int g = 0; g < G; g++) {
      D[g] = shifted(m.take<V>(n + 2), 1), E[g] = shifted(m.take<V>(n + 2), 1), L[g] = shifted(m.take<V>(n + 2), 1);
      S[g] = m.take<V>(recorded), Tn[g] = m.take<V>(recorded);
      Q[g].q = m.take<V>(Q[g].shape(n, n, kind == small_d));
    }
    tau = m.take<V>(n), dots = m.take<V>((size_t)n * NB * NB);
    factor = m.take<T>(n), perm = m.take<int>((size_t)W * n);
    return m.used;
  }
  static V* shifted(V* p, int k) { return p ? p + k : p; }

  // ---- reduction ----
  Scale<V> reduce_lanes(const T* A, int count, const T* end, int g) {
    Scale<V> s = load_lanes(A, count, end, n, a, ld);
    tridiagonalise<LM>(a, ld, n, D[g], E[g], tau, work);
    E[g][n - 1] = V{};
    auto dot = (V(*)[NB][NB])dots;
    all_dots<LM, NB>(a, ld, n, dot);
    for (int j = 0; j < n; j += NV) {
      q_columns<LM, NB, NV>(a, ld, n, tau, dot, j, z);
      for (int c = 0; c < NV && j + c < n; c++) Q[g].take(z + c, NV, j + c, count);
    }
    return s;
  }
  Scale<V> reduce_single(const T* A, int count, int g) {
    V largest = {}, poison = {};
    for (int m = 0; m < count; m++)
      for (int i = 0; i < n; i++) survey(A + (int64_t)m * n * n + (int64_t)i * n, i + 1, largest, poison, m);
    Scale<V> s = scale_of<T>(largest, poison);
    for (int m = 0; m < count; m++) reduce_one(A + (int64_t)m * n * n, s, g, m);
    for (int i = 0; i < n; i++)
      for (int m = count; m < W; m++) D[g][i][m] = E[g][i][m] = 0;
    E[g][n - 1] = V{};
    return s;
  }
  void reduce_one(const T* A, const Scale<V>& s, int g, int m) {
    T lift = s.lift[m], up = s.up[m];
    for (int i = 0; i < n; i++) {
      T* row = (T*)(a + i * ld);
      int stop = i / W * W + W;
      for (int j = 0; j <= i; j++) row[j] = s.good[m] != 0 ? A[(int64_t)i * n + j] * lift * up : T(0);
      for (int j = i + 1; j < stop; j++) row[j] = 0;
      for (int j = i / W * W; j < i; j++) ((T*)(a + j * ld))[i] = row[j];
    }
    T *d = replay.sine, *e = replay.tangent, *t = (T*)tau;
    tridiagonalise<SM>(a, ld, n, d, e, t, work);
    for (int i = 0; i < n; i++) D[g][i][m] = d[i], E[g][i][m] = i < n - 1 ? e[i] : T(0);
    auto dot = (T(*)[NB][NB])dots;
    all_dots<SM, NB>(a, ld, n, dot);
    for (int j = 0; j < n; j += NV * W) {
      q_columns<SM, NB, NV>(a, ld, n, t, dot, j, z);
      for (int c = 0; c < NV && j + c * W < n; c++) Q[g].take_single(z + c, NV, m, j + c * W, 1);
    }
  }

  // ---- iteration ----
  // Lanes that did not converge are left with a nonzero E. The limit, 30 sweeps per eigenvalue, is that of STEQR.
  void iterate(const int* count) {
    QL<T, G> ql;
    for (int g = 0; g < G; g++) ql.known[g] = nullptr;
    if (n >= known_from) {
      for (int g = 0; g < G; g++) {
        ql.D[g] = L[g], ql.E[g] = S[g] + 1;
        for (int i = 0; i < n; i++) ql.D[g][i] = D[g][i], ql.E[g][i] = E[g][i];
      }
      ql.start(n);
      for (int k = 0; k < 30 * n && ql.prepare(); k++) ql.template sweep<false>(nullptr, nullptr, 0);
      for (int g = 0; g < G; g++) ql.known[g] = L[g];
    }
    for (int g = 0; g < G; g++) ql.D[g] = D[g], ql.E[g] = E[g];
    ql.start(n);
    record_and_apply(ql, count);
  }
  void record_and_apply(QL<T, G>& ql, const int* count) {
    V *s[G], *t[G];
    int kept = 0;
    for (int k = 0; k < 30 * n && ql.prepare(); k++) {
      for (int g = 0; g < G; g++) s[g] = S[g] + kept * replay.record + pad, t[g] = Tn[g] + kept * replay.record + pad;
      replay.note(kept, ql);
      ql.template sweep<true>(s, t, pad);
      if (++kept == replay.keep) apply(kept, count), kept = 0;
    }
    if (kept) apply(kept, count);
  }
  void apply(int sweeps, const int* count) {
    for (int g = 0; g < G && count[g]; g++) replay.apply(Q[g], S[g], Tn[g], g, count[g], sweeps);
  }

  // ---- sort and write ----
  int write(int g, int count, Scale<V> s, T* w, T* Vout) {
    Mask<T>* rank = (Mask<T>*)S[g];
    V stuck = {};
    for (int i = 0; i < n; i++) stuck = E[g][i] != 0 ? splat<T>(1) : stuck;
    s.good = stuck != 0 ? V{} : s.good;
    if (kind == small_d) return write_lanes(g, count, s, w, Vout);
    ranks<T>(D[g], n, rank);
    for (int i = 0; i < n; i++) {
      V value = unscaled<T>(D[g][i], s);
      for (int m = 0; m < count; m++) {
        int r = (int)rank[i][m];
        w[m * n + r] = value[m], perm[m * n + r] = i;
      }
    }
    int failed = 0;
    for (int i = 0; i < n; i++) factor[i] = 1;
    for (int m = 0; m < count; m++) {
      T* out = Vout + (int64_t)m * n * n;
      if (s.good[m] == 0) {
        failed++;
        for (int i = 0; i < n * n; i++) out[i] = (T)__builtin_nanf("");
      } else Q[g].write(m, perm + m * n, factor, out);
    }
    return failed;
  }
  // Small matrices are sorted in lanes and written as whole matrices.
  int write_lanes(int g, int count, const Scale<V>& s, T* w, T* out) {
    V *d = D[g], *q = a, nan = splat<T>(__builtin_nanf(""));
    for (int i = 0; i < n; i++)
      for (int j = 0; j < n; j++) q[i * n + j] = s.good != 0 ? Q[g].q[i * Q[g].columns + pad + j] + T(0) : nan;
    sort_lanes<T>(d, q, n);
    for (int i = 0; i < n; i++) z[i] = unscaled<T>(d[i], s);
    scatter(q, out, n * n, count, out + (int64_t)count * n * n, n * n);
    scatter(z, w, n, count, w + (int64_t)count * n, n);
    int failed = 0;
    for (int m = 0; m < count; m++) failed += s.good[m] == 0;
    return failed;
  }

  // Decomposes up to G·W matrices. left: the number of matrices from A to the end of the batch, which limits vector
  // loads. Returns the number of matrices that failed.
  int solve(const T* A, T* w, T* Vout, int total, int64_t left) {
    int count[G], failed = 0;
    Scale<V> s[G];
    const int64_t nn = (int64_t)n * n;
    for (int g = 0; g < G; g++) {
      count[g] = total - g * W < 0 ? 0 : total - g * W < W ? total - g * W : W;
      if (!count[g]) {
        for (int i = 0; i < n; i++) D[g][i] = E[g][i] = V{};
        continue;
      }
      const T* from = A + g * W * nn;
      Q[g].clear();
      s[g] = kind == large_d ? reduce_single(from, count[g], g) : reduce_lanes(from, count[g], A + left * nn, g);
    }
    iterate(count);
    for (int g = 0; g < G && count[g]; g++) failed += write(g, count[g], s[g], w + g * W * n, Vout + g * W * nn);
    return failed;
  }
};

}  // namespace
}  // namespace SG_NS
