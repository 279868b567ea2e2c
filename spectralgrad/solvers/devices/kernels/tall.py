r"""Singular vectors of long matrices (m, N), N ≤ 8: A = Q R, before and after the decomposition of the small R.

One program has one matrix and reads it in blocks of ``ROWS`` rows, a row or more per thread. The first block is reduced
to R by N Householder reflections; the reflections of a later block B reduce :math:`[R;B]` to the next R, where
reflection k involves row k of R and all of B. Their vectors take the place of the left singular vectors until these are
formed, and are applied in the opposite order. Products of reflections are orthogonal to rounding error at any rank.

Columns are divided by powers of two first, such that none is negligible beside the others (native/src/svd/small.hpp):
then the singular values that R and A share lose no accuracy, relative to themselves.
"""

import triton
import triton.language as tl

from .language import exponent, largest_of, ldexp, per_matrix, put
from .svd import product, reflected, reflection, reflector


@triton.jit
def load(A, offset, row, rows, down, right, N: tl.constexpr):
    """Columns (1, ROWS) of a block; rows beyond the end are zero."""
    a = ()
    for j in tl.static_range(N):
        a = a + (tl.load(A + offset + row.to(tl.int64) * down + j * right, mask=row < rows, other=0.0),)
    return a


@triton.jit
def save(A, offset, a, row, rows, down, right, N: tl.constexpr):
    """Store the columns of a block."""
    for j in tl.static_range(N):
        tl.store(A + offset + row.to(tl.int64) * down + j * right, a[j], mask=row < rows)


@triton.jit
def sizes(A, offset, row, m, down, right, N: tl.constexpr, ROWS: tl.constexpr, LARGEST: tl.constexpr):
    """The exponents of the largest entries of the columns, tensors (1, 1), and whether all entries are finite."""
    tops = ()
    for _ in tl.static_range(N):
        tops = tops + (tl.zeros((1, ROWS), A.dtype.element_ty),)
    bad = tl.zeros((1, ROWS), tl.int32)
    for start in range(0, m, ROWS):
        a = load(A, offset, start + row, m, down, right, N)
        for j in tl.static_range(N):
            bad = tl.maximum(bad, tl.where(tl.abs(a[j]) <= LARGEST, 0, 1))  # 1 for NaN
            tops = put(tops, j, tl.maximum(tops[j], tl.abs(a[j])))
    good = largest_of(bad, ROWS) == 0
    e = ()
    for j in tl.static_range(N):
        e = e + (exponent(largest_of(tl.where(good, tops[j], 1.0), ROWS)),)
    return e, good


@triton.jit
def scaled(a, e, good, N: tl.constexpr):
    """The columns divided by powers of two; zero if the matrix is not finite."""
    b = ()
    for j in tl.static_range(N):
        b = b + (ldexp(tl.where(good, a[j], 0.0), -e[j]),)
    return b


@triton.jit
def first_block(a, row, N: tl.constexpr, ROWS: tl.constexpr, TINY: tl.constexpr):
    """The vectors of the reflections, their factors τ, and R, a tuple of N × N numbers (1, 1) in rows."""
    r = ()
    taus = ()
    for _ in tl.static_range(N * N):
        r = r + (per_matrix(a[0] * 0.0, ROWS),)
    for k in tl.static_range(N):
        for i in tl.static_range(k):
            r = put(r, i * N + k, per_matrix(tl.where(row == i, a[k], 0.0), ROWS))
        a, tau, beta = reflector(a, k, row, 1, ROWS, TINY)
        r = put(r, k * N + k, beta)
        taus = taus + (tau,)
        for j in tl.static_range(k + 1, N):
            a = reflected(a, j, a, k, tau, 1, ROWS)
    return a, taus, r


@triton.jit
def next_block(a, r, N: tl.constexpr, ROWS: tl.constexpr, TINY: tl.constexpr):
    """Reduce [R; a] to R. The vectors of the reflections replace a; in R they are 1 in row k and zero elsewhere."""
    taus = ()
    for k in tl.static_range(N):
        tau, beta, factor = reflection(r[k * N + k], product(a, k, a, k, 1, ROWS), TINY)
        a = put(a, k, a[k] * factor)
        r = put(r, k * N + k, beta)
        taus = taus + (tau,)
        for j in tl.static_range(k + 1, N):
            y = tau * (r[k * N + j] + product(a, k, a, j, 1, ROWS))
            r = put(r, k * N + j, r[k * N + j] - y)
            a = put(a, j, a[j] - y * a[k])
    return a, taus, r


