// Sorting eigenvalues in ascending order, one matrix per lane. Every lane has its own permutation, so sorting is done
// by masked exchanges or by ranks, without branches that depend on a single lane.
#pragma once
#include "lanes.hpp"

namespace SG_NS {
namespace {

template <class V, class M> SG_INLINE void swap_if(M m, V& x, V& y) {
  V t = m ? y : x;
  y = m ? x : y;
  x = t;
}

// rank[i]: the position of d[i] in ascending order; equal values keep their order. A comparison yields −1 where it is
// true, so subtracting it counts.
template <class T> void ranks(const Vec<T>* d, int n, Mask<T>* rank) {
  for (int i = 0; i < n; i++) {
    Mask<T> mine = {};
    for (int j = 0; j < i; j++) {
      Mask<T> before = d[i] < d[j];  // where i comes before j
      rank[j] -= before;
      mine -= ~before;
    }
    rank[i] = mine;
  }
}

// Sorts d and the columns of q (n × n, entries of `parts` numbers) with it by exchanging neighbours; for small n, where
// everything is in cache.
template <class T, int parts = 1> void sort_lanes(Vec<T>* d, Vec<T>* q, int n) {
  for (int end = n - 1; end > 0; end--)
    for (int i = 0; i < end; i++) {
      Mask<T> wrong = d[i + 1] < d[i];
      if (!any(wrong)) continue;
      swap_if(wrong, d[i], d[i + 1]);
      for (int k = 0; k < n; k++)
        for (int c = 0; c < parts; c++) swap_if(wrong, q[(k * n + i) * parts + c], q[(k * n + i + 1) * parts + c]);
    }
}

// Sorts values alone; the iteration leaves them nearly sorted, so few passes are needed.
template <class T> void sort_values(Vec<T>* d, int n) {
  for (int end = n - 1; end > 0; end--) {
    Mask<T> moved = {};
    for (int i = 0; i < end; i++) {
      Mask<T> wrong = d[i + 1] < d[i];
      moved |= wrong;
      swap_if(wrong, d[i], d[i + 1]);
    }
    if (!any(moved)) return;
  }
}

}  // namespace
}  // namespace SG_NS
