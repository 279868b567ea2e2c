// The entries of C in svd_gradient.hpp: how a pair of singular vectors is coupled by the gradient of a loss.
#pragma once
#include <limits>

#include "gap_rule.hpp"
#include "../interface.hpp"

namespace SG_NS {
namespace {

using sg::SvdGradient;

// The entries of C, from those of P and Q.
template <class T> struct Core {
  typedef Vec<T> V;
  V negligible, tie, resolution;
  T floor, noise, limit;
  bool filter;

  Core(const SvdGradient<T>& t, int k, V top) {  // top: the largest singular value
    const T eps = Simd<T>::eps, most = std::numeric_limits<T>::max();
    floor = t.floor;
    filter = t.filter;
    noise = 8 * eps * scalar_sqrt((T)k);
    limit = t.saturate ? most * (T(0.25) / (T)k) : std::numeric_limits<T>::infinity();
    const T power = sizeof(T) == 4 ? T(2.8873767e-12) : T(8.1439777e-27);  // eps^(5/3)
    negligible = vmax<T>(top * power, splat<T>(std::numeric_limits<T>::min()));
    tie = top * (64 * eps);
    resolution = top * eps;
  }
  SG_INLINE V inverse(V s) const { return inverse_above<T>(s, negligible); }

  SG_INLINE V gap(V si, V sj) const { return pade_gap<T>(si, sj, vmax<T>(vmax<T>(si, sj), resolution), floor); }
  // What does not contain a gap is clamped to less, so that the sum of all terms and the products that follow cannot
  // overflow (singular_vectors.py).
  SG_INLINE V capped(V x) const { return clamped<T>(x, limit * T(0.25)); }
  // C_ij without s̄. norms: ‖ū‖ + ‖v̄‖ of columns i and j together. Between tied vectors, a skew part of J at rounding
  // level carries no information and is dropped (autograd/gauge.py).
  SG_INLINE V entry(V si, V sj, V Kij, V Kji, V Pij, V Pji, V Qij, V Qji, V norms) const {
    V here = (Pij + Qij) * T(0.5), there = (Pji + Qji) * T(0.5), skew = (here - there) * T(0.5);
    if (filter) {
      const Mask<T> drop = (vabs<T>(si - sj) <= tie) & (vabs<T>(skew) <= norms * noise);
      here = drop ? here - skew : here;
      there = drop ? there + skew : there;
    }
    const V joint = clamped<T>(Kji * here, limit) + clamped<T>(Kij * there, limit);
    const V inverse = inverse_above<T>(si + sj, negligible) * T(0.5);
    return joint + (capped(inverse * (Pij - Qij)) - capped(inverse * (Pji - Qji)));
  }
};

}  // namespace
}  // namespace SG_NS
