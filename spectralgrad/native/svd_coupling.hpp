// The entries of C in svd_gradient.hpp: how a pair of singular vectors is coupled by the gradient of a loss.
#pragma once
#include <limits>

#include "interface.hpp"
#include "lanes.hpp"

namespace SG_NS {
namespace {

using sg::SvdGradient;

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

// The entries of C, from those of P and Q.
template <class T> struct Core {
  typedef Vec<T> V;
  V negligible, tie, resolution;
  T floor, noise, limit;
  bool filter;

  Core(const SvdGradient<T>& t, int k, V top) {  // top: the largest singular value
    const T eps = Simd<T>::eps, most = std::numeric_limits<T>::max();
    floor = t.floor, filter = t.filter, noise = 8 * eps * scalar_sqrt((T)k);
    limit = t.saturate ? most * (T(0.25) / (T)k) : std::numeric_limits<T>::infinity();
    const T power = sizeof(T) == 4 ? T(2.8873767e-12) : T(8.1439777e-27);  // eps^(5/3)
    negligible = vmax<T>(top * power, splat<T>(std::numeric_limits<T>::min()));
    tie = top * (64 * eps), resolution = top * eps;
  }
  SG_INLINE V inverse(V s) const { return inverse_above<T>(s, negligible); }

  // K_ij of SVD-Padé (rules/pade.py): with l = max(s_i, s_j, eps s_1) and the floor φ, 1/gap where |gap| > φ l, and
  // gap/(φ l)² below.
  SG_INLINE V gap(V si, V sj) const {
    const V gap = si - sj, cut = vmax<T>(vmax<T>(si, sj), resolution) * floor;
    const Mask<T> exact = (vabs<T>(gap) > cut) & (gap != 0);
    V K = clamped<T>(T(1) / (exact ? gap : splat<T>(1)), std::numeric_limits<T>::max());
    if (any(~exact)) {
      const V slope = inverse_above<T>(cut, splat<T>(std::numeric_limits<T>::min()));
      K = exact ? K : gap * slope * slope;
    }
    return K;
  }
  // C_ij without s̄. norms: ‖ū‖ + ‖v̄‖ of columns i and j together. Between tied vectors, a skew part of J at rounding
  // level carries no information and is dropped (autograd/gauge.py).
  SG_INLINE V entry(V si, V sj, V Kij, V Kji, V Pij, V Pji, V Qij, V Qji, V norms) const {
    V here = (Pij + Qij) * T(0.5), there = (Pji + Qji) * T(0.5), skew = (here - there) * T(0.5);
    if (filter) {
      const Mask<T> drop = (vabs<T>(si - sj) <= tie) & (vabs<T>(skew) <= norms * noise);
      here = drop ? here - skew : here, there = drop ? there + skew : there;
    }
    const V joint = clamped<T>(Kji * here, limit) + clamped<T>(Kij * there, limit);
    return joint + inverse_above<T>(si + sj, negligible) * ((Pij - Qij) - (Pji - Qji)) * T(0.5);
  }
};

// √Σ x², without overflow or underflow in float32.
template <class T> struct Norm {
  typename Wide<T>::V sum = {};
  SG_INLINE void add(Vec<T> x) { sum += widen(x) * widen(x); }
  SG_INLINE Vec<T> root() const { return narrow(vsqrt(sum), Vec<T>{}); }
};

}  // namespace
}  // namespace SG_NS
