// Checks the results of every entry of the kernel by LAPACK's criterion: residual and loss of orthogonality, divided by
// the norm, the size and the unit roundoff, stay below 30. It needs nothing but the kernel, so that it can run under an
// emulator of another processor. Prints the largest ratio of each entry.
#include <cmath>
#include <complex>
#include <cstdio>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "entries.hpp"

typedef std::complex<double> C;
typedef int64_t I;

struct Matrix {
  I rows, cols;
  std::vector<C> x;
  Matrix(I m, I n) : rows(m), cols(n), x((size_t)(m * n)) {}
  C& operator()(I i, I j) { return x[(size_t)(i * cols + j)]; }
  C operator()(I i, I j) const { return x[(size_t)(i * cols + j)]; }
};
template <class F> Matrix made(I m, I n, F f) {
  Matrix out(m, n);
  for (I i = 0; i < m; i++)
    for (I j = 0; j < n; j++) out(i, j) = f(i, j);
  return out;
}
Matrix operator*(const Matrix& a, const Matrix& b) {
  return made(a.rows, b.cols, [&](I i, I j) {
    C sum = 0;
    for (I k = 0; k < a.cols; k++) sum += a(i, k) * b(k, j);
    return sum;
  });
}
Matrix operator-(const Matrix& a, const Matrix& b) {
  return made(a.rows, a.cols, [&](I i, I j) { return a(i, j) - b(i, j); });
}
Matrix operator+(const Matrix& a, const Matrix& b) {
  return made(a.rows, a.cols, [&](I i, I j) { return a(i, j) + b(i, j); });
}
Matrix adjoint(const Matrix& a) {
  return made(a.cols, a.rows, [&](I i, I j) { return std::conj(a(j, i)); });
}
Matrix diagonal(const std::vector<double>& w) {
  return made((I)w.size(), (I)w.size(), [&](I i, I j) { return i == j ? w[(size_t)i] : 0.0; });
}
Matrix identity(I n) { return diagonal(std::vector<double>((size_t)n, 1.0)); }
double norm(const Matrix& a) {  // the largest sum of a column; NaN if an entry is
  double worst = 0;
  for (I j = 0; j < a.cols; j++) {
    double sum = 0;
    for (I i = 0; i < a.rows; i++) sum += std::abs(a(i, j));
    worst = sum > worst || sum != sum ? sum : worst;
  }
  return worst;
}

std::map<std::string, double> ratios;
void check(const char* name, double error, double size, double units) {
  const double ratio = size > 0 ? error / size / units : error > 0 ? 1e30 : 0;
  double& worst = ratios[name];
  if (!(ratio <= worst)) worst = ratio == ratio ? ratio : 1e30;
}

template <class T> constexpr double unit = std::numeric_limits<T>::epsilon() / 2.0;

// Matrices with the eigenvalues or singular values of a kind, turned by reflections.
enum Kind { spread, graded, clustered, single_rank, zero, huge, tiny, kinds };
double value(int kind, I i, I n, bool f32) {
  const double share = n > 1 ? (double)i / (double)(n - 1) : 1;
  switch (kind) {
    case spread: return 1 + share;
    case graded: return std::pow(10.0, (f32 ? -6 : -14) * (1 - share));
    case clustered: return 1 + share * (f32 ? 1e-6 : 1e-14);
    case single_rank: return i == n - 1;
    case zero: return 0;
    case huge: return (1 + share) * (f32 ? 1e36 : 1e305);
    default: return (1 + share) * (f32 ? 1e-36 : 1e-305);
  }
}
struct Maker {
  std::mt19937 random;
  bool complex;
  double uniform() { return std::uniform_real_distribution<double>(-1, 1)(random); }
  Matrix noise(I m, I n) {
    return made(m, n, [&](I, I) { return C(uniform(), complex ? uniform() : 0); });
  }
  Matrix reflection(I n) {  // I − 2vvᴴ/vᴴv
    const Matrix v = noise(n, 1);
    const double size = (adjoint(v) * v)(0, 0).real();
    return made(n, n, [&](I i, I j) { return (i == j ? 1.0 : 0.0) - 2.0 * v(i, 0) * std::conj(v(j, 0)) / size; });
  }
  Matrix of_kind(int kind, I m, I n, bool f32, bool symmetric) {
    const I k = m < n ? m : n;
    const Matrix middle = made(
        m, n, [&](I i, I j) { return i == j ? value(kind, i, k, f32) * (symmetric && i % 3 == 2 ? -1.0 : 1.0) : 0.0; });
    const Matrix Q = reflection(m);
    return Q * middle * adjoint(symmetric ? Q : reflection(n));
  }
};

