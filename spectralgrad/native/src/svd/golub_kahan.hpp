// The implicit QR iteration of Golub and Kahan on W·G bidiagonal matrices in lockstep, one matrix per lane. The
// rotations are recorded here and applied in eigh/rotations.hpp. (Golub & Van Loan, 4th ed., section 8.6.3; Demmel and
// Kahan, SIAM J. Sci. Stat. Comput. 11 (1990); LAPACK's BDSQR.)
//
// The bidiagonal B is stored backwards: D[n−1] is its first diagonal entry, and E[i] lies in the row of D[i+1] and the
// column of D[i]. A sweep then runs from `highest` down, as eigh/rotations.hpp expects, and small singular values,
// which the reduction leaves at the end of B, are found first, at index 0.
//
// One sweep is the QR step of BᵀB − λ without forming BᵀB. With x, y the diagonal entries at i+1 and i, e the coupling
// between them and (f, g) the bulge,
//   right rotation  (f, g) → (E[i+1], 0);   f = c x + s e,  e = c e − s x,  g = s y,  y = c y;
//   left rotation   (f, g) → (D[i+1], 0);   f = c e + s y,  y = c y − s e,  g = s E[i−1],  E[i−1] = c E[i−1].
// At the beginning of a block (f, g) has the direction (x² − λ, x e). Where e = 0 a new block begins, so a sweep works
// on all blocks at once and a lane needs no bounds of its own. Rows without couplings are left unchanged, bit for bit,
// so that the result of a lane does not depend on the others.
//
// A bulge below `cut` is dropped, since its square might underflow; it is far below rounding error. This happens where
// a diagonal entry is (nearly) zero: at the beginning of a block if the shift is the square of the last entry, as for
// matrices of rank one, or within it. The rest of the block would then remain as it is, in this sweep and in all that
// follow. The lane therefore uses λ = 0 in the next sweep: a bulge that is dropped then leaves a zero coupling behind,
// and the sweep begins again below it. (Demmel and Kahan's zero-shift QR does the same in one formula.)
//
// Shifts are Wilkinson's: 1.4 (float32) to 1.9 (float64) sweeps are needed per singular value. Computing the values
// first and using them as shifts, as eigh/ql.hpp does, saves too few of them to pay.
#pragma once
#include "../simd/lanes.hpp"

