// Vector types and the few operations that the kernel needs, for one instruction set.
// Written with GCC/Clang vector extensions; SG_BYTES is the register width of the translation unit.
// Everything is in an anonymous namespace inside SG_NS, because the same source is compiled several times with
// different -m flags: the linker must not merge inline functions of different instruction sets.
//
// Comparisons yield masks: integer vectors with all bits set (−1) where true. `mask ? x : y` selects lane by lane.
#pragma once
#include <stdint.h>
#include <string.h>
#include <utility>
#if defined(__SSE2__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#ifndef SG_BYTES
#if defined(__AVX512F__)
#define SG_BYTES 64
#elif defined(__AVX__)
#define SG_BYTES 32
#else
#define SG_BYTES 16
#endif
#endif
#define SG_INLINE inline __attribute__((always_inline))
// For functions of many instructions that are called from several templates: compiled once instead of in each of them.
#define SG_ONCE __attribute__((noinline))
// What GCC does by itself and Clang has to be told. SG_UNROLL, before a loop over the vectors of an array: unroll it, so
// that they are registers. SG_HERE, before a call with constant sizes: compile the function for these.
#if defined(__clang__)
#define SG_UNROLL _Pragma("clang loop unroll(full)")
#define SG_HERE [[clang::always_inline]]
#else
#define SG_UNROLL
#define SG_HERE
#endif