template <class T> void put(const Matrix& a, int parts, T* to) {
  for (size_t e = 0; e < a.x.size(); e++) {
    to[e * (size_t)parts] = (T)a.x[e].real();
    if (parts == 2) to[2 * e + 1] = (T)a.x[e].imag();
  }
}
template <class T> Matrix got(const T* from, I m, I n, int parts = 1, double scale = 1) {
  return made(m, n, [&](I i, I j) {
    const T* x = from + (i * n + j) * parts;
    return C((double)x[0] * scale, parts == 2 ? (double)x[1] * scale : 0);
  });
}

template <class T>
void pairs(const char* name, Function eigh, int parts, I d, I batch) {
  constexpr bool f32 = sizeof(T) == 4;
  Maker maker{std::mt19937((unsigned)(d * 100 + batch)), parts == 2};
  const size_t square = (size_t)(d * d * parts);
  std::vector<T> A(square * (size_t)batch), V(A.size()), w((size_t)(batch * d)), values(w.size());
  for (I b = 0; b < batch; b++)
    put(maker.of_kind((int)(b % kinds), d, d, f32, true), parts, A.data() + (size_t)b * square);
  const int failed = eigh(A.data(), w.data(), V.data(), batch, d, T(-1), 1) +
                     eigh(A.data(), values.data(), nullptr, batch, d, T(-1), 1);
  check(name, failed, 1, 1e-30);
  for (I b = 0; b < batch; b++) {
    const int kind = (int)(b % kinds);
    const double scale = kind == zero || kind == single_rank ? 1 : 1 / value(kind, d - 1, d, f32),
                 units = (double)d * unit<T>;
    Matrix M = got(A.data() + (size_t)b * square, d, d, parts, scale);
    for (I i = 0; i < d; i++)  // only the lower triangle is read
      for (I j = i; j < d; j++) M(i, j) = i == j ? C(M(i, j).real()) : std::conj(M(j, i));
    const Matrix Q = got(V.data() + (size_t)b * square, d, d, parts);
    std::vector<double> ascending;
    double apart = 0;
    for (I i = 0; i < d; i++) {
      ascending.push_back((double)w[(size_t)(b * d + i)] * scale);
      apart = std::fmax(apart, std::fabs(ascending.back() - (double)values[(size_t)(b * d + i)] * scale));
      if (i && ascending[(size_t)i] < ascending[(size_t)i - 1]) check(name, 1, 1, 1e-30);
    }
    check(name, norm(Q * diagonal(ascending) * adjoint(Q) - M), norm(M), units);
    check(name, norm(adjoint(Q) * Q - identity(d)), 1, units);
    check("eigenvalues alone", apart, norm(M), units);
  }
}

