// The kernel for complex Hermitian matrices, for one instruction set; see kernel.cpp.
#include "eigen.hpp"

namespace SG_NS {
namespace {

template <class T> sg::ComplexOps<T> ops() {
  typedef Hermitian<T> F;
  return {{lane_group<F>, lane_count<F>, lane_work<F>, eigh_in_lanes<F>, lane_cost<F>},
          {one<T>, one<T>, one_by_one_work<F>, eigh_one_by_one<F>, one_by_one_cost<F>}};
}

}  // namespace

sg::ComplexKernel complex_kernel() { return {ops<float>(), ops<double>()}; }

}  // namespace SG_NS
