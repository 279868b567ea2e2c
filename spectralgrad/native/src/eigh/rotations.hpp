// Applies recorded Givens rotations to the columns of Q (the part of LAPACK's STEQR that LASR does).
//
// A rotation of columns (i, i+1) is done by three shears: with a, b = columns i+1, i, s = sin θ, t = tan(θ/2),
//   a += t b,  b −= s a,  a += t b.
// These are three multiply-adds, in place, instead of two multiplications and two multiply-adds. t is bounded by 1
// because c ≥ 0 (ql.hpp), so the shears are stable.
//
// M consecutive sweeps run as one wavefront: sweep q rotates (i+q, i+q+1) when sweep 0 rotates (i, i+1), so a column is
// read and written once for M sweeps. (Van Zee, van de Geijn and Quintana-Ortí, ACM Trans. Math. Softw. 40 (2014),
// describe wavefronts for the QR algorithm.)
#pragma once
#include "../simd/lanes.hpp"

namespace SG_NS {
namespace {

// R vectors of rows; vector r of column i is z[i·step + r·skip]. The coefficients of sweep q start at s + q·next.
// Columns low … high + M are accessed, and `low` may be as small as −(M − 1) because sweep q is q columns ahead. Q and
// the coefficients are padded for that; the rotations in the padding are the identity (s = t = 0).
template <class Mode, int R, int M, class T = typename Mode::Real, class C = typename Mode::S>
SG_INLINE void wave(Vec<T>* z, int step, int skip, const C* s, const C* t, int64_t next, int high, int low) {
  Vec<T> carried[M][R], b[R];
  for (int q = 0; q < M; q++)
    for (int r = 0; r < R; r++) carried[q][r] = z[(high + 1 + q) * step + r * skip];
  for (int i = high; i >= low; i--) {
    for (int r = 0; r < R; r++) b[r] = z[i * step + r * skip];
    for (int q = 0; q < M; q++) {
      Vec<T> sine = Mode::spread(s[q * next + i + q]), tangent = Mode::spread(t[q * next + i + q]);
      for (int r = 0; r < R; r++) {
        Vec<T> a = carried[q][r] + tangent * b[r];
        carried[q][r] = b[r] - sine * a;
        b[r] = a + tangent * carried[q][r];
      }
    }
    for (int r = 0; r < R; r++) z[(i + M) * step + r * skip] = b[r];
  }
  for (int q = 0; q < M; q++)
    for (int r = 0; r < R; r++) z[(low + q) * step + r * skip] = carried[q][r];
}

// Applies all recorded sweeps to R vectors of rows. low[k], high[k]: the lowest and highest rotation of sweep k.
template <class Mode, int R, int M, class T = typename Mode::Real, class C = typename Mode::S>
void apply_sweeps(Vec<T>* z, int step, int skip, const C* s, const C* t, int64_t next, int sweeps, const int* low,
                  const int* high) {
  int k = 0;
  for (; k + M <= sweeps; k += M) {
    int bottom = low[k], top = high[k];
    for (int q = 1; q < M; q++) {
      if (low[k + q] - q < bottom) bottom = low[k + q] - q;
      if (high[k + q] > top) top = high[k + q];
    }
    if (top >= bottom) wave<Mode, R, M>(z, step, skip, s + k * next, t + k * next, next, top, bottom);
  }
  for (; k < sweeps; k++)
    if (high[k] >= low[k]) wave<Mode, R, 1>(z, step, skip, s + k * next, t + k * next, next, high[k], low[k]);
}

}  // namespace
}  // namespace SG_NS