namespace SG_NS {
namespace {

typedef float f32v __attribute__((vector_size(SG_BYTES)));
typedef double f64v __attribute__((vector_size(SG_BYTES)));
typedef int32_t i32v __attribute__((vector_size(SG_BYTES)));
typedef int64_t i64v __attribute__((vector_size(SG_BYTES)));

// tiny: added to a sum of squares or used as its lower limit, to avoid 0/0. The largest entry of a scaled matrix is
//   about 1 (lanes.hpp), and √tiny is far below eps: sums on which tiny has an effect are negligible.
// lift, drop: powers of two by which matrices of very small entries are scaled first (lanes.hpp).
template <class T> struct Simd;
template <> struct Simd<float> {
  typedef f32v V;
  typedef i32v M;
  typedef int32_t I;
  static constexpr int W = SG_BYTES / 4, mantissa = 23;
  static constexpr I bias = 127, exponent_mask = 0x7f800000, sign = INT32_MIN;
  static constexpr float eps = 1.1920929e-7f, normal = 0x1p-126f, tiny = 0x1p-100f, lift = 0x1p64f, drop = 0x1p-64f;
};
template <> struct Simd<double> {
  typedef f64v V;
  typedef i64v M;
  typedef int64_t I;
  static constexpr int W = SG_BYTES / 8, mantissa = 52;
  static constexpr I bias = 1023, exponent_mask = 0x7ff0000000000000, sign = INT64_MIN;
  static constexpr double eps = 2.220446049250313e-16, normal = 0x1p-1022, tiny = 0x1p-400, lift = 0x1p512,
                          drop = 0x1p-512;
};
template <class T> using Vec = typename Simd<T>::V;
template <class T> using Mask = typename Simd<T>::M;

template <class T> SG_INLINE Vec<T> splat(T x) { return x - Vec<T>{}; }
template <class T> SG_INLINE Vec<T> load(const T* p) {
  Vec<T> v;
  memcpy(&v, p, sizeof v);
  return v;
}
template <class T> SG_INLINE void store(T* p, Vec<T> v) { memcpy(p, &v, sizeof v); }

template <class T> SG_INLINE Mask<T> bits(Vec<T> x) {
  Mask<T> m;
  memcpy(&m, &x, sizeof m);
  return m;
}
template <class T> SG_INLINE Vec<T> unbits(Mask<T> m) {
  Vec<T> x;
  memcpy(&x, &m, sizeof x);
  return x;
}
template <class T> SG_INLINE Vec<T> vabs(Vec<T> x) { return unbits<T>(bits<T>(x) & ~Simd<T>::sign); }
template <class T> SG_INLINE Mask<T> signs(Vec<T> x) { return bits<T>(x) & Simd<T>::sign; }
template <class T> SG_INLINE Vec<T> flip(Vec<T> x, Mask<T> sign) { return unbits<T>(bits<T>(x) ^ sign); }
SG_INLINE f32v magnitude(f32v x) { return vabs<float>(x); }
SG_INLINE f64v magnitude(f64v x) { return vabs<double>(x); }
SG_INLINE float magnitude(float x) { return __builtin_fabsf(x); }
SG_INLINE double magnitude(double x) { return __builtin_fabs(x); }
template <class T> SG_INLINE Vec<T> vmax(Vec<T> a, Vec<T> b) { return a > b ? a : b; }
template <class T> SG_INLINE Vec<T> vmin(Vec<T> a, Vec<T> b) { return a < b ? a : b; }

// True if any lane of a mask is set. Only sign bits are examined where there is an instruction for it.
SG_INLINE bool any_bits(const void* m) {
#if defined(__AVX512F__) && SG_BYTES == 64
  return _mm512_movepi32_mask(_mm512_loadu_si512(m)) != 0;
#elif defined(__AVX__) && SG_BYTES == 32
  return _mm256_movemask_ps(_mm256_loadu_ps((const float*)m)) != 0;
#elif defined(__SSE2__) && SG_BYTES == 16
  return _mm_movemask_ps(_mm_loadu_ps((const float*)m)) != 0;
#else
  uint64_t x[SG_BYTES / 8], s = 0;
  memcpy(x, m, sizeof x);
  for (int k = 0; k < SG_BYTES / 8; k++) s |= x[k];
  return s != 0;
#endif
}
template <class M> SG_INLINE bool any(M m) { return any_bits(&m); }

// Square root, correctly rounded in every lane.
#if defined(__AVX512F__) && SG_BYTES == 64
SG_INLINE f32v vsqrt(f32v x) { return (f32v)_mm512_sqrt_ps((__m512)x); }
SG_INLINE f64v vsqrt(f64v x) { return (f64v)_mm512_sqrt_pd((__m512d)x); }
#elif defined(__AVX__) && SG_BYTES == 32
SG_INLINE f32v vsqrt(f32v x) { return (f32v)_mm256_sqrt_ps((__m256)x); }
SG_INLINE f64v vsqrt(f64v x) { return (f64v)_mm256_sqrt_pd((__m256d)x); }
#elif defined(__SSE2__) && SG_BYTES == 16
SG_INLINE f32v vsqrt(f32v x) { return (f32v)_mm_sqrt_ps((__m128)x); }
SG_INLINE f64v vsqrt(f64v x) { return (f64v)_mm_sqrt_pd((__m128d)x); }
#elif defined(__aarch64__) && SG_BYTES == 16
SG_INLINE f32v vsqrt(f32v x) { return (f32v)vsqrtq_f32((float32x4_t)x); }
SG_INLINE f64v vsqrt(f64v x) { return (f64v)vsqrtq_f64((float64x2_t)x); }
#else
SG_INLINE f32v vsqrt(f32v x) {
  for (int k = 0; k < SG_BYTES / 4; k++) x[k] = __builtin_sqrtf(x[k]);
  return x;
}
SG_INLINE f64v vsqrt(f64v x) {
  for (int k = 0; k < SG_BYTES / 8; k++) x[k] = __builtin_sqrt(x[k]);
  return x;
}
#endif
template <class T> SG_INLINE T scalar_sqrt(T x) {
  return sizeof(T) == 4 ? (T)__builtin_sqrtf((float)x) : (T)__builtin_sqrt((double)x);
}

// Estimates of 1/√x and 1/x to 14 bits, used on AVX-512 only. (On Zen 3 the exact instructions are as fast in float32,
// and faster in float64, where AVX2 has estimates in float32 only.) An iteration doubles the number of correct bits, so
// float32 (24 bits) needs one and float64 (53 bits) two.
#if defined(__AVX512F__) && SG_BYTES == 64
#define SG_ESTIMATES 1
constexpr int steps32 = 1, steps64 = 2;
SG_INLINE f32v rsqrt_estimate(f32v x) { return (f32v)_mm512_rsqrt14_ps((__m512)x); }
SG_INLINE f64v rsqrt_estimate(f64v x) { return (f64v)_mm512_rsqrt14_pd((__m512d)x); }
SG_INLINE f32v recip_estimate(f32v x) { return (f32v)_mm512_rcp14_ps((__m512)x); }
SG_INLINE f64v recip_estimate(f64v x) { return (f64v)_mm512_rcp14_pd((__m512d)x); }
#elif defined(SG_TEST_ESTIMATES)  // the same by truncating exact results to 14 bits, for tests without AVX-512
#define SG_ESTIMATES 1
constexpr int steps32 = 1, steps64 = 2;
SG_INLINE f32v vsqrt(f32v x);
SG_INLINE f64v vsqrt(f64v x);
SG_INLINE f32v cut(f32v x) { return (f32v)((i32v)x & ~0x1ff); }
SG_INLINE f64v cut(f64v x) { return (f64v)((i64v)x & ~((int64_t(1) << 38) - 1)); }
template <class V> SG_INLINE V rsqrt_estimate(V x) { return cut(1 / vsqrt(x)); }
template <class V> SG_INLINE V recip_estimate(V x) { return cut(1 / x); }
#endif

// √x and 1/√x. From an estimate, by Goldschmidt's iteration: g → √x, h → 1/(2√x); each step squares the error.
template <class T> SG_INLINE void root(Vec<T> x, Vec<T>& r, Vec<T>& inverse) {
#ifdef SG_ESTIMATES
  Vec<T> y = rsqrt_estimate(x), g = x * y, h = y * T(0.5);
  for (int k = 0; k < (sizeof(T) == 4 ? steps32 : steps64); k++) {
    Vec<T> miss = T(0.5) - g * h;
    g += g * miss;
    h += h * miss;
  }
  r = g;
  inverse = h + h;
#else
  r = vsqrt(x);
  inverse = T(1) / r;
#endif
}

// 1/x for x in [1, 2]: with miss = 1 − xy, 1/x = y (1 + miss + miss² + …), here to 42 bits, and to full precision by
// one more Newton step in float64.
template <class T> SG_INLINE Vec<T> reciprocal(Vec<T> x) {
#ifdef SG_ESTIMATES
  Vec<T> y = recip_estimate(x), miss = T(1) - x * y;
  y += y * (miss + miss * miss);
  if (sizeof(T) == 8) y += y * (T(1) - x * y);
  return y;
#else
  return T(1) / x;
#endif
}

// Vectors of the widest type that costs little: float32 is computed in double (two registers a vector), for the few
// sums on which the accuracy of everything else depends; float64 as it is.
template <class T> struct Wide;
template <> struct Wide<float> {
  typedef double V __attribute__((vector_size(2 * SG_BYTES)));
  typedef double S;
};
template <> struct Wide<double> {
  typedef f64v V;
  typedef double S;
};
SG_INLINE Wide<float>::V widen(f32v x) { return __builtin_convertvector(x, Wide<float>::V); }
SG_INLINE f64v widen(f64v x) { return x; }
SG_INLINE double widen(float x) { return x; }
SG_INLINE double widen(double x) { return x; }
SG_INLINE f32v narrow(Wide<float>::V x, f32v) { return __builtin_convertvector(x, f32v); }
SG_INLINE f64v narrow(f64v x, f64v) { return x; }
template <class T> SG_INLINE T narrow(double x, T) { return (T)x; }
SG_INLINE Wide<float>::V vsqrt(Wide<float>::V x) {
  f64v half[2];
  memcpy(half, &x, sizeof x);
  half[0] = vsqrt(half[0]);
  half[1] = vsqrt(half[1]);
  memcpy(&x, half, sizeof x);
  return x;
}

// ab + c rounded once. Without an instruction for it, float32 computes in double, where the product is exact.
#if defined(__AVX512F__) && SG_BYTES == 64
SG_INLINE f32v fused(f32v a, f32v b, f32v c) { return (f32v)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c); }
SG_INLINE f64v fused(f64v a, f64v b, f64v c) { return (f64v)_mm512_fmadd_pd((__m512d)a, (__m512d)b, (__m512d)c); }
#elif defined(__FMA__) && SG_BYTES == 32
SG_INLINE f32v fused(f32v a, f32v b, f32v c) { return (f32v)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c); }
SG_INLINE f64v fused(f64v a, f64v b, f64v c) { return (f64v)_mm256_fmadd_pd((__m256d)a, (__m256d)b, (__m256d)c); }
#elif defined(__aarch64__) && SG_BYTES == 16
SG_INLINE f32v fused(f32v a, f32v b, f32v c) { return (f32v)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b); }
SG_INLINE f64v fused(f64v a, f64v b, f64v c) { return (f64v)vfmaq_f64((float64x2_t)c, (float64x2_t)a, (float64x2_t)b); }
#else
SG_INLINE f32v fused(f32v a, f32v b, f32v c) {
  for (int k = 0; k < SG_BYTES / 4; k++) a[k] = (float)((double)a[k] * b[k] + c[k]);
  return a;
}
SG_INLINE f64v fused(f64v a, f64v b, f64v c) {
  for (int k = 0; k < SG_BYTES / 8; k++) a[k] = __builtin_fma(a[k], b[k], c[k]);
  return a;
}
#endif
// ad − bc to within two units in the last place, although the products may cancel (Kahan; Jeannerod, Louvet and Muller,
// Math. Comp. 82 (2013)).
template <class T> SG_INLINE Vec<T> difference_of_products(Vec<T> a, Vec<T> d, Vec<T> b, Vec<T> c) {
  Vec<T> w = b * c;
  return fused(a, d, -w) + fused(-b, c, w);
}

