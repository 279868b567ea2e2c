// The kernel for double matrices, for one instruction set: see real.hpp.
#include "real.hpp"

namespace SG_NS {
sg::Ops<double> real64() { return ops<double>(); }
}  // namespace SG_NS
