// The kernel for float matrices, for one instruction set: see real.hpp.
#include "real.hpp"

namespace SG_NS {
sg::Ops<float> real32() { return ops<float>(); }
}  // namespace SG_NS
