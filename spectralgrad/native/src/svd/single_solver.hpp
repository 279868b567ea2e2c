// One matrix at a time: the pipeline of lanes_solver.hpp with vectors along the columns of the matrix in the reduction
// and in the rotations, for batches too small to fill the lanes. Only the iteration on the bidiagonal runs in one lane
// of a vector, where it takes no longer than in a scalar: it is a chain of square roots and divisions. Threads share
// the columns of U and V as they are formed; later, one thread computes sweeps while the others apply those before.
#pragma once
#include "lanes_solver.hpp"
#include "../simd/thread_team.hpp"

namespace SG_NS {
namespace {

template <class Field> struct SvdSingle : SvdSolver<Field, 1> {
  typedef SvdSolver<Field, 1> Base;
  typedef typename Base::T T;
  typedef typename Base::V V;
  typedef typename Base::Iteration Iteration;
  using Base::m, Base::n, Base::ld, Base::lr, Base::a, Base::right, Base::left, Base::tau, Base::dots, Base::vectors;
  using Base::U, Base::Vb, Base::R, Base::Q, Base::W, Base::NV, Base::pad, Base::parts;
  struct Sweeps {
    T *sine[2], *tangent[2];
    int *lows, *highs, count;
  } sweeps[2];  // of V and of U; recorded by turns
  sg::Team team;
  int record, keep, allowed;  // allowed: sweeps until the iteration gives up
  V* own;                     // for each thread, the columns it forms
  size_t columns;

  size_t layout(int rows, int cols, bool with_vectors, char* base) {
    Arena mem{base, Base::layout(rows, cols, with_vectors, true, base)};
    record = Base::replay.record;
    keep = 4096 / n < 8 ? 8 : 4096 / n > 32 ? 32 : 4096 / n;
    columns = (size_t)(m + W) * NV * parts;
    if (!vectors) return mem.used;
    own = mem.template take<V>(columns * most_threads);
    for (Sweeps& s : sweeps) {
      for (int side = 0; side < 2; side++) {
        s.sine[side] = mem.template take<T>((size_t)keep * record);
        s.tangent[side] = mem.template take<T>((size_t)keep * record);
      }
      s.lows = mem.template take<int>(keep);
      s.highs = mem.template take<int>(keep);
    }
    return mem.used;
  }

  void form(V* from, int step, int reflectors, int offset, const V* t, Basis<T>& to) {
    to.clear();
    Field::template prepare<Single<T>>(from, step, reflectors, to.rows / parts, (T*)dots);
    each(team, (n + NV * W - 1) / (NV * W), [&](int k, int thread) {
      Base::form_columns(from, step, reflectors, offset, (const T*)t, to, 0, k * NV * W, own + thread * columns);
    });
  }

  // Records up to `keep` sweeps.
  int advance(Iteration& it, Sweeps& to) {
    for (to.count = 0; to.count < keep && allowed && it.prepare(); to.count++, allowed--) {
      const typename Iteration::Record of[2] = {{R[0].s + pad, R[0].t + pad}, {Q[0].s + pad, Q[0].t + pad}};
      it.template sweep<true>(of, of + 1, pad);
      for (int side = 0; side < 2; side++) {
        T *sine = to.sine[side] + to.count * record, *tangent = to.tangent[side] + to.count * record;
        for (int i = 0; i < n + 2 * pad; i++) {
          sine[i] = of[side].s[i - pad][0];
          tangent[i] = of[side].t[i - pad][0];
        }
      }
      to.lows[to.count] = it.lowest;
      to.highs[to.count] = it.highest;
    }
    return to.count;
  }
  void iterate() {
    Iteration it = Base::started();
    if (!vectors) return Base::iterate_values(it);
    allowed = 30 * n;
    const int panels = Vb[0].panels() + U[0].panels();
    by_turns(team, panels, [&](int k) { return advance(it, sweeps[k]); }, [&](int p, int k) { apply(p, sweeps[k]); });
  }
  void apply(int p, const Sweeps& s) {
    const int side = p < Vb[0].panels() ? 0 : 1;
    Basis<T>& basis = side ? U[0] : Vb[0];
    basis.rotate_single(0, p - side * Vb[0].panels(), s.sine[side], s.tangent[side], record, s.count, s.lows, s.highs);
  }

  // Decomposes one matrix; returns 1 if that failed, otherwise 0.
  int solve(const T* A, const SvdOutput<T>& out) {
    const Scale<V> s = Base::survey_all(A, 1);
    for (int i = 0; i < n; i++) Base::D[0][i] = Base::E[0][i] = V{};
    Base::reduce_one(A, s, 0, 0);
    if (vectors) {
      form(a, ld, n, 0, left, U[0]);
      form(right, lr, n - Field::unreflected, 1, tau, Vb[0]);
    }
    iterate();
    return Base::write(0, 1, s, out);
  }
};

}  // namespace
}  // namespace SG_NS
