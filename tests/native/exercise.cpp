// Calls every entry of the kernel on sizes and batches with remainders, for a build with sanitizers. Prints the worst
// residual of the decompositions in units of rounding; the sanitizers say the rest.
#include <cmath>
#include <complex>
#include <cstdio>
#include <limits>
#include <random>
#include <thread>
#include <vector>

#include "entries.hpp"

template <class T> double exercise(const Entries<T>& entry, int64_t d, int64_t batch, int threads) {
  std::mt19937 random((unsigned)(d * 1000 + batch));
  std::uniform_real_distribution<T> uniform(-1, 1);
  const size_t square = (size_t)(d * d), all = (size_t)batch * square;
  std::vector<T> A(all), w((size_t)(batch * d)), V(all), S(all), G(all), X(all);
  for (auto& x : G) x = uniform(random);
  for (int64_t b = 0; b < batch; b++)  // X Xᵀ + I of exact size: an access beyond an array is seen
    for (int64_t i = 0; i < d; i++)
      for (int64_t j = 0; j < d; j++) {
        T sum = i == j;
        for (int64_t k = 0; k < d; k++) sum += G[b * d * d + i * d + k] * G[b * d * d + j * d + k] / (T)d;
        A[(size_t)(b * d * d + i * d + j)] = sum;
      }
  if (entry("eigh")(A.data(), w.data(), V.data(), batch, d, (T)1e-3, threads)) return 1e30;
  for (int absent = 0; absent < 3; absent++) {  // the gradients with respect to V and w, one of which may be absent
    const T *gV = absent == 1 ? nullptr : G.data(), *gw = absent == 2 ? nullptr : w.data(),
            *K = absent ? A.data() : nullptr;
    if (entry("eigh_gradient")(V.data(), w.data(), gV, gw, K, X.data(), batch, d, (T)1e-4, absent != 1, absent != 2,
                               threads))
      return 1e30;
    for (T x : X)
      if (!std::isfinite(x)) return 1e30;
  }
  double worst = 0;
  for (int64_t b = 0; b < batch; b++)
    for (int64_t i = 0; i < d; i++)
      for (int64_t j = 0; j < d; j++) {
        double sum = -(double)A[(size_t)(b * d * d + i * d + j)];
        for (int64_t k = 0; k < d; k++)
          sum += (double)V[(size_t)(b * d * d + i * d + k)] * (double)w[(size_t)(b * d + k)] *
                 (double)V[(size_t)(b * d * d + j * d + k)];
        worst = std::fmax(worst, std::fabs(sum));
      }
  for (int f = 1; f <= 2; f++) {
    for (auto root : {entry("root"), entry("root_single")})
      if (root(f, A.data(), w.data(), V.data(), S.data(), batch, d, (T)1e-6, (T)1e-3, (T)1e-3, threads)) return 1e30;
    for (int terms : {0, 10})
      entry("frechet")(f, terms, (T)0, V.data(), w.data(), nullptr, G.data(), X.data(), batch, d, threads);
  }
  for (auto power : {entry("power"), entry("power_single")})
    for (int relative : {0, 1})
      if (power(A.data(), w.data(), V.data(), S.data(), batch, d, (T)0, (T)1e-3, (T)-1, (T)-0.25, (T)1e-3, relative,
                threads))
        return 1e30;
  for (int f = 5; f <= 9; f++)
    for (auto function : {entry("function"), entry("function_single")}) {
      if (function(f, A.data(), w.data(), V.data(), S.data(), batch, d, (T)1e-6, (T)1e-3, (T)1e-3, (T)(f == 9 ? 2 : -2),
                   (T)1e6, f == 8, threads))
        return 1e30;
      entry("frechet")(f, 0, (T)(f == 9 ? 2 : -2), V.data(), w.data(), nullptr, G.data(), X.data(), batch, d, threads);
      for (T x : X)
        if (!std::isfinite(x)) return 1e30;
    }
  entry("frechet")(3, 0, (T)0, V.data(), nullptr, A.data(), G.data(), X.data(), batch, d, threads);
  A[0] = std::numeric_limits<T>::quiet_NaN();
  if (!entry("eigh")(A.data(), w.data(), V.data(), batch, d, (T)-1, threads)) return 1e30;
  return worst / (double)std::numeric_limits<T>::epsilon() / (double)d;
}

