// What differs between real symmetric and complex Hermitian matrices in lanes_solver.hpp and single_solver.hpp:
// loading, reduction, the columns of Q, and writing. A complex number is two numbers of type T in memory, and `parts`
// rows of the basis.
#pragma once
#include "hermitian.hpp"
#include "../simd/sorting.hpp"
#include "tridiagonal.hpp"

namespace SG_NS {
namespace {

template <class X> struct Symmetric {
  typedef X T;
  typedef Vec<T> V;
  static constexpr int parts = 1, NB = 2, extra = NB * NB;  // extra: products of reflectors, per row
  // Sizes up to which everything, or the reduction, is done with one matrix per lane. Measured on AVX2: above these,
  // W matrices no longer fit the first-level and the second-level cache.
  static constexpr int small_up_to = 24, medium_up_to = 128, lanes_times = 16;

  static Scale<V> load_group(const T* A, int count, const T* end, int n, V* a, int ld, T limit, V*) {
    return load_lanes(A, count, end, n, a, ld, limit);
  }
  static void survey_one(const T* A, int n, T limit, V& largest, V& poison, int m) {
    for (int i = 0; i < n; i++) survey(A + (int64_t)i * n, i + 1, largest, poison, m);
    if (limit >= 0) compare(asymmetry_of(A, n), limit, largest, poison, m);
  }
  static void load_one(const T* A, const Scale<V>& s, int m, int n, V* a, int ld) { load_single(A, s, m, n, a, ld); }
  template <class Mode, class S> static void reduce(V* a, int ld, int n, S* D, S* E, S* tau, S*, V* work) {
    tridiagonalise<Mode>(a, ld, n, D, E, tau, work);
  }
  template <class Mode, class S> static void prepare(V* a, int ld, int n, S* dots) {
    all_dots<Mode, NB>(a, ld, n, (S(*)[NB][NB])dots);
  }
  template <class Mode, int NV, class S>
  static void columns(V* a, int ld, int n, const S* tau, const S* dots, int j, V* z) {
    q_columns<Mode, NB, NV>(a, ld, n, tau, (const S(*)[NB][NB])dots, j, z);
  }
  static void write(const Basis<T>& Q, int m, const int* order, const T* factor, T* out, T*) {
    Q.write(m, order, factor, out);
  }
};

// A complex basis has a row of real parts, then one of imaginary parts; in memory the two alternate. flat: room for
// both.
template <class T>
void write_interleaved(const Basis<T>& Q, int m, const int* order, const T* factor, T* out, T* flat) {
  Q.write(m, order, factor, flat);
  for (int i = 0; i < Q.rows / 2; i++) {
    const T *re = flat + (int64_t)2 * i * Q.n, *im = re + Q.n;
    T* to = out + (int64_t)2 * i * Q.n;
    for (int j = 0; j < Q.n; j++) {
      to[2 * j] = re[j];
      to[2 * j + 1] = im[j];
    }
  }
}

template <class X> struct Hermitian {
  typedef X T;
  typedef Vec<T> V;
  static constexpr int parts = 2, extra = 2;  // extra: phases, per row
  static constexpr int small_up_to = 16, medium_up_to = 96, lanes_times = 12;

  // As load_lanes. The imaginary part of the diagonal is not read, unless the triangles are compared.
  static Scale<V> load_group(const T* A, int count, const T* end, int n, V* a, int ld, T limit, V* work) {
    constexpr int B = Lanes<T>::block;
    V largest = {}, poison = {};
    for (int i = 0; i < n; i++) {
      gather(A + (int64_t)i * n * 2, (int64_t)n * n * 2, count, end, 2 * i + 2, work);
      const Planar<Lanes<T>> row{a + 2 * i * ld, ld};
      for (int j = 0; j <= i; j++) {
        const Complex<V> x = {work[2 * j], j < i ? work[2 * j + 1] : V{}};
        row.set(j, x);
        largest = vmax<T>(vmax<T>(vabs<T>(x.re), vabs<T>(x.im)), largest);
        poison += x.re * T(0) + x.im * T(0);
      }
    }
    for (int m = 0; limit >= 0 && m < count; m++)
      compare(complex_asymmetry_of(A + (int64_t)m * n * n * 2, n), limit, largest, poison, m);
    const Scale<V> s = scale_of<T>(largest, poison);
    for (int i = 0; i < n; i++) {
      const Planar<Lanes<T>> row{a + 2 * i * ld, ld};
      for (int j = 0; j <= i; j++) row.set(j, {scaled<T>(row.get(j).re, s), scaled<T>(row.get(j).im, s)});
      for (int j = i + 1; j < i / B * B + B; j++) row.set(j, Complex<V>{});  // columns beyond n are multiplied by zero
      for (int j = i / B * B; j < i; j++) Planar<Lanes<T>>{a + 2 * j * ld, ld}.set(i, {row.get(j).re, -row.get(j).im});
    }
    return s;
  }
  static void survey_one(const T* A, int n, T limit, V& largest, V& poison, int m) {
    for (int i = 0; i < n; i++) survey(A + (int64_t)i * n * 2, 2 * i + 1, largest, poison, m);
    if (limit >= 0) compare(complex_asymmetry_of(A, n), limit, largest, poison, m);
  }
  static void load_one(const T* A, const Scale<V>& s, int m, int n, V* a, int ld) {
    constexpr int W = Simd<T>::W;
    const T lift = s.lift[m], up = s.up[m], keep = s.good[m];
    for (int i = 0; i < n; i++) {
      const Planar<Single<T>> row{a + 2 * i * ld, ld};
      const T* from = A + (int64_t)i * n * 2;
      const int start = i / W * W;
      for (int j = 0; j <= i; j++) row.re()[j] = keep != 0 ? from[2 * j] * lift * up : T(0);
      for (int j = 0; j < i; j++) row.im()[j] = keep != 0 ? from[2 * j + 1] * lift * up : T(0);
      row.im()[i] = 0;
      for (int j = i + 1; j < start + W; j++) row.re()[j] = row.im()[j] = 0;
      for (int j = start; j < i; j++) {
        const Planar<Single<T>> other{a + 2 * j * ld, ld};
        other.re()[i] = row.re()[j];
        other.im()[i] = -row.im()[j];
      }
    }
  }
  template <class Mode, class S> static void reduce(V* a, int ld, int n, S* D, S* E, S* tau, S* phase, V* work) {
    complex_tridiagonalise<Mode>(a, ld, n, D, E, tau, phase, work);
  }
  template <class Mode, class S> static void prepare(V*, int, int, S*) {}
  template <class Mode, int NV, class S>
  static void columns(V* a, int ld, int n, const S* tau, const S* phase, int j, V* z) {
    complex_columns<Mode, NV>(a, ld, n, tau, phase, j, z);
  }
  static void write(const Basis<T>& Q, int m, const int* order, const T* factor, T* out, T* flat) {
    write_interleaved(Q, m, order, factor, out, flat);
  }
};

}  // namespace
}  // namespace SG_NS
