// Passes over features (samples, groups, d channels, n positions) for layers that normalise by a matrix: the moments of
// a batch, and an affine map of every position. nn/functional/normalization.py has the derivation.
//
// Some positions at a time are centred and packed into panels: 2W positions of all d channels, channel after channel,
// with zeros where the positions end. Both passes then read nothing but the packed panels, which fit into the cache.
#pragma once
#include "../interface.hpp"
#include "../simd/simd.hpp"

namespace SG_NS {
namespace {

template <class T> struct Panels {
  typedef Vec<T> V;
  static constexpr int W = Simd<T>::W, width = 2 * W;
  static constexpr int64_t bytes = 128 * 1024;  // of one packed chunk: half of the second-level cache for two of them
  int d;
  int64_t stride;  // numbers in a panel, and one cache line, so that equal rows of panels do not share a cache set
  int most;        // panels in a chunk

  explicit Panels(int channels) : d(channels), stride((int64_t)channels * width + 64 / sizeof(T)) {
    const int64_t fit = bytes / (stride * (int64_t)sizeof(T));
    most = (int)(fit < 2 ? 2 : fit > 512 / W ? 512 / W : fit);
  }
  size_t size() const { return (size_t)(most * stride); }

  // Packs `count` positions of rows that are n apart, minus the centre.
  void pack(const T* from, int64_t n, const T* centre, int64_t count, T* to) const {
    for (int k = 0; k < d; k++) {
      const T* row = from + k * n;
      const V c = splat<T>(centre[k]);
      T* panel = to + k * width;
      int64_t p = 0;
      for (; p + width <= count; p += width, panel += stride)
        for (int h = 0; h < 2; h++) store(panel + h * W, load(row + p + h * W) - c);
      for (int e = 0; p < count && e < width; e++) panel[e] = p + e < count ? row[p + e] - c[0] : T(0);
    }
  }
};

// Moments: positions are packed one after another, H vectors of channels of each, so that a product needs no sum over
// lanes. One vector is enough for groups of up to W channels.
template <class T, int H> struct Rows {
  typedef Vec<T> V;
  static constexpr int W = Simd<T>::W, width = H * W, most = 256;  // positions in a chunk
  int d, panels;  // panels of `width` channels, the last one filled up with zeros

  explicit Rows(int channels) : d(channels), panels((channels + width - 1) / width) {}
  int padded() const { return panels * width; }
  size_t size() const { return (size_t)padded() * most; }
  T* panel(T* packed, int k) const { return packed + (int64_t)k * width * most; }

  // Packs `count` positions of channels that are n apart, minus the centre, behind `filled` others.
  void pack(const T* from, int64_t n, const T* centre, int count, T* packed, int filled) const {
    for (int k = 0; k < padded(); k += W) {
      T* to = panel(packed, k / width) + (int64_t)filled * width + k % width;
      const int rows = d - k < W ? d - k : W;
      V c[W];
      for (int e = 0; e < W; e++) c[e] = splat<T>(centre && e < rows ? centre[k + e] : T(0));
      int p = 0;
      for (; p + W <= count; p += W) {
        V r[W];
        for (int e = 0; e < W; e++) r[e] = e < rows ? load(from + (k + e) * n + p) - c[e] : V{};
        transpose(r);
        for (int e = 0; e < W; e++) store(to + (p + e) * width, r[e]);
      }
      for (; p < count; p++)
        for (int e = 0; e < W; e++) to[p * width + e] = e < rows ? from[(k + e) * n + p] - c[e][0] : T(0);
    }
  }
};

// C += Σ y xᵀ over packed positions, for R channels of y and a panel of x; sums in double are added once a chunk.
template <class T, int H, int R> void moments_tile(const T* y, const T* x, int positions, double* C, int64_t ld) {
  typedef Rows<T, H> P;
  Vec<T> s[R][H] = {};
  for (int p = 0; p < positions; p++, y += P::width, x += P::width) {
    Vec<T> a[H];
    for (int h = 0; h < H; h++) a[h] = load(x + h * P::W);
    for (int r = 0; r < R; r++) {
      const Vec<T> m = splat<T>(y[r]);
      for (int h = 0; h < H; h++) s[r][h] += m * a[h];
    }
  }
  for (int r = 0; r < R; r++)
    for (int e = 0; e < P::width; e++) C[r * ld + e] += (double)s[r][e / P::W][e % P::W];
}

// Adds the sums of packed positions.
template <class T, int H> void add_rows(const T* x, int positions, double* to) {
  typedef Rows<T, H> P;
  Vec<T> s[H] = {};
  for (int p = 0; p < positions; p++)
    for (int h = 0; h < H; h++) s[h] += load(x + p * P::width + h * P::W);
  for (int e = 0; e < P::width; e++) to[e] += (double)s[e / P::W][e % P::W];
}

// Adds Σ y (x − x₀)ᵀ (groups, D, D) and Σ y (groups, D) of samples first … first + count − 1, where D is d rounded up
// to moments_padded. If t.Y is null, y is x − x₀, and only the lower triangle is valid.
template <class T, int H> struct Moments {
  typedef Rows<T, H> P;
  static constexpr int R = H == 2 ? 4 : P::W < 8 ? P::W : 8;  // rows of a tile, a divisor of the panel's width

  static size_t work(int d) { return sizeof(T) * 2 * P(d).size(); }
  static int padded(int d) { return P(d).padded(); }

  static void run(const sg::FeatureMoments<T>& t, int64_t first, int64_t count, double* C, double* sums, void* work) {
    const P rows(t.d);
    const int64_t D = rows.padded();
    T *x = (T*)work, *y = t.Y ? x + rows.size() : x;
    for (int g = 0; g < t.groups; g++) {
      double *own = C + g * D * D, *total = sums + g * D;
      int filled = 0;
      auto flush = [&] {
        if (filled) add(rows, y, x, filled, own, total, t.Y == nullptr);
        filled = 0;
      };
      for (int64_t s = first; s < first + count; s++) {
        const int64_t at = (s * t.groups + g) * t.d * t.n;
        for (int64_t from = 0; from < t.n;) {
          const int64_t left = t.n - from, room = rows.most - filled;
          const int now = (int)(left < room ? left : room);
          rows.pack(t.X + at + from, t.n, t.x0 + (int64_t)g * t.d, now, x, filled);
          if (t.Y) rows.pack(t.Y + at + from, t.n, nullptr, now, y, filled);
          from += now;
          filled += now;
          if (filled == rows.most) flush();
        }
      }
      flush();
    }
  }

 private:
  static void add(const P& rows, T* y, T* x, int filled, double* C, double* sums, bool lower) {
    const int64_t D = rows.padded();
    for (int r = 0; r < rows.d; r += R) {
      const T* left = rows.panel(y, r / P::width) + r % P::width;
      for (int c = 0; c < (lower ? r / P::width + 1 : rows.panels); c++)
        moments_tile<T, H, R>(left, rows.panel(x, c), filled, C + r * D + c * P::width, D);
    }
    for (int k = 0; k < rows.panels; k++) add_rows<T, H>(rows.panel(y, k), filled, sums + k * P::width);
  }
};
template <class T> size_t moments_work(int d) {
  return d <= Simd<T>::W ? Moments<T, 1>::work(d) : Moments<T, 2>::work(d);
}
template <class T> int moments_padded(int d) {
  return d <= Simd<T>::W ? Moments<T, 1>::padded(d) : Moments<T, 2>::padded(d);
}
template <class T> void moments(const sg::FeatureMoments<T>& t, int64_t first, int64_t count, double* C, double* sums,
                                void* work) {
  (t.d <= Simd<T>::W ? Moments<T, 1>::run : Moments<T, 2>::run)(t, first, count, C, sums, work);
}

// R channels of A y + B x + shift at one panel; B may be null.
template <class T, int R>
SG_INLINE void affine_rows(const T* A, const T* y, const T* B, const T* x, const T* shift, int d, T* out, int64_t ld) {
  constexpr int W = Panels<T>::W, width = Panels<T>::width;
  Vec<T> s[R][2];
  for (int r = 0; r < R; r++) s[r][0] = s[r][1] = splat<T>(shift ? shift[r] : T(0));
  auto add = [&](const T* M, const T* z) {
    for (int k = 0; k < d; k++) {
      const Vec<T> a = load(z + k * width), b = load(z + k * width + W);
      for (int r = 0; r < R; r++) {
        const Vec<T> m = splat<T>(M[r * d + k]);
        s[r][0] += m * a;
        s[r][1] += m * b;
      }
    }
  };
  add(A, y);
  if (B) add(B, x);
  for (int r = 0; r < R; r++) {
    store(out + r * ld, s[r][0]);
    store(out + r * ld + W, s[r][1]);
  }
}
// R channels at all positions of a chunk; what does not fill a panel goes through `rest`.
template <class T, int R>
void affine_chunk(const T* A, const T* y, const T* B, const T* x, const T* shift, const Panels<T>& p, int64_t count,
                  T* out, int64_t ld, T* rest) {
  constexpr int width = Panels<T>::width;
  int64_t q = 0;
  for (; q + width <= count; q += width, y += p.stride, x += B ? p.stride : 0)
    affine_rows<T, R>(A, y, B, x, shift, p.d, out + q, ld);
  if (q == count) return;
  affine_rows<T, R>(A, y, B, x, shift, p.d, rest, width);
  for (int r = 0; r < R; r++)
    for (int64_t e = 0; q + e < count; e++) out[r * ld + q + e] = rest[r * width + e];
}
// All channels, some at a time: a row of the output is written to its end, page after page.
template <class T>
void affine_channels(const T* A, const T* y, const T* B, const T* x, const T* shift, const Panels<T>& p, int64_t count,
                     T* out, int64_t ld, T* rest) {
  int r = 0;
  auto rows = [&](auto R) {
    const T *first = A + (int64_t)r * p.d, *second = B ? B + (int64_t)r * p.d : nullptr;
    affine_chunk<T, decltype(R)::value>(first, y, second, x, shift ? shift + r : nullptr, p, count, out + r * ld, ld,
                                        rest);
    r += decltype(R)::value;
  };
  while (r + 6 <= p.d) rows(std::integral_constant<int, 6>{});
  if (r + 4 <= p.d) rows(std::integral_constant<int, 4>{});
  if (r + 2 <= p.d) rows(std::integral_constant<int, 2>{});
  if (r < p.d) rows(std::integral_constant<int, 1>{});
}

template <class T> size_t affine_work(int d) {
  return sizeof(T) * (2 * Panels<T>(d).size() + 6 * (size_t)Panels<T>::width);
}

// out = A (y − y₀) + B (x − x₀) + shift for samples first … first + count − 1. X, x₀ and B may be null together.
template <class T> void affine(const sg::FeatureMap<T>& t, int64_t first, int64_t count, void* work) {
  constexpr int width = Panels<T>::width;
  const Panels<T> p(t.d);
  T *y = (T*)work, *x = t.X ? y + p.size() : nullptr, *rest = y + 2 * p.size();
  const int64_t size = (int64_t)t.d * t.n, square = (int64_t)t.d * t.d;
  for (int64_t u = first * t.groups; u < (first + count) * t.groups; u++) {
    const int64_t g = u % t.groups;
    const T *A = t.A + g * square, *B = t.X ? t.B + g * square : nullptr,
            *shift = t.shift ? t.shift + g * t.d : nullptr;
    for (int64_t from = 0; from < t.n; from += (int64_t)p.most * width) {
      const int64_t left = t.n - from, now = left < (int64_t)p.most * width ? left : (int64_t)p.most * width;
      p.pack(t.Y + u * size + from, t.n, t.y0 + g * t.d, now, y);
      if (t.X) p.pack(t.X + u * size + from, t.n, t.x0 + g * t.d, now, x);
      affine_channels(A, y, B, x, shift, p, now, t.out + u * size + from, t.n, rest);
    }
  }
}

}  // namespace
}  // namespace SG_NS
