// The polar factor from the singular value decomposition M = U S Vᵀ of m × n matrices, m ≥ n: Q = U D Vᵀ, and the
// eigenvalues h = D S of the other factor V diag(h) Vᵀ = QᵀM. D is the identity or, for the nearest rotation,
// diag(1, …, 1, det U det V). autograd/polar/factor.py has the derivation. Q holds U before.
#pragma once
#include <limits>

#include "../gradients/svd_gradient.hpp"

namespace SG_NS {
namespace {

using sg::PolarTask;

// True if the determinant of an n × n matrix is negative, by elimination with pivots. The matrix is destroyed.
template <class T> bool mirrors(T* A, int n) {
  bool negative = false;
  for (int k = 0; k < n; k++) {
    int pivot = k;
    for (int i = k + 1; i < n; i++)
      if (std::fabs(A[i * n + k]) > std::fabs(A[pivot * n + k])) pivot = i;
    for (int j = k; pivot != k && j < n; j++) {
      const T other = A[k * n + j];
      A[k * n + j] = A[pivot * n + j];
      A[pivot * n + j] = other;
    }
    const T top = A[k * n + k];
    negative ^= (pivot != k) ^ (top < 0);
    for (int i = k + 1; top != 0 && i < n; i++) {
      const T share = A[i * n + k] / top;
      for (int j = k + 1; j < n; j++) A[i * n + j] -= share * A[k * n + j];
    }
  }
  return negative;
}

// h ← D S, with zero for what is negligible. For rotations the last one is the negative of the one before it if their
// sum is negligible, so that it has no weight in derivatives. NaN remains NaN.
template <class T> void weigh_eigenvalues(T* h, int n, bool mirrored, const PolarTask<T>& t) {
  const T least = t.rtol * h[0];
  for (int i = 0; i < n; i++)
    if (h[i] <= least) h[i] = 0;
  if (mirrored) h[n - 1] = -h[n - 1];
  if (t.special && n > 1 && h[n - 2] + h[n - 1] <= least) h[n - 1] = -h[n - 2];
}

template <class T> size_t polar_work(int64_t m, int64_t n) {
  constexpr int64_t W = Simd<T>::W;
  const int64_t ln = (n + W - 1) / W;
  const int64_t lanes = 2 * m * n + n * n + 3 * W, whole = (2 * m + n) * ln + n * n / W + 1;
  return sizeof(Vec<T>) * (size_t)(gradient_in_lanes(m, n) ? lanes : whole) + 2 * sizeof(T) * (size_t)(n * n);
}

template <class T> struct Polar {
  typedef Vec<T> V;
  static constexpr int W = Simd<T>::W;
  const PolarTask<T>& t;
  const int m, n;

  explicit Polar(const PolarTask<T>& task) : t(task), m(task.m), n(task.n) {}

  // True if U Vᵀ of matrix `at` is no rotation, but one is wanted.
  bool mirrored(int64_t at, T* copy) const {
    if (!t.special) return false;
    const size_t size = sizeof(T) * (size_t)(n * n);
    memcpy(copy, t.Q + at * n * n, size);
    const bool left = mirrors(copy, n);
    memcpy(copy, t.Vh + at * n * n, size);
    return left != mirrors(copy, n);
  }
  void in_lanes(int64_t first, int count) const {
    V *u = (V*)t.work, *out = u + m * n + W, *v = out + m * n + W, sign = splat<T>(1);
    T* copy = (T*)(v + n * n + W);
    T* Q = t.Q + first * m * n;
    for (int k = 0; k < count; k++) {
      const bool negative = mirrored(first + k, copy);
      if (negative) sign[k] = -1;
      weigh_eigenvalues(t.h + (first + k) * n, n, negative, t);
    }
    gather(Q, m * n, count, t.Q + t.batch * m * n, m * n, u);
    gather(t.Vh + first * n * n, n * n, count, t.Vh + t.batch * n * n, n * n, v);
    for (int i = 0; t.special && i < m; i++) u[i * n + n - 1] *= sign;
    LaneGradient<T>::product(m, n, n, u, n, 1, v, n, 1, out, [](int, int) { return V{}; });
    scatter(out, Q, m * n, count, Q + (int64_t)count * m * n, m * n);
  }
  void whole(int64_t at) const {
    const int ln = (n + W - 1) / W;
    V *u = (V*)t.work, *out = u + m * ln, *v = out + m * ln;
    T *copy = (T*)(v + n * ln), *Q = t.Q + at * m * n;
    const bool negative = mirrored(at, copy);
    read_rows<T>(Q, m, n, ln, u);
    read_rows<T>(t.Vh + at * n * n, n, n, ln, v);
    for (int i = 0; negative && i < m; i++) ((T*)(u + i * ln))[n - 1] *= -1;
    WholeGradient<T>::product(m, n, u, ln * W, 1, v, ln, out);
    write_rows<T>(out, m, n, ln, Q);
    weigh_eigenvalues(t.h + at * n, n, negative, t);
  }
};

template <class T> void polar(const PolarTask<T>& t) {
  constexpr int W = Simd<T>::W;
  const Polar<T> p(t);
  if (!gradient_in_lanes(t.m, t.n)) {
    for (int k = 0; k < t.count; k++) p.whole(t.first + k);
    return;
  }
  for (int k = 0; k < t.count; k += W) p.in_lanes(t.first + k, t.count - k < W ? t.count - k : W);
}

}  // namespace
}  // namespace SG_NS
