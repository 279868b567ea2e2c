// Divides a batch into groups of matrices, or features into parts, and distributes them over threads.
#pragma once
#include <atomic>
#include <cstring>
#include <new>
#include <type_traits>

#include "interface.hpp"
#include "threads.hpp"

namespace {

struct Buffer {
  void* p;
  explicit Buffer(size_t bytes) : p(::operator new(bytes + 64, std::align_val_t(64), std::nothrow)) {}
  ~Buffer() { ::operator delete(p, std::align_val_t(64)); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
};

// What the division of a batch into groups and threads depends on.
struct Plan {
  int group, lanes;  // matrices that are solved together; a group should be a multiple of `lanes`
  size_t work;       // bytes of workspace per thread
  double cost;       // rough nanoseconds per matrix
};
template <class T> Plan plan(const sg::Eigensolver<T>& o, int64_t d, double passes) {  // passes: cost relative to eigh
  return {o.group(d), o.lanes(d), o.work(d), passes * o.cost(d)};
}

// Processes groups of the batch until none are left. INT32_MIN as status means out of memory: other threads may still
// add their counts of failures to it, which do not make it positive.
template <class Job, class Step>
void worker(Job t, const Plan& p, sg::Shares& batch, std::atomic<int64_t>& status, Step step) {
  Buffer buffer(p.work);
  if (!buffer.p) {
    status = INT32_MIN;
    return;
  }
#ifdef SG_POISON  // for tests: results must not depend on the previous contents of the workspace
  std::memset(buffer.p, 0xff, p.work);
#endif
  t.work = buffer.p;
  batch.each([&](int64_t first, int64_t count) {
    t.first = first;
    t.count = (int)count;
    if constexpr (std::is_void<decltype(step(t))>::value) step(t);
    else status += step(t);
  });
}

// step: does a piece of work; if it returns a number, the sum of these numbers is returned.
template <class Job, class Step> int run(const Job& t, Plan p, int threads, Step step) {
  constexpr double worth = 30e3;  // nanoseconds of work that pay for waking a thread
  int64_t n = (int64_t)(p.cost * (double)t.batch / worth) + 1;
  if (n > threads) n = threads < 1 ? 1 : threads;
  const int64_t share = ((t.batch + n - 1) / n + p.lanes - 1) / p.lanes * p.lanes;  // one thread's, in whole vectors
  if (share < p.group) p.group = (int)share;
  if (n > (t.batch + p.group - 1) / p.group) n = (t.batch + p.group - 1) / p.group;
  sg::Shares batch(t.batch, share, p.group);
  std::atomic<int64_t> status{0};
  auto share_of_work = [&] { worker(t, p, batch, status, step); };
  sg::Pool::run(n - 1, share_of_work);
  return status < 0 ? -1 : (int)status;
}

// A single matrix is too much for one thread from about this size on: then all threads work on it.
constexpr int64_t shared_from = 128;
void fork(int threads, void (*part)(void*), void* argument) {
  auto share = [&] { part(argument); };
  sg::Pool::run(threads - 1, share);
}
sg::Team team(int64_t batch, int64_t d, int threads) {
  if (batch > 1 || d < shared_from || threads < 2) return {};
  return {threads < 4 ? threads : 4, fork};
}

// Divides the samples of features into equal parts and gives them to threads: part(index, first, count, work). The
// parts depend on the number of samples alone, so that sums over them do not depend on the number of threads.
constexpr int64_t most_parts = 16;
template <class Part> int in_parts(int64_t samples, double cost, size_t work, int threads, Part part) {
  const int64_t parts = samples < most_parts ? samples : most_parts;
  if (parts <= 0) return 0;
  int64_t helpers = (int64_t)(cost / 30e3);
  if (helpers > threads - 1) helpers = threads < 1 ? 0 : threads - 1;
  if (helpers > parts - 1) helpers = parts - 1;
  sg::Shares all(parts, (parts + helpers) / (helpers + 1), 1);
  std::atomic<int64_t> status{0};
  auto share = [&] {
    Buffer buffer(work);
    if (!buffer.p) {
      status = -1;
      return;
    }
#ifdef SG_POISON
    std::memset(buffer.p, 0xff, work);
#endif
    all.each([&](int64_t k, int64_t) {
      const int64_t first = samples * k / parts;
      part(k, first, samples * (k + 1) / parts - first, buffer.p);
    });
  };
  sg::Pool::run(helpers, share);
  return (int)status;
}

}  // namespace
