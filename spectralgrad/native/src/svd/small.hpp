// Singular value decompositions of matrices with up to five rows or columns, by jacobi.hpp: with one matrix per lane,
// and, for long matrices one at a time, after a QR decomposition.
#pragma once
#include "bidiagonal.hpp"
#include "tasks.hpp"
#include "jacobi.hpp"

namespace SG_NS {
namespace {

template <class T> size_t small_svd_work(int64_t m, int64_t n) {
  const int64_t k = smaller(m, n), rows = m + n - k;
  return (size_t)((4 * k + 1) * rows + 2 * Simd<T>::W) * sizeof(Vec<T>);
}

template <class T, int N> void small_group(const SvdPointers<T>& g, int m, bool wide, int count, int64_t left,
                                           Vec<T>* work) {
  if (N == 2 && m == 2) two_by_two_group<T>(g, count, left, work);
  else if (m == N) one_sided_group<T, N, N>(g, m, wide, count, left, work);
  else one_sided_group<T, N, 0>(g, m, wide, count, left, work);
}

// min(m, n) ≤ 5, one group of W after another.
template <class T> int small_svd(const SvdTask<T>& t) {
  constexpr int W = Simd<T>::W;
  const bool wide = t.m < t.n;
  const int n = wide ? t.m : t.n, m = wide ? t.n : t.m;
  int failed = 0;
  for (int k = 0; k < t.count; k += W) {
    const int64_t at = t.first + k, left = t.batch - at;
    const int count = t.count - k < W ? t.count - k : W;
    SvdPointers<T> g{t.A + at * m * n, t.U ? t.U + at * t.m * n : nullptr, t.S + at * n,
                     t.Vh ? t.Vh + at * n * t.n : nullptr};
    Vec<T>* work = (Vec<T>*)t.work;
    if (n == 1) small_group<T, 1>(g, m, wide, count, left, work);
    if (n == 2) small_group<T, 2>(g, m, wide, count, left, work);
    if (n == 3) small_group<T, 3>(g, m, wide, count, left, work);
    if (n == 4) small_group<T, 4>(g, m, wide, count, left, work);
    if (n == 5) small_group<T, 5>(g, m, wide, count, left, work);
    for (int i = 0; i < count; i++) failed += g.S[(int64_t)i * n] != g.S[(int64_t)i * n];
  }
  return failed;
}

// A long matrix A = Q R and the decomposition of R, whose singular values are as accurate as A's, relative to
// themselves: each column is scaled by a power of two for the QR decomposition, so that none is negligible.
template <class T> struct ThinSvd {
  typedef Vec<T> V;
  typedef Single<T> SM;
  static constexpr int W = Simd<T>::W, most = svd_jacobi_up_to;
  int m, n, ld;
  bool wide;
  V *a, *z;  // the columns of A, later the reflectors; the columns of Q times the left vectors of R
  T R[most * most], left[most * most], right[most * most], tau[most];

  size_t layout(int rows, int cols, char* base) {
    Arena mem{base, 0};
    wide = rows < cols;
    m = wide ? cols : rows;
    n = wide ? rows : cols;
    ld = (m + W - 1) / W;
    a = mem.take<V>((size_t)n * ld);
    z = mem.take<V>((size_t)ld);
    return mem.used + small_svd_work<T>(n, n);
  }
  T* column(int j) const { return (T*)(a + j * ld); }

  // Column j scaled to a largest entry in [1/2, 1), or near it at the ends of the range; returns the exponent of two
  // that undoes it.
  int load(const T* A, int j) {
    T *to = column(j), largest = 0;
    const int64_t step = wide ? 1 : n;
    const T* from = A + (wide ? (int64_t)j * m : j);
    for (int i = 0; i < m; i++) {
      to[i] = from[i * step];
      const T size = magnitude(to[i]);
      largest = size > largest ? size : largest;
    }
    for (int i = m; i < ld * W; i++) to[i] = 0;
    int exponent = 0;
    constexpr int limit = sizeof(T) == 4 ? 120 : 1000;
    (void)__builtin_frexp((double)largest, &exponent);
    exponent = exponent > limit ? limit : exponent < -limit ? -limit : exponent;
    const V scale = splat<T>((T)__builtin_ldexp(1.0, -exponent));
    for (int i = 0; i < ld; i++) a[j * ld + i] *= scale;
    return exponent;
  }
  // Reflector k applied to the column x.
  void reflect_column(int k, V* x) const {
    const V s = splat<T>(tau[k] * dot<SM>(a + k * ld, x, k / W, ld));
    for (int i = k / W; i < ld; i++) x[i] -= s * a[k * ld + i];
  }
  // R divided by a power of two, which is returned: R itself may overflow where A does not.
  T triangularise(const T* A) {
    int exponents[most], largest;
    T back[most];
    for (int j = 0; j < n; j++) {
      exponents[j] = load(A, j);
      largest = j && exponents[j] < largest ? largest : exponents[j];
    }
    for (int j = 0; j < n; j++) back[j] = (T)__builtin_ldexp(1.0, exponents[j] - largest);
    for (int k = 0; k < n; k++) {
      for (int i = 0; i < n; i++) R[i * n + k] = i < k ? column(k)[i] * back[k] : T(0);
      for (int i = 0; i < k; i++) column(k)[i] = 0;
      tau[k] = reflector<SM>(a + k * ld, k, k / W, ld, R[k * n + k]);
      R[k * n + k] *= back[k];
      for (int j = k + 1; j < n; j++) reflect_column(k, a + j * ld);
    }
    return (T)__builtin_ldexp(1.0, largest);
  }
  // Left vector r of the tall matrix: Q times R's.
  void form(int r) {
    for (int i = 0; i < ld; i++) z[i] = V{};
    for (int i = 0; i < n; i++) ((T*)z)[i] = left[i * n + r];
    for (int k = n - 1; k >= 0; k--) reflect_column(k, z);
  }
  int solve(const T* A, T* U, T* S, T* Vh, void* work) {
    V largest = {}, poison = {};
    survey(A, (int64_t)m * n, largest, poison, 0);
    const T scale = triangularise(A);
    const SvdTask<T> inner{{1, 0, 1, work}, R, U ? left : nullptr, S, U ? right : nullptr, n, n};
    const int failed = poison[0] == 0 ? small_svd(inner) : 1;
    const T bad = failed ? (T)__builtin_nanf("") : T(0);
    for (int r = 0; r < n; r++) S[r] = failed ? bad : S[r] * scale;
    for (int r = 0; U && r < n; r++) {
      if (!failed) form(r);
      T* to = wide ? Vh + (int64_t)r * m : U + r;
      for (int i = 0; i < m; i++) to[(int64_t)i * (wide ? 1 : n)] = failed ? bad : ((const T*)z)[i] + T(0);
      for (int c = 0; c < n; c++) (wide ? U[c * n + r] : Vh[r * n + c]) = failed ? bad : right[r * n + c];
    }
    return failed;
  }
};

template <class T> size_t thin_svd_work(int64_t m, int64_t n) { return ThinSvd<T>{}.layout((int)m, (int)n, nullptr); }
template <class T> int thin_svd(const SvdTask<T>& t) {
  ThinSvd<T> s;
  char* rest = (char*)t.work + s.layout(t.m, t.n, (char*)t.work) - small_svd_work<T>(s.n, s.n);
  int failed = 0;
  for (int64_t k = t.first; k < t.first + t.count; k++) {
    const SvdOutput<T> out = results<General<T>>(t, k);
    failed += s.solve(t.A + k * t.m * t.n, out.U, out.S, out.Vh, rest);
  }
  return failed;
}

}  // namespace
}  // namespace SG_NS
