// Singular value decompositions: which algorithm serves which size. min(m, n) ≤ 5: one-sided Jacobi, and a closed form
// for 2 × 2 (svd_jacobi.hpp); above: bidiagonalisation and QR iteration (svd_solver.hpp).
#pragma once
#include "interface.hpp"
#include "singular_function.hpp"
#include "svd_gradient.hpp"
#include "svd_jacobi.hpp"
#include "svd_solver.hpp"

namespace SG_NS {
namespace {

using sg::SvdTask;

// Number of groups of W matrices whose QR iterations are interleaved (see kernel.cpp).
constexpr int svd_interleaved(int64_t n) { return n <= 32 ? 4 : n <= 256 ? 2 : 1; }
constexpr int64_t smaller(int64_t m, int64_t n) { return m < n ? m : n; }

// Calls run(solver) with the solver for `count` matrices; an empty group would take as long as a full one.
template <class T, class Run> auto with_svd_solver(int64_t n, int count, Run run) {
  const int most = svd_interleaved(n), groups = (count + Simd<T>::W - 1) / Simd<T>::W, g = groups < most ? groups : most;
  if (g > 2) { SvdSolver<T, 4> s; return run(s); }
  if (g == 2) { SvdSolver<T, 2> s; return run(s); }
  SvdSolver<T, 1> s;
  return run(s);
}

template <class T> int svd_group(int64_t m, int64_t n) {
  const int64_t k = smaller(m, n);
  return Simd<T>::W * (k <= svd_jacobi_up_to ? 16 : svd_interleaved(k));
}
template <class T> int svd_lanes(int64_t m, int64_t n) {
  const int64_t k = smaller(m, n);
  return k > svd_jacobi_up_to && SvdSolver<T, 1>::variant((int)(m + n - k), (int)k) == large_d ? 1 : Simd<T>::W;
}
template <class T> size_t svd_work(int64_t m, int64_t n, bool vectors) {
  const int64_t k = smaller(m, n), rows = m + n - k;
  if (k <= svd_jacobi_up_to) return (size_t)((4 * k + 1) * rows + 2 * Simd<T>::W) * sizeof(Vec<T>);
  return with_svd_solver<T>(k, svd_group<T>(m, n), [&](auto& s) { return s.layout((int)m, (int)n, vectors, nullptr); });
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
  const int64_t k = smaller(t.m, t.n);
  if (k <= svd_jacobi_up_to) return small_svd(t);
  return with_svd_solver<T>(k, t.count, [&](auto& s) {
    s.layout(t.m, t.n, t.U != nullptr, (char*)t.work);
    SvdOutput<T> out{t.U ? t.U + t.first * t.m * k : nullptr, t.S + t.first * k, t.Vh ? t.Vh + t.first * k * t.n : nullptr};
    return s.solve(t.A + t.first * t.m * t.n, out, t.count, t.batch - t.first);
  });
}

// A rough model, as for eigh.
template <class T> double svd_cost(int64_t m, int64_t n, bool vectors) {
  const double k = (double)smaller(m, n), rows = (double)(m + n) - k;
  const double scalar = 60 + 20 * rows + 30 * k * k + (vectors ? 4 : 1) * k * k * (rows + k / 2);
  return scalar / Simd<T>::W;
}

template <class T> sg::SvdOps<T> svd_ops() {
  return {svd_group<T>, svd_lanes<T>, svd_work<T>, svd<T>, svd_cost<T>, gradient_lanes<T>, gradient_work<T>, svd_gradient<T>,
          singular_work<T>, singular_function<T>};
}

}  // namespace
}  // namespace SG_NS
