// What Python calls: selects the instruction set once, divides the batch into groups and distributes them over threads.
// The last lines of the file are the C interface, which describes itself.
// It is safe to call from several Python threads at the same time.
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <new>
#include <type_traits>

#include "interface.hpp"
#include "platform.hpp"
#include "threads.hpp"

// SG_BASELINE, SG_AVX2 and SG_AVX512 say which instruction sets the kernel was compiled for.
#define SG_DECLARE(set)                \
  namespace set {                      \
  sg::Ops<float> real32();             \
  sg::Ops<double> real64();            \
  sg::ComplexOps<float> complex32();   \
  sg::ComplexOps<double> complex64();  \
  sg::FeatureOps<float> features32();  \
  sg::FeatureOps<double> features64(); \
  }
SG_DECLARE(baseline)
SG_DECLARE(avx2)
SG_DECLARE(avx512)

namespace {

using sg::Ops;
using sg::Task;

template <class T> struct Functions {
  Ops<T> real;
  sg::ComplexOps<T> complex;
  sg::FeatureOps<T> features;
};
struct Kernel {
  const char* name;
  Functions<float> f32;
  Functions<double> f64;
};

#define SG_KERNEL(set)                                                                                                 \
  {                                                                                                                    \
    #set, {set::real32(), set::complex32(), set::features32()}, { set::real64(), set::complex64(), set::features64() } \
  }
// The best instruction set of the machine for which there is code, or a lesser one if SPECTRALGRAD_ISA names it. No
// name: there is none.
Kernel choose(const char* wish) {
  const bool any = !wish || !*wish;
  [[maybe_unused]] const bool lesser = !any && !std::strcmp(wish, "baseline");
  [[maybe_unused]] const bool middle = !any && !std::strcmp(wish, "avx2");
#ifdef SG_AVX512
  if (sg::has(sg::avx512_set) && !lesser && !middle) return SG_KERNEL(avx512);
#endif
#ifdef SG_AVX2
  if (sg::has(sg::avx2_set) && !lesser) return SG_KERNEL(avx2);
#endif
#ifdef SG_BASELINE
  return SG_KERNEL(baseline);
#else
  return any ? Kernel{} : choose(nullptr);
#endif
}
const Kernel& chosen() {
  static const Kernel kernel = choose(std::getenv("SPECTRALGRAD_ISA"));
  return kernel;
}
template <class T> const Functions<T>& functions();
template <> const Functions<float>& functions() { return chosen().f32; }
template <> const Functions<double>& functions() { return chosen().f64; }
template <class T> const Ops<T>& ops() { return functions<T>().real; }
template <class T> const sg::ComplexOps<T>& complex_ops() { return functions<T>().complex; }
template <class T> const sg::FeatureOps<T>& feature_ops() { return functions<T>().features; }

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

// The functions that Python calls begin here; `entries` below lists them. Their parameters are described nowhere else.

template <class T> using Solver = const sg::Eigensolver<T>& (*)();
template <class T> const sg::Eigensolver<T>& lanes() { return ops<T>().lanes; }
template <class T> const sg::Eigensolver<T>& single() { return ops<T>().single; }
template <class T> const sg::Eigensolver<T>& complex_lanes() { return complex_ops<T>().lanes; }
template <class T> const sg::Eigensolver<T>& complex_single() { return complex_ops<T>().single; }
template <class T> using SvdSolver = const sg::SvdMethod<T>& (*)();
template <class T> const sg::SvdMethod<T>& svd_lanes() { return ops<T>().svd.lanes; }
template <class T> const sg::SvdMethod<T>& svd_single() { return ops<T>().svd.single; }
template <class T> const sg::SvdMethod<T>& complex_svd() { return complex_ops<T>().svd; }
template <class T> const sg::SvdMethod<T>& complex_svd_single() { return complex_ops<T>().svd_single; }

template <class T, Solver<T> solver>
int eigh(const T* A, T* w, T* V, int64_t batch, int64_t d, T asymmetry, int threads) {
  if (batch <= 0 || d <= 0) return 0;
  Task<T> t{{batch}, (int)d, sg::identity, A, nullptr, nullptr, w, V, nullptr, asymmetry};
  t.team = team(batch, d, threads);
  return run(t, plan(solver(), d, V ? 1 : 0.3), threads, solver().eigh);
}

template <class T> int composed(const sg::Eigensolver<T>& solver, Task<T> t, int threads) {
  if (t.batch <= 0 || t.d <= 0) return 0;
  t.team = team(t.batch, t.d, threads);
  return run(t, plan(solver, t.d, 1.3), threads, [&](const Task<T>& x) {
    const int failed = solver.eigh(x);
    Task<T> own = x;
    own.batch = x.first + x.count;  // vector loads must not reach what other threads are writing
    return failed + ops<T>().compose(own);
  });
}

template <class T, Solver<T> solver>
int root(int f, const T* A, T* r, T* V, T* S, int64_t batch, int64_t d, T rtol, T negative, T asymmetry, int threads) {
  Task<T> t{{batch}, (int)d, (sg::Function)f, A, nullptr, nullptr, r, V, S, asymmetry, rtol, negative};
  return composed<T>(solver(), t, threads);
}

template <class T, Solver<T> solver>
int power(const T* A, T* r, T* V, T* S, int64_t batch, int64_t d, T rtol, T negative, T asymmetry, T exponent, T shift,
          int relative, int threads) {
  Task<T> t{{batch}, (int)d, sg::power, A, nullptr, nullptr, r, V, S, asymmetry, rtol, negative};
  t.exponent = exponent;
  t.shift = shift;
  t.relative = relative != 0;
  return composed<T>(solver(), t, threads);
}

// A scalar function of gradients/scalar_functions.hpp.
template <class T, Solver<T> solver>
int function(int f, const T* A, T* w, T* V, T* S, int64_t batch, int64_t d, T rtol, T negative, T asymmetry, T exponent,
             T limit, int any_sign, int threads) {
  Task<T> t{{batch}, (int)d, (sg::Function)f, A, nullptr, nullptr, w, V, S, asymmetry, rtol, negative};
  t.exponent = exponent;
  t.limit = limit;
  t.any_sign = any_sign != 0;
  return composed<T>(solver(), t, threads);
}

template <class T>
int frechet(int f, int terms, T exponent, const T* V, const T* r, const T* gamma, const T* G, T* out, int64_t batch,
            int64_t d, int threads) {
  if (batch <= 0 || d <= 0) return 0;
  Task<T> t{{batch}, (int)d, (sg::Function)f, nullptr, G, gamma, const_cast<T*>(r), const_cast<T*>(V), out};
  t.terms = terms;
  t.exponent = exponent;
  t.team = team(batch, d, threads);
  return run(t, plan(ops<T>().lanes, d, 0.4), threads, ops<T>().frechet);
}

template <class T>
int eigh_gradient(const T* V, const T* w, const T* gV, const T* gw, const T* K, T* gA, int64_t batch, int64_t d,
                  T floor, int filter, int saturate, int threads) {
  if (batch <= 0 || d <= 0) return 0;
  sg::EighGradient<T> t{{batch}, V, w, gV, gw, K, gA, (int)d, floor, filter != 0, saturate != 0};
  t.team = team(batch, d, threads);
  const Ops<T>& o = ops<T>();
  return run(t, {16, 1, o.gradient_work(d), 0.4 * o.lanes.cost(d)}, threads, o.gradient);
}

template <class T, SvdSolver<T> solver>
int svd(const T* A, T* U, T* S, T* Vh, int64_t batch, int64_t m, int64_t n, int threads) {
  if (batch <= 0 || m <= 0 || n <= 0) return 0;
  const sg::SvdMethod<T>& o = solver();
  const bool vectors = U != nullptr;
  sg::SvdTask<T> t{{batch}, A, U, S, Vh, (int)m, (int)n, team(batch, m < n ? m : n, threads)};
  const Plan p{o.group(m, n), o.lanes(m, n), o.work(m, n, vectors), o.cost(m, n, vectors)};
  return run(t, p, threads, o.svd);
}

// The polar factor Q of m × n matrices, m ≥ n, which is U until the decomposition of a group is complete.
template <class T, SvdSolver<T> solver>
int polar(const T* A, T* Q, T* h, T* Vh, int64_t batch, int64_t m, int64_t n, int special, T rtol, int threads) {
  if (batch <= 0 || m <= 0 || n <= 0) return 0;
  const sg::SvdMethod<T>& o = solver();
  const auto& behind = ops<T>().svd;
  const size_t work = o.work(m, n, true), own = behind.polar_work(m, n);
  sg::SvdTask<T> t{{batch}, A, Q, h, Vh, (int)m, (int)n, team(batch, n, threads)};
  const Plan p{o.group(m, n), o.lanes(m, n), work > own ? work : own, 1.1 * o.cost(m, n, true)};
  return run(t, p, threads, [&](const sg::SvdTask<T>& x) {
    const int failed = o.svd(x);
    // Vector loads must not reach what other threads are writing, so the batch ends here.
    behind.polar({{x.first + x.count, x.first, x.count, x.work}, Q, h, Vh, x.m, x.n, special != 0, rtol});
    return failed;
  });
}

template <class T>
int svd_gradient(const T* U, const T* S, const T* Vh, const T* gU, const T* gS, const T* gVh, const T* K, T* gM,
                 int64_t batch, int64_t m, int64_t n, T floor, int filter, int saturate, int threads) {
  if (batch <= 0 || m <= 0 || n <= 0) return 0;
  sg::SvdGradient<T> t{{batch}, U, S, Vh, gU, gS, gVh, K, gM, (int)m, (int)n, floor, filter != 0, saturate != 0};
  const auto& o = ops<T>().svd;
  const int lanes = o.gradient_lanes(m, n);
  const Plan p{4 * lanes, lanes, o.gradient_work(m, n), 0.4 * o.lanes.cost(m, n, true)};
  return run(t, p, threads, o.gradient);
}

// The alignment of sets of points: their cross-covariance C, its polar factor R, and the fit.
template <class T, SvdSolver<T> solver>
int align(const T* X, const T* Y, const T* w, T* x, T* y, T* C, T* R, T* h, T* Vh, T* t, T* s, T* spread, T* e,
          T* margin, int64_t batch, int64_t n, int64_t k, int special, T rtol, int threads) {
  if (batch <= 0 || k <= 0) return 0;
  const sg::SvdMethod<T>& o = solver();
  const auto& all = ops<T>();
  sg::PointTask<T> points{{batch}, (int)n, (int)k, X, Y, w, x, y, C, nullptr, nullptr, nullptr, nullptr, nullptr};
  points.R = R;
  points.h = h;
  points.t = t;
  points.s = s;
  points.spread = spread;
  points.e = e;
  points.margin = margin;
  points.special = special != 0;
  const size_t work = o.work(k, k, true), own = all.svd.polar_work(k, k);
  const double cost = 1.1 * o.cost(k, k, true) + 1.2 * (double)(n * k * k) + 20;
  const Plan p{o.group(k, k), o.lanes(k, k), work > own ? work : own, cost};
  return run(points, p, threads, [&](const sg::PointTask<T>& piece) {
    const sg::Piece part{piece.first + piece.count, piece.first, piece.count, piece.work};
    all.point_moments(piece);
    const int failed = o.svd({part, C, R, h, Vh, piece.k, piece.k});
    all.svd.polar({part, R, h, Vh, piece.k, piece.k, piece.special, rtol});
    all.point_fit(piece);
    return failed;
  });
}

template <class T>
int point_gradient(const T* X, const T* Y, const T* w, const T* x, const T* y, const T* C, const T* gx, const T* gy,
                   T* gX, T* gY, T* gw, int64_t batch, int64_t n, int64_t k, int threads) {
  if (batch <= 0 || k <= 0) return 0;
  const sg::PointTask<T> t{{batch},           (int)n, (int)k, X,  Y,  w, const_cast<T*>(x), const_cast<T*>(y),
                           const_cast<T*>(C), gx,     gy,     gX, gY, gw};
  return run(t, {64, 1, 1, 0.7 * t.n * t.k * t.k + 10}, threads, ops<T>().point_gradient);
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

template <class T>
int feature_moments(const T* X, const T* x0, const T* Y, T* C, T* sums, int64_t samples, int64_t groups,
                    int64_t channels, int64_t n, int threads) {
  const sg::FeatureMoments<T> t{X, x0, Y, samples, (int)groups, (int)channels, n};
  const auto& o = feature_ops<T>();
  const int64_t d = t.d, D = o.padded(t.d), square = D * D, size = t.groups * (square + D);
  const int64_t parts = t.samples < most_parts ? t.samples : most_parts;
  Buffer buffer((size_t)((parts ? parts : 1) * size) * sizeof(double));
  if (!buffer.p) return -1;
  double *partial = (double*)buffer.p, *totals = partial + t.groups * square;
  std::memset(partial, 0, (size_t)((parts ? parts : 1) * size) * sizeof(double));
  const double cost = 0.05 * (double)t.samples * (double)(t.groups * d * d) * (double)t.n;
  const int status =
      in_parts(t.samples, cost, o.moments_work(t.d), threads, [&](int64_t k, int64_t first, int64_t count, void* work) {
        o.moments(t, first, count, partial + k * size, totals + k * size, work);
      });
  for (int64_t k = 1; k < parts; k++)
    for (int64_t i = 0; i < size; i++) partial[i] += partial[k * size + i];
  for (int64_t g = 0; g < t.groups; g++)
    for (int64_t r = 0; r < d; r++) {
      const double* from = partial + g * square;
      for (int64_t c = 0; c < d; c++) C[(g * d + r) * d + c] = (T)(t.Y || c <= r ? from[r * D + c] : from[c * D + r]);
      sums[g * d + r] = (T)totals[g * D + r];
    }
  return status;
}

template <class T>
int feature_map(const T* Y, const T* y0, const T* A, const T* X, const T* x0, const T* B, const T* shift, T* out,
                int64_t samples, int64_t groups, int64_t channels, int64_t n, int threads) {
  const sg::FeatureMap<T> t{Y, y0, A, X, x0, B, shift, out, samples, (int)groups, (int)channels, n};
  const double cost = 0.05 * (double)t.samples * t.groups * t.d * t.d * (double)t.n * (t.X ? 2 : 1);
  const auto& o = feature_ops<T>();
  sg::prefer_large_pages(t.out, (int64_t)sizeof(T) * t.samples * t.groups * t.d * t.n);
  return in_parts(t.samples, cost, o.map_work(t.d), threads,
                  [&](int64_t, int64_t first, int64_t count, void* work) { o.map(t, first, count, work); });
}

template <class T> Plan singular_plan(const sg::SingularFunction<T>& t) {
  const auto& o = ops<T>().svd;
  const int lanes = o.gradient_lanes(t.m, t.n);
  return {8 * lanes, lanes, o.function_work(t.m, t.n), (t.G ? 0.4 : 0.1) * o.lanes.cost(t.m, t.n, true)};
}

// F = U diag(values) Vᵀ, or its derivative in the direction G; of a function that is not given, by its number.
template <class T>
int singular_function(int f, T parameter, T tolerance, const T* factor, const T* U, const T* S, const T* Vh,
                      const T* values, const T* joint, const T* outer, const T* G, T* out, int64_t batch, int64_t m,
                      int64_t n, int threads) {
  if (batch <= 0 || m <= 0 || n <= 0) return 0;
  sg::SingularFunction<T> t{{batch}, U, S, Vh, values, joint, outer, G, out, (int)m, (int)n};
  t.f = (sg::Function)f;
  t.parameter = parameter;
  t.tolerance = tolerance;
  t.factor = factor;
  return run(t, singular_plan(t), threads, ops<T>().svd.function);
}

// The gradient of a polar factor Q with M = Q V diag(h) Vᵀ, which is its derivative in the direction G.
template <class T>
int polar_gradient(const T* Q, const T* h, const T* Vh, const T* G, T* out, int64_t batch, int64_t m, int64_t n,
                   int threads) {
  if (batch <= 0 || m <= 0 || n <= 0) return 0;
  const sg::SingularFunction<T> t{{batch}, Q, h, Vh, nullptr, nullptr, nullptr, G, out, (int)m, (int)n, true};
  return run(t, singular_plan(t), threads, ops<T>().svd.function);
}

// A step of gradients/divided_differences.hpp; the first returns the number of close pairs.
template <class T>
int divided(int step, const T* w, const T* f, T* joint, int64_t* offsets, T* places, const T* slopes, T* ratio,
            int64_t batch, int64_t d, T least, int finite, int threads) {
  if (batch <= 0 || d <= 0) return 0;
  const auto what = (sg::DividedStep)step;
  const sg::Divided<T> t{{batch}, w, f, joint, offsets, places, slopes, ratio, (int)d, least, finite != 0, what};
  const int close = run(t, {64, 1, 1, 10 + 2.0 * t.d * t.d}, threads, ops<T>().divided);
  int64_t before = 0;
  for (int64_t b = 0; t.step == sg::quotients && b <= t.batch; b++) {
    const int64_t here = b < t.batch ? t.offsets[b] : 0;
    t.offsets[b] = before;
    before += here;
  }
  return close;
}

template <class> constexpr char code = 'p';
template <> constexpr char code<int> = 'i';
template <> constexpr char code<int64_t> = 'l';
template <> constexpr char code<float> = 'f';
template <> constexpr char code<double> = 'd';
template <class... Parameters> constexpr char codes[] = {code<Parameters>..., 0};

// A function and, as text, its name, the type of its matrices and the types of its parameters.
struct Entry {
  const char *name, *type, *parameters;
  void (*function)();
  template <class... Parameters>
  Entry(const char* name, const char* type, int (*f)(Parameters...))
      : name(name), type(type), parameters(codes<Parameters...>), function((void (*)())f) {}
};

#define SG_REAL(T, type)                                                                                           \
  {"eigh", type, eigh<T, lanes<T>>}, {"eigh_single", type, eigh<T, single<T>>}, {"root", type, root<T, lanes<T>>}, \
      {"root_single", type, root<T, single<T>>}, {"power", type, power<T, lanes<T>>},                              \
      {"power_single", type, power<T, single<T>>}, {"function", type, function<T, lanes<T>>},                      \
      {"function_single", type, function<T, single<T>>}, {"frechet", type, frechet<T>},                            \
      {"eigh_gradient", type, eigh_gradient<T>}, {"svd", type, svd<T, svd_lanes<T>>},                              \
      {"svd_single", type, svd<T, svd_single<T>>}, {"polar", type, polar<T, svd_lanes<T>>},                        \
      {"polar_single", type, polar<T, svd_single<T>>}, {"polar_gradient", type, polar_gradient<T>},                \
      {"svd_gradient", type, svd_gradient<T>}, {"singular_function", type, singular_function<T>},                  \
      {"divided", type, divided<T>}, {"align", type, align<T, svd_lanes<T>>},                                      \
      {"align_single", type, align<T, svd_single<T>>}, {"point_gradient", type, point_gradient<T>},                \
      {"feature_moments", type, feature_moments<T>}, {                                                             \
    "feature_map", type, feature_map<T>                                                                            \
  }
#define SG_COMPLEX(T, type)                                                                     \
  {"eigh", type, eigh<T, complex_lanes<T>>}, {"eigh_single", type, eigh<T, complex_single<T>>}, \
      {"svd", type, svd<T, complex_svd<T>>}, {                                                  \
    "svd_single", type, svd<T, complex_svd_single<T>>                                           \
  }

const Entry entries[] = {SG_REAL(float, "f32"), SG_REAL(double, "f64"), SG_COMPLEX(float, "c64"),
                         SG_COMPLEX(double, "c128")};

// The numbers that callers pass, or that the sizes of their arrays depend on.
struct Constant {
  const char* name;
  int value;
};
#define SG_CONSTANT(name) {#name, sg::name}
const Constant constants[] = {SG_CONSTANT(square_root),     SG_CONSTANT(inverse_square_root),
                              SG_CONSTANT(given),           SG_CONSTANT(logarithm),
                              SG_CONSTANT(exponential),     SG_CONSTANT(real_power),
                              SG_CONSTANT(whole_power),     SG_CONSTANT(leading),
                              SG_CONSTANT(threshold),       SG_CONSTANT(support),
                              SG_CONSTANT(largest),         SG_CONSTANT(quotients),
                              SG_CONSTANT(nodes),           SG_CONSTANT(means),
                              SG_CONSTANT(quadrature_nodes)};

}  // namespace

// The instruction set in use, or null if the kernel was compiled for none of this machine's.
SG_API const char* sg_isa() { return chosen().name; }
SG_API const char* sg_version() { return SG_VERSION; }
SG_API int sg_entries(const Entry** list) {
  *list = entries;
  return (int)(sizeof entries / sizeof *entries);
}
SG_API int sg_constants(const Constant** list) {
  *list = constants;
  return (int)(sizeof constants / sizeof *constants);
}
