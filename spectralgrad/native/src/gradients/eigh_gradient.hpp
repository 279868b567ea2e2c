// The derivative of eigenvalues and eigenvectors: the gradient of a loss with respect to A = V Λ Vᵀ from its gradients
// V̄ and λ̄ (autograd/eigen/vectors.py has the derivation). With C = VᵀV̄ and a gap matrix K in place of 1/(λ_i − λ_j),
//   Ā = V X Vᵀ,  X_ij = (K_ji C_ij + K_ij C_ji)/2 + δ_ij λ̄_i.
// K is given, or SVD-Padé's (gap_rule.hpp). Matrices are processed one at a time, as in matrix_functions.hpp.
#pragma once
#include "matrix_functions.hpp"
#include "gap_rule.hpp"

namespace SG_NS {
namespace {

using sg::EighGradient;

template <class T> struct EigenGradient : WholeFunction<T> {
  typedef Vec<T> V;
  typedef WholeFunction<T> Base;
  using Base::values, Base::row;
  using Base::W, Base::n, Base::ld, Base::top, Base::vectors, Base::transposed, Base::square, Base::other;
  const EighGradient<T>& t;
  Coupling<T> coupling;

  EigenGradient(const EighGradient<T>& task)
      : Base(task.d, task.work, task.team), t(task), coupling(n, t.filter, t.saturate) {}
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
  // C ← X on the lower triangle, from C and its transpose; norms: of the columns of V̄.
  void weigh_pairs(const T* K, const V* norms, V* C, const V* Ct) {
    coupling.tie = splat<T>(64 * Simd<T>::eps * top);
    for (int i = 0; i < n; i++) {
      const V wi = splat<T>(((T*)values)[i]), norm = splat<T>(((T*)norms)[i]);
      for (int b = 0; b * W <= i; b++) {
        const int e = i * ld + b;
        V Kij, Kji;
        if (K) given(K, i, b, Kij, Kji);
        else {
          Kij = pade(wi, values[b]);
          Kji = -Kij;
        }
        C[e] = coupling.joint(wi, values[b], Kij, Kji, C[e], Ct[e], norm + norms[b]) * T(0.5);
      }
    }
  }
  void column_norms(const V* matrix, V* norms) {
    for (int b = 0; b < ld; b++) {
      Norm<T> norm;
      for (int i = 0; i < n; i++) norm.add(matrix[i * ld + b]);
      norms[b] = norm.root();
    }
  }
  // V X, from V̄ and, if it is not null, λ̄.
  void of_vectors(const T* w, const T* given, const T* gw, const T* K, V* VX) {
    top = 0;
    for (int i = 0; i < n; i++) top = w[i] > top ? w[i] : -w[i] > top ? -w[i] : top;
    V *gV = VX, *C = other, *Ct = VX, *norms = row;
    this->read(given, gV);
    column_norms(gV, norms);
    this->multiply(transposed, gV, C, false);
    this->flip(C, Ct);
    weigh_pairs(K, norms, C, Ct);
    for (int i = 0; gw && i < n; i++) ((T*)(C + i * ld))[i] += gw[i];
    mirror<T>(C, ld, n);
    this->multiply(vectors, C, VX, false);
  }
  void run(int64_t at) {
    const int64_t d = n, dd = d * d;
    const T *w = t.w + at * d, *gw = t.gw ? t.gw + at * d : nullptr;
    V *VX = square, *gA = other;
    this->read(t.V + at * dd, vectors);
    this->flip(vectors, transposed);
    this->spectrum(t.gV ? w : gw);
    if (t.gV) of_vectors(w, t.gV + at * dd, gw, t.K ? t.K + at * dd : nullptr, VX);
    else  // λ̄ alone: V diag(λ̄)
      for (int i = 0; i < n; i++)
        for (int b = 0; b < ld; b++) VX[i * ld + b] = vectors[i * ld + b] * values[b];
    this->multiply(VX, transposed, gA, true);
    this->put(gA, t.gA + at * dd);
  }
};

template <class T> size_t eigh_gradient_work(int64_t d) { return WholeFunction<T>::bytes(d); }
template <class T> void eigh_gradient(const EighGradient<T>& t) {
  EigenGradient<T> f(t);
  for (int64_t k = t.first; k < t.first + t.count; k++) f.run(k);
}

}  // namespace
}  // namespace SG_NS