// W × W transpose by log2 W exchanges of off-diagonal blocks of half the size.
template <int S, class V, int... K> SG_INLINE void exchange(V& a, V& b, std::integer_sequence<int, K...>) {
  constexpr int W = sizeof...(K);
  V lo = __builtin_shufflevector(a, b, ((K & S) ? W + K - S : K)...);
  b = __builtin_shufflevector(a, b, ((K & S) ? W + K : K + S)...);
  a = lo;
}
template <int S, class V, int W> SG_INLINE void transpose_step(V (&r)[W]) {
  if constexpr (S > 0) {
    SG_UNROLL
    for (int i = 0; i < W; i++)
      if (!(i & S)) exchange<S>(r[i], r[i + S], std::make_integer_sequence<int, W>{});
    transpose_step<S / 2>(r);
  }
}
template <class V, int W> SG_INLINE void transpose(V (&r)[W]) { transpose_step<W / 2>(r); }

// The sum of all lanes, by halves: log2 W dependent additions instead of W.
template <int S, class V, int... K> SG_INLINE V folded(V v, std::integer_sequence<int, K...> lanes) {
  if constexpr (S > 0) return folded<S / 2>(v + __builtin_shufflevector(v, v, (K ^ S)...), lanes);
  else return v;
}
template <class T> SG_INLINE T sum(Vec<T> v) {
  return folded<Simd<T>::W / 2>(v, std::make_integer_sequence<int, Simd<T>::W>{})[0];
}

}  // namespace
}  // namespace SG_NS
