// How many groups of W matrices are decomposed together, for eigenvalues and for singular values. The recurrence of one
// group is a chain of dependent square roots and divisions; the other groups fill the waiting time.
#pragma once
#include "../simd/simd.hpp"

namespace SG_NS {
namespace {

constexpr int interleaved(int64_t n) { return n <= 32 ? 4 : n <= 256 ? 2 : 1; }

// Calls run(solver) with the solver for `count` matrices of n rows or columns: no more groups are interleaved than are
// needed, because an empty group would take as long as a full one.
template <template <class, int> class Solver, class Field, class Run> auto with_solver(int64_t n, int count, Run run) {
  constexpr int W = Simd<typename Field::T>::W;
  const int most = interleaved(n), needed = (count + W - 1) / W, groups = needed < most ? needed : most;
  if (groups > 2) {
    Solver<Field, 4> s;
    return run(s);
  }
  if (groups == 2) {
    Solver<Field, 2> s;
    return run(s);
  }
  Solver<Field, 1> s;
  return run(s);
}

// Decomposes up to G·W matrices: reduce(g, count) for each group of W, which may be empty, iterate(counts), and then
// write(g, count) for those that are not, which returns the number of matrices that failed; this returns their sum.
template <int G, int W, class Reduce, class Iterate, class Write>
int in_groups(int total, Reduce reduce, Iterate iterate, Write write) {
  int count[G], failed = 0;
  for (int g = 0; g < G; g++) {
    count[g] = total - g * W < 0 ? 0 : total - g * W < W ? total - g * W : W;
    reduce(g, count[g]);
  }
  iterate(count);
  for (int g = 0; g < G && count[g]; g++) failed += write(g, count[g]);
  return failed;
}

}  // namespace
}  // namespace SG_NS
