// The sweeps that an iteration has recorded, and their application to a basis. Rotations are recorded for `keep` sweeps
// and then applied together: applying them takes most of the time for d ≥ 16, and a group of rows then stays in cache
// for all of these sweeps.
#pragma once
#include "orthonormal_basis.hpp"

namespace SG_NS {
namespace {

struct Arena {  // allocates 64-byte aligned pieces of a buffer; without a base it only counts their size
  char* base;
  size_t used;
  template <class X> X* take(size_t count) {
    size_t at = used;
    used += (count * sizeof(X) + 63) / 64 * 64;
    return base ? (X*)(base + at) : nullptr;
  }
};

template <class T, int G> struct Replay {
  typedef Vec<T> V;
  static constexpr int W = Simd<T>::W, pad = Basis<T>::pad;
  int record, keep;             // entries per sweep; number of sweeps
  int lowest[64], highest[64];  // the rotations of each sweep, over all lanes
  Mask<T>* levels;              // [sweep][g]: per lane, the lowest rotation, or −1 if the matrix had converged
  T *sine, *tangent;            // the sweeps of one matrix
  int *lows, *highs;

  void layout(Arena& mem, int n, bool lanes) {
    record = (n + 2 * pad + W - 1) / W * W;
    keep = lanes ? 4 : 2048 / n < 8 ? 8 : 2048 / n > 32 ? 32 : 2048 / n / 4 * 4;
    sine = mem.take<T>((size_t)keep * record);
    tangent = mem.take<T>((size_t)keep * record);
    levels = mem.take<Mask<T>>((size_t)keep * G);
    lows = mem.take<int>(keep);
    highs = mem.take<int>(keep);
  }
  template <class Iteration> void note(int at, const Iteration& it) {
    for (int g = 0; g < G; g++) levels[at * G + g] = it.level[g];
    lowest[at] = it.lowest;
    highest[at] = it.highest;
  }

  // Applies the sweeps s, t of group g to the bases of its matrices. s and t are transposed in place unless the basis
  // is kept in lanes.
  void apply(Basis<T>& basis, V* s, V* t, int g, int count, int sweeps) {
    if (basis.lanes) return basis.rotate_lanes(s, t, record, sweeps, lowest, highest);
    const int first = lowest[0] / W, last = (highest[0] + 2 * pad) / W;  // i is at i + pad; waves reach pad beyond
    for (int k = 0; k < sweeps; k++)
      for (int b = first; b <= last; b++) {
        transpose((V(&)[W])s[k * record + b * W]);
        transpose((V(&)[W])t[k * record + b * W]);
      }
    for (int m = 0; m < count; m++) {
      int live = select(s, t, g, m, sweeps, first, last);
      basis.rotate_single(m, sine, tangent, record, live, lows, highs);
    }
  }
  // The sweeps of one matrix before it converged, without identities at the top.
  int select(const V* s, const V* t, int g, int m, int sweeps, int first, int last) {
    int live = 0;
    for (; live < sweeps && levels[live * G + g][m] >= 0; live++) {
      T *to = sine + live * record, *half = tangent + live * record;
      for (int b = first; b <= last; b++) {
        store(to + b * W, s[live * record + b * W + m]);
        store(half + b * W, t[live * record + b * W + m]);
      }
      lows[live] = (int)levels[live * G + g][m];
      int top = highest[live];
      while (top > lows[live] && to[pad + top] == 0) top--;
      highs[live] = top;
    }
    return live;
  }
};

}  // namespace
}  // namespace SG_NS
