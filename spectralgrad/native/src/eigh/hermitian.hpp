// Complex Hermitian matrices: Householder reduction to a real tridiagonal matrix, and the columns of the unitary Q.
// (EISPACK's HTRIDI; LAPACK's HETD2.) tridiagonal.hpp describes the steps for real matrices; the iteration that follows
// is real as well, and its rotations act on the real and imaginary parts of Q like on so many more rows.
//
// Row k holds x = (a_k0 … a_k,k−1), the conjugate of column k. The reflector is H = I − τ v vᴴ with real τ and
// v̄ = x + φ‖x‖ e_{k−1}, φ = x_{k−1}/|x_{k−1}|, and it leaves the coupling −φ‖x‖. A diagonal unitary matrix D makes all
// couplings real and positive: d_{k−1} = −d_k φ̄. All vectors are kept conjugated, as rows are.
// (simd/complex_planes.hpp describes how rows are stored.)
#pragma once
#include "orthonormal_basis.hpp"
#include "../simd/complex_planes.hpp"
#include "tridiagonal.hpp"

namespace SG_NS {
namespace {

// As rows_pass in tridiagonal.hpp, for R rows from row i on: a ← a − v̄_i q_j − q̄_i v_j, p_j += a_ij x_i and
// acc_i += ā_ij x_j.
template <class Mode, int R, class T = typename Mode::Real>
SG_INLINE void complex_rows(Vec<T>* a, int ld, int i, int nj, int cols, Planar<Mode> v, Planar<Mode> q, Planar<Mode> x,
                            Planar<Mode> p, Complex<Vec<T>>* acc) {
  typedef Complex<Vec<T>> C;
  C vi[R], qi[R], xi[R], sum[R];
  for (int r = 0; r < R; r++) {
    vi[r] = v.entry(i + r);
    qi[r] = q.entry(i + r);
    xi[r] = x.entry(i + r);
    sum[r] = C{};
  }
  for (int j = 0; j < nj + cols; j++) {
    const C vj = v.get(j), qj = q.get(j), xj = x.get(j);
    C pj = p.get(j);
    for (int r = 0; r < R; r++) {
      const Planar<Mode> row{a + 2 * (i + r) * ld, ld};
      const C e = row.get(j) - conjugate_product(vi[r], qj) - conjugate_product(qi[r], vj);
      row.set(j, e);
      sum[r] = sum[r] + conjugate_product(e, xj);
      if (j < nj) pj = pj + product(e, xi[r]);
    }
    if (j < nj) p.set(j, pj);
  }
  for (int r = 0; r < R; r++) acc[r] = sum[r];
}

template <class Mode, class T = typename Mode::Real>
void complex_update_multiply(Vec<T>* a, int ld, int k, Planar<Mode> v, Planar<Mode> q, Planar<Mode> x, Planar<Mode> p) {
  constexpr int B = Mode::block, R = SG_BYTES == 64 ? 2 : 1;
  Complex<Vec<T>> acc[B];
  Vec<T> re[B], im[B];
  for (int i0 = 0, nj = 0; i0 < k; i0 += B, nj += Mode::cols) {
    int rows = k - i0 < B ? k - i0 : B, r = 0;
    for (; r + R <= rows; r += R) complex_rows<Mode, R>(a, ld, i0 + r, nj, Mode::cols, v, q, x, p, acc + r);
    for (; r < rows; r++) complex_rows<Mode, 1>(a, ld, i0 + r, nj, Mode::cols, v, q, x, p, acc + r);
    for (r = 0; r < rows; r++) {
      re[r] = acc[r].re;
      im[r] = acc[r].im;
    }
    settle(Mode{}, p.re() + i0, re, rows);
    settle(Mode{}, p.im() + i0, im, rows);
  }
}

// The entry x_{k−1} becomes v's; x itself is kept from column k on as zero. Returns the phase factor φ and ‖x‖,
// both 1 and 0 if x is negligible. An entry below √tiny is replaced by zero first: its square would underflow.
template <class Mode> struct Head {
  typename Mode::S phase_re, phase_im, norm, tau;
};
template <class Mode, class T = typename Mode::Real, class S = typename Mode::S>
SG_INLINE Head<Mode> head(Planar<Mode> x, int k, int nv) {
  constexpr T tiny = Simd<T>::tiny;
  S zero = S{}, one = zero + T(1), &re = x.re()[k - 1], &im = x.im()[k - 1], square = re * re + im * im;
  auto none = square < tiny;
  re = none ? zero : re;
  im = none ? zero : im;
  Vec<T> squares = {};
  for (int j = 0; j < nv; j++) squares += x.at[j] * x.at[j] + x.at[x.ld + j] * x.at[x.ld + j];
  S ss = Mode::total(squares), length = vsqrt(square), norm = vsqrt(ss);
  S a = none ? one : re / length, b = none ? zero : im / length, size = none ? zero : length;
  auto negligible = ss < tiny;
  S tau = negligible ? zero : 1 / (ss + size * norm);
  norm = negligible ? zero : norm;
  re += a * norm;
  im += b * norm;
  return {negligible ? one : a, negligible ? zero : b, norm, tau};
}

// As tridiagonalise; work: six arrays of ld vectors. phase: n real parts of d, then n imaginary parts.
template <class Mode, class T = typename Mode::Real, class S = typename Mode::S>
SG_ONCE void complex_tridiagonalise(Vec<T>* a, int ld, int n, S* D, S* E, S* tau, S* phase, Vec<T>* work) {
  typedef Planar<Mode> P;
  constexpr int per = sizeof(Vec<T>) / sizeof(S);
  const int padded = ld * per;
  P v{work, ld}, q{work + 2 * ld, ld}, p{work + 4 * ld, ld};
  for (int j = 0; j < 4 * ld; j++) work[j] = Vec<T>{};
  phase[n - 1] = S{} + T(1);
  phase[2 * n - 1] = S{};
  for (int k = n - 1; k > 0; k--) {
    P row{a + 2 * k * ld, ld};
    const int nv = (k + per) / per;
    const Complex<Vec<T>> vk = v.entry(k), qk = q.entry(k);
    for (int j = 0; j < nv; j++)
      row.set(j, row.get(j) - conjugate_product(vk, q.get(j)) - conjugate_product(qk, v.get(j)));
    D[k] = row.re()[k];
    for (int j = k; j < padded; j++) row.re()[j] = row.im()[j] = S{};
    const Head<Mode> h = head(row, k, nv);
    E[k - 1] = h.norm;
    tau[k] = h.tau;
    const T sign = k == 1 ? T(1) : T(-1);  // row 1 is not reflected: its coupling is φ|x|
    const S c = phase[k], s = phase[n + k];
    phase[k - 1] = (c * h.phase_re + s * h.phase_im) * sign;
    phase[n + k - 1] = (s * h.phase_re - c * h.phase_im) * sign;
    if (k == 1) break;
    for (int j = 0; j < 2 * ld; j++) p.at[j] = Vec<T>{};
    complex_update_multiply<Mode>(a, ld, k, v, q, row, p);
    Vec<T> dots = {}, t = Mode::spread(tau[k]);
    for (int j = 0; j < nv; j++) {
      const Complex<Vec<T>> y = {p.at[j] * t, p.at[ld + j] * t};
      p.set(j, y);
      dots += y.re * row.at[j] + y.im * row.at[ld + j];
    }
    const Vec<T> shift = Mode::spread(tau[k] * T(0.5) * Mode::total(dots));
    for (int j = 0; j < 2 * ld; j++) q.at[j] = p.at[j] - shift * row.at[j];
    v = row;
  }
  D[0] = ((S*)a)[0] - 2 * (v.re()[0] * q.re()[0] + v.im()[0] * q.im()[0]);
}

// As q_columns, with D.
template <class Mode, int NV, class T = typename Mode::Real, class S = typename Mode::S>
SG_ONCE void complex_columns(Vec<T>* a, int ld, int n, const S* tau, const S* phase, int j, Vec<T>* z) {
  constexpr int row = NV * sizeof(Vec<T>) / sizeof(S);
  for (int i = 0; i < 2 * n * NV; i++) z[i] = Vec<T>{};
  for (int c = 0; c < row && j + c < n; c++)
    for (int part = 0; part < 2; part++) ((S*)z)[(2 * (j + c) + part) * row + c] = phase[part * n + j + c];
  for (int k = j + 1 < 2 ? 2 : j + 1; k < n; k++)
    complex_reflect<Mode, NV, true>(z, k, Planar<Mode>{a + 2 * k * ld, ld}, {tau[k], S{}});
}

}  // namespace
}  // namespace SG_NS
