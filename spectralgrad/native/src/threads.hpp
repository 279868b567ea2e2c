// A pool of threads that persist between calls, because starting a thread costs several times as much as waking one.
// Several callers may share it. A forked child process inherits no threads and creates its own pool. Nothing is
// destroyed at exit, so that a thread never sees a destroyed pool.
#pragma once
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <system_error>
#include <thread>

#include "platform.hpp"

namespace sg {

class Pool {
 public:
  // Runs f in this thread and in up to `helpers` others; returns when all calls have returned. f must divide the work
  // itself: a helper that is busy with another job may not take part.
  template <class F> static void run(int64_t helpers, F& f) {
    if (helpers <= 0) return f();
    Job job{[](void* x) { (*(F*)x)(); }, &f, helpers};
    Pool& pool = current();
    pool.offer(job);
    f();
    pool.finish(job);
  }
  // The number of this thread: 0 unless the pool started it, then from 1 on, the same as long as it lives.
  static int& number() {
    static thread_local int own = 0;
    return own;
  }

 private:
  struct Job {
    void (*call)(void*);
    void* argument;
    int64_t wanted;
    std::atomic<int64_t> active{0};
    Job(void (*c)(void*), void* a, int64_t w) : call(c), argument(a), wanted(w) {}
  };
  std::mutex mutex;
  std::condition_variable work, done;
  std::deque<Job*> jobs;
  int64_t threads = 0;
  std::atomic<int> waiting{0};  // jobs in the queue, for threads that look without the lock
  const int64_t owner = process();

  static Pool& current() {
    static std::atomic<Pool*> shared{nullptr};
    Pool* known = shared.load();
    if (known && known->owner == process()) return *known;
    Pool* fresh = new Pool;
    if (shared.compare_exchange_strong(known, fresh)) return *fresh;
    delete fresh;
    return *known;
  }
  void offer(Job& job) {
    const bool one = job.wanted == 1;
    {
      std::lock_guard<std::mutex> lock(mutex);
      try {
        for (; threads < job.wanted; threads++) std::thread([this, own = (int)threads + 1] { serve(own); }).detach();
      } catch (const std::system_error&) {  // continue with fewer threads
      }
      jobs.push_back(&job);
      waiting.fetch_add(1, std::memory_order_relaxed);
    }
    if (one) work.notify_one();
    else work.notify_all();
  }
  // Withdraws the job, then waits for the threads that work on it: by spinning for a short time, which is faster than
  // being woken, then by sleeping.
  void finish(Job& job) {
    std::unique_lock<std::mutex> lock(mutex);
    for (auto at = jobs.begin(); at != jobs.end(); ++at)
      if (*at == &job) {
        jobs.erase(at);
        waiting.fetch_sub(1, std::memory_order_relaxed);
        break;
      }
    lock.unlock();
    spin(100, [&] { return job.active.load(std::memory_order_acquire) == 0; });
    lock.lock();
    done.wait(lock, [&] { return job.active.load(std::memory_order_acquire) == 0; });
  }
  void serve(int own) {
    number() = own;
    std::unique_lock<std::mutex> lock(mutex);
    for (;;) {
      work.wait(lock, [&] { return !jobs.empty(); });
      Job& job = *jobs.front();
      job.active.fetch_add(1, std::memory_order_relaxed);
      if (--job.wanted == 0) {
        jobs.pop_front();
        waiting.fetch_sub(1, std::memory_order_relaxed);
      }
      lock.unlock();
      job.call(job.argument);
      lock.lock();
      if (job.active.fetch_sub(1, std::memory_order_release) == 1) done.notify_all();
      lock.unlock();
      // The next job often follows soon, as the backward pass follows the forward pass, and then it is started at once.
      spin(100, [&] { return waiting.load(std::memory_order_relaxed) != 0; });
      lock.lock();
    }
  }
  // Waits without giving up the processor until `ready`, at most for this many microseconds.
  template <class Ready> static void spin(int microseconds, Ready ready) {
    typedef std::chrono::steady_clock Clock;
    const auto stop = Clock::now() + std::chrono::microseconds(microseconds);
    while (!ready() && Clock::now() < stop)
      for (int k = 0; k < 16 && !ready(); k++) pause();
  }
  static void pause() {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
  }
};

// The indices 0 … size − 1, handed out to threads in groups. Each thread has a share, the same in every call, and takes
// from the others' only when its own is done. So what it reads was often written by itself, by the pass before, and is
// in its own cache: half of it would otherwise come from another processor's, which takes longer than some passes.
class Shares {
  struct alignas(64) Share {
    std::atomic<int64_t> next;
    int64_t end;
  };
  static constexpr int most = 16;  // more threads begin at the same places
  Share shares[most];
  const int64_t group;
  int count = 0;

 public:
  // size > 0; share: indices of a thread; group: indices that are handed out at once.
  Shares(int64_t size, int64_t share, int64_t group) : group(group) {
    if (share * most < size) share = (size / most / group + 1) * group;
    for (int64_t first = 0; first < size; first += share, count++) {
      shares[count].next = first;
      shares[count].end = first + share < size ? first + share : size;
    }
  }
  // Calls f(first, count) for groups until none are left; to be called in each of the threads.
  template <class F> void each(F f) {
    for (int k = 0; k < count; k++) {
      Share& s = shares[(Pool::number() + k) % count];
      for (int64_t at; (at = s.next.fetch_add(group)) < s.end;) f(at, s.end - at < group ? s.end - at : group);
    }
  }
};

}  // namespace sg
