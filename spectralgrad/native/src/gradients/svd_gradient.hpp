// The derivative of the singular value decomposition: the gradient of a loss with respect to M = U S Vᵀ (m × n) from
// its gradients Ū, s̄, V̄ with respect to the factors. autograd/singular/vectors.py has the derivation.
//
// With P = UᵀŪ, Q = VᵀV̄, J = (P + Q)/2, a matrix K in place of 1/(s_i − s_j), and D = diag(1/s),
//   C_ij = K_ji J_ij + K_ij J_ji + ((P − Q)_ij − (P − Q)_ji)/(2 (s_i + s_j)) + δ_ij s̄_i,
//   M̄ = U C Vᵀ + (Ū − U P) D Vᵀ + U D (V̄ − V Q)ᵀ,
// where the second term vanishes for m ≤ n and the third for m ≥ n. So M̄ = (U (C − P D) + Ū D) Vᵀ for tall matrices
// and U ((C − D Qᵀ) Vᵀ + D V̄ᵀ) for wide ones. For a loss of the values alone, M̄ = U diag(s̄) Vᵀ. svd_coupling.hpp
// computes C. Small matrices are processed one per lane, larger ones one at a time.
#pragma once
#include "matrix_functions.hpp"
#include "svd_coupling.hpp"

namespace SG_NS {
namespace {

constexpr int gradient_lanes_up_to = 128;  // entries of a matrix

// ---- one matrix per lane: entry (i, j) of all matrices is one vector ----
template <class T> struct LaneGradient {
  typedef Vec<T> V;
  static constexpr int W = Simd<T>::W;
  const SvdGradient<T>& t;
  int m, n, k, count;
  int64_t first;
  V *u, *v, *s;      // U, Vᵀ and the singular values
  V *gu, *gv, *gs;   // Ū, V̄ᵀ and s̄; `core` multiplies Ū of tall matrices and V̄ᵀ of wide ones by D
  V* norm;           // ‖ū‖ + ‖v̄‖ of each pair of columns
  V *p, *q, *c, *K;  // P, Q, C and K
  V *x, *out;        // the product before the last, M̄

  static size_t bytes(int64_t m, int64_t n) {
    const int64_t k = m < n ? m : n;
    return sizeof(V) * (size_t)(2 * (m + n) * k + 4 * k * k + 2 * m * n + 3 * k + 13 * W);
  }
  LaneGradient(const SvdGradient<T>& task) : t(task), m(task.m), n(task.n), k(m < n ? m : n) {
    V* at = (V*)t.work;
    auto take = [&](int size) {  // gather fills whole vectors
      at += size + W;
      return at - size - W;
    };
    u = take(m * k);
    gu = take(m * k);
    v = take(k * n);
    gv = take(k * n);
    p = take(k * k);
    q = take(k * k);
    c = take(k * k);
    K = take(k * k);
    x = take(m * n);
    out = take(m * n);
    s = take(k);
    gs = take(k);
    norm = take(k);
  }
  void read(const T* from, int size, V* to) const {
    if (from) gather(from + first * size, size, count, from + t.batch * size, size, to);
    for (int i = 0; !from && i < size; i++) to[i] = V{};
  }
  // out_ij = start(i, j) + Σ_l a[i·ai + l·al] b[l·bl + j·bj]
  template <class Start>
  static SG_INLINE void product(int rows, int inner, int cols, const V* a, int ai, int al, const V* b, int bl, int bj,
                                V* out, Start start) {
    constexpr int C = 3;
    for (int i = 0; i < rows; i++) {
      int j = 0;
      for (; j + C <= cols; j += C) {
        V sum[C];
        for (int e = 0; e < C; e++) sum[e] = start(i, j + e);
        for (int l = 0; l < inner; l++)
          for (int e = 0; e < C; e++) sum[e] += a[i * ai + l * al] * b[l * bl + (j + e) * bj];
        for (int e = 0; e < C; e++) out[i * cols + j + e] = sum[e];
      }
      for (; j < cols; j++) {
        V sum = start(i, j);
        for (int l = 0; l < inner; l++) sum += a[i * ai + l * al] * b[l * bl + j * bj];
        out[i * cols + j] = sum;
      }
    }
  }
  void core() {
    const Core<T> f(t, k, s[0]);
    for (int i = 0; i < k; i++) {
      Norm<T> left, right;
      for (int r = 0; r < m; r++) left.add(gu[r * k + i]);
      for (int r = 0; r < n; r++) right.add(gv[i * n + r]);
      norm[i] = left.root() + right.root();
    }
    for (int i = 0; i < k; i++) {
      c[i * k + i] = gs[i];
      for (int j = 0; j < i; j++) {
        const int ij = i * k + j, ji = j * k + i;
        const V Kij = t.K ? K[ij] : f.gap(s[i], s[j]), Kji = t.K ? K[ji] : -Kij, norms = norm[i] + norm[j];
        c[ij] = f.entry(s[i], s[j], Kij, Kji, p[ij], p[ji], q[ij], q[ji], norms);
        c[ji] = f.entry(s[j], s[i], Kji, Kij, p[ji], p[ij], q[ji], q[ij], norms);
      }
    }
    for (int i = 0; m != n && i < k; i++) {
      const V inverse = f.inverse(s[i]);
      for (int j = 0; j < k; j++)
        if (m > n) c[j * k + i] -= f.capped(p[j * k + i] * inverse);
        else c[i * k + j] -= f.capped(q[j * k + i] * inverse);
      for (int r = 0; r < m && m > n; r++) gu[r * k + i] = f.capped(gu[r * k + i] * inverse);
      for (int r = 0; r < n && m < n; r++) gv[i * n + r] = f.capped(gv[i * n + r] * inverse);
    }
  }
  void run(int64_t at, int matrices) {
    first = at;
    count = matrices;
    read(t.U, m * k, u);
    read(t.gU, m * k, gu);
    read(t.Vh, k * n, v);
    read(t.gVh, k * n, gv);
    read(t.S, k, s);
    read(t.gS, k, gs);
    if (t.K) read(t.K, k * k, K);
    auto zero = [](int, int) { return V{}; };
    const bool vectors = t.gU || t.gVh;
    if (vectors) {
      product(k, m, k, u, 1, k, gu, k, 1, p, zero);
      product(k, n, k, v, n, 1, gv, 1, n, q, zero);
      core();
    }
    if (!vectors) {
      for (int e = 0; e < m * k; e++) u[e] *= gs[e % k];
      product(m, k, n, u, k, 1, v, n, 1, out, zero);
    } else if (m >= n) {
      product(m, k, k, u, k, 1, c, k, 1, x, [&](int i, int j) { return m > n ? gu[i * k + j] : V{}; });
      product(m, k, n, x, k, 1, v, n, 1, out, zero);
    } else {
      product(k, k, n, c, k, 1, v, n, 1, x, [&](int i, int j) { return gv[i * n + j]; });
      product(m, k, n, u, k, 1, x, n, 1, out, zero);
    }
    T* to = t.gM + first * m * n;
    scatter(out, to, m * n, count, to + (int64_t)count * m * n, m * n);
  }
};

// ---- one matrix at a time, rows padded with zeros to whole vectors ----
template <class T> struct WholeGradient {
  typedef Vec<T> V;
  static constexpr int W = Simd<T>::W;
  const SvdGradient<T>& t;
  int m, n, k, ln, lk;      // ln, lk: vectors of a row of n, of k entries
  V *u, *v, *s;             // U, Vᵀ and the singular values
  V *gu, *gvh, *gv, *gs;    // Ū, V̄ᵀ, V̄, and s̄ for a loss of the values alone
  V *norm, *inverse;        // ‖ū‖ + ‖v̄‖ of each pair of columns, 1/s
  V *p, *pt, *q, *qt;       // P, Q and their transposes
  V *c, *K, *Kt, *x, *out;  // C, K and its transpose, the product before the last, M̄

  static size_t bytes(int64_t m, int64_t n) {
    const int64_t k = m < n ? m : n, lk = (k + W - 1) / W, ln = (n + W - 1) / W;
    return sizeof(V) * (size_t)((3 * m + ln * W + 7 * lk * W + 4) * lk + (3 * k + m) * ln);
  }
  WholeGradient(const SvdGradient<T>& task) : t(task), m(task.m), n(task.n), k(m < n ? m : n) {
    ln = (n + W - 1) / W;
    lk = (k + W - 1) / W;
    V* at = (V*)t.work;
    auto take = [&](int size) {
      at += size;
      return at - size;
    };
    u = take(m * lk);
    gu = take(m * lk);
    v = take(k * ln);
    gvh = take(k * ln);
    gv = take(ln * W * lk);
    p = take(lk * W * lk);
    pt = take(lk * W * lk);
    q = take(lk * W * lk);
    qt = take(lk * W * lk);
    c = take(lk * W * lk);
    K = take(lk * W * lk);
    Kt = take(lk * W * lk);
    x = take(m >= n ? m * lk : k * ln);
    out = take(m * ln);
    s = take(lk);
    norm = take(lk);
    gs = take(lk);
    inverse = take(lk);
  }
  // c_i = Σ_l a[i·ai + l·al] b_l for rows of ld vectors.
  static void product(int rows, int inner, const V* a, int ai, int al, const V* b, int ld, V* c) {
    constexpr int R = 4, NV = 2;
    int i = 0;
    for (; i + R <= rows; i += R) {
      const T* from = (const T*)a + i * ai;
      int j = 0;
      for (; j + NV <= ld; j += NV) tile<T, R, NV>(from, ai, al, b + j, ld, inner, c + i * ld + j);
      if (j < ld && i + 2 * R <= rows && ld == 1) {
        tile<T, 2 * R, 1>(from, ai, al, b, 1, inner, c + i);
        i += R;
      } else if (j < ld) tile<T, R, 1>(from, ai, al, b + j, ld, inner, c + i * ld + j);
    }
    for (; i < rows; i++)
      for (int j = 0; j < ld; j++) tile<T, 1, 1>((const T*)a + i * ai, ai, al, b + j, ld, inner, c + i * ld + j);
  }
  void norms() {
    for (int b = 0; b < lk; b++) {
      Norm<T> left, right;
      for (int i = 0; t.gU && i < m; i++) left.add(gu[i * lk + b]);
      for (int i = 0; t.gVh && i < n; i++) right.add(gv[i * lk + b]);
      norm[b] = left.root() + right.root();
    }
  }
  // P and its transpose, or Q.
  void coupling(const T* given, int inner, const V* a, int ai, int al, const V* b, V* to, V* flipped) const {
    if (given) {
      product(k, inner, a, ai, al, b, lk, to);
      transpose_rows<T>(to, k, lk, flipped, lk);
    }
    for (int i = 0; !given && i < lk * W * lk; i++) to[i] = flipped[i] = V{};
  }
  void core(const Core<T>& f, const T* gS) {
    for (int i = 0; i < k; i++) {
      const V si = splat<T>(((T*)s)[i]), size = splat<T>(((T*)norm)[i]);
      for (int b = 0; b < lk; b++) {
        const int e = i * lk + b;
        const V Kij = t.K ? K[e] : f.gap(si, s[b]), Kji = t.K ? Kt[e] : -Kij;
        c[e] = f.entry(si, s[b], Kij, Kji, p[e], pt[e], q[e], qt[e], size + norm[b]);
      }
      ((T*)(c + i * lk))[i] = gS ? gS[i] : T(0);
    }
  }
  void run(int64_t at) {
    const T *gU = t.gU ? t.gU + at * m * k : nullptr, *gVh = t.gVh ? t.gVh + at * k * n : nullptr;
    read_rows<T>(t.U + at * m * k, m, k, lk, u);
    read_rows<T>(t.Vh + at * k * n, k, n, ln, v);
    read_rows<T>(t.S + at * k, 1, k, lk, s);
    if (!gU && !gVh) return values(at);
    if (gU) read_rows<T>(gU, m, k, lk, gu);
    if (gVh) {
      read_rows<T>(gVh, k, n, ln, gvh);
      transpose_rows<T>(gvh, k, ln, gv, lk);
    }
    if (t.K) {
      read_rows<T>(t.K + at * k * k, k, k, lk, K);
      transpose_rows<T>(K, k, lk, Kt, lk);
    }
    coupling(gU, m, u, 1, lk * W, gu, p, pt);
    coupling(gVh, n, v, ln * W, 1, gv, q, qt);
    norms();
    const Core<T> f(t, k, splat<T>(((T*)s)[0]));
    core(f, t.gS ? t.gS + at * k : nullptr);
    if (m >= n) tall(f, gU);
    else wide(f, gVh);
    put(at);
  }
  void put(int64_t at) const { write_rows<T>(out, m, n, ln, t.gM + at * m * n); }
  void values(int64_t at) {
    if (t.gS) read_rows<T>(t.gS + at * k, 1, k, lk, gs);
    for (int b = 0; !t.gS && b < lk; b++) gs[b] = V{};
    for (int e = 0; e < m * lk; e++) u[e] *= gs[e % lk];
    product(m, k, u, lk * W, 1, v, ln, out);
    put(at);
  }
  void tall(const Core<T>& f, const T* gU) {
    const bool beyond = m > n && gU;  // the part of Ū outside the span of U
    for (int b = 0; b < lk; b++) inverse[b] = f.inverse(s[b]);
    for (int e = 0; beyond && e < k * lk; e++) c[e] -= f.capped(p[e] * inverse[e % lk]);
    product(m, k, u, lk * W, 1, c, lk, x);
    for (int e = 0; beyond && e < m * lk; e++) x[e] += f.capped(gu[e] * inverse[e % lk]);
    product(m, k, x, lk * W, 1, v, ln, out);
  }
  void wide(const Core<T>& f, const T* gVh) {
    for (int b = 0; b < lk; b++) inverse[b] = f.inverse(s[b]);
    for (int e = 0; gVh && e < k * lk; e++) c[e] -= f.capped(qt[e] * ((T*)inverse)[e / lk]);
    product(k, k, c, lk * W, 1, v, ln, x);
    for (int e = 0; gVh && e < k * ln; e++) x[e] += f.capped(gvh[e] * ((T*)inverse)[e / ln]);
    product(m, k, u, lk * W, 1, x, ln, out);
  }
};

constexpr bool gradient_in_lanes(int64_t m, int64_t n) { return m * n <= gradient_lanes_up_to; }

template <class T> size_t gradient_work(int64_t m, int64_t n) {
  return gradient_in_lanes(m, n) ? LaneGradient<T>::bytes(m, n) : WholeGradient<T>::bytes(m, n);
}
template <class T> int gradient_lanes(int64_t m, int64_t n) { return gradient_in_lanes(m, n) ? Simd<T>::W : 1; }

template <class T> void svd_gradient(const SvdGradient<T>& t) {
  constexpr int W = Simd<T>::W;
  if (gradient_in_lanes(t.m, t.n)) {
    LaneGradient<T> g(t);
    for (int k = 0; k < t.count; k += W) g.run(t.first + k, t.count - k < W ? t.count - k : W);
    return;
  }
  WholeGradient<T> g(t);
  for (int k = 0; k < t.count; k++) g.run(t.first + k);
}

}  // namespace
}  // namespace SG_NS
