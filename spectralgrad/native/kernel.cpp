// The kernel for one instruction set. Compiled once per set, with SG_NS as the namespace and matching -m flags.
//
// Algorithms: d ≤ 4 cyclic Jacobi (jacobi.hpp); d ≥ 5 Householder tridiagonalisation and QL iteration (solver.hpp);
// matrix functions and their derivatives from the eigenpairs (fused.hpp). Singular values: svd.hpp. lanes.hpp describes
// the data layout.
#include "interface.hpp"
#include "eigh_gradient.hpp"
#include "fused.hpp"
#include "jacobi.hpp"
#include "solver.hpp"
#include "svd.hpp"

#define SG_STRING_(x) #x
#define SG_STRING(x) SG_STRING_(x)

namespace SG_NS {
namespace {

// Number of groups of W matrices whose QL recurrences are interleaved. The recurrence of one group is a chain of
// dependent square roots and divisions; the other groups fill the waiting time.
constexpr int interleaved(int64_t d) { return d <= 32 ? 4 : d <= 256 ? 2 : 1; }

template <class T> int group(int64_t d) { return Simd<T>::W * (d <= 4 ? 16 : interleaved(d)); }
template <class T> int lanes(int64_t d) { return Solver<T, 1>::variant((int)d) == large_d ? 1 : Simd<T>::W; }

// Calls run(solver) with the solver for size d.
template <class T, class Run> auto with_solver(int64_t d, Run run) {
  const int g = interleaved(d);
  if (g == 4) { Solver<T, 4> s; return run(s); }
  if (g == 2) { Solver<T, 2> s; return run(s); }
  Solver<T, 1> s;
  return run(s);
}

template <class T> size_t work(int64_t d) {
  size_t fused = fused_work<T>(d), own = 0;
  if (d > 4) own = with_solver<T>(d, [&](auto& s) { return s.layout((int)d, nullptr); });
  return fused > own ? fused : own;
}

// d ≤ 4: see jacobi.hpp. For d = 1 the eigenvalue is the entry itself; adding A·0 makes both results NaN unless it is
// finite.
template <class T> void tiny(const T* A, T* w, T* V, int count, int64_t left, int d) {
  int safe = (int)(left < 4096 ? left : 4096);
  if (d == 1)
    for (int k = 0; k < count; k++) w[k] = A[k] + A[k] * T(0), V[k] = A[k] * T(0) + T(1);
  if (d == 2) jacobi_group<T, 2>(A, w, V, count, safe);
  if (d == 3) jacobi_group<T, 3>(A, w, V, count, safe);
  if (d == 4) jacobi_group<T, 4>(A, w, V, count, safe);
}

template <class T> int eigh(const Task<T>& t) {
  const int64_t dd = (int64_t)t.d * t.d;
  const T* A = t.A + t.first * dd;
  T *w = t.w + t.first * t.d, *V = t.V + t.first * dd;
  int failed = 0;
  if (t.d > 4)
    return with_solver<T>(t.d, [&](auto& s) {
      s.layout(t.d, (char*)t.work);
      return s.solve(A, w, V, t.count, t.batch - t.first);
    });
  constexpr int W = Simd<T>::W;
  for (int k = 0; k < t.count; k += W)
    tiny<T>(A + k * dd, w + (int64_t)k * t.d, V + k * dd, t.count - k < W ? t.count - k : W, t.batch - t.first - k, t.d);
  for (int k = 0; k < t.count; k++) failed += w[(int64_t)k * t.d] != w[(int64_t)k * t.d];
  return failed;
}

// A rough model: a cubic polynomial in d, divided by the number of lanes.
template <class T> double cost(int64_t d) {
  double n = (double)d, scalar = 40 + 15 * n + 12 * n * n + 3.5 * n * n * n;
  return scalar / Simd<T>::W;
}

template <class T> sg::Ops<T> ops() {
  return {group<T>, lanes<T>, work<T>, eigh<T>, compose<T>, frechet<T>, cost<T>, eigh_gradient_work<T>, eigh_gradient<T>,
          svd_ops<T>()};
}

}  // namespace

sg::Kernel kernel() { return {SG_STRING(SG_NS), ops<float>(), ops<double>()}; }

}  // namespace SG_NS
