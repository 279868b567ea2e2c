// QL iteration with Wilkinson's shift on W·G tridiagonal matrices in lockstep, one matrix per lane. The rotations are
// recorded here and applied in rotations.hpp. (Golub & Van Loan, 4th ed., section 8.3; Parlett, The Symmetric
// Eigenvalue Problem, chapter 8; LAPACK's STERF and STEQR.)
//
// One sweep is the explicit QL step of T − σ, from the last row up. With π the pivot and e the coupling above it,
//   r = √(π² + e²),  c' = π/r,  s' = e/r,  π' = c'(d − σ) − s' c e,  γ' = c'π',
//   e_new = s r,  d_new = γ + (d − γ')
// (the form of Pal, Walker and Kahan, as in STERF, but with square roots, since the rotations are needed). Where e = 0
// the recurrence starts again, so a sweep works on all unreduced blocks at once and a lane needs no bounds of its own.
// A row whose two couplings are zero is left unchanged, bit for bit. Lanes that have converged therefore stay in the
// loop without harm, and the result of a lane does not depend on the others. r carries the sign of π, hence c ≥ 0.
//
// For larger n the eigenvalues are computed first, without rotations, and then used as shifts: about 1.2 sweeps per
// eigenvalue have to be applied to Q instead of 1.5 (float32) or 1.9 (float64). In floating point an exact shift need
// not deflate in one sweep, so from the third sweep on a row Wilkinson's shift is used again.
//
// A rotation is stored as s and t = tan(θ/2) = s/(1 + c), for the three-shear form of rotations.hpp.
#pragma once
#include "../simd/lanes.hpp"

namespace SG_NS {
namespace {

template <class T, int G> struct QL {
  typedef Vec<T> V;
  typedef Mask<T> M;
  int n, lowest, highest;  // couplings outside lowest … highest are zero in every lane
  V *D[G], *E[G];          // index −1 exists: E[−1] = 0, D[−1] finite
  V floor[G], shift[G];
  M level[G], tries[G];  // per lane: couplings above row `level` are zero; number of sweeps spent on that row
  const V* known[G];     // eigenvalues in the order in which an earlier run found them, or null

  // Deflation test: a coupling is set to zero when it is at most eps times the largest entry of T, an absolute
  // threshold. The entries of A are not known more accurately than that. The relative test |e_i| ≤ u (|d_i| +
  // |d_{i+1}|) alone did not converge on matrices of rank one for n ≥ 64 (in a prototype), and with a threshold of
  // eps/4, which is below the rounding error in e, matrices whose eigenvalues all have the same modulus never converge.
  void start(int size) {
    n = size;
    lowest = 0;
    highest = n - 2;
    for (int g = 0; g < G; g++) {
      V largest = {};
      for (int i = 0; i < n; i++) largest = vmax<T>(largest, vmax<T>(vabs<T>(D[g][i]), vabs<T>(E[g][i])));
      floor[g] = largest * Simd<T>::eps;
      for (int i = 0; i < n; i++) E[g][i] = vabs<T>(E[g][i]) <= floor[g] ? V{} : E[g][i];
      E[g][-1] = D[g][-1] = V{};
      level[g] = tries[g] = M{};
    }
  }

  // Advances every lane past its zero couplings and sets its shift from the 2 × 2 block found there. False if all lanes
  // have converged.
  bool prepare() {
    bool open = false;
    while (highest >= 0 && !coupled(highest)) highest--;
    int first = n;
    for (int g = 0; g < G; g++) {
      V d0 = {}, d1 = {}, e = {}, target = {};
      M before = level[g];
      for (int i = lowest; i <= highest; i++) {
        M here = level[g] == i, zero = E[g][i] == 0, stop = here & ~zero;
        level[g] -= here & zero;  // a mask is −1 where it is true: one row further
        d0 = stop ? D[g][i] : d0;
        d1 = stop ? D[g][i + 1] : d1;
        e = stop ? E[g][i] : e;
        if (known[g]) target = stop ? known[g][i] : target;
        if (any(stop) && i < first) first = i;
        if (!any(M(level[g] > i))) break;
      }
      level[g] = level[g] > highest ? ~M{} : level[g];  // done: −1, out of every comparison
      M live = e != 0;
      open |= any(live);
      // Wilkinson's shift: the eigenvalue of [d0 e; e d1] nearer to d0, with the sign that avoids cancellation. In
      // lanes that have converged it is 0/0; `live` discards that.
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

  // One sweep. If recorded, S and Tn receive sin θ and tan(θ/2) of the rotations lowest … highest, and zeros elsewhere
  // in −pad … n+pad. The last step, i = lowest − 1, has e = 0 and only completes row `lowest`. A new coupling is
  // compared with the threshold at once, so that deflation needs no pass of its own.
  template <bool recorded> void sweep(V* const* S, V* const* Tn, int pad) {
    V pi[G], c[G], s[G], gamma[G];
    M bare[G];
    for (int g = 0; g < G; g++) {
      pi[g] = gamma[g] = D[g][highest + 1] - shift[g];
      c[g] = splat<T>(1);
      s[g] = V{};
      bare[g] = ~M{};
      for (int i = -pad; recorded && i < lowest; i++) S[g][i] = Tn[g][i] = V{};
      for (int i = highest + 1; recorded && i < n + pad; i++) S[g][i] = Tn[g][i] = V{};
    }
    for (int i = highest; i >= lowest - 1; i--)
      for (int g = 0; g < G; g++) {
        V e = E[g][i], d = D[g][i], x = d - shift[g], ee = e * e, r, inverse;
        M zero = e == 0, sign = signs<T>(pi[g]);
        root<T>(pi[g] * pi[g] + (ee + Simd<T>::tiny), r, inverse);  // tiny has an effect only where both are zero
        inverse = flip<T>(inverse, sign);
        V coupling = s[g] * flip<T>(r, sign);
        E[g][i + 1] = vabs<T>(coupling) <= floor[g] ? V{} : coupling;
        V next = inverse * (pi[g] * x - c[g] * ee);
        c[g] = zero ? splat<T>(1) : pi[g] * inverse;
        s[g] = e * inverse;
        pi[g] = zero ? x : next;
        V fresh = c[g] * pi[g];
        D[g][i + 1] = (zero & bare[g]) ? D[g][i + 1] : gamma[g] + (zero ? shift[g] : d - fresh);
        gamma[g] = fresh;
        bare[g] = zero;
        if (recorded) {
          S[g][i] = s[g];
          Tn[g][i] = s[g] * reciprocal<T>(c[g] + T(1));
        }
      }
  }
};

}  // namespace
}  // namespace SG_NS
