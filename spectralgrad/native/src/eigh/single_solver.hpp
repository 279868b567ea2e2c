// d ≥ 5, one matrix at a time: the pipeline of lanes_solver.hpp with vectors along the rows of the matrix throughout,
// for batches too small to fill the lanes.
#pragma once
#include "real_or_complex.hpp"
#include "ql_single.hpp"
#include "recorded_sweeps.hpp"
#include "../simd/thread_team.hpp"

namespace SG_NS {
namespace {

template <class Field> struct SingleSolver {
  typedef typename Field::T T;
  typedef Vec<T> V;
  typedef Single<T> SM;
  static constexpr int W = Simd<T>::W, pad = SingleQL<T>::pad, parts = Field::parts;
  int n, ld, record, keep;
  V *a, *z, *work;
  Basis<T> Q;
  T *tau, *d, *e, *extra, *factor, *flat;
  int* order;
  SingleQL<T> ql;
  sg::Team team;
  T limit;  // on the asymmetry, if it is not negative
  struct Sweeps {
    T *sine, *tangent;
    int *lows, *highs, count;
  } sweeps[2];  // recorded by turns

  size_t layout(int size, bool vectors, char* base) {
    Arena mem{base, 0};
    n = ql.n = size;
    ld = (n + W - 1) / W;
    a = mem.take<V>((size_t)ld * W * ld * parts);
    work = mem.take<V>(3 * (size_t)ld * parts);
    tau = mem.take<T>(n);
    d = mem.take<T>(n);
    e = mem.take<T>(n);
    extra = mem.take<T>((size_t)n * Field::extra);
    ql.D = mem.take<double>(n + 2 * pad);
    ql.E = mem.take<double>(n + 2 * pad);
    if (base) {
      ql.D += pad;
      ql.E += pad;
    }
    order = mem.take<int>(n);
    if (!vectors) return mem.used;
    record = (n + 2 * pad + W - 1) / W * W;
    keep = 8192 / n < 16 ? 16 : 8192 / n > 64 ? 64 : 8192 / n / 4 * 4;
    z = mem.take<V>((size_t)ld * W * 4 * parts * most_threads);
    Q.q = mem.take<V>(Q.shape(parts * n, n, false, 1));
    factor = mem.take<T>(n);
    flat = mem.take<T>(parts > 1 ? (size_t)parts * n * n : 0);
    for (Sweeps& s : sweeps) {
      s.sine = mem.take<T>((size_t)keep * record);
      s.tangent = mem.take<T>((size_t)keep * record);
      s.lows = mem.take<int>(keep);
      s.highs = mem.take<int>(keep);
    }
    return mem.used;
  }

  Scale<V> load_lower(const T* A) {
    V largest = {}, poison = {};
    Field::survey_one(A, n, limit, largest, poison, 0);
    Scale<V> s = scale_of<T>(largest, poison);
    Field::load_one(A, s, 0, n, a, ld);
    return s;
  }
  // NV: vectors of columns of Q that are formed together.
  template <int NV> void form() {
    each(team, (n + NV * W - 1) / (NV * W), [&](int k, int thread) {
      V* own = z + (size_t)thread * ld * W * 4 * parts;
      const int j = k * NV * W;
      Field::template columns<SM, NV>(a, ld, n, tau, extra, j, own);
      for (int c = 0; c < NV && j + c * W < n; c++) Q.take_single(own + c, NV, 0, j + c * W, 1);
    });
  }
  void form_basis() {
    Q.clear();
    Field::template prepare<SM>(a, ld, n, extra);
    if (ld == 1) form<1>();
    else if (ld == 2) form<2>();
    else form<4>();
  }

  // Records up to `keep` sweeps. The limit, 30 sweeps per eigenvalue, is STEQR's; beyond it none are recorded.
  int left;
  int advance(Sweeps& s) {
    for (s.count = 0; s.count < keep && left && ql.prepare(); s.count++, left--) {
      T *sine = s.sine + s.count * record, *tangent = s.tangent + s.count * record;
      for (int i = 0; i < record; i += W) {
        store(sine + i, V{});
        store(tangent + i, V{});
      }
      ql.template sweep<true>(ql.shift(), sine + pad, tangent + pad);
      s.lows[s.count] = n - 1 - ql.last;
      s.highs[s.count] = n - 2 - ql.first;
    }
    return s.count;
  }
  bool iterate() {  // false if not converged
    left = 30 * n;
    by_turns(team, Q.panels(), [&](int k) { return advance(sweeps[k]); }, [&](int p, int k) { apply(p, sweeps[k]); });
    return !ql.prepare();
  }
  bool iterate_values() {
    int k = 0;
    for (; ql.prepare(); k++) {
      if (k == 30 * n) return false;
      ql.template sweep<false>(ql.shift(), nullptr, nullptr);
    }
    return true;
  }
  void apply(int p, const Sweeps& s) {
    constexpr int shift = pad - Basis<T>::pad;  // the basis has less padding than a record
    Q.rotate_single(0, p, s.sine + shift, s.tangent + shift, record, s.count, s.lows, s.highs);
  }

  // The iteration leaves the eigenvalues nearly sorted, so few exchanges are needed.
  void sort() {
    for (int i = 0; i < n; i++) {
      const double x = ql.D[n - 1 - i];
      int at = i;
      for (; at > 0 && ql.D[n - 1 - order[at - 1]] > x; at--) order[at] = order[at - 1];
      order[at] = i;
    }
  }
  // Decomposes one matrix, without vectors if Vout is null; returns 1 if that failed, otherwise 0.
  int solve(const T* A, T* w, T* Vout) {
    const Scale<V> s = load_lower(A);
    bool good = s.good[0] != 0;
    if (good) {
      Field::template reduce<SM>(a, ld, n, d, e, tau, extra, work);
      for (int i = 0; i < n; i++) ql.D[n - 1 - i] = d[i];
      for (int i = 0; i < n - 1; i++) ql.E[n - 2 - i] = e[i];
      ql.E[n - 1] = 0;
      ql.E[-1] = 0;
      ql.start();
      if (Vout) form_basis();
      good = Vout ? iterate() : iterate_values();
    }
    if (good) write(s, w, Vout);
    else refuse(w, Vout);
    return !good;
  }
  void write(const Scale<V>& s, T* w, T* Vout) {
    sort();
    const T down = s.down[0], drop = s.drop[0];
    for (int i = 0; i < n; i++) w[i] = (T)ql.D[n - 1 - order[i]] * down * drop + T(0);
    if (!Vout) return;
    for (int i = 0; i < n; i++) factor[i] = 1;
    Field::write(Q, 0, order, factor, Vout, flat);
  }
  void refuse(T* w, T* Vout) {
    for (int i = 0; i < n; i++) w[i] = (T)__builtin_nanf("");
    for (int64_t i = 0; Vout && i < (int64_t)n * n * parts; i++) Vout[i] = (T)__builtin_nanf("");
  }
};

}  // namespace
}  // namespace SG_NS
