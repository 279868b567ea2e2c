// Matrix functions f(A) = V f(Λ) Vᵀ and their derivatives V (Γ ∘ VᵀGV) Vᵀ (the Daleckiĭ–Kreĭn formula; Higham,
// Functions of Matrices, theorem 3.11). Small matrices are processed one per lane, larger ones one at a time.
//
// f acts on the range of A: eigenvalues not above rtol · max|λ| count as zero. With r = √λ on the range (0 on the null
// space) and q = 1/r (0 likewise)
//   √A:      f = r,    Γ = 1/(r_i + r_j);
//   A^(−½):  f = q,    Γ = −q_i q_j/(r_i + r_j), applied as two factors, since Γ may overflow where its product
//            does not;
// between range and null space Γ = f(λ)/λ, within the null space 0. For SVD-Taylor, off the diagonal and for r_i ≥ r_j,
//   Γ = q_i² (1 + x + … + xⁿ⁻¹)(f_i − f_j),  x = (r_j/r_i)².
// A power is f = (λ + shift)^exponent, zero where its base is, and has no derivative here. Logarithm, exponential and
// powers of λ itself: scalar_functions.hpp.
#pragma once
#include <cmath>
#include <limits>

#include "../interface.hpp"
#include "../simd/lanes.hpp"
#include "../simd/padded_rows.hpp"
#include "../simd/thread_team.hpp"
#include "scalar_functions.hpp"

