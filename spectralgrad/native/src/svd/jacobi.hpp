// The singular value decomposition of m × n matrices, m ≥ n, for n ≤ 5: the one-sided Jacobi method of Hestenes (Golub
// & Van Loan, 4th ed., section 8.6.4; Demmel and Veselić, SIAM J. Matrix Anal. Appl. 13 (1992); LAPACK's GESVJ), one
// matrix per lane; and for 2 × 2 matrices its single rotation in closed form.
//
// Rotations from the right, accumulated in V, make the columns of A orthogonal; their norms are the singular values,
// and the columns divided by their norms the left singular vectors. A rotation by a small angle changes a small column
// by rounding errors of its own size only, so that small singular values are found to high relative accuracy.
#pragma once
#include "bidiagonal.hpp"
#include "../simd/sorting.hpp"

namespace SG_NS {
namespace {

constexpr int svd_jacobi_up_to = 5;

// M = N for square matrices, whose size the compiler then knows, or 0 for any number of rows.
template <class T, int N, int M> struct OneSided {
  typedef Vec<T> V;
  V own[M ? M * N : 1], v[N][N], norm[N];
  V* far;
  int m;

  SG_INLINE int rows() const { return M ? M : m; }
  SG_INLINE V& at(int i, int j) { return M ? own[j * M + i] : far[j * m + i]; }

  SG_INLINE V product(int p, int q) {
    V s = {};
    for (int i = 0; i < rows(); i++) s += at(i, p) * at(i, q);
    return s;
  }
  static SG_INLINE void turn(V& x, V& y, V c, V s) {
    V z = c * x - s * y;
    y = s * x + c * y;
    x = z;
  }

  // Makes columns p and q orthogonal where the cosine of their angle is above eps, or above √m eps/2, the error of the
  // product itself, for more than four rows; t = tan θ is the smaller root of t² + 2ζt − 1 = 0,
  // ζ = (‖q‖² − ‖p‖²)/(2 pᵀq). Other lanes are left unchanged, bit for bit. tiny: such products change no singular
  // value, and the squares compared here would underflow below it.
  SG_INLINE Mask<T> rotate(int p, int q) {
    const T bar = Simd<T>::eps * Simd<T>::eps * (rows() > 4 ? T(0.25) * (T)rows() : T(1));
    V alpha = product(p, p), beta = product(q, q), gamma = product(p, q), one = splat<T>(1);
    Mask<T> active = gamma * gamma > vmax<T>(alpha * bar * beta, splat<T>(Simd<T>::tiny));
    if (!any(active)) return active;
    V zeta = (beta - alpha) * T(0.5) / (active ? gamma : one);
    V t = T(1) / (vabs<T>(zeta) + vsqrt(zeta * zeta + T(1)));
    t = active ? flip<T>(t, signs<T>(zeta)) : V{};
    V c = T(1) / vsqrt(t * t + T(1)), s = t * c;
    for (int i = 0; i < rows(); i++) turn(at(i, p), at(i, q), c, s);
    for (int i = 0; i < N; i++) turn(v[i][p], v[i][q], c, s);
    return active;
  }
  SG_INLINE Mask<T> sweep() {
    Mask<T> busy = {};
    if constexpr (N == 4) {  // neighbouring pairs have no column in common, so that their latencies overlap
      busy |= rotate(0, 1);
      busy |= rotate(2, 3);
      busy |= rotate(0, 2);
      busy |= rotate(1, 3);
      busy |= rotate(0, 3);
      busy |= rotate(1, 2);
    } else
      for (int p = 0; p < N; p++)
        for (int q = p + 1; q < N; q++) busy |= rotate(p, q);
    return busy;
  }

  SG_INLINE void sort() {
    for (int j = 0; j < N; j++) norm[j] = vsqrt(product(j, j));
    for (int end = N - 1; end > 0; end--)
      for (int j = 0; j < end; j++) {
        Mask<T> wrong = norm[j + 1] > norm[j];
        if (!any(wrong)) continue;
        swap_if(wrong, norm[j], norm[j + 1]);
        for (int i = 0; i < rows(); i++) swap_if(wrong, at(i, j), at(i, j + 1));
        for (int i = 0; i < N; i++) swap_if(wrong, v[i][j], v[i][j + 1]);
      }
  }

  // Left vectors: the columns divided by their norms. Where columns are so small that squares of products with them
  // underflow (or are zero), the orthogonal factor of their QR decomposition instead, which needs no such division.
  // work: (2 N + 1) m vectors.
  SG_INLINE void normalise(V* work) {
    const T least = sizeof(T) == 4 ? T(0x1p-12) : T(0x1p-70);
    Mask<T> small = (norm[N - 1] < norm[0] * least) | (norm[0] == 0);
    const bool some = any(small);
    V* q = work;
    if (some) orthonormal(q, work + N * rows());
    for (int j = 0; j < N; j++) {
      V inverse = T(1) / norm[j];
      for (int i = 0; i < rows(); i++) at(i, j) = at(i, j) * inverse;
      for (int i = 0; some && i < rows(); i++) at(i, j) = small ? q[j * rows() + i] : at(i, j);
    }
  }
  void orthonormal(V* q, V* work) {
    V *a = work, *z = work + N * rows(), tau[N + 1], sign[N], dots[N / 2 + 1][2][2];
    const int m = rows();
    for (int j = 0; j < N; j++)
      for (int i = 0; i < m; i++) a[j * m + i] = at(i, j);
    for (int k = 0; k < N; k++) {
      tau[k] = reflector<Lanes<T>>(a + k * m, k, k, m, sign[k]);
      for (int j = k + 1; j < N; j++) {
        V y = tau[k] * dot<Lanes<T>>(a + k * m, a + j * m, k, m);
        for (int i = k; i < m; i++) a[j * m + i] -= a[k * m + i] * y;
      }
      for (int i = 0; i < k; i++) a[k * m + i] = V{};
    }
    pair_dots<Lanes<T>>(a, m, N, m, dots);
    for (int j = 0; j < N; j++) {
      reflected_columns<Lanes<T>, 1>(a, m, N, 0, m, tau, dots, j, z);
      for (int i = 0; i < m; i++) q[j * m + i] = flip<T>(z[i], signs<T>(sign[j]));
    }
  }
};

// Of a group; U and Vh are null if they are not wanted.
template <class T> struct SvdPointers {
  const T* A;
  T *U, *S, *Vh;
};

// Writes a basis whose columns are given by entry(i, j), or its transpose; NaN for matrices that failed.
template <class T, class Entry>
SG_INLINE void write_entries(int rows, int cols, bool transposed, Vec<T> good, int count, Vec<T>* io, T* out,
                             Entry entry) {
  Vec<T> nan = splat<T>(__builtin_nanf(""));
  for (int i = 0; i < rows; i++)
    for (int j = 0; j < cols; j++) io[transposed ? j * rows + i : i * cols + j] = good != 0 ? entry(i, j) + T(0) : nan;
  SG_HERE scatter(io, out, rows * cols, count, out + (int64_t)count * rows * cols, rows * cols);
}

// One group of up to W matrices. Matrices that are not finite, or not orthogonal after 30 sweeps, get NaN.
// work: (4 N + 1) m + W vectors.
template <class T, int N, int M>
void one_sided_group(const SvdPointers<T>& g, int m, bool wide, int count, int64_t left, Vec<T>* work) {
  constexpr int W = Simd<T>::W;
  const int size = m * N;
  Vec<T>*io = work, values[N + W] = {}, largest = {}, poison = {};
  OneSided<T, N, M> J;
  J.m = m;
  J.far = work + size + W;
  work = J.far + (M ? 0 : size);
  gather(g.A, size, count, g.A + left * size, size, io);
  for (int e = 0; e < size; e++) {
    largest = vmax<T>(vabs<T>(io[e]), largest);
    poison += io[e] * T(0);
  }
  Scale<Vec<T>> s = scale_of<T>(largest, poison);
  for (int i = 0; i < J.rows(); i++)
    for (int j = 0; j < N; j++) J.at(i, j) = scaled<T>(io[wide ? j * m + i : i * N + j], s);
  for (int i = 0; i < N; i++)
    for (int j = 0; j < N; j++) J.v[i][j] = splat<T>(i == j);
  Mask<T> busy = ~Mask<T>{};
  for (int k = 0; k < 30 && any(busy); k++) busy = J.sweep();
  s.good = busy ? Vec<T>{} : s.good;
  J.sort();
  for (int j = 0; j < N; j++) values[j] = unscaled<T>(J.norm[j], s);
  scatter(values, g.S, N, count, g.S + (int64_t)count * N, N);
  if (!g.U) return;
  J.normalise(work);
  write_entries<T>(m, N, wide, s.good, count, io, wide ? g.Vh : g.U, [&](int i, int j) { return J.at(i, j); });
  write_entries<T>(N, N, !wide, s.good, count, io, wide ? g.U : g.Vh, [&](int i, int j) { return J.v[i][j]; });
}

// 2 × 2: one rotation makes the columns of [a b; c d] orthogonal. The larger column gives σ₁ and the first left vector,
// which determines the second one up to its sign; σ₂ = |ad − bc|/σ₁, with the determinant to full relative accuracy.
// work: 4 vectors, rounded up to W.
template <class T> void two_by_two_group(const SvdPointers<T>& g, int count, int64_t left, Vec<T>* io) {
  constexpr int W = Simd<T>::W;
  typedef Vec<T> V;
  V values[W] = {}, zero = {}, one = splat<T>(1), largest = {}, poison = {};
  SG_HERE gather(g.A, 4, count, g.A + left * 4, 4, io);
  for (int e = 0; e < 4; e++) {
    largest = vmax<T>(vabs<T>(io[e]), largest);
    poison += io[e] * T(0);
  }
  Scale<V> scale = scale_of<T>(largest, poison);
  V a = scaled<T>(io[0], scale), b = scaled<T>(io[1], scale), c = scaled<T>(io[2], scale), d = scaled<T>(io[3], scale);
  V determinant = difference_of_products<T>(a, d, b, c);
  V first = a * a + c * c, second = b * b + d * d, twice = (a * b + c * d) * T(2), gap = vabs<T>(first - second);
  Mask<T> turned = second > first;
  swap_if(turned, a, b);
  swap_if(turned, c, d);
  V t = twice / vmax<T>(gap + vsqrt(gap * gap + twice * twice), splat<T>(Simd<T>::tiny));  // tiny only avoids 0/0
  V cosine = T(1) / vsqrt(t * t + T(1)), sine = t * cosine;
  V x = cosine * a + sine * b, y = cosine * c + sine * d;
  V top = vsqrt(x * x + y * y);
  V inverse = top > 0 ? T(1) / top : zero;
  x = top > 0 ? x * inverse : one;
  y *= inverse;
  V low = vabs<T>(determinant) * inverse;
  values[0] = unscaled<T>(top, scale);
  values[1] = unscaled<T>(vmin<T>(low, top), scale);
  SG_HERE scatter(values, g.S, 2, count, g.S + (int64_t)count * 2, 2);
  if (!g.U) return;
  Mask<T> sign = signs<T>(determinant) ^ (turned ? signs<T>(-one) : Mask<T>{});
  V left_vectors[4] = {x, flip<T>(-y, sign), y, flip<T>(x, sign)};
  swap_if(turned, cosine, sine);  // now the first right vector
  V other = turned ? sine : cosine, minus = turned ? cosine : sine;
  V right[4] = {cosine, sine, turned ? other : -minus, turned ? -minus : other};
  write_entries<T>(2, 2, false, scale.good, count, io, g.U, [&](int i, int j) { return left_vectors[i * 2 + j]; });
  write_entries<T>(2, 2, false, scale.good, count, io, g.Vh, [&](int i, int j) { return right[i * 2 + j]; });
}

}  // namespace
}  // namespace SG_NS
