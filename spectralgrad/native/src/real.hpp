// The kernel for real matrices. Included by real32.cpp and real64.cpp, which are compiled once for each instruction set
// with SG_NS as the namespace and matching -m flags.
//
// Algorithms: d ≤ 4 cyclic Jacobi (eigh/jacobi.hpp); d ≥ 5 Householder tridiagonalisation and QL iteration
// (eigh/lanes_solver.hpp, and eigh/single_solver.hpp for few matrices); matrix functions and their derivatives from the
// eigenpairs (gradients/matrix_functions.hpp). Singular values: svd/svd.hpp. Complex matrices: complex.hpp.
// simd/lanes.hpp describes the data layout.
#pragma once
#include "interface.hpp"
#include "gradients/divided_differences.hpp"
#include "eigh/tasks.hpp"
#include "gradients/eigh_gradient.hpp"
#include "gradients/matrix_functions.hpp"
#include "eigh/jacobi.hpp"
#include "passes/points.hpp"
#include "svd/svd.hpp"

namespace SG_NS {
namespace {

constexpr size_t larger(size_t x, size_t y) { return x > y ? x : y; }
template <class T> size_t work(int64_t d) { return larger(fused_work<T>(d), lane_work<Symmetric<T>>(d)); }
template <class T> size_t single_work(int64_t d) {
  return d > 4 ? larger(fused_work<T>(d), one_by_one_work<Symmetric<T>>(d)) : work<T>(d);
}

// d ≤ 4: see eigh/jacobi.hpp. For d = 1 the eigenvalue is the entry itself; adding A·0 makes both results NaN unless it
// is finite.
template <class T> void tiny(const T* A, T* w, T* V, int count, int64_t left, int d, T limit) {
  int safe = (int)(left < 4096 ? left : 4096);
  if (d == 1)
    for (int k = 0; k < count; k++) {
      w[k] = A[k] + A[k] * T(0);
      V[k] = A[k] * T(0) + T(1);
    }
  if (d == 2) jacobi_group<T, 2>(A, w, V, count, safe, limit);
  if (d == 3) jacobi_group<T, 3>(A, w, V, count, safe, limit);
  if (d == 4) jacobi_group<T, 4>(A, w, V, count, safe, limit);
}

template <class T> int eigh(const Task<T>& t) {
  if (t.d > 4 || !t.V) return eigh_in_lanes<Symmetric<T>>(t);
  const int64_t dd = (int64_t)t.d * t.d;
  const T* A = t.A + t.first * dd;
  T *w = t.w + t.first * t.d, *V = t.V + t.first * dd;
  int failed = 0;
  constexpr int W = Simd<T>::W;
  for (int k = 0; k < t.count; k += W)
    tiny<T>(A + k * dd, w + (int64_t)k * t.d, V + k * dd, t.count - k < W ? t.count - k : W, t.batch - t.first - k, t.d,
            t.asymmetry);
  for (int k = 0; k < t.count; k++) failed += w[(int64_t)k * t.d] != w[(int64_t)k * t.d];
  return failed;
}

template <class T> int eigh_single(const Task<T>& t) { return t.d > 4 ? eigh_one_by_one<Symmetric<T>>(t) : eigh(t); }

template <class T> sg::Ops<T> ops() {
  typedef Symmetric<T> F;
  return {{lane_group<F>, lane_count<F>, work<T>, eigh<T>, lane_cost<F>},
          {one<T>, one<T>, single_work<T>, eigh_single<T>, one_by_one_cost<F>},
          compose<T>,
          frechet<T>,
          eigh_gradient_work<T>,
          eigh_gradient<T>,
          svd_ops<T>(),
          point_moments<T>,
          point_fit<T>,
          point_gradient<T>,
          divided<T>};
}

}  // namespace
}  // namespace SG_NS