template <class T> void roots(const Entries<T>& entry, I d, I batch) {  // condition number 2
  Maker maker{std::mt19937((unsigned)(d * 100 + batch)), false};
  const size_t square = (size_t)(d * d);
  std::vector<T> A(square * (size_t)batch), V(A.size()), G(A.size()), X(A.size()), s((size_t)(batch * d)), w(s.size()),
      U(A.size());
  std::vector<T> S[2] = {A, A}, D[2] = {A, A}, GV(A), ones(A.size(), T(1));
  for (I b = 0; b < batch; b++) {
    const Matrix Q = maker.reflection(d), noise = maker.noise(d, d);
    std::vector<double> w0;
    for (I i = 0; i < d; i++) w0.push_back(value(spread, i, d, false));
    put(Q * diagonal(w0) * adjoint(Q), 1, A.data() + (size_t)b * square);
    put(noise + adjoint(noise), 1, G.data() + (size_t)b * square);
  }
  int failed = entry("eigh")(A.data(), w.data(), U.data(), batch, d, T(-1), 1);
  for (auto root : {entry("root"), entry("root_single")}) {
    for (int f : {1, 2}) {
      failed += root(f, A.data(), s.data(), V.data(), S[f - 1].data(), batch, d, T(0), T(1), T(-1), 1);
      entry("frechet")(f, 0, (T)0, V.data(), s.data(), nullptr, G.data(), D[f - 1].data(), batch, d, 1);
    }
    check("roots", failed, 1, 1e-30);
    for (I b = 0; b < batch; b++) {
      const size_t at = (size_t)b * square;
      const double units = (double)d * unit<T>;
      const Matrix M = got(A.data() + at, d, d), R = got(S[0].data() + at, d, d), Z = got(S[1].data() + at, d, d);
      const Matrix H = got(G.data() + at, d, d), dR = got(D[0].data() + at, d, d), dZ = got(D[1].data() + at, d, d);
      check("roots", norm(R * R - M), norm(M), units);
      check("roots", norm(Z * R - identity(d)), norm(Z) * norm(R), units);
      check("derivatives of roots", norm(R * dR + dR * R - H), norm(R) * norm(dR), units);
      check("derivatives of roots", norm(dZ + Z * dR * Z), norm(Z) * norm(Z) * norm(dR), units);
    }
  }
  for (I b = 0; b < batch; b++)  // with K = 1 the gradient of ⟨V, GV⟩ is G
    put(got(G.data() + (size_t)b * square, d, d) * got(U.data() + (size_t)b * square, d, d), 1,
        GV.data() + (size_t)b * square);
  entry("eigh_gradient")(U.data(), w.data(), GV.data(), nullptr, ones.data(), X.data(), batch, d, T(0), 0, 1, 1);
  std::vector<T> Y(A.size());
  entry("eigh_gradient")(U.data(), w.data(), nullptr, w.data(), nullptr, Y.data(), batch, d, T(0), 1, 1, 1);
  for (I b = 0; b < batch; b++) {
    const size_t at = (size_t)b * square;
    const Matrix H = got(G.data() + at, d, d), M = got(A.data() + at, d, d);
    check("gradient of eigh", norm(got(X.data() + at, d, d) - H), norm(H), (double)d * unit<T>);
    check("gradient of eigh", norm(got(Y.data() + at, d, d) - M), norm(M), (double)d * unit<T>);
  }
}

// The gradient of tr(WᵀM) through M = U diag(s) Vᵀ is W.
template <class T> void gradient_of_svd(const Entries<T>& entry, Maker& maker, const std::vector<T>& U,
                                        const std::vector<T>& Vh, I m, I n, I batch) {
  const I k = m < n ? m : n;
  std::vector<T> s((size_t)(batch * k)), gU(U.size()), gS(s.size()), gVh(Vh.size()), gM((size_t)(batch * m * n));
  std::vector<Matrix> wanted;
  for (I b = 0; b < batch; b++) {
    std::vector<double> values;
    for (I i = 0; i < k; i++) {
      values.push_back((double)(k - i));
      s[(size_t)(b * k + i)] = (T)(k - i);
    }
    const Matrix u = got(U.data() + b * m * k, m, k), vh = got(Vh.data() + b * k * n, k, n), W = maker.noise(m, n);
    const Matrix inner = adjoint(u) * W * adjoint(vh);
    for (I i = 0; i < k; i++) gS[(size_t)(b * k + i)] = (T)inner(i, i).real();
    put(W * adjoint(vh) * diagonal(values), 1, gU.data() + b * m * k);
    put(diagonal(values) * adjoint(u) * W, 1, gVh.data() + b * k * n);
    wanted.push_back(W);
  }
  const T floor = 64 * std::numeric_limits<T>::epsilon();
  entry("svd_gradient")(U.data(), s.data(), Vh.data(), gU.data(), gS.data(), gVh.data(), nullptr, gM.data(), batch, m,
                        n, floor, 1, 1, 1);
  for (I b = 0; b < batch; b++) {  // the cotangents are k times as large as W
    const Matrix error = got(gM.data() + b * m * n, m, n) - wanted[(size_t)b];
    check("gradient of svd", norm(error), (double)k * norm(wanted[(size_t)b]), (double)(m > n ? m : n) * unit<T>);
  }
}