// Every combination of gradients that may be absent, with a gap matrix and without; the results must be finite.
template <class T>
bool exercise_gradient(const Entries<T>& entry, const std::vector<T>& U, const std::vector<T>& S,
                       const std::vector<T>& Vh, int64_t batch, int64_t m, int64_t n, int threads) {
  const int64_t k = m < n ? m : n;
  const std::vector<T> gaps((size_t)(batch * k * k), (T)0.5);
  const T floor = 64 * std::numeric_limits<T>::epsilon();
  for (int absent = 0; absent < 8; absent++) {
    std::vector<T> gM((size_t)(batch * m * n));
    const T *gU = absent & 1 ? nullptr : U.data(), *gS = absent & 2 ? nullptr : S.data(),
            *gVh = absent & 4 ? nullptr : Vh.data();
    const T* K = absent % 3 ? gaps.data() : nullptr;
    if (entry("svd_gradient")(U.data(), S.data(), Vh.data(), gU, gS, gVh, K, gM.data(), batch, m, n, floor, absent & 1,
                              (absent >> 1) & 1, threads))
      return false;
    for (T x : gM)
      if (!std::isfinite(x)) return false;
  }
  return true;
}

// The divided differences of w², which are w_i + w_j, and the ratios, which are w unless w² underflows; the worst
// error.
template <class T> double exercise_divided(const Entries<T>& entry, const std::vector<T>& w, int64_t batch, int64_t d,
                                           int threads) {
  std::vector<T> f(w), joint((size_t)(batch * d * d)), ratio(w.size());
  std::vector<int64_t> offsets((size_t)batch + 1);
  for (auto& x : f) x *= x;
  const int close = entry("divided")(0, w.data(), f.data(), joint.data(), offsets.data(), nullptr, nullptr, nullptr,
                                     batch, d, T(0), 1, threads);
  std::vector<T> places(w.size() + 6 * (size_t)close);
  entry("divided")(1, w.data(), f.data(), joint.data(), offsets.data(), places.data(), nullptr, nullptr, batch, d, T(0),
                   1, threads);
  for (auto& x : places) x *= 2;
  entry("divided")(2, w.data(), f.data(), joint.data(), offsets.data(), nullptr, places.data(), ratio.data(), batch, d,
                   T(0), 1, threads);
  double worst = close == offsets[(size_t)batch] ? 0 : 1e30;
  for (int64_t b = 0; b < batch; b++) {
    double norm = 0;
    for (int64_t i = 0; i < d; i++) norm = std::fmax(norm, std::fabs((double)w[(size_t)(b * d + i)]));
    for (int64_t i = 0; i < d; i++)
      for (int64_t j = 0; j < d; j++) {
        const double wi = (double)w[(size_t)(b * d + i)], wj = (double)w[(size_t)(b * d + j)];
        const double miss = std::fabs((double)joint[(size_t)((b * d + i) * d + j)] - wi - wj);
        const double off = wi > 1e-3 * norm ? std::fabs((double)ratio[(size_t)(b * d + i)] / wi - 1) : 0;
        if (!std::isfinite(miss) || !std::isfinite(off)) return 1e30;
        worst = std::fmax(worst, std::fmax(miss > 0 ? miss / norm : 0, off));
      }
  }
  return worst / (double)std::numeric_limits<T>::epsilon();
}

// The function f(s) = s: its value is U S Vᵀ, its derivative in the direction G is G.
template <class T>
double exercise_function(const Entries<T>& entry, const std::vector<T>& U, const std::vector<T>& S,
                         const std::vector<T>& Vh, const std::vector<T>& G, int64_t batch, int64_t m, int64_t n,
                         int threads) {
  const int64_t k = m < n ? m : n;
  const std::vector<T> ones((size_t)(batch * k * k), (T)1);
  std::vector<T> F(G.size()), X(G.size());
  const auto run = entry("singular_function");
  run(3, (T)0, (T)0, nullptr, U.data(), nullptr, Vh.data(), S.data(), nullptr, nullptr, nullptr, F.data(), batch, m, n,
      threads);
  for (int f = 9; f <= 12; f++) {  // functions of its own
    run(f, (T)1, (T)1e-5, f > 10 ? S.data() : nullptr, U.data(), S.data(), Vh.data(), nullptr, nullptr, nullptr,
        nullptr, X.data(), batch, m, n, threads);
    if (f < 11)
      run(f, (T)1, (T)1e-5, nullptr, U.data(), S.data(), Vh.data(), nullptr, nullptr, nullptr, G.data(), X.data(),
          batch, m, n, threads);
    for (T x : X)
      if (!std::isfinite(x)) return 1e30;
  }
  run(3, (T)0, (T)0, nullptr, U.data(), S.data(), Vh.data(), nullptr, ones.data(), ones.data(), G.data(), X.data(),
      batch, m, n, threads);
  double worst = 0;
  for (int64_t b = 0; b < batch; b++) {
    double size = 1, miss = 0;
    for (int64_t e = b * m * n; e < (b + 1) * m * n; e++) {
      if (!std::isfinite(F[(size_t)e])) return 1e30;
      size = std::fmax(size, std::fabs((double)G[(size_t)e]));
      miss = std::fmax(miss, std::fabs((double)X[(size_t)e] - (double)G[(size_t)e]));
    }
    worst = std::fmax(worst, miss / size);
  }
  return worst / (double)std::numeric_limits<T>::epsilon() / (double)(m > n ? m : n);
}

