// d ≥ 5: reduction to tridiagonal form (tridiagonal.hpp), QL iteration in lockstep (ql.hpp), rotations recorded and
// applied later in wavefronts (rotate.hpp), sorting (order.hpp).
// Three variants of this pipeline:
//   small   everything with one matrix per lane;
//   medium  reduction and QL with one matrix per lane, rotations one matrix at a time: a matrix is then rotated by its
//           own sweeps only, and its Q stays in the first-level cache;
//   large   as medium, but with the reduction one matrix at a time as well, because W matrices no longer fit the cache.
//
// Rotations are recorded for `keep` sweeps and then applied together: applying them to Q takes most of the time for
// d ≥ 16, and a group of rows then stays in cache for all of these sweeps.
#pragma once
#include "order.hpp"
#include "ql.hpp"
#include "rotate.hpp"
#include "tridiagonal.hpp"

namespace SG_NS {
namespace {

// Measured on AVX2: above these sizes W matrices no longer fit the first-level and the second-level cache.
// known_from: from this size on the eigenvalues are computed first and used as shifts (ql.hpp).
constexpr int small_up_to = 24, medium_up_to = 128, known_from = 12;

enum Variant { small_d, medium_d, large_d };

struct Arena {  // allocates 64-byte aligned pieces of a buffer; without a base it only counts their size
  char* base; size_t used;
  template <class X> X* take(size_t count) {
    size_t at = used;
    used += (count * sizeof(X) + 63) / 64 * 64;
    return base ? (X*)(base + at) : nullptr;
  }
};

template <class T, int G> struct Solver {
  typedef Vec<T> V;
  static constexpr int W = Simd<T>::W, M = 2, pad = 4, PV = 4, NV = 4, NB = 2, lanes = G * W;
  static_assert(M <= pad && 4 <= pad, "padding must hold the wavefront");
  typedef Lanes<T> LM;
  typedef Single<T> SM;

  Variant kind;
  int n, ld, columns, record, keep;  // columns: of Q with padding; record: entries per sweep; keep: sweeps recorded
  V *a, *z, *work, *D[G], *E[G], *L[G], *S[G], *Tn[G], *Q[G];
  V *tau, *dots;
  T *sine, *tangent;
  Mask<T>* levels;  // [sweep][g]
  int *lows, *highs, *perm;
  int lowest[64], highest[64];

  static Variant variant(int n) { return n <= small_up_to ? small_d : n <= medium_up_to && n <= 16 * W ? medium_d : large_d; }

  size_t layout(int size, char* base) {
    Arena m{base, 0};
    n = size, kind = variant(n);
    const int rows = (n + W - 1) / W;
    ld = kind == large_d ? rows : (n + LM::block - 1) / LM::block * LM::block;
    columns = n + 2 * pad;
    record = (columns + W - 1) / W * W;
    keep = kind == small_d ? 4 : 2048 / n < 8 ? 8 : 2048 / n > 32 ? 32 : 2048 / n / 4 * 4;
    a = m.take<V>((size_t)n * ld + W);
    z = m.take<V>((size_t)rows * W * NV);
    work = m.take<V>(3 * (size_t)ld);
    for (int g = 0; g < G; g++) {
      D[g] = shifted(m.take<V>(n + 2), 1), E[g] = shifted(m.take<V>(n + 2), 1), L[g] = shifted(m.take<V>(n + 2), 1);
      S[g] = m.take<V>((size_t)keep * record), Tn[g] = m.take<V>((size_t)keep * record);
      Q[g] = m.take<V>(kind == small_d ? (size_t)n * columns + W : (size_t)W * rows * columns);
    }
    tau = m.take<V>(n), dots = m.take<V>((size_t)n * NB * NB);
    sine = m.take<T>((size_t)keep * record), tangent = m.take<T>((size_t)keep * record);
    levels = m.take<Mask<T>>((size_t)keep * G);
    lows = m.take<int>(keep), highs = m.take<int>(keep), perm = m.take<int>((size_t)W * n);
    return m.used;
  }
  static V* shifted(V* p, int k) { return p ? p + k : p; }

  int panels() const { return ((n + W - 1) / W + PV - 1) / PV; }
  int width(int p) const { int left = (n + W - 1) / W - p * PV; return left < PV ? left : PV; }
  V* panel(int g, int lane, int p) const { return Q[g] + ((size_t)lane * ((n + W - 1) / W) + p * PV) * columns; }

  // ---- reduction ----
  Scale<V> reduce_lanes(const T* A, int count, const T* end, int g) {
    Scale<V> s = load_lanes(A, count, end, n, a, ld);
    tridiagonalise<LM>(a, ld, n, D[g], E[g], tau, work);
    E[g][n - 1] = V{};
    auto dot = (V(*)[NB][NB])dots;
    all_dots<LM, NB>(a, ld, n, dot);
    for (int j = 0; j < n; j += NV) {
      q_columns<LM, NB, NV>(a, ld, n, tau, dot, j, z);
      if (kind == small_d) keep_lanes(g, j); else keep_panels(g, j, count);
    }
    return s;
  }
  void keep_lanes(int g, int j) {
    for (int i = 0; i < n; i++)
      for (int c = 0; c < NV && j + c < n; c++) Q[g][i * columns + pad + j + c] = z[i * NV + c];
  }
  void keep_panels(int g, int j, int count) {
    for (int c = 0; c < NV && j + c < n; c++)
      for (int b = 0; b * W < n; b++) {
        V r[W];
        for (int k = 0; k < W; k++) r[k] = b * W + k < n ? z[(b * W + k) * NV + c] : V{};
        transpose(r);
        for (int m = 0; m < count; m++) column(g, m, b, j + c)[0] = r[m];
      }
  }
  V* column(int g, int m, int b, int j) const {
    int p = b / PV;
    return panel(g, m, p) + (pad + j) * width(p) + b % PV;
  }

  Scale<V> reduce_single(const T* A, int count, int g) {
    V largest = {}, poison = {};
    for (int m = 0; m < count; m++) survey(A + (int64_t)m * n * n, n, largest, poison, m);
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
    T *d = sine, *e = tangent, *t = (T*)tau;
    tridiagonalise<SM>(a, ld, n, d, e, t, work);
    for (int i = 0; i < n; i++) D[g][i][m] = d[i], E[g][i][m] = i < n - 1 ? e[i] : T(0);
    auto dot = (T(*)[NB][NB])dots;
    all_dots<SM, NB>(a, ld, n, dot);
    for (int j = 0; j < n; j += NV * W) {
      q_columns<SM, NB, NV>(a, ld, n, t, dot, j, z);
      for (int c = 0; c < NV && j + c * W < n; c++)
        for (int b = 0; b * W < n; b++) {
          V r[W];
          for (int k = 0; k < W; k++) r[k] = b * W + k < n ? z[(b * W + k) * NV + c] : V{};
          transpose(r);
          for (int k = 0; k < W && j + c * W + k < n; k++) column(g, m, b, j + c * W + k)[0] = r[k];
        }
    }
  }

  // ---- rotations ----
  void apply(int sweeps, const int* count) {
    for (int g = 0; g < G && count[g]; g++) {
      if (kind == small_d) {
        rotate_lanes(g, sweeps);
        continue;
      }
      const int first = lowest[0] / W, last = (highest[0] + 2 * pad) / W;  // entry i is at i + pad; waves reach pad beyond
      for (int k = 0; k < sweeps; k++)
        for (int b = first; b <= last; b++) {
          transpose((V(&)[W])S[g][k * record + b * W]);
          transpose((V(&)[W])Tn[g][k * record + b * W]);
        }
      for (int m = 0; m < count[g]; m++) rotate_one(g, m, sweeps, first, last);
    }
  }
  void rotate_lanes(int g, int sweeps) {
    constexpr int R = 4;
    V* z = Q[g] + pad;
    int i = 0;
    for (; i + R <= n; i += R)
      apply_sweeps<LM, R, 2>(z + i * columns, 1, columns, S[g] + pad, Tn[g] + pad, record, sweeps, lowest, highest);
    for (; i < n; i++)
      apply_sweeps<LM, 1, 4>(z + i * columns, 1, columns, S[g] + pad, Tn[g] + pad, record, sweeps, lowest, highest);
  }
  // One matrix: only the sweeps before it converged (its level is −1 afterwards), without identities at the top.
  void rotate_one(int g, int m, int sweeps, int first, int last) {
    int live = 0;
    for (; live < sweeps && levels[live * G + g][m] >= 0; live++) {
      T *s = sine + live * record, *t = tangent + live * record;
      for (int b = first; b <= last; b++) {
        store(s + b * W, S[g][live * record + b * W + m]);
        store(t + b * W, Tn[g][live * record + b * W + m]);
      }
      lows[live] = (int)levels[live * G + g][m];
      int top = highest[live];
      while (top > lows[live] && s[pad + top] == 0) top--;
      highs[live] = top;
    }
    for (int p = 0; p < panels(); p++) rotate_panel<PV>(panel(g, m, p), width(p), live);
  }
  // A panel of R vectors of rows; the last panel may be narrower.
  template <int R> void rotate_panel(V* z, int vectors, int live) {
    if (vectors == R)
      apply_sweeps<SM, R, (R == 1 ? 4 : M)>(z + pad * R, R, 1, sine + pad, tangent + pad, record, live, lows, highs);
    else if constexpr (R > 1)
      rotate_panel<R - 1>(z, vectors, live);
  }

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
      for (int g = 0; g < G; g++) {
        s[g] = S[g] + kept * record + pad, t[g] = Tn[g] + kept * record + pad;
        levels[kept * G + g] = ql.level[g];
      }
      lowest[kept] = ql.lowest, highest[kept] = ql.highest;
      ql.template sweep<true>(s, t, pad);
      if (++kept == keep) apply(kept, count), kept = 0;
    }
    if (kept) apply(kept, count);
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
    for (int m = 0; m < count; m++) {
      T* out = Vout + (int64_t)m * n * n;
      if (s.good[m] == 0) {
        failed++;
        for (int i = 0; i < n * n; i++) out[i] = (T)__builtin_nanf("");
      } else write_panels(g, m, out);
    }
    return failed;
  }
  void write_panels(int g, int m, T* out) {
    const T* end = out + (int64_t)n * n;
    const int* order = perm + m * n;
    for (int b = 0; b * W < n; b++)
      for (int j = (n - 1) / W * W; j >= 0; j -= W) {
        V r[W];
        for (int k = 0; k < W; k++) r[k] = j + k < n ? *column(g, m, b, order[j + k]) + T(0) : V{};
        transpose(r);
        for (int k = 0; k < W && b * W + k < n; k++) {
          T* to = out + (int64_t)(b * W + k) * n + j;
          if (end - to >= W) store(to, r[k]);
          else memcpy(to, &r[k], sizeof(T) * (size_t)(n - j < W ? n - j : W));
        }
      }
  }
  // Small matrices are sorted in lanes and written as whole matrices.
  int write_lanes(int g, int count, const Scale<V>& s, T* w, T* out) {
    V *d = D[g], *q = a, nan = splat<T>(__builtin_nanf(""));
    for (int i = 0; i < n; i++)
      for (int j = 0; j < n; j++) q[i * n + j] = s.good != 0 ? Q[g][i * columns + pad + j] + T(0) : nan;
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
      if (kind == small_d)
        for (int i = 0; i < n * columns; i++) Q[g][i] = V{};
      else
        for (size_t i = 0; i < (size_t)W * ((n + W - 1) / W) * columns; i++) Q[g][i] = V{};
      s[g] = kind == large_d ? reduce_single(from, count[g], g) : reduce_lanes(from, count[g], A + left * nn, g);
    }
    iterate(count);
    for (int g = 0; g < G && count[g]; g++) failed += write(g, count[g], s[g], w + g * W * n, Vout + g * W * nn);
    return failed;
  }
};

}  // namespace
}  // namespace SG_NS
