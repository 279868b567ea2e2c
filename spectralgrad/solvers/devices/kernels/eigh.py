r"""Eigendecompositions of symmetric matrices with up to eight rows: the cyclic Jacobi method, all in registers.

The CPU kernel does the same mathematics (native/src/eigh/jacobi.hpp; Golub & Van Loan, Matrix Computations, 4th ed.,
section 8.5). A rotation of columns p and q with

.. math:: t=\tan\theta=\frac{2a_{pq}}{\delta\pm\sqrt{\delta^2+4a_{pq}^2}},\qquad \delta=a_{qq}-a_{pp},

and the sign that makes t the smaller root makes :math:`a_{pq}` zero. Entries up to a bar are rotated by zero, exactly;
in matrices that have converged all are, so that no result depends on the other matrices of the program.

The lower triangle is a tuple of N(N+1)/2 numbers per matrix, in rows. Where a group of threads has one matrix, each
thread has all of them and computes all rotations, and the eigenvectors are divided among the threads by rows: nothing
is exchanged between threads.
"""

import triton
import triton.language as tl

from .language import (
    any_of,
    divided,
    even_exponent,
    identity,
    largest_of,
    ldexp,
    moved,
    put,
    reciprocal,
    sqrt,
    swapped,
    turned,
)


@triton.jit
def entry(a, i: tl.constexpr, j: tl.constexpr):
    """Entry (i, j) of a lower triangle."""
    if i >= j:
        x = a[i * (i + 1) // 2 + j]
    else:
        x = a[j * (j + 1) // 2 + i]
    return x


@triton.jit
def with_entry(a, i: tl.constexpr, j: tl.constexpr, x):
    """The lower triangle with entry (i, j) replaced."""
    if i >= j:
        b = put(a, i * (i + 1) // 2 + j, x)
    else:
        b = put(a, j * (j + 1) // 2 + i, x)
    return b


@triton.jit
def load_lower(A, offset, live, N: tl.constexpr):
    """The lower triangle of the matrices at ``offset``."""
    a = ()
    for i in tl.static_range(N):
        for j in tl.static_range(i + 1):
            a = a + (tl.load(A + offset + (i * N + j), mask=live, other=0.0),)
    return a


@triton.jit
def scaled(a, N: tl.constexpr, LARGEST: tl.constexpr):
    """The triangle divided by an even power of two, such that max|a| is in [1, 4); its exponent; the finite matrices.

    Matrices that are not finite become zero.
    """
    top = tl.abs(a[0])
    good = top <= LARGEST
    for k in tl.static_range(1, N * (N + 1) // 2):
        good = good & (tl.abs(a[k]) <= LARGEST)  # false for NaN
        top = tl.maximum(top, tl.abs(a[k]))
    e = even_exponent(tl.where(good, top, 1.0))
    b = ()
    for k in tl.static_range(N * (N + 1) // 2):
        b = b + (ldexp(tl.where(good, a[k], 0.0), -e),)
    return b, e, good


@triton.jit
def rotate(
    a, v, p: tl.constexpr, q: tl.constexpr, N: tl.constexpr, BLOCKS: tl.constexpr, BAR: tl.constexpr, TINY: tl.constexpr
):  # fmt: skip
    """Make a_pq zero where it exceeds ``BAR``. ``TINY`` only avoids 0/0.

    Where the eigenvalues of two columns are equal, even the square of a rounding error would turn them by 45°, and
    entries beside them would be halved in each sweep instead of squared.
    """
    active = tl.abs(entry(a, q, p)) > BAR
    off = tl.where(active, entry(a, q, p), 0.0)
    first = entry(a, p, p)
    second = entry(a, q, q)
    delta = second - first
    twice = off + off
    t = divided(twice, tl.maximum(tl.abs(delta) + sqrt(delta * delta + twice * twice), TINY))
    t = tl.where(delta < 0, -t, t)
    c = reciprocal(sqrt(t * t + 1.0))
    s = t * c
    for k in tl.static_range(N):
        if k != p and k != q:
            x = entry(a, k, p)
            y = entry(a, k, q)
            a = with_entry(a, k, p, c * x - s * y)
            a = with_entry(a, k, q, s * x + c * y)
    a = with_entry(a, q, p, tl.where(active, 0.0, entry(a, q, p)))
    a = with_entry(a, p, p, first - t * off)
    a = with_entry(a, q, q, second + t * off)
    return a, turned(v, p, q, c, s, BLOCKS)


@triton.jit
def unfinished(a, N: tl.constexpr, BAR: tl.constexpr):
    """Matrices with an entry off the diagonal that exceeds ``BAR``.

    It is eps/16, and the largest entry of all is at least 1, so that what is left changes no eigenvalue by more than
    N eps/16.
    """
    off = tl.abs(entry(a, 1, 0))
    for i in tl.static_range(2, N):
        for j in tl.static_range(i):
            off = tl.maximum(off, tl.abs(entry(a, i, j)))
    return off > BAR


@triton.jit
def moved_lower(a, by: tl.constexpr, N: tl.constexpr):
    """The triangle with rows and columns moved on a circle: see ``moved``."""
    b = ()
    for i in tl.static_range(N):
        for j in tl.static_range(i + 1):
            b = b + (entry(a, (i + by) % N, (j + by) % N),)
    return b


@triton.jit
def sweep(a, v, N: tl.constexpr, BLOCKS: tl.constexpr, BAR: tl.constexpr, TINY: tl.constexpr):
    """Rotate every pair once, in the order of ``moved``; each index returns to its place."""
    for _ in range(N if N % 2 else N // 2):
        for i in tl.static_range(1, (N + 1) // 2):
            a, v = rotate(a, v, i, N - i, N, BLOCKS, BAR, TINY)
        if N % 2 == 0:
            a, v = rotate(a, v, 0, 1, N, BLOCKS, BAR, TINY)
            for i in tl.static_range(2, N // 2 + 1):
                a, v = rotate(a, v, i, N + 1 - i, N, BLOCKS, BAR, TINY)
        a = moved_lower(a, 1, N)
        v = moved(v, 1, N, BLOCKS)
    if N % 2 == 0:
        a = moved_lower(a, N // 2, N)
        v = moved(v, N // 2, N, BLOCKS)
    return a, v


@triton.jit
def diagonalised(
    a, v, N: tl.constexpr, BLOCKS: tl.constexpr, BAR: tl.constexpr, TINY: tl.constexpr,
    SWEEPS: tl.constexpr,
):  # fmt: skip
    """Sweep until all matrices are diagonal; return triangle, eigenvectors, and the matrices that are not diagonal."""
    busy = unfinished(a, N, BAR)
    k = 0
    while any_of(busy) & (k < SWEEPS):
        a, v = sweep(a, v, N, BLOCKS, BAR, TINY)
        k += 1
        busy = unfinished(a, N, BAR)
    return a, v, busy


@triton.jit
def ascending(a, v, N: tl.constexpr, BLOCKS: tl.constexpr):
    """The diagonal as a tuple of N numbers in ascending order, and the eigenvectors in the same order."""
    w = ()
    for i in tl.static_range(N):
        w = w + (entry(a, i, i),)
    for end in tl.static_range(1, N):
        for i in tl.static_range(N - end):
            wrong = w[i + 1] < w[i]
            w = swapped(w, i, i + 1, wrong, 1)
            v = swapped(v, i, i + 1, wrong, BLOCKS)
    return w, v


@triton.jit
def symmetric(A, offset, live, row, limit, N: tl.constexpr, BLOCKS: tl.constexpr, ROWS: tl.constexpr):
    """Matrices whose triangles differ by at most ``limit`` times the largest entry; not those with NaN.

    Halves are subtracted, so that no difference overflows. Each thread compares its rows.
    """
    top = tl.zeros_like(row).to(A.dtype.element_ty)
    for j in tl.static_range(N):
        for b in tl.static_range(BLOCKS):
            i = row + b * ROWS
            x = tl.load(A + offset + i * N + j, mask=live & (i < N), other=0.0)
            top = tl.maximum(top, tl.abs(x))
    bar = largest_of(top, ROWS) * 0.5 * limit
    bad = tl.zeros_like(row)
    for j in tl.static_range(N):
        for b in tl.static_range(BLOCKS):
            i = row + b * ROWS
            x = tl.load(A + offset + i * N + j, mask=live & (i < N), other=0.0)
            y = tl.load(A + offset + j * N + i, mask=live & (i < N), other=0.0)
            bad = tl.maximum(bad, tl.where(tl.abs(x * 0.5 - y * 0.5) <= bar, 0, 1))
    return largest_of(bad, ROWS) == 0


@triton.jit
def eigenpairs(
    A, offset, live, row, limit, N: tl.constexpr, BLOCKS: tl.constexpr, ROWS: tl.constexpr, BAR: tl.constexpr,
    TINY: tl.constexpr, LARGEST: tl.constexpr, SWEEPS: tl.constexpr, BOTH: tl.constexpr,
):  # fmt: skip
    """Ascending eigenvalues, divided by 2ᵉ, eigenvectors, the exponents e and the matrices for which they hold.

    ``offset`` and ``live`` are (M, ROWS). With ``BOTH``, they do not hold for matrices that are not symmetric.
    """
    a, e, good = scaled(load_lower(A, offset, live, N), N, LARGEST)
    if BOTH:
        good = good & symmetric(A, offset, live, row, limit, N, BLOCKS, ROWS)
    v = identity(a[0] * 0.0, row, N, BLOCKS, ROWS)
    a, v, busy = diagonalised(a, v, N, BLOCKS, BAR, TINY, SWEEPS)
    w, v = ascending(a, v, N, BLOCKS)
    return w, v, e, good & (busy == 0)


@triton.jit
def places(B, M: tl.constexpr, ROWS: tl.constexpr):
    """The number of each matrix of the program (M, ROWS), which of them exist, and the row (M, ROWS) of each thread."""
    m = tl.program_id(0).to(tl.int64) * M + tl.arange(0, M)[:, None]
    row = tl.arange(0, ROWS)[None, :]
    return m + row * 0, (m + row * 0) < B, row + (m * 0).to(tl.int32)


@triton.jit
def store_columns(V, offset, v, row, live, good, N: tl.constexpr, BLOCKS: tl.constexpr, ROWS: tl.constexpr):
    """Store the columns of square matrices, NaN where they are not good. Adding zero turns −0 into 0."""
    for j in tl.static_range(N):
        for b in tl.static_range(BLOCKS):
            i = row + b * ROWS
            x = tl.where(good, v[j * BLOCKS + b] + 0.0, float("nan"))
            tl.store(V + offset + i * N + j, x, mask=live & (i < N))


@triton.jit
def eigh(
    A, W, V, FAILED, B, limit, N: tl.constexpr, M: tl.constexpr, ROWS: tl.constexpr, BAR: tl.constexpr,
    TINY: tl.constexpr, LARGEST: tl.constexpr, SWEEPS: tl.constexpr, BOTH: tl.constexpr,
):  # fmt: skip
    """Ascending eigenvalues W (B, N) and eigenvectors V (B, N, N) of A (B, N, N), and which matrices failed."""
    BLOCKS: tl.constexpr = (N + ROWS - 1) // ROWS
    m, live, row = places(B, M, ROWS)
    w, v, e, good = eigenpairs(A, m * (N * N), live, row, limit, N, BLOCKS, ROWS, BAR, TINY, LARGEST, SWEEPS, BOTH)
    once = live & (row == 0)
    for i in tl.static_range(N):
        x = tl.where(good, ldexp(w[i], e) + 0.0, float("nan"))
        tl.store(W + m * N + i, x, mask=once)
    store_columns(V, m * (N * N), v, row, live, good, N, BLOCKS, ROWS)
    tl.store(FAILED + m, tl.where(good, 0, 1).to(tl.int8), mask=once)