// One way to eigenpairs of Hermitian matrices with entries of `parts` numbers: random ones, every third one of rank
// one, every fourth one zero. Eigenvalues alone, and a matrix that is not finite, too. Only the lower triangle is read,
// unless there is a limit on the asymmetry: then the random matrices fail.
template <class T>
double exercise_pairs(Function eigh, int parts, int64_t d, int64_t batch, int threads) {
  typedef std::complex<double> C;
  std::mt19937 random((unsigned)(d * 1000 + batch));
  std::uniform_real_distribution<T> uniform(-1, 1);
  const size_t square = (size_t)(d * d * parts), all = (size_t)batch * square;
  std::vector<T> A(all), w((size_t)(batch * d)), V(all), values(w.size());
  for (size_t e = 0; e < all; e++) {
    const size_t b = e / square;
    A[e] = b % 4 == 3 ? 0 : b % 3 == 2 ? (T)(e % (size_t)parts == 0) : uniform(random);
  }
  auto entry = [&](const std::vector<T>& X, int64_t b, int64_t i, int64_t j) {
    const T* x = X.data() + (size_t)b * square + (size_t)((i * d + j) * parts);
    return C((double)x[0], parts == 2 ? (double)x[1] : 0.0);
  };
  int64_t asymmetric = 0;
  for (int64_t b = 0; b < batch; b++) asymmetric += b % 4 != 3 && b % 3 != 2 && d * parts > 1;
  if (eigh(A.data(), w.data(), V.data(), batch, d, (T)1e-3, threads) != asymmetric) return 1e30;
  if (eigh(A.data(), w.data(), V.data(), batch, d, (T)-1, threads)) return 1e30;
  if (eigh(A.data(), values.data(), nullptr, batch, d, (T)-1, threads)) return 1e30;
  double worst = 0;
  for (size_t e = 0; e < w.size(); e++) worst = std::fmax(worst, std::fabs((double)w[e] - (double)values[e]));
  for (int64_t b = 0; b < batch; b++)
    for (int64_t i = 0; i < d; i++)
      for (int64_t j = 0; j <= i; j++) {
        C sum = -entry(A, b, i, j);
        if (i == j) sum = sum.real();
        for (int64_t k = 0; k < d; k++)
          sum += entry(V, b, i, k) * (double)w[(size_t)(b * d + k)] * std::conj(entry(V, b, j, k));
        worst = std::fmax(worst, std::abs(sum));
      }
  A[0] = std::numeric_limits<T>::infinity();
  if (eigh(A.data(), w.data(), V.data(), batch, d, (T)-1, threads) != 1) return 1e30;
  return worst / (double)std::numeric_limits<T>::epsilon() / (double)(d * d);  // entries up to 1: norms up to d
}

// Matrices for decompositions, with entries of `parts` numbers: random ones, every third one of rank one, every fourth
// one zero.
template <class T> std::vector<T> varied(int parts, int64_t m, int64_t n, int64_t batch) {
  std::mt19937 random((unsigned)(m * 1000 + n * 100 + batch));
  std::uniform_real_distribution<T> uniform(-1, 1);
  std::vector<T> A((size_t)(batch * m * n * parts));
  for (int64_t e = 0; e < (int64_t)A.size(); e++) {
    const int64_t b = e / (m * n * parts);
    A[(size_t)e] = b % 4 == 3 ? 0 : b % 3 == 2 ? (T)(1 + e % (n * parts)) : uniform(random);
  }
  return A;
}