@triton.jit
def store_numbers(X, x, COUNT: tl.constexpr):
    """Store a tuple of numbers (1, 1), as scalars: a tensor of addresses for each would take the compiler long."""
    for k in tl.static_range(COUNT):
        tl.store(X + k, tl.sum(tl.sum(x[k], axis=1), axis=0))


@triton.jit
def load_numbers(X, COUNT: tl.constexpr):
    """The tuple that ``store_numbers`` stored."""
    x = ()
    for k in tl.static_range(COUNT):
        x = x + (tl.load(X + k) + tl.zeros((1, 1), X.dtype.element_ty),)
    return x


@triton.jit
def factor(
    A, Q, TAU, R, E, m, blocks, down, right, q_down, q_right, N: tl.constexpr, ROWS: tl.constexpr,
    TINY: tl.constexpr, LARGEST: tl.constexpr,
):  # fmt: skip
    """The vectors Q (m, N) and factors TAU (blocks, N) of the reflections, R/2ᴱ (N, N) and E, for each matrix.

    R is NaN if the matrix is not finite. It is divided by a power of two because its norm may overflow.
    """
    number = tl.program_id(0).to(tl.int64)
    row = tl.arange(0, ROWS)[None, :]
    offset = number * m * N
    tau_offset = number * blocks * N
    e, good = sizes(A, offset, row, m, down, right, N, ROWS, LARGEST)
    a = scaled(load(A, offset, row, m, down, right, N), e, good, N)
    a, taus, r = first_block(a, row, N, ROWS, TINY)
    save(Q, offset, a, row, m, q_down, q_right, N)
    store_numbers(TAU + tau_offset, taus, N)
    for block in range(1, blocks):
        i = block * ROWS + row
        a = scaled(load(A, offset, i, m, down, right, N), e, good, N)
        a, taus, r = next_block(a, r, N, ROWS, TINY)
        save(Q, offset, a, i, m, q_down, q_right, N)
        store_numbers(TAU + tau_offset + block * N, taus, N)
    top = e[0]
    for j in tl.static_range(1, N):
        top = tl.maximum(top, e[j])
    for i in tl.static_range(N):
        for j in tl.static_range(N):
            r = put(r, i * N + j, tl.where(good, ldexp(r[i * N + j], e[j] - top), float("nan")))
    store_numbers(R + number * (N * N), r, N * N)
    store_numbers(E + number, (top,), 1)


@triton.jit
def rows_of_block(v, taus, u, N: tl.constexpr, ROWS: tl.constexpr):
    """The reflections of a later block applied to [u; 0], u a tuple of N × N numbers: the block's rows, and u."""
    x = ()
    for j in tl.static_range(N):
        z = v[0] * 0.0
        for k in tl.static_range(N - 1, -1, -1):
            y = taus[k] * (u[k * N + j] + per_matrix(v[k] * z, ROWS))
            u = put(u, k * N + j, u[k * N + j] - y)
            z = z - y * v[k]
        x = x + (z + 0.0,)
    return x, u


@triton.jit
def rows_of_first_block(v, taus, u, row, N: tl.constexpr, ROWS: tl.constexpr):
    """The reflections of the first block applied to [u; 0], u being in its rows."""
    x = ()
    for j in tl.static_range(N):
        z = v[0] * 0.0
        for i in tl.static_range(N):
            z = tl.where(row == i, u[i * N + j], z)
        for k in tl.static_range(N - 1, -1, -1):
            z = z - taus[k] * per_matrix(v[k] * z, ROWS) * v[k]
        x = x + (z + 0.0,)
    return x


@triton.jit
def form(
    Q, TAU, U, S, E, m, blocks, q_down, q_right, N: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Replace vectors of reflections by the left singular vectors, given the U of R, and S by 2ᴱ S. NaN stays NaN."""
    number = tl.program_id(0).to(tl.int64)
    row = tl.arange(0, ROWS)[None, :]
    offset = number * m * N
    tau_offset = number * blocks * N
    u = load_numbers(U + number * (N * N), N * N)
    for done in range(1, blocks):
        block = blocks - done
        v = load(Q, offset, block * ROWS + row, m, q_down, q_right, N)
        x, u = rows_of_block(v, load_numbers(TAU + tau_offset + block * N, N), u, N, ROWS)
        tl.debug_barrier()  # all have read what others overwrite
        save(Q, offset, x, block * ROWS + row, m, q_down, q_right, N)
    v = load(Q, offset, row, m, q_down, q_right, N)
    x = rows_of_first_block(v, load_numbers(TAU + tau_offset, N), u, row, N, ROWS)
    tl.debug_barrier()
    save(Q, offset, x, row, m, q_down, q_right, N)
    e = tl.load(E + number)
    for j in tl.static_range(N):
        tl.store(S + number * N + j, ldexp(tl.load(S + number * N + j), e))
