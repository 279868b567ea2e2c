r"""Sets of n points with N coordinates: means, cross-covariance, the distance of a fit, gradients of the points.

The formulas are the same as in native/src/passes/points.hpp; autograd/polar/point_sets.py has the derivation. One
program has one set and reads it in blocks of ``ROWS`` points, one per thread. Points and weights of a set lie one after
another.
"""

import triton
import triton.language as tl

from .language import divided, per_matrix, put
from .tall import load, load_numbers, save, store_numbers


@triton.jit
def place(ROWS: tl.constexpr):
    """The number of the program's set, and the first points of its threads (1, ROWS)."""
    return tl.program_id(0).to(tl.int64), tl.arange(0, ROWS)[None, :]


@triton.jit
def zeros(X, COUNT: tl.constexpr, ROWS: tl.constexpr):
    """A tuple of zeros (1, ROWS) in the type that a pointer points to."""
    found = ()
    for _ in tl.static_range(COUNT):
        found = found + (tl.zeros((1, ROWS), X.dtype.element_ty),)
    return found


@triton.jit
def totals(sums, COUNT: tl.constexpr, ROWS: tl.constexpr):
    """The sums over the threads, a tuple of numbers (1, 1)."""
    found = ()
    for k in tl.static_range(COUNT):
        found = found + (per_matrix(sums[k], ROWS),)
    return found


@triton.jit
def weights(W, number, i, n, like, WEIGHTED: tl.constexpr):
    """The weights of points i, 1 without weights, 0 behind the last point."""
    if WEIGHTED:
        one = tl.load(W + number * n + i, mask=i < n, other=0.0)
    else:
        one = tl.where(i < n, like * 0.0 + 1.0, 0.0)
    return one


@triton.jit
def cross_covariance(
    X, Y, W, MX, MY, C, n, WEIGHTED: tl.constexpr, CENTER: tl.constexpr, N: tl.constexpr, ROWS: tl.constexpr
):
    """C = Σ w (y − ȳ)(x − x̄)ᵀ and the means MX and MY, which are zero unless ``CENTER``."""
    number, row = place(ROWS)
    offset = number * n * N
    means = totals(zeros(X, 2 * N, ROWS), 2 * N, ROWS)
    if CENTER:
        sums = zeros(X, 2 * N + 1, ROWS)
        for start in range(0, n, ROWS):
            x = load(X, offset, start + row, n, N, 1, N)
            y = load(Y, offset, start + row, n, N, 1, N)
            one = weights(W, number, start + row, n, x[0], WEIGHTED)
            for j in tl.static_range(N):
                sums = put(sums, j, sums[j] + one * x[j])
                sums = put(sums, N + j, sums[N + j] + one * y[j])
            sums = put(sums, 2 * N, sums[2 * N] + one)
        sums = totals(sums, 2 * N + 1, ROWS)
        some = sums[2 * N] > 0
        for j in tl.static_range(2 * N):
            mean = divided(sums[j], tl.where(some, sums[2 * N], 1.0))
            means = put(means, j, tl.where(some, mean, 0.0))
    c = zeros(X, N * N, ROWS)
    for start in range(0, n, ROWS):
        x = load(X, offset, start + row, n, N, 1, N)
        y = load(Y, offset, start + row, n, N, 1, N)
        one = weights(W, number, start + row, n, x[0], WEIGHTED)
        for j in tl.static_range(N):
            far = one * (y[j] - means[N + j])
            for k in tl.static_range(N):
                c = put(c, j * N + k, c[j * N + k] + far * (x[k] - means[k]))
    store_numbers(MX + number * N, means[:N], N)
    store_numbers(MY + number * N, means[N:], N)
    store_numbers(C + number * (N * N), totals(c, N * N, ROWS), N * N)


@triton.jit
def fit_distance(X, Y, W, MX, MY, C, DISTANCE, n, WEIGHTED: tl.constexpr, N: tl.constexpr, ROWS: tl.constexpr):
    """The distance Σ w ‖C (x − x̄) − (y − ȳ)‖², where C is the rotation times the scale."""
    number, row = place(ROWS)
    offset = number * n * N
    mx = load_numbers(MX + number * N, N)
    my = load_numbers(MY + number * N, N)
    c = load_numbers(C + number * (N * N), N * N)
    sums = zeros(X, 1, ROWS)
    for start in range(0, n, ROWS):
        x = load(X, offset, start + row, n, N, 1, N)
        y = load(Y, offset, start + row, n, N, 1, N)
        one = weights(W, number, start + row, n, x[0], WEIGHTED)
        for j in tl.static_range(N):
            miss = my[j] - y[j]
            for k in tl.static_range(N):
                miss += c[j * N + k] * (x[k] - mx[k])
            sums = put(sums, 0, sums[0] + one * (miss * miss))
    store_numbers(DISTANCE + number, totals(sums, 1, ROWS), 1)


@triton.jit
def shared(PULL, W, number, row, n, WEIGHTED: tl.constexpr, N: tl.constexpr, ROWS: tl.constexpr):
    """The gradient of a mean divided by the sum of the weights, or zero if that is not positive."""
    total = tl.zeros((1, ROWS), PULL.dtype.element_ty)
    for start in range(0, n, ROWS):
        total += weights(W, number, start + row, n, total, WEIGHTED)
    total = per_matrix(total, ROWS)
    pulls = load_numbers(PULL + number * N, N)
    for j in tl.static_range(N):
        pulls = put(pulls, j, tl.where(total > 0, divided(pulls[j], tl.where(total > 0, total, 1.0)), 0.0))
    return pulls


@triton.jit
def point_gradients(
    X, Y, W, MX, MY, C, PX, PY, GX, GY, GW, n, WEIGHTED: tl.constexpr, N: tl.constexpr, ROWS: tl.constexpr
):
    """The gradients GX, GY and GW of points and weights, from the gradients of the covariance, C, and of the means."""
    number, row = place(ROWS)
    offset = number * n * N
    mx = load_numbers(MX + number * N, N)
    my = load_numbers(MY + number * N, N)
    c = load_numbers(C + number * (N * N), N * N)
    px = shared(PX, W, number, row, n, WEIGHTED, N, ROWS)
    py = shared(PY, W, number, row, n, WEIGHTED, N, ROWS)
    for start in range(0, n, ROWS):
        i = start + row
        x = load(X, offset, i, n, N, 1, N)
        y = load(Y, offset, i, n, N, 1, N)
        one = weights(W, number, i, n, x[0], WEIGHTED)
        slope = x[0] * 0.0
        gx = ()
        gy = ()
        for j in tl.static_range(N):
            of_x = slope * 0.0 + px[j]
            of_y = slope * 0.0 + py[j]
            for k in tl.static_range(N):
                of_x += c[k * N + j] * (y[k] - my[k])
                of_y += c[j * N + k] * (x[k] - mx[k])
            slope += (y[j] - my[j]) * of_y + (x[j] - mx[j]) * px[j]
            gx = gx + (one * of_x,)
            gy = gy + (one * of_y,)
        save(GX, offset, gx, i, n, N, 1, N)
        save(GY, offset, gy, i, n, N, 1, N)
        if WEIGHTED:
            tl.store(GW + number * n + i, slope, mask=i < n)