// One way to singular value decompositions; values alone, and a matrix that is not finite, too.
template <class T> double exercise_triples(Function svd, int parts, int64_t m, int64_t n, int64_t batch, int threads) {
  typedef std::complex<double> C;
  const int64_t k = m < n ? m : n;
  std::vector<T> A = varied<T>(parts, m, n, batch), S((size_t)(batch * k)), values(S.size());
  std::vector<T> U((size_t)(batch * m * k * parts)), Vh((size_t)(batch * k * n * parts));
  auto entry = [&](const std::vector<T>& X, int64_t at) {
    return C((double)X[(size_t)(at * parts)], parts == 2 ? (double)X[(size_t)(at * parts + 1)] : 0.0);
  };
  if (svd(A.data(), U.data(), S.data(), Vh.data(), batch, m, n, threads)) return 1e30;
  if (svd(A.data(), nullptr, values.data(), nullptr, batch, m, n, threads) || values != S) return 1e30;
  double worst = 0;
  for (int64_t b = 0; b < batch; b++)
    for (int64_t i = 0; i < m; i++)
      for (int64_t j = 0; j < n; j++) {
        C sum = -entry(A, b * m * n + i * n + j);
        for (int64_t r = 0; r < k; r++)
          sum += entry(U, b * m * k + i * k + r) * (double)S[(size_t)(b * k + r)] * entry(Vh, b * k * n + r * n + j);
        worst = std::fmax(worst, std::abs(sum) / std::fmax(1.0, (double)S[(size_t)(b * k)]));
      }
  A[0] = std::numeric_limits<T>::infinity();
  if (svd(A.data(), U.data(), S.data(), Vh.data(), batch, m, n, threads) != 1) return 1e30;
  return worst / (double)std::numeric_limits<T>::epsilon() / (double)(m > n ? m : n);
}

// What follows from a decomposition.
template <class T> double exercise_svd(const Entries<T>& entry, int64_t m, int64_t n, int64_t batch, int threads) {
  const int64_t k = m < n ? m : n;
  const std::vector<T> A = varied<T>(1, m, n, batch);
  std::vector<T> U((size_t)(batch * m * k)), S((size_t)(batch * k)), Vh((size_t)(batch * k * n));
  if (entry("svd")(A.data(), U.data(), S.data(), Vh.data(), batch, m, n, threads)) return 1e30;
  if (!exercise_gradient(entry, U, S, Vh, batch, m, n, threads)) return 1e30;
  return std::fmax(exercise_function(entry, U, S, Vh, A, batch, m, n, threads),
                   exercise_divided(entry, S, batch, k, threads));
}

// One way to polar factors and rotations of matrices with m ≥ n: Q V diag(h) Vᵀ is the matrix, its gradient finite. A
// matrix that is not finite, too.
template <class T>
double exercise_polar(const Entries<T>& entry, Function polar, int64_t m, int64_t n, int64_t batch, int threads) {
  std::vector<T> A = varied<T>(1, m, n, batch), Q(A.size()), X(A.size()), h((size_t)(batch * n));
  std::vector<T> Vh(h.size() * (size_t)n);
  double worst = 0;
  for (int special = 0; special <= (m == n); special++) {
    if (polar(A.data(), Q.data(), h.data(), Vh.data(), batch, m, n, special, (T)1e-5, threads)) return 1e30;
    if (entry("polar_gradient")(Q.data(), h.data(), Vh.data(), A.data(), X.data(), batch, m, n, threads)) return 1e30;
    for (int64_t b = 0; b < batch; b++)
      for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
          double sum = -(double)A[(size_t)((b * m + i) * n + j)];
          for (int64_t r = 0; r < n; r++) {
            double left = 0;  // of U = Q V
            for (int64_t l = 0; l < n; l++)
              left += (double)Q[(size_t)((b * m + i) * n + l)] * (double)Vh[(size_t)((b * n + r) * n + l)];
            sum += left * (double)h[(size_t)(b * n + r)] * (double)Vh[(size_t)((b * n + r) * n + j)];
          }
          if (!std::isfinite(X[(size_t)((b * m + i) * n + j)])) return 1e30;
          const double size = std::fmax(1.0, (double)h[(size_t)(b * n)]);
          worst = std::fmax(worst, (std::fabs(sum) - 2e-5 * size) / size);  // what counts as zero
        }
  }
  A[0] = std::numeric_limits<T>::infinity();
  if (polar(A.data(), Q.data(), h.data(), Vh.data(), batch, m, n, 0, (T)0, threads) != 1 || h[0] == h[0]) return 1e30;
  return worst / (double)std::numeric_limits<T>::epsilon() / (double)m;
}

