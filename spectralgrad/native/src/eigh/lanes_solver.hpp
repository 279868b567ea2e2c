// d ≥ 5: reduction to tridiagonal form (tridiagonal.hpp), QL iteration in lockstep (ql.hpp), rotations recorded and
// applied later in wavefronts (recorded_sweeps.hpp), sorting (simd/sorting.hpp).
// Three variants of this pipeline:
//   small   everything with one matrix per lane;
//   medium  reduction and QL with one matrix per lane, rotations one matrix at a time: a matrix is then rotated by its
//           own sweeps only, and its Q stays in the first-level cache;
//   large   as medium, but with the reduction one matrix at a time as well, because W matrices no longer fit the cache.
// Without vectors, the reduction is followed by the iteration alone, one matrix per lane.
#pragma once
#include "real_or_complex.hpp"
#include "ql.hpp"
#include "recorded_sweeps.hpp"
#include "interleaved.hpp"

namespace SG_NS {
namespace {

// From this size on the eigenvalues are computed first and used as shifts (ql.hpp).
constexpr int known_from = 12;

enum Variant { small_d, medium_d, large_d };

template <class Field, int G> struct Solver {
  typedef typename Field::T T;
  typedef Vec<T> V;
  static constexpr int W = Simd<T>::W, pad = Basis<T>::pad, NV = 4, parts = Field::parts;
  typedef Lanes<T> LM;
  typedef Single<T> SM;

  Variant kind;
  bool vectors;
  int n, ld;
  V *a, *z, *work, *D[G], *E[G], *L[G], *S[G], *Tn[G];
  Basis<T> Q[G];
  Replay<T, G> replay;
  V *tau, *extra;
  T *factor, *flat;
  T limit;  // on the asymmetry, if it is not negative
  int* perm;

  static Variant variant(int n) {
    if (n <= Field::small_up_to) return small_d;
    return n <= Field::medium_up_to && n <= Field::lanes_times * W ? medium_d : large_d;
  }

  size_t layout(int size, bool with_vectors, char* base) {
    Arena m{base, 0};
    n = size;
    kind = variant(n);
    vectors = with_vectors;
    const int rows = (n + W - 1) / W;
    ld = kind == large_d ? rows : (n + LM::block - 1) / LM::block * LM::block;
    a = m.take<V>((size_t)n * ld * parts + W);
    z = m.take<V>((size_t)rows * W * NV * parts);
    work = m.take<V>(3 * (size_t)ld * parts + W);
    tau = m.take<V>(n);
    extra = m.take<V>((size_t)n * Field::extra);
    for (int g = 0; g < G; g++) {
      D[g] = shifted(m.take<V>(n + 2), 1);
      E[g] = shifted(m.take<V>(n + 2), 1);
    }
    if (vectors) layout_vectors(m);
    return m.used;
  }
  void layout_vectors(Arena& m) {
    replay.layout(m, n, kind == small_d);
    const size_t recorded = (size_t)replay.keep * replay.record;
    for (int g = 0; g < G; g++) {
      L[g] = shifted(m.take<V>(n + 2), 1);
      S[g] = m.take<V>(recorded);
      Tn[g] = m.take<V>(recorded);
      Q[g].q = m.take<V>(Q[g].shape(parts * n, n, kind == small_d));
    }
    factor = m.take<T>(n);
    perm = m.take<int>((size_t)W * n);
    flat = m.take<T>(parts > 1 && kind != small_d ? (size_t)parts * n * n : 0);
  }
  static V* shifted(V* p, int k) { return p ? p + k : p; }

  // ---- reduction ----
  Scale<V> reduce_lanes(const T* A, int count, const T* end, int g) {
    Scale<V> s = Field::load_group(A, count, end, n, a, ld, limit, work);
    Field::template reduce<LM>(a, ld, n, D[g], E[g], tau, extra, work);
    E[g][n - 1] = V{};
    if (!vectors) return s;
    Field::template prepare<LM>(a, ld, n, extra);
    for (int j = 0; j < n; j += NV) {
      Field::template columns<LM, NV>(a, ld, n, tau, extra, j, z);
      for (int c = 0; c < NV && j + c < n; c++) Q[g].take(z + c, NV, j + c, count);
    }
    return s;
  }
  Scale<V> reduce_single(const T* A, int count, int g) {
    V largest = {}, poison = {};
    const int64_t size = (int64_t)n * n * parts;
    for (int m = 0; m < count; m++) Field::survey_one(A + m * size, n, limit, largest, poison, m);
    Scale<V> s = scale_of<T>(largest, poison);
    for (int m = 0; m < count; m++) reduce_one(A + m * size, s, g, m);
    for (int i = 0; i < n; i++)
      for (int m = count; m < W; m++) D[g][i][m] = E[g][i][m] = 0;
    E[g][n - 1] = V{};
    return s;
  }
  void reduce_one(const T* A, const Scale<V>& s, int g, int m) {
    Field::load_one(A, s, m, n, a, ld);
    T *d = (T*)z, *e = d + n, *t = (T*)tau, *more = (T*)extra;
    Field::template reduce<SM>(a, ld, n, d, e, t, more, work);
    for (int i = 0; i < n; i++) {
      D[g][i][m] = d[i];
      E[g][i][m] = i < n - 1 ? e[i] : T(0);
    }
    if (!vectors) return;
    Field::template prepare<SM>(a, ld, n, more);
    for (int j = 0; j < n; j += NV * W) {
      Field::template columns<SM, NV>(a, ld, n, t, more, j, z);
      for (int c = 0; c < NV && j + c * W < n; c++) Q[g].take_single(z + c, NV, m, j + c * W, 1);
    }
  }

  // ---- iteration ----
  // Lanes that did not converge are left with a nonzero E. The limit, 30 sweeps per eigenvalue, is STEQR's.
  void iterate(const int* count) {
    QL<T, G> ql;
    for (int g = 0; g < G; g++) ql.known[g] = nullptr;
    if (vectors && n >= known_from) {
      for (int g = 0; g < G; g++) {
        ql.D[g] = L[g];
        ql.E[g] = S[g] + 1;
        for (int i = 0; i < n; i++) {
          ql.D[g][i] = D[g][i];
          ql.E[g][i] = E[g][i];
        }
      }
      ql.start(n);
      for (int k = 0; k < 30 * n && ql.prepare(); k++) ql.template sweep<false>(nullptr, nullptr, 0);
      for (int g = 0; g < G; g++) ql.known[g] = L[g];
    }
    for (int g = 0; g < G; g++) {
      ql.D[g] = D[g];
      ql.E[g] = E[g];
    }
    ql.start(n);
    if (vectors) record_and_apply(ql, count);
    else
      for (int k = 0; k < 30 * n && ql.prepare(); k++) ql.template sweep<false>(nullptr, nullptr, 0);
  }
  void record_and_apply(QL<T, G>& ql, const int* count) {
    V *s[G], *t[G];
    int kept = 0;
    for (int k = 0; k < 30 * n && ql.prepare(); k++) {
      for (int g = 0; g < G; g++) {
        s[g] = S[g] + kept * replay.record + pad;
        t[g] = Tn[g] + kept * replay.record + pad;
      }
      replay.note(kept, ql);
      ql.template sweep<true>(s, t, pad);
      if (++kept == replay.keep) {
        apply(kept, count);
        kept = 0;
      }
    }
    if (kept) apply(kept, count);
  }
  void apply(int sweeps, const int* count) {
    for (int g = 0; g < G && count[g]; g++) replay.apply(Q[g], S[g], Tn[g], g, count[g], sweeps);
  }

  // ---- sort and write ----
  // Returns the number of matrices that failed.
  int write(int g, int count, Scale<V> s, T* w, T* Vout) {
    V stuck = {};
    for (int i = 0; i < n; i++) stuck = E[g][i] != 0 ? splat<T>(1) : stuck;
    s.good = stuck != 0 ? V{} : s.good;
    int failed = 0;
    for (int m = 0; m < count; m++) failed += s.good[m] == 0;
    if (!vectors) {
      sort_values<T>(D[g], n);
      write_values(D[g], count, s, w);
    } else if (kind == small_d) write_lanes(g, count, s, w, Vout);
    else write_single(g, count, s, w, Vout);
    return failed;
  }
  void write_single(int g, int count, const Scale<V>& s, T* w, T* Vout) {
    Mask<T>* rank = (Mask<T>*)S[g];
    ranks<T>(D[g], n, rank);
    for (int i = 0; i < n; i++) {
      V value = unscaled<T>(D[g][i], s);
      for (int m = 0; m < count; m++) {
        int r = (int)rank[i][m];
        w[m * n + r] = value[m];
        perm[m * n + r] = i;
      }
    }
    for (int i = 0; i < n; i++) factor[i] = 1;
    for (int m = 0; m < count; m++) {
      T* out = Vout + (int64_t)m * n * n * parts;
      if (s.good[m] != 0) Field::write(Q[g], m, perm + m * n, factor, out, flat);
      else
        for (int i = 0; i < n * n * parts; i++) out[i] = (T)__builtin_nanf("");
    }
  }
  // Small matrices are sorted in lanes and written as whole matrices.
  void write_lanes(int g, int count, const Scale<V>& s, T* w, T* out) {
    V *q = a, nan = splat<T>(__builtin_nanf(""));
    const int size = n * n * parts;
    for (int i = 0; i < n; i++)
      for (int j = 0; j < n; j++)
        for (int c = 0; c < parts; c++)
          q[(i * n + j) * parts + c] = s.good != 0 ? Q[g].q[(i * parts + c) * Q[g].columns + pad + j] + T(0) : nan;
    sort_lanes<T, parts>(D[g], q, n);
    scatter(q, out, size, count, out + (int64_t)count * size, size);
    write_values(D[g], count, s, w);
  }
  void write_values(const V* d, int count, const Scale<V>& s, T* w) {
    for (int i = 0; i < n; i++) z[i] = unscaled<T>(d[i], s);
    scatter(z, w, n, count, w + (int64_t)count * n, n);
  }

  // Decomposes up to G·W matrices. left: the number of matrices from A to the end of the batch, which limits vector
  // loads. Returns the number of matrices that failed.
  int solve(const T* A, T* w, T* Vout, int total, int64_t left) {
    Scale<V> s[G];
    const int64_t nn = (int64_t)n * n * parts;
    auto reduce = [&](int g, int count) {
      for (int i = 0; !count && i < n; i++) D[g][i] = E[g][i] = V{};
      if (!count) return;
      const T* from = A + g * W * nn;
      if (vectors) Q[g].clear();
      s[g] = kind == large_d ? reduce_single(from, count, g) : reduce_lanes(from, count, A + left * nn, g);
    };
    return in_groups<G, W>(
        total, reduce, [&](const int* count) { iterate(count); },
        [&](int g, int count) { return write(g, count, s[g], w + g * W * n, Vout + g * W * nn); });
  }
};

}  // namespace
}  // namespace SG_NS
