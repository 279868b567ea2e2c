// The code for each instruction set, and the choice between them, which is made once.
#pragma once
#include <cstdlib>
#include <cstring>

#include "interface.hpp"
#include "platform.hpp"

// SG_BASELINE, SG_AVX2 and SG_AVX512 say which instruction sets the kernel was compiled for.
#define SG_DECLARE(set)                \
  namespace set {                      \
  sg::Ops<float> real32();             \
  sg::Ops<double> real64();            \
  sg::ComplexOps<float> complex32();   \
  sg::ComplexOps<double> complex64();  \
  sg::FeatureOps<float> features32();  \
  sg::FeatureOps<double> features64(); \
  }
SG_DECLARE(baseline)
SG_DECLARE(avx2)
SG_DECLARE(avx512)

namespace {

using sg::Ops;
using sg::Task;

template <class T> struct Functions {
  Ops<T> real;
  sg::ComplexOps<T> complex;
  sg::FeatureOps<T> features;
};
struct Kernel {
  const char* name;
  Functions<float> f32;
  Functions<double> f64;
};

#define SG_KERNEL(set)                                                                                                 \
  {                                                                                                                    \
    #set, {set::real32(), set::complex32(), set::features32()}, { set::real64(), set::complex64(), set::features64() } \
  }
// The best instruction set of the machine for which there is code, or a lesser one if SPECTRALGRAD_ISA names it. No
// name: there is none.
Kernel choose(const char* wish) {
  const bool any = !wish || !*wish;
  [[maybe_unused]] const bool lesser = !any && !std::strcmp(wish, "baseline");
  [[maybe_unused]] const bool middle = !any && !std::strcmp(wish, "avx2");
#ifdef SG_AVX512
  if (sg::has(sg::avx512_set) && !lesser && !middle) return SG_KERNEL(avx512);
#endif
#ifdef SG_AVX2
  if (sg::has(sg::avx2_set) && !lesser) return SG_KERNEL(avx2);
#endif
#ifdef SG_BASELINE
  return SG_KERNEL(baseline);
#else
  return any ? Kernel{} : choose(nullptr);
#endif
}
const Kernel& chosen() {
  static const Kernel kernel = choose(std::getenv("SPECTRALGRAD_ISA"));
  return kernel;
}
template <class T> const Functions<T>& functions();
template <> const Functions<float>& functions() { return chosen().f32; }
template <> const Functions<double>& functions() { return chosen().f64; }
template <class T> const Ops<T>& ops() { return functions<T>().real; }
template <class T> const sg::ComplexOps<T>& complex_ops() { return functions<T>().complex; }
template <class T> const sg::FeatureOps<T>& feature_ops() { return functions<T>().features; }

}  // namespace
