// All that depends on the operating system or on the processor at run time: exported functions, processes, large pages,
// instruction sets.
#pragma once
#include <stddef.h>
#include <stdint.h>

#ifdef _WIN32
#define SG_API extern "C" __declspec(dllexport)
#else
#include <sys/mman.h>
#include <unistd.h>
#define SG_API extern "C" __attribute__((visibility("default")))
#endif
#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace sg {

// The number of this process, which a forked child does not share; Windows has no fork.
inline int64_t process() {
#ifdef _WIN32
  return 0;
#else
  return getpid();
#endif
}

// A large result is new memory, whose pages are created as they are written: in pages of 2 MB, where the system has
// them on request, the passes of a layer took half as long.
inline void prefer_large_pages(void* p, int64_t bytes) {
#ifdef MADV_HUGEPAGE
  constexpr int64_t page = 2 << 20;
  const int64_t first = ((int64_t)(uintptr_t)p + page - 1) / page * page,
                last = ((int64_t)(uintptr_t)p + bytes) / page * page;
  if (last - first >= 2 * page) (void)madvise((void*)(uintptr_t)first, (size_t)(last - first), MADV_HUGEPAGE);
#else
  (void)p;
  (void)bytes;
#endif
}

// Whether this processor has an instruction set and the system saves its registers. Asked of the processor itself:
// __builtin_cpu_supports needs a library of the compiler that not every one brings.
enum Instructions { baseline_set, avx2_set, avx512_set };
inline bool has(Instructions set) {
  if (set == baseline_set) return true;
#if defined(__x86_64__)
  unsigned a, b, c, d, features;
  if (!__get_cpuid(1, &a, &b, &features, &d) || !__get_cpuid_count(7, 0, &a, &b, &c, &d)) return false;
  constexpr unsigned fma = 1u << 12, saved = 1u << 27;
  if ((features & (fma | saved)) != (fma | saved)) return false;
  unsigned low, high;
  __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  constexpr unsigned avx2 = 1u << 5, ymm = 0x6, f = 1u << 16, dq = 1u << 17, bw = 1u << 30, vl = 1u << 31, zmm = 0xe6;
  const unsigned wanted = set == avx2_set ? avx2 : avx2 | f | dq | bw | vl, kept = set == avx2_set ? ymm : zmm;
  return (b & wanted) == wanted && (low & kept) == kept;
#else
  return false;
#endif
}

}  // namespace sg
