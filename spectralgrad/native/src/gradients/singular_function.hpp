// Functions of singular values, F = U diag(f) Vᵀ, and their derivative in a direction G (m × n), which is also the
// gradient of ⟨F, G⟩. autograd/singular/functions.py has the derivation.
//
// With P = UᵀGV, the divided differences J_ij = (f_i − f_j)/(s_i − s_j) and the ratios r_i = f_i/s_i,
//   C_ij = (J_ij + A_ij)/2 P_ij + (J_ij − A_ij)/2 P_ji,   A_ij = (f_i + f_j)/(s_i + s_j) = (s_i r_i + s_j r_j)/(s_i +
//   s_j), dF = U C Vᵀ + (GV − U P) diag(r) Vᵀ + U diag(r) (UᵀG − P Vᵀ),
// where the second term vanishes for m ≤ n and the third for m ≥ n. So dF = (U (C − P R) + GV R) Vᵀ for tall matrices
// and U ((C − R P) Vᵀ + R UᵀG) for wide ones, R = diag(r). The polar factor Q = U Vᵀ of M = Q V diag(h) Vᵀ has f = 1,
//   C_ij = (P_ij − P_ji)/(h_i + h_j),   r_i = 1/h_i,
// and zero where a denominator is zero; the last of h may be negative, with its sign in U = Q V. Small matrices are processed one per lane, larger ones one
// at a time, with the products of svd_gradient.hpp.
#pragma once
#include "singular_scalars.hpp"
#include "svd_gradient.hpp"