// The function s² of the singular values k, k − 1, …, 1: its divided differences s_i + s_j, with a quadrature for close
// pairs, its value U s² Vᵀ, and its derivative in the direction G.
template <class T> void function_of_values(const Entries<T>& entry, Maker& maker, const std::vector<T>& U,
                                           const std::vector<T>& Vh, I m, I n, I batch) {
  const I k = m < n ? m : n;
  const double size = (double)k, units = (double)(m > n ? m : n) * unit<T>;
  std::vector<T> s((size_t)(batch * k)), f(s.size()), r(s.size()), J((size_t)(batch * k * k)),
      G((size_t)(batch * m * n)), F(G.size()), X(G.size());
  std::vector<I> offsets((size_t)batch + 1);
  for (I e = 0; e < batch * k; e++) {
    s[(size_t)e] = (T)(k - e % k);
    f[(size_t)e] = s[(size_t)e] * s[(size_t)e];
  }
  for (I b = 0; b < batch; b++) put(maker.noise(m, n), 1, G.data() + b * m * n);
  const int close = entry("divided")(0, s.data(), f.data(), J.data(), offsets.data(), nullptr, nullptr, nullptr, batch,
                                     k, T(0), 0, 1);
  std::vector<T> places(s.size() + 6 * (size_t)close);
  entry("divided")(1, s.data(), f.data(), J.data(), offsets.data(), places.data(), nullptr, nullptr, batch, k, T(0), 0,
                   1);
  for (T& x : places) x *= 2;
  entry("divided")(2, s.data(), f.data(), J.data(), offsets.data(), nullptr, places.data(), r.data(), batch, k, T(0), 0,
                   1);
  constexpr int given = 3;  // the values, or the divided differences
  entry("singular_function")(given, T(0), T(0), nullptr, U.data(), nullptr, Vh.data(), f.data(), nullptr, nullptr,
                             nullptr, F.data(), batch, m, n, 1);
  entry("singular_function")(given, T(0), T(0), nullptr, U.data(), s.data(), Vh.data(), nullptr, J.data(), r.data(),
                             G.data(), X.data(), batch, m, n, 1);
  std::vector<double> values, squares;
  for (I i = 0; i < k; i++) {
    values.push_back((double)(k - i));
    squares.push_back((double)((k - i) * (k - i)));
  }
  const Matrix S = diagonal(values);
  for (I b = 0; b < batch; b++) {
    const Matrix u = got(U.data() + b * m * k, m, k), vh = got(Vh.data() + b * k * n, k, n),
                 g = got(G.data() + b * m * n, m, n);
    const Matrix P = adjoint(u) * g * adjoint(vh), rest = g - u * P * vh;
    const Matrix inner = made(k, k, [&](I i, I j) {
      const double a = values[(size_t)i], c = values[(size_t)j];
      return (a + c) * (P(i, j) + P(j, i)) * 0.5 + (a * a + c * c) / (a + c) * (P(i, j) - P(j, i)) * 0.5;
    });
    const Matrix wanted = u * inner * vh + rest * adjoint(vh) * S * vh + u * S * adjoint(u) * rest;
    const Matrix sums = made(k, k, [&](I i, I j) { return values[(size_t)i] + values[(size_t)j]; });
    check("divided differences", norm(got(J.data() + b * k * k, k, k) - sums), norm(sums), unit<T>);
    check("functions of singular values", norm(got(F.data() + b * m * n, m, n) - u * diagonal(squares) * vh),
          size * size, units);
    check("functions of singular values", norm(got(X.data() + b * m * n, m, n) - wanted), 2 * size * norm(g), units);
  }
}

template <class T> void triples(const char* name, Function svd, int parts, Maker& maker, std::vector<T>& U,
                                std::vector<T>& Vh, I m, I n, I batch) {
  constexpr bool f32 = sizeof(T) == 4;
  const I k = m < n ? m : n;
  std::vector<T> A((size_t)(batch * m * n * parts)), S((size_t)(batch * k));
  U.resize((size_t)(batch * m * k * parts));
  Vh.resize((size_t)(batch * k * n * parts));
  for (I b = 0; b < batch; b++)
    put(maker.of_kind((int)(b % kinds), m, n, f32, false), parts, A.data() + b * m * n * parts);
  check(name, svd(A.data(), U.data(), S.data(), Vh.data(), batch, m, n, 1), 1, 1e-30);
  for (I b = 0; b < batch; b++) {
    const int kind = (int)(b % kinds);
    const double scale = kind == zero || kind == single_rank ? 1 : 1 / value(kind, k - 1, k, f32);
    const double units = (double)(m > n ? m : n) * unit<T>;
    const Matrix M = got(A.data() + b * m * n * parts, m, n, parts, scale);
    const Matrix u = got(U.data() + b * m * k * parts, m, k, parts),
                 vh = got(Vh.data() + b * k * n * parts, k, n, parts);
    std::vector<double> descending;
    for (I i = 0; i < k; i++) descending.push_back((double)S[(size_t)(b * k + i)] * scale);
    for (I i = 1; i < k; i++)
      if (descending[(size_t)i] > descending[(size_t)i - 1]) check(name, 1, 1, 1e-30);
    check(name, norm(u * diagonal(descending) * vh - M), norm(M), units);
    check(name, norm(adjoint(u) * u - identity(k)), 1, units);
    check(name, norm(vh * adjoint(vh) - identity(k)), 1, units);
  }
}

