// What the gradients of both decompositions share: reciprocals that saturate, the gap matrix of SVD-Padé, and norms.
#pragma once
#include <limits>

#include "../simd/lanes.hpp"

namespace SG_NS {
namespace {

template <class T> SG_INLINE Vec<T> clamped(Vec<T> x, T limit) {  // NaN remains NaN
  const Vec<T> high = splat<T>(limit);
  x = x > high ? high : x;
  return x < -high ? -high : x;
}
// 1/x, saturated, where x > least, otherwise zero.
template <class T> SG_INLINE Vec<T> inverse_above(Vec<T> x, Vec<T> least) {
  Mask<T> good = x > least;
  return good ? clamped<T>(T(1) / (good ? x : splat<T>(1)), std::numeric_limits<T>::max()) : Vec<T>{};
}

// K_ij of SVD-Padé (rules/pade.py) for the values a and b: with the floor φ and l = `larger`, the larger modulus of the
// two but at least eps times the largest of all, 1/gap where |gap| > φ l, and gap/(φ l)² below.
template <class T> SG_INLINE Vec<T> pade_gap(Vec<T> a, Vec<T> b, Vec<T> larger, T floor) {
  const Vec<T> gap = a - b, cut = larger * floor;
  const Mask<T> exact = (vabs<T>(gap) > cut) & (gap != 0);
  const Vec<T> K = clamped<T>(T(1) / (exact ? gap : splat<T>(1)), std::numeric_limits<T>::max());
  if (!any(~exact)) return K;
  const Vec<T> slope = inverse_above<T>(cut, splat<T>(std::numeric_limits<T>::min()));
  return exact ? K : gap * slope * slope;
}

// How the gradient couples a pair of vectors: K_ji C_ij + K_ij C_ji. With `filter`, a skew part of C at rounding level
// between tied vectors, which carries no information, is dropped (autograd/gauge.py).
template <class T> struct Coupling {
  typedef Vec<T> V;
  V tie = {};  // values this close are tied
  T noise,
      limit;  // rounding errors of C relative to the norms of the gradients; what would overflow is clamped to limit
  bool filter;

  Coupling(int size, bool drops, bool saturate) : noise(8 * Simd<T>::eps * scalar_sqrt((T)size)), filter(drops) {
    const T most = std::numeric_limits<T>::max();
    limit = saturate ? most * (T(0.25) / (T)size) : std::numeric_limits<T>::infinity();
  }
  // a, b: the two values. here, there: C_ij and C_ji. norms: of the gradients of both vectors together.
  SG_INLINE V joint(V a, V b, V Kij, V Kji, V here, V there, V norms) const {
    const V skew = (here - there) * T(0.5);
    if (filter) {
      const Mask<T> drop = (vabs<T>(a - b) <= tie) & (vabs<T>(skew) <= norms * noise);
      here = drop ? here - skew : here;
      there = drop ? there + skew : there;
    }
    return clamped<T>(Kji * here, limit) + clamped<T>(Kij * there, limit);
  }
};

// √Σ x². Where the sum overflows or underflows, which float32 does not do here, the largest modulus instead: the norm
// is needed for a threshold only.
template <class T> struct Norm {
  typename Wide<T>::V sum = {};
  Vec<T> top = {};
  SG_INLINE void add(Vec<T> x) {
    sum += widen(x) * widen(x);
    top = vmax<T>(top, vabs<T>(x));
  }
  SG_INLINE Vec<T> root() const {
    const Vec<T> norm = vmax<T>(narrow(vsqrt(sum), Vec<T>{}), top);
    return norm <= std::numeric_limits<T>::max() ? norm : top;
  }
};

}  // namespace
}  // namespace SG_NS
