// Complex numbers in vectors, and rows of them: ld vectors of real parts, then ld vectors of imaginary parts.
#pragma once
#include "lanes.hpp"

namespace SG_NS {
namespace {

template <class V> struct Complex {
  V re, im;
};
template <class V> SG_INLINE Complex<V> product(Complex<V> x, Complex<V> y) {
  return {x.re * y.re - x.im * y.im, x.re * y.im + x.im * y.re};
}
template <class V> SG_INLINE Complex<V> conjugate_product(Complex<V> x, Complex<V> y) {  // x̄ y
  return {x.re * y.re + x.im * y.im, x.re * y.im - x.im * y.re};
}
template <class V> SG_INLINE Complex<V> operator+(Complex<V> x, Complex<V> y) { return {x.re + y.re, x.im + y.im}; }
template <class V> SG_INLINE Complex<V> operator-(Complex<V> x, Complex<V> y) { return {x.re - y.re, x.im - y.im}; }

// Rows of ld vectors of real parts and as many of imaginary parts; `entry` is entry i as an operand for vectors.
template <class Mode> struct Planar {
  typedef typename Mode::S S;
  typedef Vec<typename Mode::Real> V;
  V* at;
  int ld;
  SG_INLINE Complex<V> get(int j) const { return {at[j], at[ld + j]}; }
  SG_INLINE void set(int j, Complex<V> x) const {
    at[j] = x.re;
    at[ld + j] = x.im;
  }
  SG_INLINE S* re() const { return (S*)at; }
  SG_INLINE S* im() const { return (S*)(at + ld); }
  SG_INLINE Complex<V> entry(int i) const { return {Mode::spread(re()[i]), Mode::spread(im()[i])}; }
};

// H z = z − τ v (vᴴz) for NV vectors of columns; row i of z has NV vectors of real parts, then NV of imaginary parts.
// With `conjugated`, the row holds v̄. Entry 0 of z belongs to entry `first` of v.
template <class Mode, int NV, bool conjugated, class T = typename Mode::Real, class S = typename Mode::S>
SG_INLINE void complex_reflect(Vec<T>* z, int rows, Planar<Mode> v, Complex<S> tau, int first = 0) {
  typedef Complex<Vec<T>> C;
  C u[NV];
  for (int c = 0; c < NV; c++) u[c] = C{};
  for (int i = 0; i < rows; i++) {
    const C x = v.entry(first + i);
    for (int c = 0; c < NV; c++) {
      const C e = {z[2 * i * NV + c], z[(2 * i + 1) * NV + c]};
      u[c] = u[c] + (conjugated ? product(x, e) : conjugate_product(x, e));
    }
  }
  const C t = {Mode::spread(tau.re), Mode::spread(tau.im)};
  for (int c = 0; c < NV; c++) u[c] = product(t, u[c]);
  for (int i = 0; i < rows; i++) {
    const C x = v.entry(first + i);
    for (int c = 0; c < NV; c++) {
      Vec<T>&re = z[2 * i * NV + c], &im = z[(2 * i + 1) * NV + c];
      const C e = C{re, im} - (conjugated ? conjugate_product(x, u[c]) : product(x, u[c]));
      re = e.re;
      im = e.im;
    }
  }
}

}  // namespace
}  // namespace SG_NS
