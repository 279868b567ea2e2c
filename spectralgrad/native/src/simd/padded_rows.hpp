// Matrices whose rows are padded to whole vectors, for passes over one matrix at a time.
#pragma once
#include "simd.hpp"

namespace SG_NS {
namespace {

// Rows of ld vectors from a matrix in memory; the padding becomes zero.
template <class T> void read_rows(const T* from, int rows, int cols, int ld, Vec<T>* to) {
  if (cols == ld * Simd<T>::W) {  // no padding
    memcpy(to, from, sizeof(T) * (size_t)rows * (size_t)cols);
    return;
  }
  for (int i = 0; i < rows; i++) {
    to[i * ld + ld - 1] = Vec<T>{};
    memcpy(to + i * ld, from + (int64_t)i * cols, sizeof(T) * (size_t)cols);
  }
}
template <class T> void write_rows(const Vec<T>* from, int rows, int cols, int ld, T* to) {
  if (cols == ld * Simd<T>::W) {
    memcpy(to, from, sizeof(T) * (size_t)rows * (size_t)cols);
    return;
  }
  for (int i = 0; i < rows; i++) memcpy(to + (int64_t)i * cols, from + i * ld, sizeof(T) * (size_t)cols);
}
// The transpose. Its rows have lt vectors, and the last ones may be zeros; rows beyond the given ones are not read.
template <class T> void transpose_rows(const Vec<T>* from, int rows, int lf, Vec<T>* to, int lt) {
  constexpr int W = Simd<T>::W;
  for (int i = 0; i < rows; i += W)
    for (int b = 0; b < lf; b++) {
      Vec<T> t[W];
      for (int k = 0; k < W; k++) t[k] = i + k < rows ? from[(i + k) * lf + b] : Vec<T>{};
      transpose(t);
      for (int k = 0; k < W; k++) to[(b * W + k) * lt + i / W] = t[k];
    }
}

}  // namespace
}  // namespace SG_NS
