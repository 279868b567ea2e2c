// Putting eigenvalues in ascending order, a matrix a lane.
#pragma once
#include "lanes.hpp"

namespace SG_NS {
namespace {

template <class V, class M> SG_INLINE void swap_if(M m, V& x, V& y) {
  V t = m ? y : x;
  y = m ? x : y;
  x = t;
}

// rank[i]: the place of d[i] in ascending order; equal values keep their order.
template <class T> void ranks(const Vec<T>* d, int n, Mask<T>* rank) {
  for (int i = 0; i < n; i++) {
    Mask<T> mine = {};
    for (int j = 0; j < i; j++) {
      Mask<T> before = d[i] < d[j];  // −1 where i goes before j
      rank[j] -= before;
      mine -= ~before;
    }
    rank[i] = mine;
  }
}

// Sorts d and with it the columns of q (n × n) by exchanges of neighbours: for small n, where all stays in cache.
template <class T> void sort_lanes(Vec<T>* d, Vec<T>* q, int n) {
  for (int end = n - 1; end > 0; end--)
    for (int i = 0; i < end; i++) {
      Mask<T> wrong = d[i + 1] < d[i];
      if (!any(wrong)) continue;
      swap_if(wrong, d[i], d[i + 1]);
      for (int k = 0; k < n; k++) swap_if(wrong, q[k * n + i], q[k * n + i + 1]);
    }
}

}  // namespace
}  // namespace SG_NS
