// Scalar functions beside the roots: logarithm, exponential and powers, with their divided differences.
//
// The formulas are also in autograd/functions/divided_differences.py: with y = (a − b)/b, which is exact up to one
// rounding for b ≤ a ≤ 2b,
//   log   log1p(y)/(b y);       exp   e^a (1 − e^(b − a))/(a − b);       power   b^(p − 1) expm1(p log1p y)/y,
// and quotients of differences of values where these cannot cancel. Between range and null space they are f(λ)/λ, within
// the null space zero; eigenvalues of the null space are zero here. The projector onto the leading eigenvectors is a
// function too: 1 for the last `exponent` eigenvalues and 0 for the others, with the gaps of SVD-Padé between them. The C
// library computes the functions, one number
// at a time: a matrix has few eigenvalues, and few pairs of them are close. Whole powers of small exponent are sums.
#pragma once
#include <cmath>
#include <limits>

#include "../interface.hpp"
#include "gap_rule.hpp"

namespace SG_NS {
namespace {

// True if f acts on all eigenvalues, zero as well.
template <class T> bool everywhere(const sg::Task<T>& t) { return t.any_sign && t.rtol < 0; }

template <class T> struct Scalar {
  sg::Function f;
  T exponent;

  // λ in the range, f(λ), and log λ relative to the largest eigenvalue, so that differences of logarithms cancel less;
  // for a projector the largest eigenvalue itself.
  struct Point {
    T w, value, log;
  };

  T value(T w) const {
    if (f == sg::logarithm) return std::log(w);
    if (f == sg::exponential) return std::exp(w);
    return std::pow(w, exponent);
  }
  // All eigenvalues of an ascending spectrum.
  void spectrum(const T* w, int n, Point* points) const {
    const T top = std::fmax(std::fabs(w[0]), std::fabs(w[n - 1]));
    for (int i = 0; i < n; i++) points[i] = f == sg::leading ? Point{w[i], leads(i, n), top} : at(w[i], top);
  }
  T leads(int i, int n) const { return T(i) >= T(n) - exponent; }
  // f of eigenvalue i of n.
  T on_range(const T* w, int i, int n, const sg::Task<T>& t) const {
    if (f == sg::leading) return leads(i, n);
    return w[i] != 0 || everywhere(t) ? value(w[i]) : 0;
  }
  Point at(T w, T top) const {
    if (f == sg::exponential) return {w, value(w), 0};
    if (w == 0) return {0, 0, 0};
    return {w, value(w), few_factors() ? 0 : std::log(std::fabs(w) / top)};
  }
  // f[a, b] for a ≥ b.
  T difference(const Point& a, const Point& b) const {
    if (f == sg::leading) return a.value == b.value ? 0 : gap_of_pade(a.w, b.w, a.log);
    const T gap = a.w - b.w;
    if (f == sg::exponential) {
      if (gap > 1) return (a.value - b.value) / gap;
      return gap > std::numeric_limits<T>::min() ? a.value * (-std::expm1(-gap) / gap) : a.value;
    }
    if (a.w == 0 || b.w == 0) return a.w == b.w ? 0 : a.w == 0 ? b.value / b.w : a.value / a.w;
    if (few_factors()) return exponent > 0 ? sum(a.w, b.w) : -sum(1 / a.w, 1 / b.w) / a.w / b.w;
    return b.w > 0 ? of_positive(a, b) : of_any_sign(a, b);
  }
  static T gap_of_pade(T a, T b, T top) {
    constexpr T eps = std::numeric_limits<T>::epsilon();
    const T larger = std::fmax(std::fmax(std::fabs(a), std::fabs(b)), eps * top);
    return pade_gap<T>(splat<T>(a), splat<T>(b), splat<T>(larger), 64 * eps)[0];
  }
  // Whole powers of small exponent: the sum of all products of |p| − 1 factors.
  bool few_factors() const { return f == sg::whole_power && std::fabs(exponent) <= 16; }
  T sum(T a, T b) const {
    T total = 0, power = 1;
    for (int k = (int)std::fabs(exponent); k > 0; k--) total = total * a + power, power *= b;
    return total;
  }
  // Whole powers with b < 0: from the difference for the moduli x ≥ y.
  T of_any_sign(const Point& a, const Point& b) const {
    const bool even = std::fmod(exponent, T(2)) == 0, first = a.w > -b.w;
    const Point &large = first ? a : b, &small = first ? b : a;
    const T x = std::fabs(large.w), y = std::fabs(small.w), fx = std::fabs(large.value), fy = std::fabs(small.value);
    if (!even && a.w > 0) return (fx + fy) / (x + y);
    const T joint = of_positive({x, fx, large.log}, {y, fy, small.log});
    if (a.w < 0) return even ? -joint : joint;
    return (first ? joint : -joint) * ((x - y) / (x + y));
  }
  T of_positive(const Point& a, const Point& b) const {
    const T gap = a.w - b.w;
    if (a.w <= 2 * b.w) {
      const T y = gap / b.w;
      if (f == sg::logarithm) return (y > 0 ? std::log1p(y) / y : 1) / b.w;
      return (y > 0 ? std::expm1(exponent * std::log1p(y)) / y : exponent) * (b.value / b.w);
    }
    const T ratio = a.log - b.log;
    if (f == sg::logarithm) return ratio / gap;
    const T x = exponent * ratio;
    if (x > 1 || x < -1) return (a.value - b.value) / gap;
    return (x > 0 ? -a.value * std::expm1(-x) : b.value * std::expm1(x)) / gap;
  }
};

// True if f, its derivative and its second derivative are representable at this eigenvalue, with room for products.
// A projector depends on eigenvalues relative to the largest one only, which the caller looks at.
template <class T> bool moderate(T w, sg::Function f, T limit) {
  const T size = std::fabs(w);
  return f == sg::exponential ? w < limit : size == 0 || (size > 1 / limit && size < limit);
}

// Restricts ascending eigenvalues to the range: those that are not count as zero (with `any_sign` the cut is at the
// modulus, and none is cut for a negative rtol). False for matrices that need more care: not decomposed, too negative,
// or not moderate.
template <class T> bool restrict_to_range(T* w, int n, const sg::Task<T>& t) {
  const T least = w[0], most = w[n - 1];
  const T top = std::fmax(std::fabs(least), std::fabs(most));
  if (!(top <= std::numeric_limits<T>::max())) return false;  // NaN as well
  const T normal =
      std::fmax(top, std::numeric_limits<T>::min());  // rounding errors do not shrink below the normal range
  if (!t.any_sign && -least > t.negative * normal) return false;
  const T cut = t.rtol * top;
  bool good = true;
  for (int i = 0; i < n; i++) {
    if (!everywhere(t) && !((t.any_sign ? std::fabs(w[i]) : w[i]) > cut)) w[i] = 0;
    good = good && (t.f == sg::leading || moderate(w[i], t.f, t.limit));
  }
  return good && (t.f != sg::leading || moderate(top, t.f, t.limit));
}

}  // namespace
}  // namespace SG_NS
