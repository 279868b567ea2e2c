// What differs between real and complex matrices in lanes_solver.hpp: the reduction, the columns of U and V, and
// writing. A complex number is two numbers of type T in memory, two planes of a column, and `parts` rows of a basis.
#pragma once
#include "complex_bidiagonal.hpp"
#include "../eigh/real_or_complex.hpp"

namespace SG_NS {
namespace {

template <class X> struct General {
  typedef X T;
  typedef Vec<T> V;
  static constexpr int parts = 1, unreflected = 2;  // rows whose couplings need no reflector, from the last one on
  // Sizes up to which everything, or the reduction, is done with one matrix per lane. Measured on AVX2.
  static constexpr int small_up_to = 24, medium_up_to = 128;

  template <class Mode, class S>
  static void reduce(V* a, int ld, int m, int n, V* right, int lr, S* D, S* E, S* left, S* tau, V* work) {
    bidiagonalise<Mode>(a, ld, m, n, right, lr, D, E, left, tau, work);
  }
  template <class Mode, class S> static void prepare(const V* a, int ld, int count, int length, S* dots) {
    pair_dots<Mode>(a, ld, count, length, (S(*)[2][2])dots);
  }
  template <class Mode, int NV, class S>
  static void columns(V* a, int ld, int, int count, int offset, int length, const S* tau, const S* dots, int j, V* z) {
    reflected_columns<Mode, NV>(a, ld, count, offset, length, tau, (const S(*)[2][2])dots, j, z);
  }
  static void write(const Basis<T>& Q, int m, const int* order, const T* factor, T* out, T*) {
    Q.write(m, order, factor, out);
  }
};

template <class X> struct ComplexGeneral {
  typedef X T;
  typedef Vec<T> V;
  static constexpr int parts = 2, unreflected = 1;
  static constexpr int small_up_to = 16, medium_up_to = 96;

  template <class Mode, class S>
  static void reduce(V* a, int ld, int m, int n, V* right, int lr, S* D, S* E, S* left, S* tau, V* work) {
    complex_bidiagonalise<Mode>(a, ld, m, n, right, lr, D, E, left, tau, work);
  }
  template <class Mode, class S> static void prepare(const V*, int, int, int, S*) {}
  template <class Mode, int NV, class S>
  static void columns(V* a, int ld, int n, int count, int offset, int length, const S* tau, const S*, int j, V* z) {
    complex_reflected_columns<Mode, NV>(a, ld, n, count, offset, length, tau, j, z);
  }
  static void write(const Basis<T>& Q, int m, const int* order, const T* factor, T* out, T* flat) {
    write_interleaved(Q, m, order, factor, out, flat);
  }
};

}  // namespace
}  // namespace SG_NS