template <class T> double exercise_every_svd(const Entries<T>& entry, int64_t m, int64_t n, int64_t batch,
                                             int threads) {
  double worst = exercise_triples<T>(entry("svd"), 1, m, n, batch, threads);
  if (m >= n)
    for (auto polar : {entry("polar"), entry("polar_single")})
      worst = std::fmax(worst, exercise_polar(entry, polar, m, n, batch, threads));
  worst = std::fmax(worst, exercise_triples<T>(entry("svd_single"), 1, m, n, batch, threads));
  worst = std::fmax(worst, exercise_triples<T>(entry("complex svd"), 2, m, n, batch, threads));
  return std::fmax(worst, exercise_triples<T>(entry("complex svd_single"), 2, m, n, batch, threads));
}

// Sets of n equal points: no cross-covariance, no distance, finite gradients; with means, a scale and weights and
// without. A set that is not finite fails.
template <class T> bool exercise_points(const Entries<T>& entry, int64_t n, int64_t k, int64_t batch, int threads) {
  const size_t all = (size_t)(batch * n * k), means = (size_t)(batch * k), square = means * (size_t)k;
  std::vector<T> X(all, (T)2), Y(all, (T)3), w((size_t)(batch * n), (T)0.5), x(means), y(means), t(means), h(means);
  std::vector<T> C(square), R(square), Vh(square), gX(all), gY(all), gw(w.size());
  std::vector<T> s((size_t)batch), spread(s), e(s), margin(s);
  for (const T* weights : {(const T*)nullptr, (const T*)w.data()}) {
    for (auto align : {entry("align"), entry("align_single")}) {
      if (align(X.data(), Y.data(), weights, nullptr, nullptr, C.data(), R.data(), h.data(), Vh.data(), nullptr,
                nullptr, nullptr, e.data(), margin.data(), batch, n, k, 0, (T)1e-5, threads))
        return false;
      if (align(X.data(), Y.data(), weights, x.data(), y.data(), C.data(), R.data(), h.data(), Vh.data(), t.data(),
                s.data(), spread.data(), e.data(), margin.data(), batch, n, k, 1, (T)1e-5, threads))
        return false;
      for (T c : C)
        if (c != 0) return false;
      for (T scale : s)
        if (scale != 1) return false;
      for (T distance : e)
        if (distance != 0) return false;
    }
    entry("point_gradient")(X.data(), Y.data(), weights, x.data(), y.data(), C.data(), x.data(), y.data(), gX.data(),
                            gY.data(), weights ? gw.data() : nullptr, batch, n, k, threads);
    for (size_t i = 0; i < all; i++)
      if (!std::isfinite(gX[i]) || !std::isfinite(gY[i])) return false;
  }
  X[0] = std::numeric_limits<T>::infinity();
  return entry("align")(X.data(), Y.data(), nullptr, x.data(), y.data(), C.data(), R.data(), h.data(), Vh.data(),
                        t.data(), nullptr, nullptr, e.data(), margin.data(), batch, n, k, 1, (T)0, threads) == 1;
}

