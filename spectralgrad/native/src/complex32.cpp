// The kernel for complex matrices of float parts, for one instruction set: see real.hpp.
#include "complex.hpp"

namespace SG_NS {
sg::ComplexOps<float> complex32() { return ops<float>(); }
}  // namespace SG_NS