namespace SG_NS {
namespace {

using sg::Function;
using sg::Task;

constexpr int lanes_up_to = 8;

// ---- the scalar functions, on vectors ----
template <class T> SG_INLINE Vec<T> root_on_range(Vec<T> w, Vec<T> cut) {
  Vec<T> zero = {};
  return w > cut ? vsqrt(vmax<T>(w, zero)) : zero;
}
template <class T> SG_INLINE Vec<T> inverse_or_zero(Vec<T> r) { return r > 0 ? T(1) / r : Vec<T>{}; }
// √f(λ), so that S = YYᵀ with Y = V√f is symmetric bit for bit.
template <class T> SG_INLINE Vec<T> half_value(Vec<T> r, Vec<T> shift, const Task<T>& t) {
  if (t.f != sg::power) return vsqrt(t.f == sg::square_root ? r : inverse_or_zero<T>(r));
  Vec<T> base = r * r + shift;
  for (int k = 0; k < Simd<T>::W; k++)
    base[k] = base[k] > 0 ? std::fmin(std::pow(base[k], t.exponent / 2), std::sqrt(std::numeric_limits<T>::max())) : 0;
  return base;
}
template <class T> SG_INLINE Vec<T> shift_of(Vec<T> top, const Task<T>& t) {
  return t.relative ? top * t.shift : splat<T>(t.shift);
}
// x Γ_ij. Between range and null space one of q_i and q_j is zero and 1/(r_i + r_j) is the other, so that f(λ)/λ = q³
// is (q_i² + q_j²)/(r_i + r_j).
template <class T> SG_INLINE Vec<T> divided(Vec<T> x, Vec<T> ri, Vec<T> rj, Vec<T> qi, Vec<T> qj, Function f) {
  Vec<T> both = inverse_or_zero<T>(ri + rj);
  if (f == sg::square_root) return x * both;
  Vec<T> product = qi * qj;
  return x * (product > 0 ? -product : qi * qi + qj * qj) * both;
}

// 1 + x + … + x^(terms − 1), doubling the number of terms for each bit; all terms are positive, so nothing cancels.
template <class T> SG_INLINE Vec<T> series(Vec<T> x, int terms) {
  Vec<T> sum = splat<T>(1), power = x;
  for (int bit = 30 - __builtin_clz((unsigned)terms); bit >= 0; bit--) {
    sum += sum * power;
    power *= power;
    if (terms >> bit & 1) {
      sum = sum * x + T(1);
      power *= x;
    }
  }
  return sum;
}
template <class T> SG_INLINE Vec<T> taylor(Vec<T> ri, Vec<T> rj, Vec<T> qi, Vec<T> qj, Function f, int terms) {
  Vec<T> ratio = rj * qi, step = f == sg::square_root ? ri - rj : qi - qj;
  return series<T>(ratio * ratio, terms) * qi * (qi * step);  // qi² alone may overflow where the product does not
}
// x Γ_ij off the diagonal.
template <class T> SG_INLINE Vec<T> weighed(Vec<T> x, Vec<T> ri, Vec<T> rj, Vec<T> qi, Vec<T> qj, const Task<T>& t) {
  return t.terms ? x * taylor<T>(ri, rj, qi, qj, t.f, t.terms) : divided<T>(x, ri, rj, qi, qj, t.f);
}

// ---- one matrix per lane ----
template <class T, int N> struct LaneFunction {
  typedef Vec<T> V;
  static constexpr int W = Simd<T>::W, padded = (N * N + W - 1) / W * W, row = (N + W - 1) / W * W;
  V v[padded], r[row], q[row], g[padded], p[padded], m[padded], shift;

  void spectrum(const Task<T>& t, int64_t first, int count) {
    gather(t.w + first * N, N, count, t.w + t.batch * N, N, r);
  }
  // Replaces eigenvalues by roots on the range; returns the number of matrices with an eigenvalue below
  // −negative·max|λ|, or one that overflowed.
  int roots(const Task<T>& t, int64_t first, int count) {
    spectrum(t, first, count);
    V top = {}, low = {};
    for (int i = 0; i < N; i++) {
      top = vmax<T>(vabs<T>(r[i]), top);
      low = r[i] < low ? r[i] : low;
    }
    for (int i = 0; i < N; i++) r[i] = root_on_range<T>(r[i], top * t.rtol);
    shift = shift_of<T>(top, t);
    T* to = t.w + first * N;
    scatter(r, to, N, count, to + (int64_t)count * N, N);
    int bad = 0;
    // Rounding errors do not shrink below the normal range.
    top = vmax<T>(top, splat<T>(std::numeric_limits<T>::min()));
    for (int k = 0; k < count; k++) bad += low[k] < -t.negative * top[k] || top[k] > std::numeric_limits<T>::max();
    return bad;
  }
  void read(const T* from, const Task<T>& t, int64_t first, int count, V* to) {
    gather(from + first * N * N, N * N, count, from + t.batch * N * N, N * N, to);
  }
  void put(const V* from, const Task<T>& t, int64_t first, int count) {
    T* to = t.S + first * N * N;
    scatter(from, to, N * N, count, to + (int64_t)count * N * N, N * N);
  }

  // S = V f(Λ) Vᵀ for a scalar function. w ← the eigenvalues, zero off the range. The first entry of S is NaN for
  // matrices that need more care; returns their number.
  int compose_scalar(const Task<T>& t, int64_t first, int count) {
    read(t.V, t, first, count, v);
    const Scalar<T> f{t.f, t.exponent};
    V doubt = {};
    int bad = 0;
    for (int i = 0; i < N; i++) r[i] = V{};
    for (int k = 0; k < count; k++) {
      T* w = t.w + (first + k) * N;
      const bool good = restrict_to_range(w, N, t);
      for (int i = 0; good && i < N; i++) r[i][k] = f.on_range(w, i, N, t);
      if (good) continue;
      doubt[k] = std::numeric_limits<T>::quiet_NaN();
      bad++;
    }
    for (int i = 0; i < N; i++)
      for (int k = 0; k < N; k++) p[i * N + k] = v[i * N + k] * r[k];
    outer(p, v, m);
    m[0] += doubt;
    put(m, t, first, count);
    return bad;
  }
  // m ← the divided differences of a scalar function, in the lower triangle.
  void differences(const Task<T>& t, int64_t first, int count) {
    const Scalar<T> f{t.f, t.exponent};
    typename Scalar<T>::Point points[N];
    for (int i = 0; i < N * N; i++) m[i] = V{};
    for (int k = 0; k < count; k++) {
      f.spectrum(t.w + (first + k) * N, N, points);
      for (int i = 0; i < N; i++)
        for (int j = 0; j <= i; j++) m[i * N + j][k] = f.difference(points[i], points[j]);
    }
  }

  int compose(const Task<T>& t, int64_t first, int count) {
    if (t.f >= sg::logarithm) return compose_scalar(t, first, count);
    read(t.V, t, first, count, v);
    const int bad = roots(t, first, count);
    for (int k = 0; k < N; k++) r[k] = half_value<T>(r[k], shift, t);
    for (int i = 0; i < N; i++)
      for (int k = 0; k < N; k++) v[i * N + k] *= r[k];
    outer(v, v, m);
    put(m, t, first, count);
    return bad;
  }
  // z = x yᵀ where the product is known to be symmetric.
  static SG_INLINE void outer(const V* x, const V* y, V* z) {
    for (int i = 0; i < N; i++)
      for (int j = 0; j <= i; j++) {
        V s = {};
        for (int k = 0; k < N; k++) s += x[i * N + k] * y[j * N + k];
        z[i * N + j] = z[j * N + i] = s;
      }
  }
  // x Γ_ij for j ≤ i, from the roots or from the given Γ.
  SG_INLINE V weigh(V x, int i, int j, const Task<T>& t) const {
    if (t.f == sg::given || t.f >= sg::logarithm) return x * m[i * N + j];
    return i == j ? divided<T>(x, r[i], r[i], q[i], q[i], t.f) : weighed<T>(x, r[i], r[j], q[i], q[j], t);
  }

  void frechet(const Task<T>& t, int64_t first, int count) {
    read(t.V, t, first, count, v);
    read(t.G, t, first, count, g);
    if (t.f == sg::given) read(t.gamma, t, first, count, m);
    else if (t.f >= sg::logarithm) differences(t, first, count);
    else {
      spectrum(t, first, count);
      for (int i = 0; i < N; i++) q[i] = inverse_or_zero<T>(r[i]);
    }
    for (int i = 0; i < N; i++)
      for (int j = 0; j < i; j++) g[i * N + j] = g[j * N + i] = (g[i * N + j] + g[j * N + i]) * T(0.5);
    for (int i = 0; i < N; i++)
      for (int j = 0; j < N; j++) {
        V s = {};
        for (int k = 0; k < N; k++) s += g[i * N + k] * v[k * N + j];
        p[i * N + j] = s;
      }
    for (int i = 0; i < N; i++)
      for (int j = 0; j <= i; j++) {
        V s = {};
        for (int k = 0; k < N; k++) s += v[k * N + i] * p[k * N + j];
        g[i * N + j] = g[j * N + i] = weigh(s, i, j, t);
      }
    for (int i = 0; i < N; i++)
      for (int j = 0; j < N; j++) {
        V s = {};
        for (int k = 0; k < N; k++) s += v[i * N + k] * g[k * N + j];
        p[i * N + j] = s;
      }
    outer(p, v, m);
    put(m, t, first, count);
  }
};

// Calls run(LaneFunction<T, d>) for d = N … lanes_up_to.
template <class T, int N, class Run> SG_INLINE void with_size(int d, Run run) {
  if constexpr (N <= lanes_up_to) {
    if (d != N) return with_size<T, N + 1>(d, run);
    LaneFunction<T, N> f;
    run(f);
  }
}

// ---- one matrix at a time, rows padded to whole vectors ----
// c_r = Σ_k x[r·xld + k·step] b_k for R rows and NV vectors of columns.
template <class T, int R, int NV>
SG_INLINE void tile(const T* x, int xld, int step, const Vec<T>* b, int ld, int n, Vec<T>* c, int cld) {
  Vec<T> s[R][NV];
  for (int r = 0; r < R; r++)
    for (int v = 0; v < NV; v++) s[r][v] = Vec<T>{};
  for (int k = 0; k < n; k++)
    for (int r = 0; r < R; r++)
      for (int v = 0; v < NV; v++) s[r][v] += splat<T>(x[r * xld + k * step]) * b[k * ld + v];
  for (int r = 0; r < R; r++)
    for (int v = 0; v < NV; v++) c[r * cld + v] = s[r][v];
}
template <class T, int R, int NV>
SG_INLINE void tile(const T* x, int xld, int step, const Vec<T>* b, int ld, int n, Vec<T>* c) {
  tile<T, R, NV>(x, xld, step, b, ld, n, c, ld);
}
// NV vectors of columns of c = x b, from row `first` on. The vectors of a matrix that does not fit into the first-level
// cache are copied to `panel` (n rows), which does.
template <class T, int NV>
SG_INLINE void multiply_panel(const Vec<T>* x, const Vec<T>* b, int ld, int n, Vec<T>* c, int first, Vec<T>* panel) {
  constexpr int W = Simd<T>::W, R = 4;
  const bool copy = (size_t)n * ld * sizeof(Vec<T>) > 24 * 1024;
  for (int k = 0; copy && k < n; k++)
    for (int e = 0; e < NV; e++) panel[k * NV + e] = b[k * ld + e];
  const Vec<T>* from = copy ? panel : b;
  const int step = copy ? NV : ld;
  int i = first;
  for (; i + R <= n; i += R) tile<T, R, NV>((const T*)(x + i * ld), ld * W, 1, from, step, n, c + i * ld, ld);
  for (; i < n; i++) tile<T, 1, NV>((const T*)(x + i * ld), ld * W, 1, from, step, n, c + i * ld, ld);
}
// c = x b; if lower, only the vectors that contain entries of the lower triangle. panels: 2n vectors per thread.
template <class T>
void multiply(const Vec<T>* x, const Vec<T>* b, int ld, int n, Vec<T>* c, bool lower, Vec<T>* panels,
              const sg::Team& team) {
  constexpr int W = Simd<T>::W;
  each(team, (ld + 1) / 2, [&](int at, int thread) {
    const int v = 2 * at, first = lower ? v * W / 4 * 4 : 0;
    Vec<T>* own = panels + (size_t)thread * 2 * n;
    if (v + 2 <= ld) multiply_panel<T, 2>(x, b + v, ld, n, c + v, first, own);
    else multiply_panel<T, 1>(x, b + v, ld, n, c + v, first, own);
  });
}
// Copies the lower triangle of a square array of padded rows to the upper one, one W×W block at a time.
template <class T> void mirror(Vec<T>* c, int ld, int n) {
  constexpr int W = Simd<T>::W;
  for (int b = 0; b < ld; b++) {
    for (int a = 0; a < b; a++) {
      Vec<T> t[W];
      for (int k = 0; k < W; k++) t[k] = c[(b * W + k) * ld + a];
      transpose(t);
      for (int k = 0; k < W; k++) c[(a * W + k) * ld + b] = t[k];
    }
    T* x = (T*)(c + b * W * ld + b);
    const int side = n - b * W < W ? n - b * W : W;
    for (int i = 0; i < side; i++)
      for (int j = 0; j < i; j++) x[j * ld * W + i] = x[i * ld * W + j];
  }
}

template <class T> struct WholeFunction {
  typedef Vec<T> V;
  static constexpr int W = Simd<T>::W;
  int n, ld;
  V *vectors, *transposed;  // V and its transpose
  V *square, *other;        // two matrices at work
  V *values, *row;          // eigenvalues or what is made of them, and another row
  V* panels;
  T top;  // max|λ|
  const sg::Team team;

  static size_t bytes(int64_t d) {
    return sizeof(V) * ((size_t)((d + W - 1) / W) * (size_t)(4 * (d + W) + 2) + (size_t)(2 * d * most_threads));
  }
  WholeFunction(int d, void* work, const sg::Team& threads) : n(d), ld((d + W - 1) / W), team(threads) {
    const int size = (n + W) * ld;
    vectors = (V*)work;
    transposed = vectors + size;
    square = transposed + size;
    other = square + size;
    values = other + size;
    row = values + ld;
    panels = row + ld;
  }
  void spectrum(const T* w) {
    values[ld - 1] = V{};
    memcpy(values, w, sizeof(T) * (size_t)n);
  }
  // Replaces ascending eigenvalues by roots on the range; true if the smallest is below −negative·max|λ|, or the
  // largest overflowed.
  bool roots(T* w, T rtol, T negative) {
    spectrum(w);
    const T low = w[0] < 0 ? -w[0] : 0, high = w[n - 1] < 0 ? -w[n - 1] : w[n - 1];
    top = low > high ? low : high;
    for (int i = 0; i < ld; i++) values[i] = root_on_range<T>(values[i], splat<T>(top * rtol));
    memcpy(w, values, sizeof(T) * (size_t)n);
    constexpr T normal = std::numeric_limits<T>::min();  // rounding errors do not shrink below the normal range
    return low > negative * (top > normal ? top : normal) || top > std::numeric_limits<T>::max();
  }
  void read(const T* from, V* to) { read_rows<T>(from, n, n, ld, to); }
  void flip(const V* from, V* to) { transpose_rows<T>(from, n, ld, to, ld); }  // the transpose
  void put(V* from, T* to) {
    mirror<T>(from, ld, n);
    write_rows<T>(from, n, n, ld, to);
  }

  void multiply(const V* x, const V* b, V* c, bool lower) { SG_NS::multiply<T>(x, b, ld, n, c, lower, panels, team); }

  // As LaneFunction::compose_scalar.
  int compose_scalar(const T* from, T* w, T* out, const Task<T>& t) {
    read(from, vectors);
    flip(vectors, transposed);
    const Scalar<T> f{t.f, t.exponent};
    const bool good = restrict_to_range(w, n, t);
    for (int b = 0; b < ld; b++) values[b] = V{};
    for (int i = 0; good && i < n; i++) ((T*)values)[i] = f.on_range(w, i, n, t);
    for (int i = 0; i < n; i++)
      for (int b = 0; b < ld; b++) vectors[i * ld + b] *= values[b];
    multiply(vectors, transposed, square, true);
    put(square, out);
    if (!good) out[0] = std::numeric_limits<T>::quiet_NaN();
    return !good;
  }
  int compose(const T* from, T* w, T* out, const Task<T>& t) {
    if (t.f >= sg::logarithm) return compose_scalar(from, w, out, t);
    read(from, vectors);
    const bool bad = roots(w, t.rtol, t.negative);
    for (int b = 0; b < ld; b++) values[b] = half_value<T>(values[b], shift_of<T>(splat<T>(top), t), t);
    for (int i = 0; i < n; i++)
      for (int b = 0; b < ld; b++) vectors[i * ld + b] *= values[b];
    flip(vectors, transposed);
    multiply(vectors, transposed, square, true);
    put(square, out);
    return bad;
  }
  // x ← Γ ∘ x on the lower triangle: for a given Γ, of a scalar function, or from the roots and their inverses.
  void weigh(V* x, const T* given) {
    for (int i = 0; i < n; i++) {
      T* to = (T*)(x + i * ld);
      for (int j = 0; j <= i; j++) to[j] *= given[(int64_t)i * n + j];
    }
  }
  void weigh(V* x, const T* w, const Scalar<T>& f) {
    auto* points = (typename Scalar<T>::Point*)panels;  // not used between the products
    f.spectrum(w, n, points);
    for (int i = 0; i < n; i++) {
      T* to = (T*)(x + i * ld);
      for (int j = 0; j <= i; j++) to[j] *= f.difference(points[i], points[j]);
    }
  }
  void weigh(V* x, const V* inverses, const Task<T>& t) {
    for (int i = 0; i < n; i++) {
      const V ri = splat<T>(((T*)values)[i]), qi = splat<T>(((T*)inverses)[i]);
      T* diagonal = (T*)(x + i * ld) + i;
      const T kept = *diagonal;
      for (int b = 0; b * W <= i; b++) x[i * ld + b] = weighed<T>(x[i * ld + b], ri, values[b], qi, inverses[b], t);
      *diagonal = divided<T>(splat<T>(kept), ri, ri, qi, qi, t.f)[0];
    }
  }
  void frechet(const T* from, const T* w, const T* direction, const T* given, T* out, const Task<T>& t) {
    auto *G = square, *GV = other, *VGV = square, *product = other, *result = square, *inverses = row;
    read(from, vectors);
    flip(vectors, transposed);
    read(direction, other);
    flip(other, G);
    for (int i = 0; i < n * ld; i++) G[i] = (G[i] + other[i]) * T(0.5);
    multiply(G, vectors, GV, false);
    multiply(transposed, GV, VGV, true);
    if (given) weigh(VGV, given);
    else if (t.f >= sg::logarithm) weigh(VGV, w, Scalar<T>{t.f, t.exponent});
    else {
      spectrum(w);
      for (int b = 0; b < ld; b++) inverses[b] = inverse_or_zero<T>(values[b]);
      weigh(VGV, inverses, t);
    }
    mirror<T>(VGV, ld, n);
    multiply(vectors, VGV, product, false);  // V(Γ∘·)
    multiply(product, transposed, result, true);
    put(result, out);
  }
};

template <class T> size_t fused_work(int64_t d) { return d <= lanes_up_to ? 0 : WholeFunction<T>::bytes(d); }

template <class T> int compose(const Task<T>& t) {
  constexpr int W = Simd<T>::W;
  int bad = 0;
  if (t.d <= lanes_up_to) {
    with_size<T, 1>(t.d, [&](auto& f) {
      for (int k = 0; k < t.count; k += W) bad += f.compose(t, t.first + k, t.count - k < W ? t.count - k : W);
    });
    return bad;
  }
  WholeFunction<T> f(t.d, t.work, t.team);
  const int64_t d = t.d;
  for (int64_t k = t.first; k < t.first + t.count; k++)
    bad += f.compose(t.V + k * d * d, t.w + k * d, t.S + k * d * d, t);
  return bad;
}

template <class T> void frechet(const Task<T>& t) {
  constexpr int W = Simd<T>::W;
  if (t.d <= lanes_up_to)
    return with_size<T, 1>(t.d, [&](auto& f) {
      for (int k = 0; k < t.count; k += W) f.frechet(t, t.first + k, t.count - k < W ? t.count - k : W);
    });
  WholeFunction<T> f(t.d, t.work, t.team);
  const int64_t d = t.d, dd = d * d;
  for (int64_t k = t.first; k < t.first + t.count; k++)
    f.frechet(t.V + k * dd, t.w + k * d, t.G + k * dd, t.gamma ? t.gamma + k * dd : nullptr, t.S + k * dd, t);
}

}  // namespace
}  // namespace SG_NS
