// The kernel for complex matrices of double parts, for one instruction set: see real.hpp.
#include "complex.hpp"

namespace SG_NS {
sg::ComplexOps<double> complex64() { return ops<double>(); }
}  // namespace SG_NS