// M = Q V diag(h) Vᵀ with orthonormal columns of Q.
template <class T> void polar_factors(const char* name, Function polar, Maker& maker, I m, I n, I batch) {
  constexpr bool f32 = sizeof(T) == 4;
  if (m < n) return;
  std::vector<T> A((size_t)(batch * m * n)), Q(A.size()), h((size_t)(batch * n)), Vh((size_t)(batch * n * n));
  for (I b = 0; b < batch; b++) put(maker.of_kind((int)(b % kinds), m, n, f32, false), 1, A.data() + b * m * n);
  check(name, polar(A.data(), Q.data(), h.data(), Vh.data(), batch, m, n, false, T(0), 1), 1, 1e-30);
  for (I b = 0; b < batch; b++) {
    const int kind = (int)(b % kinds);
    const double scale = kind == zero || kind == single_rank ? 1 : 1 / value(kind, n - 1, n, f32);
    const double units = (double)m * unit<T>;
    const Matrix M = got(A.data() + b * m * n, m, n, 1, scale), q = got(Q.data() + b * m * n, m, n),
                 vh = got(Vh.data() + b * n * n, n, n);
    std::vector<double> values;
    for (I i = 0; i < n; i++) values.push_back((double)h[(size_t)(b * n + i)] * scale);
    check(name, norm(q * adjoint(vh) * diagonal(values) * vh - M), norm(M), units);
    check(name, norm(adjoint(q) * q - identity(n)), 1, units);
  }
}

template <class T> void singular(const Entries<T>& entry, I m, I n, I batch) {
  Maker maker{std::mt19937((unsigned)(m * 1000 + n * 10 + batch)), true};
  std::vector<T> U, Vh;
  triples<T>("complex svd", entry("complex svd"), 2, maker, U, Vh, m, n, batch);
  triples<T>("complex svd, one by one", entry("complex svd_single"), 2, maker, U, Vh, m, n, batch);
  maker.complex = false;
  triples<T>("svd, one by one", entry("svd_single"), 1, maker, U, Vh, m, n, batch);
  triples<T>("svd", entry("svd"), 1, maker, U, Vh, m, n, batch);
  gradient_of_svd(entry, maker, U, Vh, m, n, batch);
  function_of_values(entry, maker, U, Vh, m, n, batch);
  polar_factors<T>("polar", entry("polar"), maker, m, n, batch);
  polar_factors<T>("polar, one by one", entry("polar_single"), maker, m, n, batch);
}

template <class T> void everything(const char* type) {
  const auto entry = Entries<T>();
  ratios.clear();
  for (I d : {1, 2, 3, 4, 5, 9, 17, 36})
    for (I batch : {1, 9}) {
      pairs<T>("eigh", entry("eigh"), 1, d, batch);
      pairs<T>("eigh, one by one", entry("eigh_single"), 1, d, batch);
      pairs<T>("complex eigh", entry("complex eigh"), 2, d, batch);
      pairs<T>("complex eigh, one by one", entry("complex eigh_single"), 2, d, batch);
      roots(entry, d, batch);
    }
  for (I m : {1, 2, 3, 5, 12, 33})
    for (I n : {1, 2, 4, 12, 31}) {
      singular(entry, m, n, 9);
      singular(entry, n, m, 9);
    }
  for (const auto& [name, worst] : ratios) std::printf("%s %s %s: %.2f\n", sg_isa(), type, name.c_str(), worst);
}

int main() {
  bool good = true;
  for (int both = 0; both < 2; both++) {
    both ? everything<double>("float64") : everything<float>("float32");
    for (const auto& [name, worst] : ratios) good = good && worst < 30;
  }
  std::puts(good ? "all below 30" : "FAILED");
  return good ? 0 : 1;
}
