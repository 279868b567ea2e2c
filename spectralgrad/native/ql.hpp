// QL iteration with Wilkinson's shift on W·G tridiagonal matrices in lockstep, a matrix a lane. The rotations are
// recorded, not applied.
//
// One sweep is the explicit QL step of T − σ, from the last row up. With π the pivot, e the coupling below it,
//   r = √(π² + e²),  c' = π/r,  s' = e/r,  π' = c'(d − σ) − s' c e,  γ' = c'π',
//   e_new = s r,  d_new = γ + (d − γ')
// (the form of Pal, Walker and Kahan, with the roots taken). It passes through e = 0 by itself, each block getting a
// step, so a lane needs no bounds of its own: a row whose two couplings are zero is left as it is, bit by bit, and
// what a lane computes does not depend on the others. r carries the sign of π, hence c ≥ 0.
//
// For larger n the eigenvalues are found first, without rotations, and then serve as shifts: about 1.2 sweeps an
// eigenvalue have to be applied to Q instead of 1.5 (float32) or 1.9 (float64). A shift that is exact in theory need
// not deflate in one sweep; after two, Wilkinson's takes over.
//
// A rotation is stored as s and t = tan(θ/2) = s/(1 + c), for the three-shear form used in rotate.hpp.
#pragma once
#include "lanes.hpp"

namespace SG_NS {
namespace {

template <class T, int G> struct QL {
  typedef Vec<T> V;
  typedef Mask<T> M;
  int n, lowest, highest;  // couplings outside lowest … highest are zero in every lane
  V *D[G], *E[G];          // index −1 exists: E[−1] = 0, D[−1] finite
  V floor[G], shift[G];
  M level[G], tries[G];    // couplings above row `level` are zero, lane by lane; sweeps spent on that row
  const V* known[G];       // eigenvalues in the order an earlier run found them, or null

  // e is zero when it is below eps times the largest entry of T: an absolute floor, as A itself is only known to that.
  // (A floor of eps/4 is below what rounding leaves in e: matrices with all |λ| equal then never converge.)
  void start(int size) {
    n = size, lowest = 0, highest = n - 2;
    for (int g = 0; g < G; g++) {
      V largest = {};
      for (int i = 0; i < n; i++) largest = vmax<T>(largest, vmax<T>(vabs<T>(D[g][i]), vabs<T>(E[g][i])));
      floor[g] = largest * Simd<T>::eps;
      for (int i = 0; i < n; i++) E[g][i] = vabs<T>(E[g][i]) <= floor[g] ? V{} : E[g][i];
      E[g][-1] = D[g][-1] = V{};
      level[g] = tries[g] = M{};
    }
  }

  // Advances every lane past its zero couplings and sets its shift from the 2 × 2 block found there.
  bool prepare() {
    bool open = false;
    while (highest >= 0 && !coupled(highest)) highest--;
    int first = n;
    for (int g = 0; g < G; g++) {
      V d0 = {}, d1 = {}, e = {}, target = {};
      M before = level[g];
      for (int i = lowest; i <= highest; i++) {
        M here = level[g] == i, zero = E[g][i] == 0, stop = here & ~zero;
        level[g] -= here & zero;
        d0 = stop ? D[g][i] : d0, d1 = stop ? D[g][i + 1] : d1, e = stop ? E[g][i] : e;
        if (known[g]) target = stop ? known[g][i] : target;
        if (any(stop) && i < first) first = i;
        if (!any(M(level[g] > i))) break;
      }
      level[g] = level[g] > highest ? ~M{} : level[g];  // done: −1, out of every comparison
      M live = e != 0;
      open |= any(live);
      V h = (d1 - d0) * T(0.5), length = vsqrt(h * h + e * e);
      V sigma = d0 - e * e / (h + flip<T>(length, signs<T>(h)));
      tries[g] = level[g] == before ? tries[g] + 1 : M{};
      if (known[g]) sigma = tries[g] < 2 ? target : sigma;
      shift[g] = live ? sigma : V{};
    }
    lowest = first;
    return open;
  }

  bool coupled(int i) {
    M m = {};
    for (int g = 0; g < G; g++) m |= E[g][i] != 0;
    return any(m);
  }

  // One sweep. If recorded, S and Tn receive sin θ and tan(θ/2) of the rotations lowest … highest, and zero elsewhere
  // in −pad … n+pad.
  template <bool recorded> void sweep(V* const* S, V* const* Tn, int pad) {
    V pi[G], c[G], s[G], gamma[G];
    M bare[G];
    for (int g = 0; g < G; g++) {
      pi[g] = gamma[g] = D[g][highest + 1] - shift[g];
      c[g] = splat<T>(1), s[g] = V{}, bare[g] = ~M{};
      for (int i = -pad; recorded && i < lowest; i++) S[g][i] = Tn[g][i] = V{};
      for (int i = highest + 1; recorded && i < n + pad; i++) S[g][i] = Tn[g][i] = V{};
    }
    for (int i = highest; i >= lowest - 1; i--)
      for (int g = 0; g < G; g++) {
        V e = E[g][i], d = D[g][i], x = d - shift[g], ee = e * e, r, inverse;
        M zero = e == 0, sign = signs<T>(pi[g]);
        root<T>(pi[g] * pi[g] + (ee + Simd<T>::tiny), r, inverse);  // tiny matters only where both are zero
        inverse = flip<T>(inverse, sign);
        V coupling = s[g] * flip<T>(r, sign);
        E[g][i + 1] = vabs<T>(coupling) <= floor[g] ? V{} : coupling;
        V next = inverse * (pi[g] * x - c[g] * ee);
        c[g] = zero ? splat<T>(1) : pi[g] * inverse;
        s[g] = e * inverse;
        pi[g] = zero ? x : next;
        V fresh = c[g] * pi[g];
        D[g][i + 1] = (zero & bare[g]) ? D[g][i + 1] : gamma[g] + (zero ? shift[g] : d - fresh);
        gamma[g] = fresh, bare[g] = zero;
        if (recorded) S[g][i] = s[g], Tn[g][i] = s[g] * reciprocal<T>(c[g] + T(1));
      }
  }
};

}  // namespace
}  // namespace SG_NS
