// The interface between the dispatcher (dispatch.cpp) and the kernels: one table of functions per instruction set.
#pragma once
#include <stddef.h>
#include <stdint.h>

namespace sg {

enum Function {
  identity = 0,
  square_root = 1,
  inverse_square_root = 2,
  given = 3,
  power = 4,
  // gradients/scalar_functions.hpp:
  logarithm = 5,
  exponential = 6,
  real_power = 7,
  whole_power = 8,
  leading = 9,
  // of singular values, and leading as well: gradients/singular_scalars.hpp
  threshold = 10,
  support = 11,
  largest = 12
};

// Threads for the work inside one matrix: `fork` calls part(argument) in up to `threads` threads at the same time.
struct Team {
  int threads = 1;
  void (*fork)(int threads, void (*part)(void*), void* argument) = nullptr;
};

// What the dispatcher fills in: the work is for matrices first … first + count − 1 of a batch of `batch`.
struct Piece {
  int64_t batch, first = 0;
  int count = 0;
  void* work = nullptr;
};

// Decompositions of symmetric matrices and functions of them.
template <class T> struct Task : Piece {
  int d;
  Function f;
  const T *A, *G, *gamma;     // A: input of eigh; G, gamma: inputs of the Fréchet derivative
  T *w, *V, *S;               // w: eigenvalues, or their square roots for a function; S: the function or its derivative
  T asymmetry = -1;           // matrices with |a_ij − a_ji| above this multiple of max|a_ij| fail; if negative, none do
  T rtol = 0;                 // eigenvalues not above rtol · max|λ| count as zero;
  T negative = 0;             // those below −negative · max|λ| are errors
  int terms = 0;              // number of terms of SVD-Taylor's series; 0 for the exact derivative
  T exponent = 0, shift = 0;  // of a power (λ + shift)^exponent
  bool relative = false;      // the shift is a multiple of max|λ|
  T limit = 0;                // of a scalar function: eigenvalues of this size, or of its inverse, need more care
  bool any_sign = false;      // of a scalar function: the matrix may be indefinite
  Team team = {};
};

// The same for singular value decompositions of m × n matrices. U and Vh are null if only the values are wanted.
template <class T> struct SvdTask : Piece {
  const T* A;
  T *U, *S, *Vh;
  int m, n;
  Team team = {};
};

// The gradient with respect to the matrices from the gradients with respect to their factors; any may be null.
template <class T> struct SvdGradient : Piece {
  const T *U, *S, *Vh, *gU, *gS, *gVh;
  const T* K;  // gap matrices (k × k, zero on the diagonal), or null for SVD-Padé's with this floor
  T* gM;
  int m, n;
  T floor;
  bool filter, saturate;  // drop couplings at rounding level between tied vectors; clamp what would overflow
};

// The gradient with respect to symmetric matrices from the gradients with respect to eigenvectors and
// eigenvalues; one of them may be null.
template <class T> struct EighGradient : Piece {
  const T *V, *w, *gV, *gw;
  const T* K;  // gap matrices (d × d), or null for SVD-Padé's with this floor
  T* gA;
  int d;
  T floor;
  bool filter, saturate;  // drop couplings at rounding level between tied vectors; clamp what would overflow
  Team team = {};
};

// Passes over two sets of n points with k ≤ 16 coordinates; passes/points.hpp says which arrays each reads and writes.
// Means, weights and their gradients may be null, and so may translation and scale.
template <class T> struct PointTask : Piece {
  int n, k;
  const T *X, *Y, *w;
  T *x, *y, *C;
  const T *gx, *gy;  // gradients
  T *gX, *gY, *gw;
  const T *R = nullptr, *h = nullptr;  // the polar factor of C, and the eigenvalues of the other one
  T *t = nullptr, *s = nullptr, *spread = nullptr, *e = nullptr, *margin = nullptr;
  bool special = false;
};

// F = U diag(values) Vᵀ or, if G is given, its derivative in the direction G: gradients/singular_function.hpp. For a polar
// factor U is the factor itself and S are the eigenvalues of the other one; there are no divided differences.
template <class T> struct SingularFunction : Piece {
  const T *U, *S, *Vh, *values, *joint, *outer, *G;
  T* out;
  int m, n;
  bool polar = false;
  Function f = given;              // or the function that the values, or the divided differences, are computed of,
  T parameter = 0, tolerance = 0;  // its parameter, the rank tolerance,
  const T* factor = nullptr;       // and a number for each matrix by which its values are multiplied, unless null
};

// The polar factor from U, which Q holds before, and Vᵀ: svd/polar.hpp.
template <class T> struct PolarTask : Piece {
  T *Q, *h;  // h: singular values before
  const T* Vh;
  int m, n;
  bool special;  // the nearest rotation
  T rtol;        // eigenvalues up to rtol · max h count as zero
};

// One step towards the divided differences of a function (gradients/divided_differences.hpp) at d values w with
// f = f(w).
enum DividedStep { quotients = 0, nodes = 1, means = 2 };
constexpr int quadrature_nodes = 6;  // places for each close pair
template <class T> struct Divided : Piece {
  const T *w, *f;
  T* joint;          // the matrices d × d
  int64_t* offsets;  // batch + 1: the number of close pairs in each matrix, afterwards in all matrices before it
  T* places;         // where the caller evaluates f′ …
  const T* slopes;   // … and the results
  T* ratio;          // f/w, unless null
  int d;
  T least;  // values up to this share of the norm have the ratio f′
  bool finite;
  DividedStep step;
};

// One way to compute singular value decompositions; it has the same functions as an Eigensolver.
template <class T> struct SvdMethod {
  int (*group)(int64_t m, int64_t n);
  int (*lanes)(int64_t m, int64_t n);
  size_t (*work)(int64_t m, int64_t n, bool vectors);
  int (*svd)(const SvdTask<T>&);
  double (*cost)(int64_t m, int64_t n, bool vectors);
};

template <class T> struct SvdOps {
  SvdMethod<T> lanes, single;  // one matrix per lane; one matrix at a time
  int (*gradient_lanes)(int64_t m, int64_t n);
  size_t (*gradient_work)(int64_t m, int64_t n);
  void (*gradient)(const SvdGradient<T>&);
  size_t (*function_work)(int64_t m, int64_t n);
  void (*function)(const SingularFunction<T>&);
  size_t (*polar_work)(int64_t m, int64_t n);
  void (*polar)(const PolarTask<T>&);
};

// One way to compute eigenpairs.
template <class T> struct Eigensolver {
  int (*group)(int64_t d);      // matrices that are solved together
  int (*lanes)(int64_t d);      // count should be a multiple of this, or lanes stay empty
  size_t (*work)(int64_t d);    // bytes of workspace per thread
  int (*eigh)(const Task<T>&);  // computes w and, unless it is null, V; returns how many matrices failed
  double (*cost)(int64_t d);    // rough nanoseconds per matrix; determines the number of threads
};

template <class T> struct Ops {
  Eigensolver<T> lanes, single;     // one matrix per lane; one matrix at a time
  int (*compose)(const Task<T>&);   // S = V f(w) Vᵀ, w ← √w on the range; returns how many are indefinite
  void (*frechet)(const Task<T>&);  // S = V (Γ ∘ Vᵀ sym(G) V) Vᵀ
  size_t (*gradient_work)(int64_t d);
  void (*gradient)(const EighGradient<T>&);
  SvdOps<T> svd;
  void (*point_moments)(const PointTask<T>&);
  void (*point_fit)(const PointTask<T>&);
  void (*point_gradient)(const PointTask<T>&);
  int (*divided)(const Divided<T>&);
};

// For complex matrices, and for their vectors, real and imaginary parts alternate in memory.
template <class T> struct ComplexOps {
  Eigensolver<T> lanes, single;
  SvdMethod<T> svd, svd_single;
};

// Passes over features (samples, groups, d, n); passes/features.hpp says what they compute.
template <class T> struct FeatureMoments {
  const T *X, *x0, *Y;
  int64_t samples;
  int groups, d;
  int64_t n;
};
template <class T> struct FeatureMap {
  const T *Y, *y0, *A, *X, *x0, *B, *shift;
  T* out;
  int64_t samples;
  int groups, d;
  int64_t n;
};
template <class T> struct FeatureOps {
  size_t (*moments_work)(int d);
  int (*padded)(int d);  // rows and columns of the matrices that `moments` adds to
  void (*moments)(const FeatureMoments<T>&, int64_t first, int64_t count, double* C, double* sums, void* work);
  size_t (*map_work)(int d);
  void (*map)(const FeatureMap<T>&, int64_t first, int64_t count, void* work);
};

}  // namespace sg
