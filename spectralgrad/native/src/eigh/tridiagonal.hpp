// Householder reduction A = Q T Qᵀ to tridiagonal form, and the columns of Q (Golub & Van Loan, 4th ed., section 8.3.1;
// LAPACK's SYTD2 with UPLO = 'U' and ORG2L; EISPACK's TRED2). It proceeds from the last row upwards, so that a dense
// graded matrix leaves its small eigenvalues at the top of T, where QL finds them first.
//
// Step k maps row k's x = (a_k0 … a_k,k−1) to β e_{k−1} by H = I − τ v vᵀ, v = x − β e_{k−1}, τ = 1/(‖x‖² − x_{k−1}β),
// and A ← HAH = A − v qᵀ − q vᵀ with p = τAv, q = p − (τ/2)(vᵀp) v. β has the opposite sign of x_{k−1}, so that v is
// formed without cancellation. The update of step k+1 is applied while the product of step k is formed, so that a step
// reads and writes the matrix once, with 4 multiply-adds per entry.
#pragma once
#include "../simd/lanes.hpp"

namespace SG_NS {
namespace {

// a −= v qᵀ + q vᵀ on the rows i … i+R−1 left of the diagonal block (nj vectors), and with the updated rows
// p_j += Σ_r a_rj x_r; acc_r += Σ_j a_rj x_j. In the diagonal block (full, symmetric) only acc_r.
template <class Mode, int R, class T = typename Mode::Real>
SG_INLINE void rows_pass(Vec<T>* a, int ld, int nj, int cols, const typename Mode::S* v, const typename Mode::S* q,
                         const typename Mode::S* x, const Vec<T>* vj, const Vec<T>* qj, const Vec<T>* xj, Vec<T>* p,
                         Vec<T>* acc) {
  Vec<T> vi[R], qi[R], xi[R], sum[R];
  for (int r = 0; r < R; r++) {
    vi[r] = Mode::spread(v[r]);
    qi[r] = Mode::spread(q[r]);
    xi[r] = Mode::spread(x[r]);
    sum[r] = Vec<T>{};
  }
  for (int j = 0; j < nj; j++) {
    Vec<T> vv = vj[j], qq = qj[j], xx = xj[j], pp = p[j];
    for (int r = 0; r < R; r++) {
      Vec<T> e = a[r * ld + j] - vi[r] * qq - qi[r] * vv;
      a[r * ld + j] = e;
      sum[r] += e * xx;
      pp += e * xi[r];
    }
    p[j] = pp;
  }
  for (int j = nj; j < nj + cols; j++)
    for (int r = 0; r < R; r++) {
      Vec<T> e = a[r * ld + j] - vi[r] * qj[j] - qi[r] * vj[j];
      a[r * ld + j] = e;
      sum[r] += e * xj[j];
    }
  for (int r = 0; r < R; r++) acc[r] = sum[r];
}

// Stores the row sums of a block in p. In Lanes they are complete; in Single the lanes of a vector are added first.
template <class T> SG_INLINE void settle(Lanes<T>, Vec<T>* p, const Vec<T>* acc, int rows) {
  for (int r = 0; r < rows; r++) p[r] = acc[r];
}
template <class T> SG_INLINE void settle(Single<T>, T* p, Vec<T>* acc, int rows) {
  constexpr int W = Simd<T>::W;
  Vec<T> t[W], s = {};
  for (int r = 0; r < W; r++) t[r] = r < rows ? acc[r] : Vec<T>{};
  transpose(t);
  for (int r = 0; r < W; r++) s += t[r];
  store(p, s);
}

// p = (A − v qᵀ − q vᵀ) x over the leading k × k block, storing the updated block.
template <class Mode, class T = typename Mode::Real, class S = typename Mode::S>
void update_multiply(Vec<T>* a, int ld, int k, const S* v, const S* q, const S* x, S* p) {
  constexpr int B = Mode::block, R = Mode::rows;
  const Vec<T>*vj = (const Vec<T>*)v, *qj = (const Vec<T>*)q, *xj = (const Vec<T>*)x;
  Vec<T> acc[B];
  for (int i0 = 0, nj = 0; i0 < k; i0 += B, nj += Mode::cols) {
    int rows = k - i0 < B ? k - i0 : B, r = 0;
    for (; r + R <= rows; r += R)
      rows_pass<Mode, R>(a + (i0 + r) * ld, ld, nj, Mode::cols, v + i0 + r, q + i0 + r, x + i0 + r, vj, qj, xj,
                         (Vec<T>*)p, acc + r);
    for (; r < rows; r++)
      rows_pass<Mode, 1>(a + (i0 + r) * ld, ld, nj, Mode::cols, v + i0 + r, q + i0 + r, x + i0 + r, vj, qj, xj,
                         (Vec<T>*)p, acc + r);
    settle(Mode{}, p + i0, acc, rows);
  }
}

SG_INLINE float vsqrt(float x) { return __builtin_sqrtf(x); }
SG_INLINE double vsqrt(double x) { return __builtin_sqrt(x); }

// Reduces a (n × n, rows of ld vectors) to the diagonal D and the couplings E. Row k is left holding v_k, zero from
// column k on, and tau[k] its τ. work: three arrays of ld vectors.
// An x whose norm is below √tiny is treated as zero (H = I), which avoids 1/h = 1/0: entries of the scaled matrix are
// about 1, so this is far below rounding error.
template <class Mode, class T = typename Mode::Real, class S = typename Mode::S>
SG_ONCE void tridiagonalise(Vec<T>* a, int ld, int n, S* D, S* E, S* tau, Vec<T>* work) {
  constexpr int per = sizeof(Vec<T>) / sizeof(S);  // entries a vector
  const int padded = ld * per;
  Vec<T>*qv = work + ld, *pv = work + 2 * ld;
  S *v = (S*)work, *q = (S*)qv, *p = (S*)pv;
  for (int j = 0; j < 2 * ld; j++) work[j] = Vec<T>{};
  for (int k = n - 1; k > 0; k--) {
    Vec<T>* row = a + k * ld;
    const int nv = (k + per) / per;  // vectors that hold columns 0 … k
    Vec<T> vk = Mode::spread(v[k]), qk = Mode::spread(q[k]), squares = {};
    for (int j = 0; j < nv; j++) row[j] -= vk * qv[j] + qk * ((Vec<T>*)v)[j];
    S* x = (S*)row;
    D[k] = x[k];
    for (int j = k; j < padded; j++) x[j] = S{};
    tau[k] = S{};
    S alpha = x[k - 1];
    E[k - 1] = alpha;
    if (k == 1) break;
    for (int j = 0; j < nv; j++) squares += row[j] * row[j];
    S ss = Mode::total(squares), norm = vsqrt(ss), beta = alpha > 0 ? -norm : norm;
    x[k - 1] = alpha - beta;
    S none = S{}, h = ss - alpha * beta;
    auto negligible = ss < Simd<T>::tiny;
    tau[k] = negligible ? none : 1 / h;
    E[k - 1] = negligible ? none : beta;
    S half = tau[k] * T(0.5);
    for (int j = 0; j < ld; j++) pv[j] = Vec<T>{};
    update_multiply<Mode>(a, ld, k, v, q, x, p);
    Vec<T> dots = {}, t = Mode::spread(tau[k]);
    for (int j = 0; j < nv; j++) {
      pv[j] *= t;
      dots += pv[j] * row[j];
    }
    Vec<T> shift = Mode::spread(half * Mode::total(dots));
    for (int j = 0; j < ld; j++) qv[j] = pv[j] - shift * row[j];
    v = x;
  }
  D[0] = ((S*)a)[0] - 2 * v[0] * q[0];
}

// H_b ⋯ H_{a+1} H_a for NB reflectors at once, on NV vectors of columns z (rows of NV vectors):
// u_b = v_bᵀz, then u_b ← τ_b (u_b − Σ_{c<b} (v_bᵀv_c) u_c) and z −= Σ v_b u_b: z is read twice and written once for NB
// reflectors.
template <class Mode, int NB, int NV, class T = typename Mode::Real, class S = typename Mode::S>
SG_INLINE void reflect(Vec<T>* z, int rows, const S* const* v, const S* tau, const S (&dot)[NB][NB]) {
  Vec<T> u[NB][NV];
  for (int b = 0; b < NB; b++)
    for (int c = 0; c < NV; c++) u[b][c] = Vec<T>{};
  for (int i = 0; i < rows; i++)
    for (int b = 0; b < NB; b++)
      for (int c = 0; c < NV; c++) u[b][c] += Mode::spread(v[b][i]) * z[i * NV + c];
  for (int b = 0; b < NB; b++)
    for (int c = 0; c < NV; c++) {
      for (int d = 0; d < b; d++) u[b][c] -= Mode::spread(dot[b][d]) * u[d][c];
      u[b][c] *= Mode::spread(tau[b]);
    }
  for (int i = 0; i < rows; i++)
    for (int c = 0; c < NV; c++) {
      Vec<T> e = z[i * NV + c];
      for (int b = 0; b < NB; b++) e -= Mode::spread(v[b][i]) * u[b][c];
      z[i * NV + c] = e;
    }
}

// dots[k] = the products v_bᵀv_c within the NB reflectors k … k+NB−1.
template <class Mode, int NB, class T = typename Mode::Real, class S = typename Mode::S>
void reflector_dots(const Vec<T>* a, int ld, int k, S (&dot)[NB][NB]) {
  constexpr int per = sizeof(Vec<T>) / sizeof(S);
  for (int b = 0; b < NB; b++)
    for (int c = 0; c < b; c++) {
      Vec<T> s = {};
      for (int j = 0; j < (k + c + per - 1) / per; j++) s += a[(k + b) * ld + j] * a[(k + c) * ld + j];
      dot[b][c] = Mode::total(s);
    }
}

// Reflectors 2 … n−1 are applied in groups of NB; the remainder is applied first, one at a time.
template <int NB> SG_INLINE int first_group(int n) { return 2 + (n - 2) % NB; }

template <class Mode, int NB, class T = typename Mode::Real, class S = typename Mode::S>
void all_dots(const Vec<T>* a, int ld, int n, S (*dots)[NB][NB]) {
  for (int k = first_group<NB>(n); k < n; k += NB) reflector_dots<Mode, NB>(a, ld, k, *dots++);
}

// Columns of Q = H_{n−1} ⋯ H_2: NV vectors of them, the first being column j, into z (n rows of NV vectors).
// H_k changes only rows 0 … k−1, so column j remains the identity's up to H_j; groups up to there are skipped.
template <class Mode, int NB, int NV, class T = typename Mode::Real, class S = typename Mode::S>
SG_ONCE void q_columns(const Vec<T>* a, int ld, int n, const S* tau, const S (*dots)[NB][NB], int j, Vec<T>* z) {
  constexpr int per = sizeof(Vec<T>) / sizeof(S);
  const S none[1][1] = {};
  for (int i = 0; i < n * NV; i++) z[i] = Vec<T>{};
  for (int c = 0; c < NV * per && j + c < n; c++) ((S*)z)[(j + c) * NV * per + c] = S{} + T(1);
  int k = 2;
  for (; k < first_group<NB>(n); k++) {
    const S* const v[1] = {(const S*)(a + k * ld)};
    reflect<Mode, 1, NV>(z, k, v, tau + k, none);
  }
  for (; k < n; k += NB, dots++) {
    if (k + NB - 1 <= j) continue;
    const S* v[NB];
    for (int b = 0; b < NB; b++) v[b] = (const S*)(a + (k + b) * ld);
    reflect<Mode, NB, NV>(z, k + NB - 1, v, tau + k, *dots);
  }
}

}  // namespace
}  // namespace SG_NS
