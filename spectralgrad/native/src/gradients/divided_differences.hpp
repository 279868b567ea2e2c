// Divided differences (f_i − f_j)/(w_i − w_j) of a function that the caller evaluates
// (autograd/functions/user_functions.py).
//
// For close pairs the quotient may cancel and the mean of f′ between the two values takes its place if both agree up to
// the quotient's rounding errors. There are few of them, so the work is divided into steps between which the caller
// evaluates f′ at the nodes of all close pairs at once:
//
//   quotients  the matrix of quotients, with `marked` in place of close pairs, and how many there are in each matrix;
//   nodes      the values w themselves, then for each close pair the nodes of a quadrature between its two values;
//   means      from f′ at these places, the diagonal and the close pairs.
// Pairs are i > j, row after row. With `finite`, results that are not finite become zero.
#pragma once
#include <string.h>

#include "../interface.hpp"
#include "../simd/lanes.hpp"

namespace SG_NS {
namespace {

using sg::Divided;
using sg::quadrature_nodes;

// Gauss–Legendre quadrature on [−1, 1]: exact for polynomials of degree 11.
constexpr double node[quadrature_nodes] = {-0.93246951420315202781, -0.66120938646626451366, -0.23861918608319690863,
                                           0.23861918608319690863,  0.66120938646626451366,  0.93246951420315202781};
constexpr double share[quadrature_nodes] = {0.17132449237917034504, 0.36076157304813860757, 0.46791393457269104739,
                                            0.46791393457269104739, 0.36076157304813860757, 0.17132449237917034504};

// A NaN that no quotient is, since theirs are replaced by another.
template <class T> SG_INLINE typename Simd<T>::I as_bits(T x) {
  typename Simd<T>::I i;
  memcpy(&i, &x, sizeof i);
  return i;
}
template <class T> SG_INLINE T marked() {
  const typename Simd<T>::I i = Simd<T>::exponent_mask | typename Simd<T>::I(0x6a55) << (Simd<T>::mantissa - 15);
  T x;
  memcpy(&x, &i, sizeof x);
  return x;
}
template <class T> SG_INLINE bool is_marked(T x) { return as_bits(x) == as_bits(marked<T>()); }
template <class T> SG_INLINE T cleaned(T x, bool finite) {
  return x - x == 0 ? x : finite ? T(0) : x == x ? x : (T)__builtin_nanf("");
}
template <class T> SG_INLINE T greater(T x, T y) { return x > y ? x : y; }

// Below the smallest normal number the spacing of numbers no longer shrinks, so steps of that size count as cancelled.
template <class T> constexpr T cancelled = 1000 * Simd<T>::normal;

constexpr int divided_lanes_up_to = 16;  // size of a matrix
template <class T> SG_INLINE Vec<T> splat_bits(T x) { return unbits<T>(Mask<T>{} + as_bits(x)); }

// Row i of the lower triangle. A pair is close within 20 % of the larger value; or, where |f_i − f_j| below 1e-3 of |f|
// would lose more than three digits or is denormal, within 5 % of the norm.
template <class T> int quotient_row(const T* __restrict w, const T* __restrict f, int i, T norm, bool finite,
                                    T* __restrict row) {
  int close = 0;
  const T wi = w[i], fi = f[i];
  for (int j = 0; j < i; j++) {
    const T gap = magnitude(wi - w[j]), step = magnitude(fi - f[j]);
    const T height = greater(greater(magnitude(fi), magnitude(f[j])), cancelled<T>);
    const bool cancels = (step <= T(1e-3) * height) & (gap <= T(0.05) * norm);
    const bool near = (gap <= T(0.2) * greater(magnitude(wi), magnitude(w[j]))) | cancels;
    const T quotient = cleaned((fi - f[j]) / (near ? T(1) : wi - w[j]), finite);
    row[j] = near ? marked<T>() : quotient;
    close += near;
  }
  return close;
}

template <class T> T norm_of(const T* w, int d) {
  T top = 0;
  for (int i = 0; i < d; i++) top = greater(magnitude(w[i]), top);
  return top;
}

// The same for small matrices, one per lane.
template <class T> int quotients_in_lanes(const Divided<T>& t, int64_t first, int count) {
  typedef Vec<T> V;
  constexpr int W = Simd<T>::W, most = divided_lanes_up_to;
  const int d = t.d;
  V w[most + W], f[most + W], joint[most * most + W], norm = {};
  Mask<T> close = {};
  gather(t.w + first * d, d, count, t.w + t.batch * d, d, w);
  gather(t.f + first * d, d, count, t.f + t.batch * d, d, f);
  for (int i = 0; i < d; i++) norm = vmax<T>(vabs<T>(w[i]), norm);
  const V mark = splat_bits<T>(marked<T>()), nan = splat<T>(__builtin_nanf("")), one = splat<T>(1), zero = {};
  const V least = splat<T>(cancelled<T>);
  for (int i = 0; i < d; i++) {
    joint[i * d + i] = zero;
    for (int j = 0; j < i; j++) {
      const V gap = vabs<T>(w[i] - w[j]), step = vabs<T>(f[i] - f[j]);
      const V height = vmax<T>(vmax<T>(vabs<T>(f[i]), vabs<T>(f[j])), least);
      const Mask<T> cancels = (step <= T(1e-3) * height) & (gap <= T(0.05) * norm);
      const Mask<T> near = (gap <= T(0.2) * vmax<T>(vabs<T>(w[i]), vabs<T>(w[j]))) | cancels;
      V q = (f[i] - f[j]) / (near ? one : w[i] - w[j]);
      q = q - q == 0 ? q : t.finite ? zero : q == q ? q : nan;
      joint[i * d + j] = joint[j * d + i] = near ? mark : q;
      close -= near;
    }
  }
  T* to = t.joint + first * d * d;
  scatter(joint, to, (int64_t)d * d, count, to + (int64_t)count * d * d, d * d);
  int all = 0;
  for (int k = 0; k < count; k++) {
    t.offsets[first + k] = (int64_t)close[k];
    all += (int)close[k];
  }
  return all;
}

template <class T> int quotients(const Divided<T>& t, int64_t b) {
  const int d = t.d;
  const T *w = t.w + b * d, *f = t.f + b * d, norm = norm_of(w, d);
  T* joint = t.joint + b * d * d;
  int close = 0;
  for (int i = 0; i < d; i++) {
    close += quotient_row(w, f, i, norm, t.finite, joint + (int64_t)i * d);
    for (int j = 0; j < i; j++) joint[(int64_t)j * d + i] = joint[(int64_t)i * d + j];
  }
  t.offsets[b] = close;
  return close;
}

// Calls each(i, j) for all marked pairs.
template <class T, class Each> void for_marked(const T* joint, int d, Each each) {
  for (int i = 1; i < d; i++)
    for (int j = 0; j < i; j++)
      if (is_marked(joint[(int64_t)i * d + j])) each(i, j);
}

template <class T> void quadrature(const Divided<T>& t, int64_t b) {
  const int d = t.d;
  const T* w = t.w + b * d;
  T* to = t.places + t.batch * d + t.offsets[b] * quadrature_nodes;
  for (int i = 0; i < d; i++) t.places[b * d + i] = w[i];
  if (t.offsets[b] == t.offsets[b + 1]) return;
  for_marked(t.joint + b * d * d, d, [&](int i, int j) {
    const T middle = w[i] * T(0.5) + w[j] * T(0.5), half = (w[i] - w[j]) * T(0.5);
    for (int q = 0; q < quadrature_nodes; q++) *to++ = middle + half * (T)node[q];
  });
}

// The ratios f/w for values above `least` times the norm, and f′ below, where rounding errors of f do not reach.
template <class T> void ratios(const Divided<T>& t, int64_t b) {
  const int d = t.d;
  const T *w = t.w + b * d, *f = t.f + b * d, *slopes = t.slopes + b * d, least = t.least * norm_of(w, d);
  for (int i = 0; i < d; i++) t.ratio[b * d + i] = cleaned(least < w[i] ? f[i] / w[i] : slopes[i], t.finite);
}

template <class T> void means(const Divided<T>& t, int64_t b) {
  const int d = t.d;
  const T *from = t.slopes + t.batch * d + t.offsets[b] * quadrature_nodes, *w = t.w + b * d, *f = t.f + b * d;
  T* joint = t.joint + b * d * d;
  if (t.offsets[b] != t.offsets[b + 1])
    for_marked(joint, d, [&](int i, int j) {
      T sum = 0;
      for (int q = 0; q < quadrature_nodes; q++) sum += *from++ * (T)(share[q] / 2);
      // The quotient, where the quadrature differs from it by more than its rounding errors: then f varies too fast.
      const T gap = w[i] - w[j], step = f[i] - f[j], height = greater(magnitude(f[i]), magnitude(f[j]));
      const T noise = 8 * Simd<T>::eps * greater(height, Simd<T>::normal);
      if (magnitude(sum * gap - step) > noise && step - step == 0) sum = step / gap;
      joint[(int64_t)i * d + j] = joint[(int64_t)j * d + i] = cleaned(sum, t.finite);
    });
  for (int i = 0; i < d; i++) joint[(int64_t)i * d + i] = cleaned(t.slopes[b * d + i], t.finite);
  if (t.ratio) ratios(t, b);
}

// Returns the number of close pairs in the first step, otherwise 0.
template <class T> int divided(const Divided<T>& t) {
  constexpr int W = Simd<T>::W;
  int close = 0;
  if (t.step == sg::quotients && t.d <= divided_lanes_up_to) {
    for (int k = 0; k < t.count; k += W) close += quotients_in_lanes(t, t.first + k, t.count - k < W ? t.count - k : W);
    return close;
  }
  for (int64_t b = t.first; b < t.first + t.count; b++) {
    if (t.step == sg::quotients) close += quotients(t, b);
    if (t.step == sg::nodes) quadrature(t, b);
    if (t.step == sg::means) means(t, b);
  }
  return close;
}

}  // namespace
}  // namespace SG_NS
