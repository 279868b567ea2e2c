// Functions of descending singular values, with their divided differences J_ij = (f_i − f_j)/(s_i − s_j) and the ratios
// f_i/s_i. autograd/singular/weights.py has the same formulas and says what holds at kinks and ties:
//   leading     s for the first `parameter` values above the rank tolerance, 0 for the others;
//   threshold   max(s − parameter, 0);
//   support     1 above the rank tolerance, 0 for the others; no derivative here;
//   largest     1/r for the r values that equal the largest up to the tolerance; no derivative here.
#pragma once
#include <cmath>

#include "../interface.hpp"
#include "scalar_functions.hpp"

namespace SG_NS {
namespace {

template <class T> struct SingularScalar {
  sg::Function f;
  T parameter, tolerance;
  const T* s;
  int k;
  T share;  // 1/r

  SingularScalar(const sg::SingularFunction<T>& t, const T* values, int count)
      : f(t.f), parameter(t.parameter), tolerance(t.tolerance), s(values), k(count) {
    int equal = 0;
    for (int i = 0; f == sg::largest && i < k; i++) equal += chosen(i);
    share = equal ? 1 / T(equal) : T(1);
  }
  bool chosen(int i) const {
    if (f == sg::threshold) return s[i] > parameter || parameter == 0;
    if (f == sg::largest) return s[i] >= (1 - tolerance) * s[0] && s[i] > 0;
    return s[i] > tolerance * s[0] && (f != sg::leading || T(i) < parameter);
  }
  T value(int i) const {
    if (!chosen(i)) return 0;
    return f == sg::leading ? s[i] : f == sg::threshold ? s[i] - parameter : f == sg::largest ? share : T(1);
  }
  T ratio(int i) const {
    if (!chosen(i)) return 0;
    if (f == sg::leading || parameter == 0) return 1;
    return s[i] > 0 ? (s[i] - parameter) / s[i] : 0;
  }
  T difference(int i, int j) const {
    const bool first = chosen(i), second = chosen(j);
    if (first == second) return first;
    const T a = first ? s[i] : s[j], b = first ? s[j] : s[i];
    if (f == sg::threshold) return (a - parameter) / (a - b);
    // Relative to a power of two, so that no gap overflows.
    const int e = s[0] > 0 ? std::ilogb(s[0]) : 0;
    const T large = std::ldexp(a, -e);
    return large * Scalar<T>::gap_of_pade(large, std::ldexp(b, -e), std::ldexp(s[0], -e));
  }
};

}  // namespace
}  // namespace SG_NS
