// Singular value decompositions by iteration as tasks of the dispatcher: with one matrix per lane (lanes_solver.hpp),
// and one matrix at a time (single_solver.hpp). `Field` tells real from complex matrices (real_or_complex.hpp).
#pragma once
#include "../interface.hpp"
#include "../eigh/interleaved.hpp"
#include "single_solver.hpp"

namespace SG_NS {
namespace {

using sg::SvdTask;

constexpr int64_t smaller(int64_t m, int64_t n) { return m < n ? m : n; }

template <class Field> int iterated_group(int64_t m, int64_t n) {
  return Simd<typename Field::T>::W * interleaved(smaller(m, n));
}
template <class Field> int iterated_lanes(int64_t m, int64_t n) {
  const int64_t k = smaller(m, n);
  return SvdSolver<Field, 1>::variant((int)(m + n - k), (int)k) == large_d ? 1 : Simd<typename Field::T>::W;
}
template <class Field> size_t iterated_work(int64_t m, int64_t n, bool vectors) {
  return with_solver<SvdSolver, Field>(smaller(m, n), iterated_group<Field>(m, n),
                                       [&](auto& s) { return s.layout((int)m, (int)n, vectors, false, nullptr); });
}
template <class Field> size_t iterated_single_work(int64_t m, int64_t n, bool vectors) {
  SvdSingle<Field> s;
  return s.layout((int)m, (int)n, vectors, nullptr);
}

// The results of matrix `first` and those after it.
template <class Field, class T = typename Field::T> SvdOutput<T> results(const SvdTask<T>& t, int64_t first) {
  const int64_t k = smaller(t.m, t.n), parts = Field::parts;
  return {t.U ? t.U + first * t.m * k * parts : nullptr, t.S + first * k,
          t.Vh ? t.Vh + first * k * t.n * parts : nullptr};
}
// Both return the number of matrices that failed.
template <class Field> int iterated_svd(const SvdTask<typename Field::T>& t) {
  return with_solver<SvdSolver, Field>(smaller(t.m, t.n), t.count, [&](auto& s) {
    s.layout(t.m, t.n, t.U != nullptr, false, (char*)t.work);
    return s.solve(t.A + t.first * t.m * t.n * Field::parts, results<Field>(t, t.first), t.count, t.batch - t.first);
  });
}
template <class Field> int iterated_svd_single(const SvdTask<typename Field::T>& t) {
  SvdSingle<Field> s;
  s.layout(t.m, t.n, t.U != nullptr, (char*)t.work);
  s.team = t.team;
  int failed = 0;
  for (int64_t k = t.first; k < t.first + t.count; k++)
    failed += s.solve(t.A + k * t.m * t.n * Field::parts, results<Field>(t, k));
  return failed;
}

// Rough models, as for eigh.
template <class Field> double iterated_cost(int64_t m, int64_t n, bool vectors) {
  const double k = (double)smaller(m, n), rows = (double)(m + n) - k;
  const double scalar = 60 + 20 * rows + 30 * k * k + (vectors ? 4 : 1) * k * k * (rows + k / 2) * Field::parts;
  return scalar / Simd<typename Field::T>::W;
}
template <class Field> double iterated_single_cost(int64_t m, int64_t n, bool vectors) {
  const double k = (double)smaller(m, n);
  return 500 + 30 * k * k + iterated_cost<Field>(m, n, vectors);
}
template <class T> int one_svd(int64_t, int64_t) { return 1; }

}  // namespace
}  // namespace SG_NS
