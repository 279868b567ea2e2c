// Passes over the features of a layer, for one instruction set; see passes/features.hpp.
#include <type_traits>

#include "passes/features.hpp"

namespace SG_NS {
namespace {

template <class T> sg::FeatureOps<T> ops() {
  return {moments_work<T>, moments_padded<T>, moments<T>, affine_work<T>, affine<T>};
}

}  // namespace

sg::FeatureOps<float> features32() { return ops<float>(); }
sg::FeatureOps<double> features64() { return ops<double>(); }

}  // namespace SG_NS
