r"""Singular value decompositions of m × n matrices with n ≤ m ≤ 8: the one-sided Jacobi method, all in registers.

The CPU kernel does the same mathematics (native/src/svd/jacobi.hpp). Rotations from the right make the columns of A
orthogonal; their norms are the singular values. No product AᵀA is formed, and a small column changes by rounding errors
of its own size only, so small singular values are found to high relative accuracy.

The left singular vectors come from Householder's QR decomposition of the final columns :math:`a_j`, which is nearly
diagonal: :math:`q_j=\pm a_j/\lVert a_j\rVert` up to rounding errors where :math:`a_j` is not negligible, and the
:math:`q_j` are orthonormal always, also where columns are zero.
"""

import triton
import triton.language as tl

from .language import (
    any_of,
    divided,
    exponent,
    identity,
    largest_of,
    ldexp,
    moved,
    per_matrix,
    put,
    reciprocal,
    sqrt,
    swapped,
    turned,
)


@triton.jit
def product(a, p: tl.constexpr, b, q: tl.constexpr, BLOCKS: tl.constexpr, ROWS: tl.constexpr):
    """The scalar product (M, 1) of column p of one matrix and column q of another."""
    total = a[p * BLOCKS] * b[q * BLOCKS]
    for k in tl.static_range(1, BLOCKS):
        total += a[p * BLOCKS + k] * b[q * BLOCKS + k]
    return per_matrix(total, ROWS)


@triton.jit
def loaded(
    A, offset, live, row, down, right, m, N: tl.constexpr, BLOCKS: tl.constexpr, ROWS: tl.constexpr,
    LARGEST: tl.constexpr,
):  # fmt: skip
    """The matrices, divided by powers of two such that max|a| is in [1, 2); their exponents; the finite matrices.

    ``down`` and ``right`` are the distances in memory of entries below and beside each other. Rows from m on, and
    matrices that are not finite, are zero.
    """
    a = ()
    for j in tl.static_range(N):
        for b in tl.static_range(BLOCKS):
            i = row + b * ROWS
            a = a + (tl.load(A + offset + i * down + j * right, mask=live & (i < m), other=0.0),)
    top = tl.abs(a[0])
    bad = tl.where(top <= LARGEST, 0, 1)
    for k in tl.static_range(1, N * BLOCKS):
        bad = tl.maximum(bad, tl.where(tl.abs(a[k]) <= LARGEST, 0, 1))  # 1 for NaN
        top = tl.maximum(top, tl.abs(a[k]))
    good = largest_of(bad, ROWS) == 0
    top = largest_of(tl.where(good, top, 1.0), ROWS)
    e = exponent(top)
    scaled = ()
    for k in tl.static_range(N * BLOCKS):
        scaled = scaled + (ldexp(tl.where(good, a[k], 0.0), -e),)
    return scaled, e, good


@triton.jit
def orthogonalise(
    a, v, active, p: tl.constexpr, q: tl.constexpr, A_BLOCKS: tl.constexpr, V_BLOCKS: tl.constexpr,
    ROWS: tl.constexpr, BAR: tl.constexpr, TINY: tl.constexpr,
):  # fmt: skip
    """Make columns p and q orthogonal in the active matrices where the square of their cosine exceeds ``BAR``.

    t = tan θ is the smaller root of t² + 2ζt − 1 = 0, ζ = (‖q‖² − ‖p‖²)/(2 pᵀq). Products below √``TINY`` change no
    singular value, and their squares would underflow.
    """
    alpha = product(a, p, a, p, A_BLOCKS, ROWS)
    beta = product(a, q, a, q, A_BLOCKS, ROWS)
    gamma = product(a, p, a, q, A_BLOCKS, ROWS)
    skew = active & (gamma * gamma > tl.maximum(alpha * BAR * beta, TINY))
    zeta = divided((beta - alpha) * 0.5, tl.where(skew, gamma, 1.0))
    zeta = tl.where(skew, zeta, 0.0)
    t = reciprocal(tl.abs(zeta) + sqrt(zeta * zeta + 1.0))
    t = tl.where(skew, tl.where(zeta < 0, -t, t), 0.0)
    c = reciprocal(sqrt(t * t + 1.0))
    s = t * c
    return turned(a, p, q, c, s, A_BLOCKS), turned(v, p, q, c, s, V_BLOCKS), skew


