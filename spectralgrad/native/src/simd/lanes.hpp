// The data layout: moving matrices between memory (row-major, one after another) and lanes, and scaling them.
//
// W matrices (W = SG_BYTES / sizeof(T)) are processed together, one matrix per lane: entry (i, j) of all of them is the
// vector a[i·ld + j]. All lanes execute the same instructions; what differs between matrices is expressed by masks. A
// group with fewer than W matrices is filled up with zero matrices, which converge at once and are not written back.
#pragma once
#include "simd.hpp"

namespace SG_NS {
namespace {

// The two ways to vectorise the same code. In Lanes every scalar S of a matrix is a vector, with one matrix per lane;
// in Single it is a number, and vectors run along the rows of one matrix.
//   spread  a scalar as an operand for a vector of entries;
//   total   the scalar that a vector of partial sums stands for.
template <class T> struct Lanes {
  typedef T Real;
  typedef Vec<T> S;
  static constexpr int rows = SG_BYTES == 64 ? 4 : 2, block = rows, cols = rows;  // diagonal block: rows × cols vectors
  static SG_INLINE Vec<T> spread(S x) { return x; }
  static SG_INLINE S total(Vec<T> v) { return v; }
  static SG_INLINE typename Wide<T>::V total_wide(typename Wide<T>::V v) { return v; }
};
template <class T> struct Single {
  typedef T Real;
  typedef T S;
  static constexpr int rows = SG_BYTES == 64 ? 4 : 2, block = Simd<T>::W, cols = 1;
  static SG_INLINE Vec<T> spread(S x) { return splat<T>(x); }
  static SG_INLINE S total(Vec<T> v) { return sum<T>(v); }
  static SG_INLINE double total_wide(typename Wide<T>::V v) {
    double s = 0;
    for (int k = 0; k < Simd<T>::W; k++) s += v[k];
    return s;
  }
};

// The first n entries of a vector, for a vector that may not be read or written completely. (Functions of their own, so
// that it is not the array of the caller that has an address: Clang would keep the array in memory.)
template <class T> SG_INLINE Vec<T> load_some(const T* p, size_t n) {
  Vec<T> v = {};
  memcpy(&v, p, n * sizeof(T));
  return v;
}
template <class T> SG_INLINE void store_some(T* p, Vec<T> v, size_t n) { memcpy(p, &v, n * sizeof(T)); }

// dst[e][k] = src[k·stride + e] for e < len rounded up to W; lanes beyond count are zero. Memory from end on is not
// read.
template <class T> void gather(const T* src, int64_t stride, int count, const T* end, int len, Vec<T>* dst) {
  constexpr int W = Simd<T>::W;
  for (int e = 0; e < len; e += W) {
    Vec<T> r[W];
    SG_UNROLL
    for (int k = 0; k < W; k++) {
      r[k] = Vec<T>{};
      const T* p = src + k * stride + e;
      if (k >= count) continue;
      if (end - p >= W) r[k] = load(p);
      else r[k] = load_some(p, (size_t)(len - e < W ? len - e : W));
    }
    transpose(r);
    SG_UNROLL
    for (int k = 0; k < W; k++) dst[e + k] = r[k];
  }
}

// The inverse. Blocks are written from the last to the first: a full-width store of the last block may overrun into the
// first entries of the next matrix, which are written afterwards. Memory from end on is not written. src must have len
// rounded up to W entries.
template <class T> void scatter(const Vec<T>* src, T* dst, int64_t stride, int count, T* end, int len) {
  constexpr int W = Simd<T>::W;
  for (int e = (len - 1) / W * W; e >= 0; e -= W) {
    Vec<T> r[W];
    SG_UNROLL
    for (int k = 0; k < W; k++) r[k] = src[e + k];
    transpose(r);
    SG_UNROLL
    for (int k = 0; k < W; k++) {
      if (k >= count) continue;
      T* p = dst + k * stride + e;
      if (end - p >= W) store(p, r[k]);
      else store_some(p, r[k], (size_t)(len - e < W ? len - e : W));
    }
  }
}

// The power of two that brings the largest |a| to [1, 2), and its inverse. Sums of squares then cannot overflow, and
// what underflows is negligible.
//
// Two factors are needed for very small matrices, because 1/|a| overflows for subnormal |a|: `lift` first brings them
// into the normal range, `up` does the rest; `down` and `drop` undo it. At the other end, the inverse of the largest
// binade would be subnormal, so matrices there are scaled to [2, 4) instead.
// good: 0 for a matrix that is not finite. Its entries are replaced by zeros, so that NaN does not spread.
template <class S> struct Scale {
  S lift, up, down, drop, good;
};

template <class T> Scale<Vec<T>> scale_of(Vec<T> largest, Vec<T> poison) {
  typedef Simd<T> Q;
  Mask<T> finite = (poison == 0), low = (largest < Q::drop * 16);
  Vec<T> zero = {}, one = splat<T>(1);
  Vec<T> lift = low ? splat<T>(Q::lift) : one, drop = low ? splat<T>(Q::drop) : one;
  Mask<T> field = (bits<T>(finite ? largest * lift : one) & Q::exponent_mask) >> Q::mantissa;
  Mask<T> top = field - field + (2 * Q::bias - 1);  // the exponent whose inverse is the smallest normal number
  field = field > top ? top : field;
  Vec<T> up = unbits<T>((2 * Q::bias - field) << Q::mantissa), down = unbits<T>(field << Q::mantissa);
  return {lift, up, down, drop, finite ? one : zero};
}

// Scaled entries, and eigenvalues scaled back; x + 0 turns −0 into +0.
template <class T> SG_INLINE Vec<T> scaled(Vec<T> a, const Scale<Vec<T>>& s) {
  return s.good != 0 ? a * s.lift * s.up : Vec<T>{};
}
template <class T> SG_INLINE Vec<T> unscaled(Vec<T> w, const Scale<Vec<T>>& s) {
  Vec<T> x = w * s.down * s.drop, nan = splat<T>(__builtin_nanf(""));
  return s.good != 0 ? x + T(0) : nan;
}

// Matrices with |a_ij − a_ji| > limit · max|a_ij| are refused like those that are not finite, and so are those where
// the difference itself is not. `most` is the largest difference, `bad` is NaN if one is not finite. Rounding errors do
// not shrink below the normal range.
template <class T> SG_INLINE Vec<T> refused(Vec<T> poison, Vec<T> most, Vec<T> bad, Vec<T> largest, T limit) {
  const Vec<T> allowed = vmax<T>(largest, splat<T>(Simd<T>::normal)) * limit;
  return most <= allowed ? poison + bad : splat<T>(__builtin_nanf(""));
}

// The lower triangles of up to W matrices into a[i·ld + j], scaled, diagonal blocks filled symmetrically. `poison` is 0
// for finite matrices and NaN for others, since x·0 is NaN for infinite or NaN x.
// With limit ≥ 0 they are compared with the upper triangles.
template <class T> Scale<Vec<T>> load_lanes(const T* A, int count, const T* end, int n, Vec<T>* a, int ld, T limit) {
  constexpr int B = Lanes<T>::block;
  Vec<T> largest = {}, poison = {};
  for (int i = 0; i < n; i++) gather(A + (int64_t)i * n, (int64_t)n * n, count, end, limit < 0 ? i + 1 : n, a + i * ld);
  for (int i = 0; i < n; i++)
    for (int j = 0; j <= i; j++) {
      Vec<T> x = a[i * ld + j];
      largest = vmax<T>(vabs<T>(x), largest);
      poison += x * T(0);
    }
  Vec<T> most = {}, bad = {};
  for (int i = 1; limit >= 0 && i < n; i++)
    for (int j = 0; j < i; j++) {
      const Vec<T> x = a[i * ld + j] - a[j * ld + i];
      most = vmax<T>(vabs<T>(x), most);
      bad += x * T(0);
    }
  if (limit >= 0) poison = refused<T>(poison, most, bad, largest, limit);
  Scale<Vec<T>> s = scale_of<T>(largest, poison);
  for (int i = 0; i < n; i++) {
    for (int j = 0; j <= i; j++) a[i * ld + j] = scaled<T>(a[i * ld + j], s);
    for (int j = i / B * B; j < i; j++) a[j * ld + i] = a[i * ld + j];
  }
  return s;
}

// The lower triangle of matrix A, scaled as lane m of s says, into rows of ld vectors, diagonal blocks filled
// symmetrically.
template <class T> void load_single(const T* A, const Scale<Vec<T>>& s, int m, int n, Vec<T>* a, int ld) {
  constexpr int W = Simd<T>::W;
  const T lift = s.lift[m], up = s.up[m];
  for (int i = 0; i < n; i++) {
    T* row = (T*)(a + i * ld);
    int stop = i / W * W + W;
    for (int j = 0; j <= i; j++) row[j] = s.good[m] != 0 ? A[(int64_t)i * n + j] * lift * up : T(0);
    for (int j = i + 1; j < stop; j++) row[j] = 0;
    for (int j = i / W * W; j < i; j++) ((T*)(a + j * ld))[i] = row[j];
  }
}

// The same largest and poison for `size` entries of one matrix, combined with what lane m holds already.
template <class T> void survey(const T* A, int64_t size, Vec<T>& largest, Vec<T>& poison, int m) {
  constexpr int W = Simd<T>::W;
  Vec<T> top = {}, bad = {};
  T top1 = largest[m], bad1 = poison[m];
  int64_t i = 0;
  for (; i + W <= size; i += W) {
    Vec<T> x = load(A + i);
    top = vmax<T>(vabs<T>(x), top);
    bad += x * T(0);
  }
  for (; i < size; i++) {
    T x = A[i] < 0 ? -A[i] : A[i];
    top1 = x > top1 ? x : top1;
    bad1 += x * T(0);
  }
  for (int k = 0; k < W; k++) top1 = top[k] > top1 ? top[k] : top1;
  largest[m] = top1;
  poison[m] = bad1 + sum<T>(bad);
}

// The largest |a_ij − a_ji| of one matrix, or NaN if one of the differences is not finite; one W×W block at a time.
template <class T> T asymmetry_of(const T* A, int n) {
  constexpr int W = Simd<T>::W;
  const int whole = n / W * W;
  const int64_t row = n;
  Vec<T> most = {}, bad = {};
  for (int i = 0; i < whole; i += W)
    for (int j = 0; j <= i; j += W) {
      Vec<T> t[W];
      for (int k = 0; k < W; k++) t[k] = load(A + (j + k) * row + i);
      transpose(t);
      for (int k = 0; k < W; k++) {
        const Vec<T> x = load(A + (i + k) * row + j) - t[k];
        most = vmax<T>(vabs<T>(x), most);
        bad += x * T(0);
      }
    }
  T top = 0, poison = sum<T>(bad);
  for (int k = 0; k < W; k++) top = most[k] > top ? most[k] : top;
  for (int i = whole; i < n; i++)
    for (int j = 0; j < i; j++) {
      const T x = A[i * row + j] - A[j * row + i], size = x < 0 ? -x : x;
      top = size > top ? size : top;
      poison += x * T(0);
    }
  return top + poison;
}
// The asymmetry of a complex Hermitian matrix: |a_ij − ā_ji| in real and imaginary parts, and twice the imaginary parts
// of the diagonal.
template <class T> T complex_asymmetry_of(const T* A, int n) {
  const int64_t row = 2 * n;
  T top = 0, poison = 0;
  for (int i = 0; i < n; i++)
    for (int j = 0; j <= i; j++) {
      const T *x = A + i * row + 2 * j, *y = A + j * row + 2 * i, re = x[0] - y[0], im = x[1] + y[1];
      const T a = re < 0 ? -re : re, b = im < 0 ? -im : im, size = a > b ? a : b;
      top = size > top ? size : top;
      poison += re * T(0) + im * T(0);
    }
  return top + poison;
}
// Refuses the matrix in lane m, whose `largest` is known.
template <class T> void compare(T asymmetry, T limit, const Vec<T>& largest, Vec<T>& poison, int m) {
  const T top = largest[m] > Simd<T>::normal ? largest[m] : Simd<T>::normal;
  if (!(asymmetry <= limit * top)) poison[m] = (T)__builtin_nanf("");
}

}  // namespace
}  // namespace SG_NS
