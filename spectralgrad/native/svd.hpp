// Singular value decompositions: which algorithm serves which size. min(m, n) ≤ 5: one-sided Jacobi, and a closed form
// for 2 × 2 (svd_jacobi.hpp); above: bidiagonalisation and QR iteration (svd_iterated.hpp).
#pragma once
#include "singular_function.hpp"
#include "svd_gradient.hpp"
#include "svd_iterated.hpp"
#include "svd_jacobi.hpp"

namespace SG_NS {
namespace {

template <class T> int svd_group(int64_t m, int64_t n) {
  return smaller(m, n) <= svd_jacobi_up_to ? 16 * Simd<T>::W : iterated_group<General<T>>(m, n);
}
template <class T> int svd_lanes(int64_t m, int64_t n) {
  return smaller(m, n) <= svd_jacobi_up_to ? Simd<T>::W : iterated_lanes<General<T>>(m, n);
}
template <class T> size_t small_svd_work(int64_t m, int64_t n) {
  const int64_t k = smaller(m, n), rows = m + n - k;
  return (size_t)((4 * k + 1) * rows + 2 * Simd<T>::W) * sizeof(Vec<T>);
}
template <class T> size_t svd_work(int64_t m, int64_t n, bool vectors) {
  return smaller(m, n) <= svd_jacobi_up_to ? small_svd_work<T>(m, n) : iterated_work<General<T>>(m, n, vectors);
}
// Jacobi's rotations of a long matrix fill only one lane if it is alone: then a reduction is faster.
constexpr bool rotated_alone(int64_t m, int64_t n) { return smaller(m, n) <= svd_jacobi_up_to && m + n <= 32; }
template <class T> size_t svd_single_work(int64_t m, int64_t n, bool vectors) {
  return rotated_alone(m, n) ? small_svd_work<T>(m, n) : iterated_single_work<General<T>>(m, n, vectors);
}

template <class T, int N> void small_group(const SvdPointers<T>& g, int m, bool wide, int count, int64_t left, Vec<T>* work) {
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
    SvdPointers<T> g{t.A + at * m * n, t.U ? t.U + at * t.m * n : nullptr, t.S + at * n, t.Vh ? t.Vh + at * n * t.n : nullptr};
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

template <class T> int svd(const SvdTask<T>& t) {
  return smaller(t.m, t.n) <= svd_jacobi_up_to ? small_svd(t) : iterated_svd<General<T>>(t);
}
template <class T> int svd_single(const SvdTask<T>& t) {
  return rotated_alone(t.m, t.n) ? small_svd(t) : iterated_svd_single<General<T>>(t);
}

template <class T> sg::SvdOps<T> svd_ops() {
  return {{svd_group<T>, svd_lanes<T>, svd_work<T>, svd<T>, iterated_cost<General<T>>},
          {one_svd<T>, one_svd<T>, svd_single_work<T>, svd_single<T>, iterated_single_cost<General<T>>},
          gradient_lanes<T>, gradient_work<T>, svd_gradient<T>, singular_work<T>, singular_function<T>};
}

}  // namespace
}  // namespace SG_NS
