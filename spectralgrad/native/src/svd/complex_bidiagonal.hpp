// The reduction of bidiagonal.hpp for complex matrices, A = U B Vᴴ with a real B (LAPACK's GEBD2 for complex matrices).
//
// H = I − τ u uᴴ with u = x − β e_k maps the column x to a real number by Hᴴx = β e_k if 1/τ = ‖u‖²/2 + iβ Im x_k. A
// real part of exactly ‖u‖²/2 makes H unitary, whatever the imaginary part, so it is computed from u as it is stored.
// Step k is
//   y = τ̄ uᴴA,  r = row k of A − u yᵀ,  v = r − β' e_{k+1},  x = τ̄' (A − u yᵀ) v̄,  A ← Hᴴ A G = A − u yᵀ − x vᵀ,
// where G = I − τ̄' v̄ vᵀ. The product of the matrices G is V, so the product of the reflectors I − τ' v vᴴ is V̄, whose
// transpose is Vᴴ. Nothing is therefore conjugated when V is formed, transposed or exchanged with U.
//
// A column is planar: ld vectors of real parts, then ld of imaginary parts; so are rows, with lr vectors.
#pragma once
#include "bidiagonal.hpp"
#include "../simd/complex_planes.hpp"

namespace SG_NS {
namespace {

// A −= u yᵀ + x vᵀ is still to be done.
template <class Mode> struct ComplexPending {
  Planar<Mode> u, x, y, v;
};

template <class S> SG_INLINE Complex<S> conjugate(Complex<S> x) { return {x.re, -x.im}; }
template <class Mode, class S = typename Mode::S> SG_INLINE Complex<S> number(Planar<Mode> p, int i) {
  return {p.re()[i], p.im()[i]};
}
template <class Mode, class S = typename Mode::S> SG_INLINE void assign(Planar<Mode> p, int i, Complex<S> x) {
  p.re()[i] = x.re;
  p.im()[i] = x.im;
}
template <class Mode, class S = typename Mode::S> SG_INLINE Complex<Vec<typename Mode::Real>> spread(Complex<S> x) {
  return {Mode::spread(x.re), Mode::spread(x.im)};
}
template <class Mode, class V> SG_INLINE Complex<typename Mode::S> total(Complex<V> x) {
  return {Mode::total(x.re), Mode::total(x.im)};
}

// As columns_pass in bidiagonal.hpp, for one column.
template <class Mode, class S = typename Mode::S>
SG_INLINE void complex_column(Planar<Mode> a, int first, int stop, const ComplexPending<Mode>& old, int j,
                              Planar<Mode> u, Complex<S> tau, int k, Planar<Mode> y, Planar<Mode> r, Planar<Mode> z) {
  typedef Complex<Vec<typename Mode::Real>> C;
  const C yj = old.y.entry(j), vj = old.v.entry(j);
  C sum = {};
  for (int i = first; i < stop; i++) {
    const C e = a.get(i) - product(old.u.get(i), yj) - product(old.x.get(i), vj);
    a.set(i, e);
    sum = sum + conjugate_product(u.get(i), e);
  }
  const Complex<S> yk = conjugate_product(tau, total<Mode>(sum)), rk = number(a, k) - product(number(u, k), yk);
  assign(y, j, yk);
  assign(r, j, rk);
  const C rj = spread<Mode>(rk);
  for (int i = first; i < stop; i++) z.set(i, z.get(i) + conjugate_product(rj, a.get(i)));
}

// As reflector in bidiagonal.hpp. Returns τ.
template <class Mode, class T = typename Mode::Real, class S = typename Mode::S>
SG_INLINE Complex<S> complex_reflector(Planar<Mode> x, int at, int first, int stop, S& beta) {
  const S none = S{};
  S &re = x.re()[at], &im = x.im()[at];
  const auto a = widen(re), b = widen(im);
  re = none;
  im = none;
  const auto rest = squares<Mode>(x.at, first, stop) + squares<Mode>(x.at + x.ld, first, stop);
  auto norm = vsqrt(rest + a * a + b * b);
  norm = a > 0 ? -norm : norm;
  re = narrow(a - norm, none);
  im = narrow(b, none);
  const auto u = widen(re), v = widen(im), half = (rest + u * u + v * v) / 2, turn = norm * b;
  const auto inverse = 1 / (half * half + turn * turn);
  beta = narrow(norm, none);
  const S t = narrow(half * inverse, none), s = narrow(-turn * inverse, none);
  auto negligible = magnitude(beta) < (sizeof(T) == 4 ? T(0x1p-50) : T(0x1p-200));
  beta = negligible ? none : beta;
  return {negligible ? none : t, negligible ? none : s};
}

// Σ x_i ȳ_i over vectors first … stop − 1.
template <class Mode> SG_INLINE auto complex_dot(Planar<Mode> x, Planar<Mode> y, int first, int stop) {
  Complex<Vec<typename Mode::Real>> s = {};
  for (int i = first; i < stop; i++) s = s + conjugate_product(y.get(i), x.get(i));
  return total<Mode>(s);
}

// As bidiagonalise, with twice the work. left, tau: n real parts, then n imaginary parts. Row n − 2 has one entry to
// the right of the diagonal, which a reflector makes real.
template <class Mode, class T = typename Mode::Real, class S = typename Mode::S>
SG_ONCE void complex_bidiagonalise(Vec<T>* a, int ld, int m, int n, Vec<T>* right, int lr, S* D, S* E, S* left, S* tau,
                                   Vec<T>* work) {
  typedef Planar<Mode> P;
  typedef Complex<Vec<T>> C;
  constexpr int per = sizeof(Vec<T>) / sizeof(S);
  const int stop = (m + per - 1) / per, end = (n + per - 1) / per;
  const P x{work, ld}, z{work + 2 * ld, ld}, ys[2] = {{work + 4 * ld, lr}, {work + 4 * ld + 2 * lr, lr}};
  for (int i = 0; i < 4 * (ld + lr); i++) work[i] = Vec<T>{};
  for (int i = 0; i < 2 * n * lr; i++) right[i] = Vec<T>{};
  ComplexPending<Mode> old{x, x, ys[1], ys[1]};  // zeros
  for (int k = 0; k < n; k++) {
    const int first = k / per, from = (k + 1) / per;
    const P u{a + 2 * k * ld, ld}, r{right + 2 * k * lr, lr}, y = ys[k % 2];
    const C yk = old.y.entry(k), vk = old.v.entry(k);
    for (int i = first; i < stop; i++) {
      u.set(i, u.get(i) - product(old.u.get(i), yk) - product(old.x.get(i), vk));
      z.set(i, C{});
    }
    for (int i = 0; i < k; i++) assign(u, i, Complex<S>{});
    const Complex<S> t = complex_reflector(u, k, first, stop, D[n - 1 - k]);
    left[k] = t.re;
    left[n + k] = t.im;
    tau[k] = tau[n + k] = S{};
    assign(y, k, Complex<S>{});
    for (int j = k + 1; j < n; j++) complex_column<Mode>(P{a + 2 * j * ld, ld}, first, stop, old, j, u, t, k, y, r, z);
    if (k + 1 >= n) break;
    const Complex<S> s = complex_reflector(r, k + 1, from, end, E[n - 2 - k]);
    tau[k] = s.re;
    tau[n + k] = s.im;
    const C share = spread<Mode>(complex_dot(y, r, from, end)), turn = spread<Mode>(conjugate(s));
    const Vec<T> b = Mode::spread(E[n - 2 - k]);
    const P next{a + 2 * (k + 1) * ld, ld};
    for (int i = first; i < stop; i++) {
      const C c = next.get(i);
      x.set(i, product(turn, z.get(i) - C{b * c.re, b * c.im} - product(share, u.get(i))));
    }
    old = {u, x, y, r};
  }
}

// As reflected_columns; reflectors are applied one by one.
template <class Mode, int NV, class T = typename Mode::Real, class S = typename Mode::S>
SG_ONCE void complex_reflected_columns(Vec<T>* a, int ld, int n, int count, int offset, int length, const S* tau, int j,
                                       Vec<T>* z) {
  constexpr int per = NV * sizeof(Vec<T>) / sizeof(S);
  for (int i = 0; i < 2 * length * NV; i++) z[i] = Vec<T>{};
  for (int c = 0; c < per && j + c < length; c++) ((S*)z)[2 * (j + c) * per + c] = S{} + T(1);
  int k = j + per - offset;
  for (k = (k < count ? k : count) - 1; k >= 0; k--) {
    const int at = k + offset;
    complex_reflect<Mode, NV, false>(z + 2 * at * NV, length - at, Planar<Mode>{a + 2 * k * ld, ld},
                                     Complex<S>{tau[k], tau[n + k]}, at);
  }
}

}  // namespace
}  // namespace SG_NS
