// d ≤ 4: the cyclic Jacobi method (Golub & Van Loan, Matrix Computations, 4th ed., section 8.5), one matrix per lane,
// the whole matrix in registers. A sweep rotates every pair once; pairs that do not share an index are independent, so
// the latencies of their square roots and divisions overlap.
#pragma once
#include "../simd/sorting.hpp"

namespace SG_NS {
namespace {

template <class T, int N> struct Jacobi {
  typedef Vec<T> V;
  V a[N][N], v[N][N];  // a: lower triangle only

  SG_INLINE V& at(int i, int j) { return i > j ? a[i][j] : a[j][i]; }

  // tan θ = 2a_pq / (δ ± √(δ² + 4a_pq²)), δ = a_qq − a_pp, with the sign that makes it the smaller root, so that
  // |θ| ≤ π/4. Lanes that have converged have off = 0 here, hence t = s = 0 and c = 1: nothing changes in them, so
  // results do not depend on the other lanes. `tiny` only avoids 0/0.
  SG_INLINE void rotate(int p, int q, Mask<T> active) {
    V off = active ? at(p, q) : V{}, delta = a[q][q] - a[p][p], twice = off + off;
    V root = vsqrt(delta * delta + twice * twice);
    V t = twice / vmax<T>(vabs<T>(delta) + root, splat<T>(Simd<T>::tiny));
    t = flip<T>(t, signs<T>(delta));
    V c = T(1) / vsqrt(t * t + T(1)), s = t * c;
    a[p][p] -= t * off;
    a[q][q] += t * off;
    at(p, q) = active ? V{} : at(p, q);
    for (int k = 0; k < N; k++)
      if (k != p && k != q) turn(at(k, p), at(k, q), c, s);
    for (int k = 0; k < N; k++) turn(v[k][p], v[k][q], c, s);
  }
  static SG_INLINE void turn(V& x, V& y, V c, V s) {
    V z = c * x - s * y;
    y = s * x + c * y;
    x = z;
  }

  // The largest entry is between 1 and 4 after scaling. Off-diagonal entries up to eps/16 change the eigenvalues by at
  // most 3·eps/16, less than half a unit in the last place of 1.
  SG_INLINE Mask<T> unfinished() {
    V off = {};
    for (int i = 1; i < N; i++)
      for (int j = 0; j < i; j++) off = vmax<T>(off, vabs<T>(a[i][j]));
    return off > Simd<T>::eps / 16;
  }

  SG_INLINE void sweep(Mask<T> m) {
    if constexpr (N == 2) rotate(0, 1, m);
    if constexpr (N == 3) {
      rotate(0, 1, m);
      rotate(0, 2, m);
      rotate(1, 2, m);
    }
    if constexpr (N == 4) {
      rotate(0, 1, m);
      rotate(2, 3, m);
      rotate(0, 2, m);
      rotate(1, 3, m);
      rotate(0, 3, m);
      rotate(1, 2, m);
    }
  }

  SG_INLINE void sort() {
    for (int end = N - 1; end > 0; end--)
      for (int i = 0; i < end; i++) {
        Mask<T> wrong = a[i + 1][i + 1] < a[i][i];
        swap_if(wrong, a[i][i], a[i + 1][i + 1]);
        for (int k = 0; k < N; k++) swap_if(wrong, v[k][i], v[k][i + 1]);
      }
  }

  SG_INLINE Scale<V> start(const V* in, T limit) {
    V largest = {}, poison = {}, most = {}, bad = {};
    for (int i = 0; i < N; i++)
      for (int j = 0; j <= i; j++) {
        largest = vmax<T>(vabs<T>(in[i * N + j]), largest);
        poison += in[i * N + j] * T(0);
      }
    for (int i = 1; limit >= 0 && i < N; i++)
      for (int j = 0; j < i; j++) {
        const V x = in[i * N + j] - in[j * N + i];
        most = vmax<T>(vabs<T>(x), most);
        bad += x * T(0);
      }
    if (limit >= 0) poison = refused<T>(poison, most, bad, largest, limit);
    Scale<V> s = scale_of<T>(largest, poison);
    for (int i = 0; i < N; i++)
      for (int j = 0; j < N; j++) {
        if (j <= i) a[i][j] = scaled<T>(in[i * N + j], s);
        v[i][j] = splat<T>(i == j);
      }
    return s;
  }
};

// One group of up to W matrices of size N. Matrices that are not finite, or not diagonal after 16 sweeps, get NaN.
// `limit` is that on the asymmetry, if it is not negative.
template <class T, int N> void jacobi_group(const T* A, T* w, T* V, int count, int left, T limit) {
  constexpr int W = Simd<T>::W, padded = (N * N + W - 1) / W * W;
  Vec<T> io[padded + W], values[(N + W - 1) / W * W] = {};
  SG_HERE gather(A, N * N, count, A + (int64_t)left * N * N, N * N, io);
  Jacobi<T, N> J;
  Scale<Vec<T>> s = J.start(io, limit);
  Mask<T> busy = J.unfinished();
  for (int k = 0; k < 16 && any(busy); k++, busy = J.unfinished()) J.sweep(busy);
  s.good = busy ? Vec<T>{} : s.good;
  J.sort();
  Vec<T> nan = splat<T>(__builtin_nanf(""));
  for (int i = 0; i < N; i++) {
    values[i] = unscaled<T>(J.a[i][i], s);
    for (int j = 0; j < N; j++) io[i * N + j] = s.good != 0 ? J.v[i][j] + T(0) : nan;
  }
  SG_HERE scatter(io, V, N * N, count, V + (int64_t)count * N * N, N * N);
  SG_HERE scatter(values, w, N, count, w + (int64_t)count * N, N);
}

}  // namespace
}  // namespace SG_NS
