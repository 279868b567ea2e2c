// The entries of C in svd_gradient.hpp: how a pair of singular vectors is coupled by the gradient of a loss.
#pragma once
#include <limits>

#include "gap_rule.hpp"
#include "../interface.hpp"

namespace SG_NS {
namespace {

using sg::SvdGradient;

// The entries of C, from the entries of P and Q.
template <class T> struct Core : Coupling<T> {
  typedef Vec<T> V;
  using Coupling<T>::limit;
  V negligible, resolution;
  T floor;

  // top: the largest singular value
  Core(const SvdGradient<T>& t, int k, V top) : Coupling<T>(k, t.filter, t.saturate), floor(t.floor) {
    const T power = sizeof(T) == 4 ? T(2.8873767e-12) : T(8.1439777e-27);  // eps^(5/3)
    negligible = vmax<T>(top * power, splat<T>(std::numeric_limits<T>::min()));
    this->tie = top * (64 * Simd<T>::eps);
    resolution = top * Simd<T>::eps;
  }
  SG_INLINE V inverse(V s) const { return inverse_above<T>(s, negligible); }

  SG_INLINE V gap(V si, V sj) const { return pade_gap<T>(si, sj, vmax<T>(vmax<T>(si, sj), resolution), floor); }
  // What does not contain a gap is clamped to less, so that the sum of all terms and the products that follow cannot
  // overflow (autograd/singular/vectors.py).
  SG_INLINE V capped(V x) const { return clamped<T>(x, limit * T(0.25)); }
  // C_ij without s̄. norms: ‖ū‖ + ‖v̄‖ of columns i and j together.
  SG_INLINE V entry(V si, V sj, V Kij, V Kji, V Pij, V Pji, V Qij, V Qji, V norms) const {
    const V here = (Pij + Qij) * T(0.5), there = (Pji + Qji) * T(0.5);
    const V inverse = inverse_above<T>(si + sj, negligible) * T(0.5);
    return this->joint(si, sj, Kij, Kji, here, there, norms) +
           (capped(inverse * (Pij - Qij)) - capped(inverse * (Pji - Qji)));
  }
};

}  // namespace
}  // namespace SG_NS
