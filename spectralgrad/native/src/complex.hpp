// The kernel for complex matrices: see real.hpp.
#pragma once
#include "eigh/tasks.hpp"
#include "svd/tasks.hpp"

namespace SG_NS {
namespace {

template <class T> sg::ComplexOps<T> ops() {
  typedef Hermitian<T> F;
  typedef ComplexGeneral<T> C;
  return {{lane_group<F>, lane_count<F>, lane_work<F>, eigh_in_lanes<F>, lane_cost<F>},
          {one<T>, one<T>, one_by_one_work<F>, eigh_one_by_one<F>, one_by_one_cost<F>},
          {iterated_group<C>, iterated_lanes<C>, iterated_work<C>, iterated_svd<C>, iterated_cost<C>},
          {one_svd<T>, one_svd<T>, iterated_single_work<C>, iterated_svd_single<C>, iterated_single_cost<C>}};
}

}  // namespace
}  // namespace SG_NS
