// The two eigensolvers as tasks of the dispatcher: with one matrix per lane (lanes_solver.hpp), and one matrix at a
// time (single_solver.hpp). `Field` tells real from complex matrices (real_or_complex.hpp).
#pragma once
#include "../interface.hpp"
#include "interleaved.hpp"
#include "single_solver.hpp"
#include "lanes_solver.hpp"

namespace SG_NS {
namespace {

using sg::Task;

template <class Field> int lane_group(int64_t d) { return Simd<typename Field::T>::W * interleaved(d); }
template <class Field> int lane_count(int64_t d) {
  return Solver<Field, 1>::variant((int)d) == large_d ? 1 : Simd<typename Field::T>::W;
}

template <class Field> size_t lane_work(int64_t d) {
  return with_solver<Solver, Field>(d, lane_group<Field>(d), [&](auto& s) { return s.layout((int)d, true, nullptr); });
}
template <class Field> size_t one_by_one_work(int64_t d) {
  SingleSolver<Field> s;
  return s.layout((int)d, true, nullptr);
}

// Both return the number of matrices that failed; only eigenvalues are computed if t.V is null.
template <class Field> int eigh_in_lanes(const Task<typename Field::T>& t) {
  const int64_t size = (int64_t)t.d * t.d * Field::parts;
  return with_solver<Solver, Field>(t.d, t.count, [&](auto& s) {
    s.layout(t.d, t.V != nullptr, (char*)t.work);
    s.limit = t.asymmetry;
    return s.solve(t.A + t.first * size, t.w + t.first * t.d, t.V ? t.V + t.first * size : nullptr, t.count,
                   t.batch - t.first);
  });
}
template <class Field> int eigh_one_by_one(const Task<typename Field::T>& t) {
  const int64_t size = (int64_t)t.d * t.d * Field::parts;
  SingleSolver<Field> s;
  s.layout(t.d, t.V != nullptr, (char*)t.work);
  s.team = t.team;
  s.limit = t.asymmetry;
  int failed = 0;
  for (int64_t k = t.first; k < t.first + t.count; k++)
    failed += s.solve(t.A + k * size, t.w + k * t.d, t.V ? t.V + k * size : nullptr);
  return failed;
}

// Rough models: a cubic polynomial in d, divided by the number of lanes.
template <class Field> double lane_cost(int64_t d) {
  double n = (double)d, scalar = 40 + 15 * n + 12 * n * n + 3.5 * n * n * n * Field::parts;
  return scalar / Simd<typename Field::T>::W;
}
template <class Field> double one_by_one_cost(int64_t d) {
  double n = (double)d;
  return 500 + 15 * n * n + 1.6 * n * n * n * Field::parts / Simd<typename Field::T>::W;
}
template <class T> int one(int64_t) { return 1; }

}  // namespace
}  // namespace SG_NS
