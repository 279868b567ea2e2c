// Applying recorded rotations to the columns of Q.
//
// A rotation of columns (i, i+1) by three shears, c ≥ 0:  a += t b,  b −= s a,  a += t b,  a column i+1, b column i.
// Three multiply-adds instead of four operations, in place; the carried column i leaves after two of them.
// M consecutive sweeps run as one wavefront: sweep q turns (i+q, i+q+1) when sweep 0 turns (i, i+1), so a column is
// read and written once for M sweeps.
#pragma once
#include "lanes.hpp"

namespace SG_NS {
namespace {

// R vectors of rows; vector r of column i is z[i·step + r·skip]. Sweep q's coefficients start at s + q·next.
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

// All recorded sweeps on R vectors of rows. low[k]: the lowest rotation of sweep k, high: the highest of all.
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