@triton.jit
def sweep(
    a, v, active, N: tl.constexpr, A_BLOCKS: tl.constexpr, V_BLOCKS: tl.constexpr, ROWS: tl.constexpr,
    BAR: tl.constexpr, TINY: tl.constexpr,
):  # fmt: skip
    """Make every pair orthogonal once, in the order of ``moved``; return also which matrices were rotated."""
    busy = active & (active == 0)
    for _ in range(N if N % 2 else N // 2):
        for i in tl.static_range(1, (N + 1) // 2):
            a, v, skew = orthogonalise(a, v, active, i, N - i, A_BLOCKS, V_BLOCKS, ROWS, BAR, TINY)
            busy = busy | skew
        if N % 2 == 0:
            a, v, skew = orthogonalise(a, v, active, 0, 1, A_BLOCKS, V_BLOCKS, ROWS, BAR, TINY)
            busy = busy | skew
            for i in tl.static_range(2, N // 2 + 1):
                a, v, skew = orthogonalise(a, v, active, i, N + 1 - i, A_BLOCKS, V_BLOCKS, ROWS, BAR, TINY)
                busy = busy | skew
        a = moved(a, 1, N, A_BLOCKS)
        v = moved(v, 1, N, V_BLOCKS)
    if N % 2 == 0:
        a = moved(a, N // 2, N, A_BLOCKS)
        v = moved(v, N // 2, N, V_BLOCKS)
    return a, v, busy


@triton.jit
def orthogonal(
    a, v, good, N: tl.constexpr, A_BLOCKS: tl.constexpr, V_BLOCKS: tl.constexpr, ROWS: tl.constexpr,
    BAR: tl.constexpr, TINY: tl.constexpr, SWEEPS: tl.constexpr,
):  # fmt: skip
    """Sweep until the columns of all matrices are orthogonal; return also which matrices do not have them.

    A matrix takes part as long as its last sweep rotated anything.
    """
    busy = good
    k = 0
    while any_of(busy) & (k < SWEEPS):
        a, v, busy = sweep(a, v, busy, N, A_BLOCKS, V_BLOCKS, ROWS, BAR, TINY)
        k += 1
    return a, v, busy


@triton.jit
def descending(a, v, N: tl.constexpr, A_BLOCKS: tl.constexpr, V_BLOCKS: tl.constexpr, ROWS: tl.constexpr):
    """The norms of the columns as a tuple of N numbers in descending order, and both matrices in the same order."""
    norms = ()
    for j in tl.static_range(N):
        norms = norms + (sqrt(product(a, j, a, j, A_BLOCKS, ROWS)),)
    for end in tl.static_range(1, N):
        for j in tl.static_range(N - end):
            wrong = norms[j + 1] > norms[j]
            norms = swapped(norms, j, j + 1, wrong, 1)
            a = swapped(a, j, j + 1, wrong, A_BLOCKS)
            v = swapped(v, j, j + 1, wrong, V_BLOCKS)
    return norms, a, v


@triton.jit
def reflection(head, square, TINY: tl.constexpr):
    r"""τ, the new first entry, and the factor of the others in v, of a reflection :math:`I-\tau vv^T` with v₁ = 1.

    It makes all entries below the first one, ``head``, zero; ``square`` is the sum of their squares. Up to ``TINY`` it
    is the identity: v would be made of numbers that have lost digits, and the entries are below the rounding error of
    the largest one.
    """
    acts = square > TINY
    norm = sqrt(head * head + square)
    beta = tl.where(acts, tl.where(head < 0, norm, -norm), head)
    tau = tl.where(acts, divided(beta - head, tl.where(acts, beta, 1.0)), 0.0)
    factor = tl.where(acts, reciprocal(tl.where(acts, head - beta, 1.0)), 0.0)
    return tau, beta, factor


@triton.jit
def reflector(a, k: tl.constexpr, row, BLOCKS: tl.constexpr, ROWS: tl.constexpr, TINY: tl.constexpr):
    """Replace column k by v of the reflection that makes it zero below row k, v zero above row k; return τ and r_kk."""
    head = a[k * BLOCKS] * 0.0
    square = head
    for b in tl.static_range(BLOCKS):
        x = a[k * BLOCKS + b]
        head += tl.where(row + b * ROWS == k, x, 0.0)
        below = tl.where(row + b * ROWS > k, x, 0.0)
        square += below * below
    tau, beta, factor = reflection(per_matrix(head, ROWS), per_matrix(square, ROWS), TINY)
    for b in tl.static_range(BLOCKS):
        x = tl.where(row + b * ROWS > k, a[k * BLOCKS + b] * factor, 0.0)
        a = put(a, k * BLOCKS + b, tl.where(row + b * ROWS == k, x * 0.0 + 1.0, x))
    return a, tau, beta


@triton.jit
def reflected(
    x, j: tl.constexpr, v, k: tl.constexpr, tau, BLOCKS: tl.constexpr, ROWS: tl.constexpr
):  # fmt: skip
    """The matrix x with reflection k of v applied to its column j."""
    y = tau * product(v, k, x, j, BLOCKS, ROWS)
    for b in tl.static_range(BLOCKS):
        x = put(x, j * BLOCKS + b, x[j * BLOCKS + b] - y * v[k * BLOCKS + b])
    return x


@triton.jit
def orthonormal(a, row, N: tl.constexpr, BLOCKS: tl.constexpr, ROWS: tl.constexpr, TINY: tl.constexpr):
    """The orthonormal factor of the QR decomposition whose triangular factor has no negative number on its diagonal."""
    taus = ()
    signs = ()
    for k in tl.static_range(N):
        a, tau, beta = reflector(a, k, row, BLOCKS, ROWS, TINY)
        taus = taus + (tau,)
        signs = signs + (tl.where(beta < 0, -1.0, 1.0).to(beta.dtype),)
        for j in tl.static_range(k + 1, N):
            a = reflected(a, j, a, k, tau, BLOCKS, ROWS)
    q = identity(a[0] * 0.0, row, N, BLOCKS, ROWS)
    for j in tl.static_range(N):
        for i in tl.static_range(j + 1):
            q = reflected(q, j, a, j - i, taus[j - i], BLOCKS, ROWS)
        for b in tl.static_range(BLOCKS):
            q = put(q, j * BLOCKS + b, q[j * BLOCKS + b] * signs[j])
    return q


@triton.jit
def store(
    X, offset, x, row, rows, down, right, live, good, N: tl.constexpr, BLOCKS: tl.constexpr, ROWS: tl.constexpr
):  # fmt: skip
    """Store matrices, NaN where they are not good. Adding zero turns −0 into 0."""
    for j in tl.static_range(N):
        for b in tl.static_range(BLOCKS):
            i = row + b * ROWS
            y = tl.where(good, x[j * BLOCKS + b] + 0.0, float("nan"))
            tl.store(X + offset + i * down + j * right, y, mask=live & (i < rows))


@triton.jit
def decomposed(
    a, good, row, N: tl.constexpr, BLOCKS: tl.constexpr, V_BLOCKS: tl.constexpr, ROWS: tl.constexpr,
    BAR: tl.constexpr, TINY: tl.constexpr, SWEEPS: tl.constexpr,
):  # fmt: skip
    """U, the singular values, V and the matrices for which they hold, of scaled matrices a."""
    v = identity(a[0] * 0.0, row, N, V_BLOCKS, ROWS)
    a, v, busy = orthogonal(a, v, good, N, BLOCKS, V_BLOCKS, ROWS, BAR, TINY, SWEEPS)
    s, a, v = descending(a, v, N, BLOCKS, V_BLOCKS, ROWS)
    return orthonormal(a, row, N, BLOCKS, ROWS, TINY), s, v, good & (busy == 0)


@triton.jit
def svd(
    A, U, S, V, FAILED, B, m, down, right, u_down, u_right, v_down, v_right, N: tl.constexpr, BLOCKS: tl.constexpr,
    V_BLOCKS: tl.constexpr, M: tl.constexpr, ROWS: tl.constexpr, BAR: tl.constexpr,
    TINY: tl.constexpr, LARGEST: tl.constexpr, SWEEPS: tl.constexpr,
):  # fmt: skip
    """A = U diag(S) Vᵀ of B matrices (m, N), and which of them failed; all strides within a matrix are given."""
    number = tl.program_id(0).to(tl.int64) * M + tl.arange(0, M)[:, None]
    live = number < B
    row = tl.arange(0, ROWS)[None, :]
    a, e, good = loaded(A, number * m * N, live, row, down, right, m, N, BLOCKS, ROWS, LARGEST)
    u, s, v, good = decomposed(a, good, row, N, BLOCKS, V_BLOCKS, ROWS, BAR, TINY, SWEEPS)
    for j in tl.static_range(N):
        tl.store(S + number * N + j, tl.where(good, ldexp(s[j], e), float("nan")), mask=live)
    store(U, number * m * N, u, row, m, u_down, u_right, live, good, N, BLOCKS, ROWS)
    store(V, number * (N * N), v, row, N, v_down, v_right, live, good, N, V_BLOCKS, ROWS)
    tl.store(FAILED + number, tl.where(good, 0, 1).to(tl.int8), mask=live)
