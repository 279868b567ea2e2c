// Singular value decompositions: which algorithm is used for which size. min(m, n) ≤ 5: one-sided Jacobi, and a closed
// form for 2 × 2 (small.hpp); above: bidiagonalisation and QR iteration (tasks.hpp).
#pragma once
#include "../gradients/singular_function.hpp"
#include "../gradients/svd_gradient.hpp"
#include "polar.hpp"
#include "tasks.hpp"
#include "small.hpp"

namespace SG_NS {
namespace {

constexpr bool rotated(int64_t m, int64_t n) { return smaller(m, n) <= svd_jacobi_up_to; }

template <class T> int svd_group(int64_t m, int64_t n) {
  return rotated(m, n) ? 16 * Simd<T>::W : iterated_group<General<T>>(m, n);
}
template <class T> int svd_lanes(int64_t m, int64_t n) {
  return rotated(m, n) ? Simd<T>::W : iterated_lanes<General<T>>(m, n);
}
template <class T> size_t svd_work(int64_t m, int64_t n, bool vectors) {
  return rotated(m, n) ? small_svd_work<T>(m, n) : iterated_work<General<T>>(m, n, vectors);
}
// A long matrix alone would fill one lane with its columns.
constexpr bool thin(int64_t m, int64_t n) { return rotated(m, n) && m + n > 32; }
template <class T> size_t svd_single_work(int64_t m, int64_t n, bool vectors) {
  if (thin(m, n)) return thin_svd_work<T>(m, n);
  return rotated(m, n) ? small_svd_work<T>(m, n) : iterated_single_work<General<T>>(m, n, vectors);
}

template <class T> int svd(const SvdTask<T>& t) {
  return rotated(t.m, t.n) ? small_svd(t) : iterated_svd<General<T>>(t);
}
template <class T> int svd_single(const SvdTask<T>& t) {
  if (thin(t.m, t.n)) return thin_svd(t);
  return rotated(t.m, t.n) ? small_svd(t) : iterated_svd_single<General<T>>(t);
}

template <class T> sg::SvdOps<T> svd_ops() {
  return {{svd_group<T>, svd_lanes<T>, svd_work<T>, svd<T>, iterated_cost<General<T>>},
          {one_svd<T>, one_svd<T>, svd_single_work<T>, svd_single<T>, iterated_single_cost<General<T>>},
          gradient_lanes<T>,
          gradient_work<T>,
          svd_gradient<T>,
          singular_work<T>,
          singular_function<T>,
          polar_work<T>,
          polar<T>};
}

}  // namespace
}  // namespace SG_NS
