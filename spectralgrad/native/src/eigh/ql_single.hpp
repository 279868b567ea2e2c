// QL iteration with Wilkinson's shift on one tridiagonal matrix. ql.hpp explains the sweep; here the chain of dependent
// square roots and divisions, which no other matrix fills, is replaced by two linear recurrences. With p_k = π_k √M_k,
//   M_{k+1} = p_k² + e_k² M_k,   p_{k+1} = p_k (d_{k+1} − σ) − p_{k−1} e_k²,
// where M_k is the product of the squared r up to step k (p_k is the characteristic polynomial of the leading block, up
// to scaling). The rotations follow without a chain, in vectors:
//   c_k = |p_k|/√M_{k+1},  s_k = ± e_k √M_k/√M_{k+1},  γ_{k+1} = p_k p_{k+1}/M_{k+1}.
// Every relation of the sweep holds to rounding error for the computed p and M, so it is as stable as with square
// roots. Both recurrences are in double precision and scaled by a power of two every `chunk` steps. Within a chunk M
// shrinks at most by eps² and grows at most by the squared norm of T at each step: it neither over- nor underflows.
//
// Rows are numbered from the last one, so that a sweep runs forwards: row k here is row n − 1 − k of T.
#pragma once
#include "../simd/lanes.hpp"