// Features of n positions: moments about a centre, with other features and with themselves, and the affine map of both.
template <class T>
double exercise_features(const Entries<T>& entry, int64_t samples, int64_t groups, int64_t d, int64_t n, int threads) {
  std::mt19937 random((unsigned)(samples * 1000 + d * 100 + n));
  std::uniform_real_distribution<T> uniform(-1, 1);
  const size_t all = (size_t)(samples * groups * d * n), rows = (size_t)(groups * d), square = rows * (size_t)d;
  std::vector<T> X(all), Y(all), x(rows), y(rows), A(square), B(square), C(square), sums(rows), out(all);
  for (auto* v : {&X, &Y, &x, &y, &A, &B})
    for (T& e : *v) e = uniform(random);
  auto at = [&](int64_t s, int64_t g, int64_t i, int64_t p) { return (size_t)(((s * groups + g) * d + i) * n + p); };
  double worst = 0;
  for (const T* other : {(const T*)nullptr, (const T*)Y.data()}) {
    if (entry("feature_moments")(X.data(), x.data(), other, C.data(), sums.data(), samples, groups, d, n, threads))
      return 1e30;
    for (int64_t g = 0; g < groups; g++)
      for (int64_t i = 0; i < d; i++)
        for (int64_t j = -1; j < d; j++) {  // −1: the sum
          long double sum = 0;              // so that the reference's own rounding does not count
          for (int64_t s = 0; s < samples; s++)
            for (int64_t p = 0; p < n; p++) {
              const double left =
                  other ? (double)Y[at(s, g, i, p)] : (double)X[at(s, g, i, p)] - (double)x[(size_t)(g * d + i)];
              sum += j < 0 ? left : left * ((double)X[at(s, g, j, p)] - (double)x[(size_t)(g * d + j)]);
            }
          const T got = j < 0 ? sums[(size_t)(g * d + i)] : C[(size_t)((g * d + i) * d + j)];
          worst = std::fmax(worst, (double)std::fabs(got - sum) / (double)(samples * n));
        }
  }
  for (bool both : {false, true}) {
    if (entry("feature_map")(Y.data(), y.data(), A.data(), both ? X.data() : nullptr, both ? x.data() : nullptr,
                             both ? B.data() : nullptr, both ? nullptr : x.data(), out.data(), samples, groups, d, n,
                             threads))
      return 1e30;
    for (int64_t s = 0; s < samples; s++)
      for (int64_t g = 0; g < groups; g++)
        for (int64_t i = 0; i < d; i++)
          for (int64_t p = 0; p < n; p++) {
            double sum = both ? 0 : (double)x[(size_t)(g * d + i)];
            for (int64_t k = 0; k < d; k++) {
              const size_t ik = (size_t)((g * d + i) * d + k), gk = (size_t)(g * d + k);
              sum += (double)A[ik] * ((double)Y[at(s, g, k, p)] - (double)y[gk]);
              if (both) sum += (double)B[ik] * ((double)X[at(s, g, k, p)] - (double)x[gk]);
            }
            worst = std::fmax(worst, std::fabs((double)out[at(s, g, i, p)] - sum) / (double)d);
          }
  }
  return worst / (double)std::numeric_limits<T>::epsilon();
}

template <class T> double everything(const Entries<T>& entry, int threads) {
  double worst = 0;
  for (int64_t d : {1, 2, 3, 4, 5, 8, 9, 17, 31, 33, 65, 130})
    for (int64_t batch : {1, 3, 19}) {
      if (d * d * d * batch < 10000000) worst = std::fmax(worst, exercise(entry, d, batch, threads));
      if (d * d * d * batch > 2500000) continue;
      for (auto eigh : {entry("eigh"), entry("eigh_single")})
        worst = std::fmax(worst, exercise_pairs<T>(eigh, 1, d, batch, threads));
      for (auto eigh : {entry("complex eigh"), entry("complex eigh_single")})
        worst = std::fmax(worst, exercise_pairs<T>(eigh, 2, d, batch, threads));
    }
  worst = std::fmax(worst, exercise_pairs<T>(entry("eigh"), 1, 3, 300, threads));
  for (int64_t m : {1, 2, 3, 4, 5, 6, 9, 17, 33, 70, 140})
    for (int64_t n : {1, 2, 3, 4, 5, 6, 8, 16, 31, 125})
      for (int64_t batch : {1, 3, 19})
        if (m * n * (m + n) * batch < 1000000) {
          worst = std::fmax(worst, exercise_svd(entry, m, n, batch, threads));
          worst = std::fmax(worst, exercise_every_svd(entry, m, n, batch, threads));
        }
  worst = std::fmax(worst, exercise_every_svd(entry, 131, 129, 1, threads));  // threads share one matrix
  for (int64_t n : {1, 4, 16})
    for (int64_t k : {1, 2, 3, 8, 16})
      for (int64_t batch : {1, 3, 200})
        if (!exercise_points(entry, n, k, batch, threads)) return 1e30;
  for (int64_t d : {1, 8, 17})
    for (int64_t n : {1, 16, 49})
      for (int64_t samples : {1, 19}) worst = std::fmax(worst, exercise_features(entry, samples, 2, d, n, threads));
  worst = std::fmax(worst, exercise_features(entry, 2, 1, 40, 300, threads));
  return worst;
}

int main() {
  const auto single = Entries<float>();
  const auto both = Entries<double>();
  std::thread other([&] { everything(single, 2); });  // two callers share the pool
  double a = everything(single, 2), b = everything(both, 3);
  other.join();
  std::printf("%s: worst residual %.2f (float32), %.2f (float64) units\n", sg_isa(), a, b);
  return a < 30 && b < 30 ? 0 : 1;
}
