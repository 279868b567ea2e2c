// Divides the work inside one matrix between the threads of a team (interface.hpp). Results do not depend on their
// number.
#pragma once
#include "../interface.hpp"
#include "simd.hpp"

namespace SG_NS {
namespace {

constexpr int most_threads = 4;  // of a team, for which workspace is reserved

// Calls f(thread) once in each thread of the team, with numbers from 0 to threads − 1. A thread that comes late finds
// no work left: f takes its work from counters (`taken`). Built-in atomics, because functions of std::atomic that are
// not inlined would be shared between instruction sets.
template <class F> void together(const sg::Team& team, F&& f) {
  struct Call {
    F& f;
    int thread;
  } call{f, 0};
  auto part = [](void* x) {
    Call& c = *(Call*)x;
    c.f(__atomic_fetch_add(&c.thread, 1, __ATOMIC_RELAXED));
  };
  if (team.threads > 1) team.fork(team.threads, part, &call);
  else part(&call);
}
SG_INLINE int taken(int& counter) { return __atomic_fetch_add(&counter, 1, __ATOMIC_RELAXED); }

// f(k, thread) for k = 0 … count − 1.
template <class F> void each(const sg::Team& team, int count, F&& f) {
  if (team.threads == 1) {
    for (int k = 0; k < count; k++) f(k, 0);
    return;
  }
  int next = 0;
  together(team, [&](int thread) {
    for (int k; (k = taken(next)) < count;) f(k, thread);
  });
}

// While the sweeps of one record are applied to all panels, one thread computes the next. advance(k) fills record k, 0
// or 1, and returns how many sweeps there are; apply(panel, k).
template <class Advance, class Apply> void by_turns(const sg::Team& team, int panels, Advance advance, Apply apply) {
  int recorded[2] = {advance(0), 0};
  for (int k = 0; recorded[k]; k = 1 - k) {
    int leader = 0, panel = 0;
    together(team, [&](int) {
      if (taken(leader) == 0) recorded[1 - k] = advance(1 - k);
      for (int p; (p = taken(panel)) < panels;) apply(p, k);
    });
  }
}

}  // namespace
}  // namespace SG_NS
