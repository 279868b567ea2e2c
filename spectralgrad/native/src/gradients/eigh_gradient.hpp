// The derivative of eigenvalues and eigenvectors: the gradient of a loss with respect to A = V Λ Vᵀ from its gradients
// V̄ and λ̄ (autograd/eigen/vectors.py has the derivation). With C = VᵀV̄ and a gap matrix K in place of 1/(λ_i − λ_j),
//   Ā = V X Vᵀ,  X_ij = (K_ji C_ij + K_ij C_ji)/2 + δ_ij λ̄_i.
// K is given, or that of SVD-Padé (gap_rule.hpp). Matrices are processed one at a time, as in matrix_functions.hpp.
#pragma once
#include "matrix_functions.hpp"
#include "gap_rule.hpp"

namespace SG_NS {
namespace {

using sg::EighGradient;

template <class T> struct EigenGradient : WholeFunction<T> {
  typedef Vec<T> V;
  typedef WholeFunction<T> Base;
  using Base::W, Base::n, Base::ld, Base::v, Base::vt, Base::g, Base::p, Base::r, Base::q;
  const EighGradient<T>& t;
  T top, noise, limit;

  EigenGradient(const EighGradient<T>& task) : Base(task.d, task.work, task.team), t(task) {
    noise = 8 * Simd<T>::eps * scalar_sqrt((T)n);
    limit = t.saturate ? std::numeric_limits<T>::max() * (T(0.25) / (T)n) : std::numeric_limits<T>::infinity();
  }
  SG_INLINE V pade(V wi, V wj) const {
    return pade_gap<T>(wi, wj, vmax<T>(vmax<T>(vabs<T>(wi), vabs<T>(wj)), splat<T>(top * Simd<T>::eps)), t.floor);
  }
  SG_INLINE void given(const T* K, int i, int b, V& here, V& there) const {
    here = there = V{};
    for (int j = b * W; j < n && j < b * W + W; j++) {
      here[j - b * W] = K[(int64_t)i * n + j];
      there[j - b * W] = K[(int64_t)j * n + i];
    }
  }
  // p ← X on the lower triangle, from p = C and g = Cᵀ. Between tied vectors a skew part of C at rounding level carries
  // no information and is dropped (autograd/gauge.py); q holds the norms of the columns of V̄.
  void weigh_pairs(const T* K) {
    const V tie = splat<T>(64 * Simd<T>::eps * top);
    for (int i = 0; i < n; i++) {
      const V wi = splat<T>(((T*)r)[i]), size = splat<T>(((T*)q)[i]);
      for (int b = 0; b * W <= i; b++) {
        V x = p[i * ld + b], y = g[i * ld + b], skew = (x - y) * T(0.5), Kij, Kji;
        if (K) given(K, i, b, Kij, Kji);
        else {
          Kij = pade(wi, r[b]);
          Kji = -Kij;
        }
        auto drop = (vabs<T>(wi - r[b]) <= tie) & (vabs<T>(skew) <= (size + q[b]) * noise);
        if (t.filter) {
          x = drop ? x - skew : x;
          y = drop ? y + skew : y;
        }
        p[i * ld + b] = (clamped<T>(Kji * x, limit) + clamped<T>(Kij * y, limit)) * T(0.5);
      }
    }
  }
  void column_norms() {  // of g
    for (int b = 0; b < ld; b++) {
      Norm<T> norm;
      for (int i = 0; i < n; i++) norm.add(g[i * ld + b]);
      q[b] = norm.root();
    }
  }
  void run(int64_t at) {
    const int64_t d = n, dd = d * d;
    const T *w = t.w + at * d, *gw = t.gw ? t.gw + at * d : nullptr;
    this->read(t.V + at * dd, v);
    this->flip(v, vt);
    this->spectrum(w);
    if (t.gV) {
      top = 0;
      for (int i = 0; i < n; i++) top = w[i] > top ? w[i] : -w[i] > top ? -w[i] : top;
      this->read(t.gV + at * dd, g);
      column_norms();
      this->multiply(vt, g, p, false);  // VᵀV̄
      this->flip(p, g);
      weigh_pairs(t.K ? t.K + at * dd : nullptr);
      for (int i = 0; gw && i < n; i++) ((T*)(p + i * ld))[i] += gw[i];
      mirror<T>(p, ld, n);
      this->multiply(v, p, g, false);
    } else {  // λ̄ alone: V diag(λ̄)
      this->spectrum(gw);
      for (int i = 0; i < n; i++)
        for (int b = 0; b < ld; b++) g[i * ld + b] = v[i * ld + b] * r[b];
    }
    this->multiply(g, vt, p, true);
    this->put(p, t.gA + at * dd);
  }
};

template <class T> size_t eigh_gradient_work(int64_t d) { return WholeFunction<T>::bytes(d); }
template <class T> void eigh_gradient(const EighGradient<T>& t) {
  EigenGradient<T> f(t);
  for (int64_t k = t.first; k < t.first + t.count; k++) f.run(k);
}

}  // namespace
}  // namespace SG_NS