namespace SG_NS {
namespace {

// The rotation that maps (f, g) to (r, 0), as s = sin θ and t = tan(θ/2); r has the sign of f, so |t| ≤ 1. With c = 1 −
// s t every product is the old value plus a correction: what a rotation by a small angle hardly changes keeps its bits.
// (With c rounded to full precision instead, singular values that had nearly converged took part of a rounding error in
// every sweep, and the largest were off by ten times LAPACK's error at n = 128.)
template <class T> struct Givens {
  typedef Vec<T> V;
  V s, t;
  Mask<T> none;  // g was dropped: s = t = 0, r = f exactly
  SG_INLINE Givens(V f, V g, V cut) {
    none = vabs<T>(g) <= cut;
    V length = flip<T>(vsqrt(f * f + g * g), signs<T>(f));
    V half = g / (f + length);
    t = none ? V{} : half;
    s = (t + t) / (t * t + T(1));
  }
  SG_INLINE V first(V x, V y) const { return s * (y - t * x); }    // c x + s y − x
  SG_INLINE V second(V x, V y) const { return -s * (t * y + x); }  // c y − s x − y
  SG_INLINE V kept(V x) const { return -s * (t * x); }             // c x − x
};

// x += step, and the rounding error of this addition to `lost` (Dekker; exact for |x| ≥ |step|).
template <class V> SG_INLINE void add(V& x, V step, V& lost) {
  V sum = x + step;
  lost += step - (sum - x);
  x = sum;
}

template <class T, int G> struct GolubKahan {
  typedef Vec<T> V;
  typedef Mask<T> M;
  struct Record {
    V *s, *t;  // sin θ and tan(θ/2) of one sweep
  };
  int n, lowest, highest;  // couplings outside lowest … highest are zero in every lane
  V *D[G], *E[G], *B[G];   // D + B: the diagonal with what rounding took from it; index −1 exists, E[−1] = E[n−1] = 0
  V floor[G], cut[G], shift[G];
  M level[G], stalled[G];  // per lane: couplings below index `level` are zero; a bulge was dropped in the last sweep

  // A coupling is set to zero when it is at most 4 eps times the largest entry of B, an absolute threshold (see
  // eigh/ql.hpp). With 1 eps, equal singular values take more sweeps, whose rounding errors are larger than what is
  // dropped.
  void start(int size) {
    n = size;
    lowest = 0;
    highest = n - 2;
    for (int g = 0; g < G; g++) {
      V largest = {};
      E[g][-1] = E[g][n - 1] = D[g][-1] = V{};
      for (int i = -1; i < n; i++) B[g][i] = V{};
      for (int i = 0; i < n; i++) largest = vmax<T>(largest, vmax<T>(vabs<T>(D[g][i]), vabs<T>(E[g][i])));
      floor[g] = largest * Simd<T>::eps * 4;
      cut[g] = largest * (sizeof(T) == 4 ? T(0x1p-50) : T(0x1p-200));
      for (int i = 0; i < n; i++) E[g][i] = vabs<T>(E[g][i]) <= floor[g] ? V{} : E[g][i];
      level[g] = stalled[g] = M{};
    }
  }

  bool coupled(int i) {
    M m = {};
    for (int g = 0; g < G; g++) m |= E[g][i] != 0;
    return any(m);
  }

  // Wilkinson's shift: the eigenvalue of the last 2 × 2 block of BᵀB, [x²+f² xe; xe y²+e²], nearer to its last entry.
  // The determinant is a sum of positive terms, so that the smaller eigenvalue is accurate.
  static SG_INLINE V wilkinson(V x, V y, V e, V f) {
    V p = x * x + f * f, q = y * y + e * e, w = x * e, h = (p - q) * T(0.5);
    V larger = (p + q) * T(0.5) + vsqrt(h * h + w * w);
    return h > 0 ? (x * x * (y * y) + f * f * q) / larger : larger;
  }

  // Advances every lane past its zero couplings and sets its shift from the 2 × 2 block found there. False if all lanes
  // have converged.
  bool prepare() {
    bool open = false;
    while (highest >= 0 && !coupled(highest)) highest--;
    int first = n;
    for (int g = 0; g < G; g++) {
      V y = {}, x = {}, e = {}, f = {};
      M before = level[g];
      for (int i = lowest; i <= highest; i++) {
        M here = level[g] == i, zero = E[g][i] == 0, stop = here & ~zero;
        level[g] -= here & zero;  // a mask is −1 where it is true: one row further
        y = stop ? D[g][i] : y;
        x = stop ? D[g][i + 1] : x;
        e = stop ? E[g][i] : e;
        f = stop ? E[g][i + 1] : f;
        if (any(stop) && i < first) first = i;
        if (!any(M(level[g] > i))) break;
      }
      level[g] = level[g] > highest ? ~M{} : level[g];  // done: −1, out of every comparison
      M live = e != 0;
      open |= any(live);
      stalled[g] &= level[g] == before;  // where a singular value was found the sweep did its work
      shift[g] = (live & ~stalled[g]) ? wilkinson(x, y, e, f) : V{};
    }
    lowest = first;
    return open;
  }

  // One sweep. If recorded, right[g] and left[g] receive the rotations lowest … highest, and zeros elsewhere in −pad …
  // n+pad. A new coupling is compared with the threshold at once, so that deflation needs no pass of its own.
  template <bool recorded> void sweep(const Record* right, const Record* left, int pad) {
    V f[G] = {}, b[G] = {}, x[G], e[G], carry[G];
    M fresh[G], ended[G];  // a block begins at this row; it ends with it (its coupling was zero before the sweep)
    for (int g = 0; g < G; g++) {
      x[g] = D[g][highest + 1];
      carry[g] = B[g][highest + 1];
      e[g] = E[g][highest];
      fresh[g] = ~M{};
      ended[g] = e[g] == 0;
      stalled[g] = M{};
      if (recorded) {
        clear(right[g], pad);
        clear(left[g], pad);
      }
    }
    for (int i = highest; i >= lowest; i--)
      for (int g = 0; g < G; g++) {
        fresh[g] |= (vabs<T>(f[g]) <= floor[g]) & (vabs<T>(b[g]) <= cut[g]);
        M begin = fresh[g] & (e[g] != 0);
        if (any(begin)) {
          M plain = (shift[g] == 0) | (x[g] == 0);
          f[g] = begin ? (plain ? x[g] : x[g] * x[g] - shift[g]) : f[g];
          b[g] = begin ? (plain ? e[g] : x[g] * e[g]) : b[g];
        }
        V y = D[g][i], next = E[g][i - 1];
        Givens<T> p(f[g], b[g], cut[g]);
        V r = f[g] + p.first(f[g], b[g]);
        E[g][i + 1] = (fresh[g] | (vabs<T>(r) <= floor[g])) ? V{} : r;
        V h = e[g] + p.second(x[g], e[g]), z = y, lost = B[g][i];
        V step = p.first(x[g], e[g]);
        add(x[g], step, carry[g]);
        add(z, p.kept(y), lost);
        Givens<T> q(x[g], p.s * y, cut[g]);
        stalled[g] |= (p.none | q.none) & (e[g] != 0);
        add(x[g], q.first(x[g], p.s * y), carry[g]);
        D[g][i + 1] = x[g] + carry[g];
        B[g][i + 1] = carry[g] - (D[g][i + 1] - x[g]);
        f[g] = h + q.first(h, z);
        b[g] = q.s * next;
        add(z, q.second(h, z), lost);
        x[g] = z;
        carry[g] = lost;
        e[g] = next + q.kept(next);  // may become zero although the bulge is not: it does not end the block
        fresh[g] = ended[g];
        ended[g] = next == 0;
        if (recorded) {
          note(right[g], i, p);
          note(left[g], i, q);
        }
      }
    for (int g = 0; g < G; g++) {
      E[g][lowest] = (fresh[g] | (vabs<T>(f[g]) <= floor[g])) ? V{} : f[g];
      D[g][lowest] = x[g] + carry[g];
      B[g][lowest] = carry[g] - (D[g][lowest] - x[g]);
    }
  }
  static SG_INLINE void note(const Record& to, int i, const Givens<T>& r) {
    to.s[i] = r.s;
    to.t[i] = r.t;
  }
  void clear(const Record& to, int pad) const {
    for (int i = -pad; i < lowest; i++) to.s[i] = to.t[i] = V{};
    for (int i = highest + 1; i < n + pad; i++) to.s[i] = to.t[i] = V{};
  }
};

}  // namespace
}  // namespace SG_NS
