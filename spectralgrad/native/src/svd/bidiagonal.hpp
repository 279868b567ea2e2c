// Householder reduction A = U B Vᵀ of an m × n matrix (m ≥ n) to upper bidiagonal form, and the columns of U and V
// (Golub & Van Loan, 4th ed., section 5.4.8; LAPACK's GEBD2 and ORG2R).
//
// Step k maps column k to β e_k by H = I − τ u uᵀ and then row k to β' e_{k+1} by G = I − τ' v vᵀ:
//   y = τ Aᵀu,  r = row k of A − u yᵀ,  x = τ' (A − u yᵀ) v,  A ← H A G = A − u yᵀ − x vᵀ.
// β has the opposite sign of the entry it replaces, so that u and v are formed without cancellation. Columns are
// contiguous. A step reads and writes each column once: the update of the previous step, the product y_j, the entry r_j
// that follows from it, and the column's share of z = A r. Since v = r − β' e_{k+1}, A v = z − β' a_{k+1} needs no pass
// of its own. (Howell, Demmel, Fulton, Hammarling and Marmol, ACM Trans. Math. Softw. 34 (2008).)
#pragma once
#include "../eigh/tridiagonal.hpp"

namespace SG_NS {
namespace {

// What a step of the reduction hands to the next: A −= u yᵀ + x vᵀ is still to be done.
template <class Mode, class T = typename Mode::Real, class S = typename Mode::S> struct Pending {
  const Vec<T>*u, *x;  // columns of m entries
  const S *y, *v;      // rows of n entries
};

// C columns from a on, vectors first … stop − 1 of each: the update `old`, then y_c = τ a_cᵀu, r_c = a_kc − u_k y_c and
// z += a_c r_c.
template <class Mode, int C, class T = typename Mode::Real, class S = typename Mode::S>
SG_INLINE void columns_pass(Vec<T>* a, int ld, int first, int stop, const Pending<Mode>& old, int j, const Vec<T>* u,
                            S tau, int k, S* y, S* r, Vec<T>* z) {
  Vec<T> yj[C], vj[C], sum[C];
  for (int c = 0; c < C; c++) {
    yj[c] = Mode::spread(old.y[j + c]);
    vj[c] = Mode::spread(old.v[j + c]);
    sum[c] = Vec<T>{};
  }
  for (int i = first; i < stop; i++) {
    Vec<T> ui = old.u[i], xi = old.x[i], wi = u[i];
    for (int c = 0; c < C; c++) {
      Vec<T> e = a[c * ld + i] - ui * yj[c] - xi * vj[c];
      a[c * ld + i] = e;
      sum[c] += e * wi;
    }
  }
  for (int c = 0; c < C; c++) {
    y[j + c] = tau * Mode::total(sum[c]);
    r[j + c] = ((S*)(a + c * ld))[k] - ((const S*)u)[k] * y[j + c];
    yj[c] = Mode::spread(r[j + c]);
  }
  for (int i = first; i < stop; i++) {
    Vec<T> zi = z[i];
    for (int c = 0; c < C; c++) zi += a[c * ld + i] * yj[c];
    z[i] = zi;
  }
}

// The products over vectors first … stop − 1.
template <class Mode, class T = typename Mode::Real> SG_INLINE auto dot(const Vec<T>* a, const Vec<T>* b, int first,
                                                                        int stop) {
  Vec<T> s = {};
  for (int i = first; i < stop; i++) s += a[i] * b[i];
  return Mode::total(s);
}

// Σ x², widened; four sums overlap the latencies of the additions and leave less rounding error.
template <class Mode, class T = typename Mode::Real> SG_INLINE auto squares(const Vec<T>* x, int first, int stop) {
  typename Wide<T>::V s[4] = {};
  int i = first;
  for (; i + 4 <= stop; i += 4)
    for (int k = 0; k < 4; k++) s[k] += widen(x[i + k]) * widen(x[i + k]);
  for (; i < stop; i++) s[i & 3] += widen(x[i]) * widen(x[i]);
  return Mode::total_wide((s[0] + s[1]) + (s[2] + s[3]));
}

// Turns x (entries from `at` on, zeros before) into the reflector that maps it to β e_at; returns τ and sets β. An x
// whose norm is below √tiny is treated as zero (H = I), as in eigh/tridiagonal.hpp.
// The singular values of B are as accurate as H is orthogonal, so τ = 2/‖u‖² is computed from u as it is stored, and
// sums in float32 are widened. (Plain float32 made the errors 16 times as large as LAPACK's at n = 128.)
template <class Mode, class T = typename Mode::Real, class S = typename Mode::S>
SG_INLINE S reflector(Vec<T>* x, int at, int first, int stop, S& beta) {
  S& pivot = ((S*)x)[at];
  S none = S{};
  auto alpha = widen(pivot);
  pivot = none;
  auto rest = squares<Mode>(x, first, stop), norm = vsqrt(rest + alpha * alpha);
  norm = alpha > 0 ? -norm : norm;
  pivot = narrow(alpha - norm, none);
  auto u = widen(pivot);
  beta = narrow(norm, none);
  S tau = narrow(2 / (rest + u * u), none);
  auto negligible = magnitude(beta) < (sizeof(T) == 4 ? T(0x1p-50) : T(0x1p-200));
  beta = negligible ? none : beta;
  return negligible ? none : tau;
}

// Reduces a (n columns of ld vectors, m entries each, zeros beyond). The bidiagonal is stored backwards, as
// golub_kahan.hpp wants it: D[n−1−k] = b_kk, E[n−2−k] = b_k,k+1. Column k is left holding u_k, zero above row k, and
// row k of `right` (rows of lr vectors) v_k, zero up to column k. left, tau: their τ. work: 2·ld + 2·lr vectors.
template <class Mode, class T = typename Mode::Real, class S = typename Mode::S>
SG_ONCE void bidiagonalise(Vec<T>* a, int ld, int m, int n, Vec<T>* right, int lr, S* D, S* E, S* left, S* tau,
                           Vec<T>* work) {
  constexpr int per = sizeof(Vec<T>) / sizeof(S), C = 4;  // entries a vector; columns a pass
  const int stop = (m + per - 1) / per, end = (n + per - 1) / per;
  Vec<T>*x = work, *z = work + ld, *ys[2] = {work + 2 * ld, work + 2 * ld + lr};
  for (int i = 0; i < 2 * ld + 2 * lr; i++) work[i] = Vec<T>{};
  for (int i = 0; i < n * lr; i++) right[i] = Vec<T>{};
  Pending<Mode> old{x, x, (S*)ys[1], (S*)ys[1]};  // zeros
  for (int k = 0; k < n; k++) {
    const int first = k / per, from = (k + 1) / per;
    Vec<T>*u = a + k * ld, *rv = right + k * lr, *yv = ys[k % 2];
    S *y = (S*)yv, *r = (S*)rv;
    Vec<T> yk = Mode::spread(old.y[k]), vk = Mode::spread(old.v[k]);
    for (int i = first; i < stop; i++) {
      u[i] -= old.u[i] * yk + old.x[i] * vk;
      z[i] = Vec<T>{};
    }
    for (int i = 0; i < k; i++) ((S*)u)[i] = S{};
    left[k] = reflector<Mode>(u, k, first, stop, D[n - 1 - k]);
    y[k] = S{};
    tau[k] = S{};
    int j = k + 1;
    for (; j + C <= n; j += C) columns_pass<Mode, C>(a + j * ld, ld, first, stop, old, j, u, left[k], k, y, r, z);
    for (; j < n; j++) columns_pass<Mode, 1>(a + j * ld, ld, first, stop, old, j, u, left[k], k, y, r, z);
    if (k + 1 >= n) break;
    S beta = r[k + 1];
    if (k + 2 < n) tau[k] = reflector<Mode>(rv, k + 1, from, end, beta);
    E[n - 2 - k] = beta;
    Vec<T> share = Mode::spread(dot<Mode>(yv, rv, from, end)), b = Mode::spread(beta), t = Mode::spread(tau[k]);
    for (int i = first; i < stop; i++) x[i] = t * (z[i] - b * a[(k + 1) * ld + i] - share * u[i]);
    old = {u, x, y, r};
  }
}

// The products of the reflectors 2p and 2p+1, which reflect() needs.
template <class Mode, class T = typename Mode::Real, class S = typename Mode::S>
void pair_dots(const Vec<T>* a, int ld, int count, int length, S (*dots)[2][2]) {
  constexpr int per = sizeof(Vec<T>) / sizeof(S);
  for (int k = 0; k + 1 < count; k += 2)
    dots[k / 2][1][0] = dot<Mode>(a + k * ld, a + (k + 1) * ld, k / per, (length + per - 1) / per);
}

// Columns of Q = H_0 H_1 ⋯ H_{count−1}: NV vectors of them, the first being column j, into z (`length` rows of NV
// vectors). Reflector k is row k of a and starts at entry k + offset, so that it leaves the columns of the identity
// before k + offset unchanged.
template <class Mode, int NV, class T = typename Mode::Real, class S = typename Mode::S>
SG_ONCE void reflected_columns(const Vec<T>* a, int ld, int count, int offset, int length, const S* tau,
                               const S (*dots)[2][2], int j, Vec<T>* z) {
  constexpr int per = sizeof(Vec<T>) / sizeof(S);
  const S none[1][1] = {};
  for (int i = 0; i < length * NV; i++) z[i] = Vec<T>{};
  for (int c = 0; c < NV * per && j + c < length; c++) ((S*)z)[(j + c) * NV * per + c] = S{} + T(1);
  int k = j + NV * per - offset;
  k = k < count ? k : count;
  if (k > 0 && k % 2) {
    k--;
    const S* const v[1] = {(const S*)(a + k * ld) + k + offset};
    reflect<Mode, 1, NV>(z + (k + offset) * NV, length - k - offset, v, tau + k, none);
  }
  for (k -= 2; k >= 0; k -= 2) {
    const S* const v[2] = {(const S*)(a + (k + 1) * ld) + k + offset, (const S*)(a + k * ld) + k + offset};
    const S both[2] = {tau[k + 1], tau[k]};
    reflect<Mode, 2, NV>(z + (k + offset) * NV, length - k - offset, v, both, dots[k / 2]);
  }
}

}  // namespace
}  // namespace SG_NS