namespace SG_NS {
namespace {

template <class V, int... K> SG_INLINE V reversed(V v, std::integer_sequence<int, K...>) {
  constexpr int W = sizeof...(K);
  return __builtin_shufflevector(v, v, (W - 1 - K)...);
}
SG_INLINE void store_reversed(double* to, f64v v) {
  store<double>(to, reversed(v, std::make_integer_sequence<int, Simd<double>::W>{}));
}
SG_INLINE void store_reversed(float* to, f64v v) {
  typedef float half __attribute__((vector_size(SG_BYTES / 2)));
  half x = __builtin_convertvector(reversed(v, std::make_integer_sequence<int, Simd<double>::W>{}), half);
  memcpy(to, &x, sizeof x);
}

template <class T> struct SingleQL {
  typedef f64v V;
  typedef i64v M;
  static constexpr int W = Simd<double>::W, chunk = 8, pad = chunk;
  int n, first, last;  // the block in work: rows first … last; couplings beyond `last` are zero
  double *D, *E;       // n entries and `pad` more; E[k] couples rows k and k + 1
  double floor;

  void start() {
    double largest = 0;
    for (int k = 0; k < n; k++) {
      double d = __builtin_fabs(D[k]), e = __builtin_fabs(E[k]);
      largest = d > largest ? d : largest;
      largest = e > largest ? e : largest;
    }
    floor = largest * (double)Simd<T>::eps;  // as in ql.hpp
    for (int k = 0; k < n; k++) E[k] = __builtin_fabs(E[k]) <= floor ? 0 : E[k];
    for (int k = n; k < n + pad; k++) D[k] = E[k] = 0;
    last = n - 1;
  }
  // Finds the last unreduced block; false if there is none.
  bool prepare() {
    while (last > 0 && E[last - 1] == 0) last--;
    first = last;
    while (first > 0 && E[first - 1] != 0) first--;
    return last > 0;
  }
  double shift() const {
    const double d0 = D[last], d1 = D[last - 1], e = E[last - 1];
    const double h = (d1 - d0) * 0.5, length = __builtin_sqrt(h * h + e * e);
    return d0 - e * e / (h < 0 ? h - length : h + length);
  }

  // State of a sweep between chunks; roots[0] and inverses[0] belong to M, sines[0] and gammas[0] to the last rotation.
  double p[chunk + 2], m[chunk + 1], roots[chunk + 1], inverses[chunk + 1], sines[chunk + 1], gammas[chunk + 1];

  // One sweep over the block. If recorded, s and t receive sin θ and tan(θ/2) of the rotation of columns (i, i + 1) of
  // Q at entry i; up to `chunk` entries on either side of the block are set to zero.
  template <bool recorded> void sweep(double sigma, T* s, T* t) {
    p[0] = 1;
    p[1] = gammas[0] = D[first] - sigma;
    m[0] = roots[0] = inverses[0] = 1;
    sines[0] = 0;
    for (int k = first;; k += chunk) {
      const int steps = last - k < chunk ? last - k : chunk;
      chain(k, sigma);
      rotations<recorded>(k, steps, s, t);
      if (k + chunk < last) carry();
      else return finish(steps, sigma);
    }
  }
  SG_INLINE void chain(int k, double sigma) {
    double p0 = p[0], p1 = p[1], mk = m[0];
    for (int j = 0; j < chunk; j++) {
      const double e = E[k + j], ee = e * e, p2 = p1 * (D[k + j + 1] - sigma) - p0 * ee;
      mk = p1 * p1 + ee * mk;
      p[j + 2] = p2;
      m[j + 1] = mk;
      p0 = p1;
      p1 = p2;
    }
  }
  template <bool recorded> SG_INLINE void rotations(int k, int steps, T* s, T* t) {
    for (int j = 0; j < chunk; j += W) {
      V r, inverse;
      root<double>(load(m + j + 1), r, inverse);
      store(roots + j + 1, r);
      store(inverses + j + 1, inverse);
    }
    for (int j = 0; j < chunk; j += W) {
      const M live = lanes_below(steps - j);
      const V pk = load(p + j + 1), inverse = load(inverses + j + 1);
      const M sign = signs<double>(load(p + j)) ^ signs<double>(pk);
      V sine = flip<double>(load(E + k + j) * load(roots + j) * inverse, sign);
      sine = live ? sine : V{};
      store(sines + j + 1, sine);
      const V cosine = vabs<double>(pk) * inverse, gamma = pk * inverse * (load(p + j + 2) * inverse);
      store(gammas + j + 1, gamma);
      const V d = load(gammas + j) + (load(D + k + j + 1) - gamma);
      store(D + k + j, live ? d : load(D + k + j));
      if (recorded) {
        const int to = n - 1 - k - j - W;
        store_reversed(s + to, sine);
        store_reversed(t + to, live ? sine * reciprocal<double>(cosine + 1) : V{});
      }
      // Couplings lag one step behind: E[k + j − 1] is s of the step before times this r.
      V coupling = load(sines + j) * flip<double>(load(roots + j + 1) * load(inverses + j), sign);
      coupling = vabs<double>(coupling) <= floor ? V{} : coupling;
      double* to = E + k + j - 1;
      store(to, (live & (k + j > first ? ~M{} : ~lanes_below(1))) ? coupling : load(to));
    }
  }
  static SG_INLINE M lanes_below(int count) {
    M m;
    for (int i = 0; i < W; i++) m[i] = i < count ? -1 : 0;
    return m;
  }
  // Makes the last entries the first ones, scaled so that 1 ≤ M < 4.
  SG_INLINE void carry() {
    int64_t field;
    memcpy(&field, m + chunk, sizeof field);
    const int64_t half = ((field >> 52) - 1023) >> 1;  // floor of half the exponent
    const double up = power(half), down = power(-half);
    p[0] = p[chunk] * down;
    p[1] = p[chunk + 1] * down;
    m[0] = m[chunk] * down * down;
    roots[0] = roots[chunk] * down;
    inverses[0] = inverses[chunk] * up;
    sines[0] = sines[chunk];
    gammas[0] = gammas[chunk];
  }
  static SG_INLINE double power(int64_t k) {
    int64_t field = (k + 1023) << 52;
    double x;
    memcpy(&x, &field, sizeof x);
    return x;
  }
  // The last row: its coupling to the row before, and its diagonal entry.
  SG_INLINE void finish(int steps, double sigma) {
    double pi = p[steps + 1] * inverses[steps];
    if (p[steps] < 0) pi = -pi;
    const double coupling = sines[steps] * pi;
    E[last - 1] = __builtin_fabs(coupling) <= floor ? 0 : coupling;
    D[last] = gammas[steps] + sigma;
  }
};

}  // namespace
}  // namespace SG_NS