namespace SG_NS {
namespace {

using sg::SingularFunction;

// C_ij. The weights of both values are relative to the larger one, so that their sum cannot overflow; at s_i = s_j = 0
// the mean of the ratios is meant.
template <class T> SG_INLINE Vec<T> weighed_pair(Vec<T> J, Vec<T> si, Vec<T> sj, Vec<T> ri, Vec<T> rj, Vec<T> Pij,
                                                 Vec<T> Pji) {
  const Vec<T> larger = vmax<T>(si, sj), one = splat<T>(1);
  const Mask<T> some = larger > 0;
  const Vec<T> a = some ? si / larger : one, b = some ? sj / larger : one, A = (a * ri + b * rj) / (a + b);
  return (J + A) * T(0.5) * Pij + (J - A) * T(0.5) * Pji;
}

// 1/x, or zero for x ≤ 0.
template <class T> SG_INLINE Vec<T> inverse_of_positive(Vec<T> x) { return inverse_above<T>(x, Vec<T>{}); }

// ---- one matrix per lane; M × N matrices, of any size if M is 0 ----
template <class T, int M, int N> struct LaneSingular {
  typedef Vec<T> V;
  typedef LaneGradient<T> G;
  static constexpr int W = Simd<T>::W, K = M < N ? M : N;
  static constexpr int room(int size) { return (M ? size : gradient_lanes_up_to) + W; }  // gather fills whole vectors
  const SingularFunction<T>& t;
  V u[room(M * K)], v[room(K * N)], g[room(M * N)], p[room(K * K)], c[room(K * K)], x[room(M * N)], y[room(M * N)];
  V out[room(M * N)], s[room(K)], r[room(K)];

  LaneSingular(const SingularFunction<T>& task) : t(task) {}
  // f(s) of matrix `at` in one lane; zero if there is none.
  void values(int64_t at, int lane, bool any, int count) {
    const SingularScalar<T> f(t, t.S + (any ? at : 0) * count, count);
    for (int i = 0; i < count; i++) s[i][lane] = any ? f.value(i) * (t.factor ? t.factor[at] : T(1)) : T(0);
  }
  void differences(int64_t at, int lane, bool any, int count) {
    const SingularScalar<T> f(t, t.S + (any ? at : 0) * count, count);
    for (int i = 0; i < count; i++) {
      r[i][lane] = any ? f.ratio(i) : T(0);
      for (int j = 0; j < count; j++) c[i * count + j][lane] = any ? f.difference(i, j) : T(0);
    }
  }
  void run(int64_t first, int count) {
    const int m = M ? M : t.m, n = M ? N : t.n, k = m < n ? m : n;
    auto read = [&](const T* from, int size, V* to) {
      gather(from + first * size, size, count, from + t.batch * size, size, to);
    };
    auto zero = [](int, int) { return V{}; };
    read(t.U, m * k, t.polar ? y : u);
    read(t.Vh, k * n, v);
    if (t.polar) G::product(m, n, k, y, n, 1, v, 1, n, u, zero);
    if (!t.G) {
      if (t.f == sg::given) read(t.values, k, s);
      else
        for (int b = 0; b < W; b++) values(first + b, b, b < count, k);
      for (int i = 0; i < m; i++)
        for (int j = 0; j < k; j++) u[i * k + j] *= s[j];
      G::product(m, k, n, u, k, 1, v, n, 1, out, zero);
    } else {
      read(t.G, m * n, g);
      read(t.S, k, s);
      const bool read_all = !t.polar && t.f == sg::given;
      if (read_all) read(t.joint, k * k, c);
      if (read_all) read(t.outer, k, r);
      for (int b = 0; t.f != sg::given && b < W; b++) differences(first + b, b, b < count, k);
      for (int i = 0; t.polar && i < k; i++) r[i] = inverse_of_positive<T>(s[i]);
      if (m >= n) {
        G::product(m, n, k, g, n, 1, v, 1, n, x, zero);
        G::product(k, m, k, u, 1, k, x, k, 1, p, zero);
      } else {
        G::product(k, m, n, u, 1, k, g, n, 1, x, zero);
        G::product(k, n, k, x, n, 1, v, 1, n, p, zero);
      }
      for (int i = 0; i < k; i++)
        for (int j = 0; j < k; j++) {
          const V P = p[i * k + j];
          V core = {};
          if (t.polar) core = (P - p[j * k + i]) * inverse_of_positive<T>(s[i] + s[j]);
          else if (i == j) core = c[i * k + j] * P;
          else core = weighed_pair<T>(c[i * k + j], s[i], s[j], r[i], r[j], P, p[j * k + i]);
          c[i * k + j] = m == n ? core : core - P * r[m > n ? j : i];
        }
      if (m >= n) {
        G::product(m, k, k, u, k, 1, c, k, 1, y, [&](int i, int j) { return m > n ? x[i * k + j] * r[j] : V{}; });
        G::product(m, k, n, y, k, 1, v, n, 1, out, zero);
      } else {
        G::product(k, k, n, c, k, 1, v, n, 1, y, [&](int i, int j) { return x[i * n + j] * r[i]; });
        G::product(m, k, n, u, k, 1, y, n, 1, out, zero);
      }
    }
    T* to = t.out + first * m * n;
    scatter(out, to, m * n, count, to + (int64_t)count * m * n, m * n);
  }
};

// ---- one matrix at a time, rows padded with zeros to whole vectors ----
template <class T> struct WholeSingular {
  typedef Vec<T> V;
  typedef WholeGradient<T> G;
  static constexpr int W = Simd<T>::W;
  const SingularFunction<T>& t;
  int m, n, k, ln, lk;  // ln, lk: vectors of a row of n, of k entries
  V *u, *v, *vt, *g, *p, *pt, *c, *x, *y, *out, *s, *r;

  static size_t bytes(int64_t m, int64_t n) {
    const int64_t k = m < n ? m : n, lk = (k + W - 1) / W, ln = (n + W - 1) / W;
    return sizeof(V) * (size_t)((m + ln * W + 3 * lk * W + 2) * lk + (k + 2 * m) * ln + 2 * (m * lk + k * ln));
  }
  WholeSingular(const SingularFunction<T>& task) : t(task), m(task.m), n(task.n), k(m < n ? m : n) {
    ln = (n + W - 1) / W;
    lk = (k + W - 1) / W;
    V* at = (V*)t.work;
    auto take = [&](int size) {
      at += size;
      return at - size;
    };
    const int side = m >= n ? m * lk : k * ln;
    u = take(m * lk);
    v = take(k * ln);
    vt = take(ln * W * lk);
    g = take(m * ln);
    p = take(lk * W * lk);
    pt = take(lk * W * lk);
    c = take(lk * W * lk);
    x = take(side);
    y = take(side);
    out = take(m * ln);
    s = take(lk);
    r = take(lk);
  }
  void core() {  // C in place of J, for rectangular matrices without the part of P that the ratios multiply
    for (int i = 0; i < k; i++) {
      const V si = splat<T>(((T*)s)[i]), ri = splat<T>(((T*)r)[i]);
      const T *J = (T*)(c + i * lk), *P = (T*)(p + i * lk), diagonal = t.polar ? T(0) : J[i] * P[i];
      for (int b = 0; b < lk; b++) {
        const int e = i * lk + b;
        c[e] = t.polar ? (p[e] - pt[e]) * inverse_of_positive<T>(si + s[b])
                       : weighed_pair<T>(c[e], si, s[b], ri, r[b], p[e], pt[e]);
      }
      ((T*)(c + i * lk))[i] = diagonal;
      for (int b = 0; m != n && b < lk; b++) c[i * lk + b] -= p[i * lk + b] * (m > n ? r[b] : ri);
    }
  }
  void run(int64_t at) {
    read_rows<T>(t.U + at * m * k, m, k, lk, t.polar ? x : u);
    read_rows<T>(t.Vh + at * k * n, k, n, ln, v);
    if (t.G) derivative(at);
    else {
      if (t.f == sg::given) read_rows<T>(t.values + at * k, 1, k, lk, s);
      else {
        const SingularScalar<T> f(t, t.S + at * k, k);
        s[lk - 1] = V{};
        for (int i = 0; i < k; i++) ((T*)s)[i] = f.value(i) * (t.factor ? t.factor[at] : T(1));
      }
      for (int e = 0; e < m * lk; e++) u[e] *= s[e % lk];
      G::product(m, k, u, lk * W, 1, v, ln, out);
    }
    write_rows<T>(out, m, n, ln, t.out + at * m * n);
  }
  void derivative(int64_t at) {
    read_rows<T>(t.G + at * m * n, m, n, ln, g);
    read_rows<T>(t.S + at * k, 1, k, lk, s);
    transpose_rows<T>(v, k, ln, vt, lk);
    if (t.polar) {
      for (int b = 0; b < lk; b++) r[b] = inverse_of_positive<T>(s[b]);
      G::product(m, k, x, lk * W, 1, vt, lk, u);
    } else if (t.f == sg::given) {
      read_rows<T>(t.joint + at * k * k, k, k, lk, c);
      read_rows<T>(t.outer + at * k, 1, k, lk, r);
    } else {
      const SingularScalar<T> f(t, t.S + at * k, k);
      r[lk - 1] = V{};
      for (int i = 0; i < k; i++) {
        ((T*)r)[i] = f.ratio(i);
        c[i * lk + lk - 1] = V{};
        for (int j = 0; j < k; j++) ((T*)(c + i * lk))[j] = f.difference(i, j);
      }
    }
    if (m >= n) {
      G::product(m, n, g, ln * W, 1, vt, lk, x);
      G::product(k, m, u, 1, lk * W, x, lk, p);
    } else {
      G::product(k, m, u, 1, lk * W, g, ln, x);
      G::product(k, n, x, ln * W, 1, vt, lk, p);
    }
    transpose_rows<T>(p, k, lk, pt, lk);
    core();
    if (m >= n) {
      G::product(m, k, u, lk * W, 1, c, lk, y);
      for (int e = 0; m > n && e < m * lk; e++) y[e] += x[e] * r[e % lk];
      G::product(m, k, y, lk * W, 1, v, ln, out);
    } else {
      G::product(k, k, c, lk * W, 1, v, ln, y);
      for (int e = 0; e < k * ln; e++) y[e] += x[e] * ((T*)r)[e / ln];
      G::product(m, k, u, lk * W, 1, y, ln, out);
    }
  }
};

template <class T> size_t singular_work(int64_t m, int64_t n) {
  return gradient_in_lanes(m, n) ? 0 : WholeSingular<T>::bytes(m, n);
}

template <class T, int M, int N> void singular_in_lanes(const SingularFunction<T>& t) {
  constexpr int W = Simd<T>::W;
  LaneSingular<T, M, N> f(t);
  for (int k = 0; k < t.count; k += W) f.run(t.first + k, t.count - k < W ? t.count - k : W);
}

template <class T> void singular_function(const SingularFunction<T>& t) {
  if (t.m == 2 && t.n == 2) return singular_in_lanes<T, 2, 2>(t);
  if (t.m == 3 && t.n == 3) return singular_in_lanes<T, 3, 3>(t);
  if (gradient_in_lanes(t.m, t.n)) return singular_in_lanes<T, 0, 0>(t);
  WholeSingular<T> f(t);
  for (int k = 0; k < t.count; k++) f.run(t.first + k);
}

}  // namespace
}  // namespace SG_NS
