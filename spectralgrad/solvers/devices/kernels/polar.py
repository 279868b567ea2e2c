r"""Polar factors and nearest rotations of square matrices with up to four rows, and their derivative.

:math:`M=U\Sigma V^T` gives :math:`Q=UDV^T`, with D = I for the polar factor and
:math:`D=\mathrm{diag}(1,\dots,1,\det UV^T)` for the rotation, and the eigenvalues :math:`h=D\sigma` of
:math:`Q^TM`. The derivative in the direction G is (autograd/polar/factor.py)

.. math:: Q\,V\left(K\circ V^T(Q^TG-G^TQ)V\right)V^T,\qquad K_{ij}=\frac{1}{h_i+h_j}.

Each thread has a whole matrix, a tuple of its entries, column after column.
"""

import triton
import triton.language as tl

from .language import identity, ldexp, put
from .roots import inverse_or_zero
from .svd import descending, loaded, orthogonal, orthonormal, store


@triton.jit
def multiplied(a, b, N: tl.constexpr, TURN_A: tl.constexpr, TURN_B: tl.constexpr):
    """A B, with Aᵀ or Bᵀ instead on request."""
    found = ()
    for j in tl.static_range(N):
        for i in tl.static_range(N):
            total = (a[i * N] if TURN_A else a[i]) * (b[j] if TURN_B else b[j * N])
            for k in tl.static_range(1, N):
                total += (a[i * N + k] if TURN_A else a[k * N + i]) * (b[k * N + j] if TURN_B else b[j * N + k])
            found = found + (total,)
    return found


@triton.jit
def minor(a, i: tl.constexpr, j: tl.constexpr, first: tl.constexpr, N: tl.constexpr):
    """The determinant of rows i and j of the columns ``first`` and the next one."""
    return a[first * N + i] * a[first * N + N + j] - a[first * N + j] * a[first * N + N + i]


@triton.jit
def determinant(a, N: tl.constexpr):
    """The determinant, expanded: for an orthogonal matrix it is ±1 up to rounding errors."""
    if N == 1:
        x = a[0]
    elif N == 2:
        x = minor(a, 0, 1, 0, N)
    elif N == 3:
        x = a[0] * minor(a, 1, 2, 1, N) - a[1] * minor(a, 0, 2, 1, N) + a[2] * minor(a, 0, 1, 1, N)
    else:
        x = minor(a, 0, 1, 0, N) * minor(a, 2, 3, 2, N) - minor(a, 0, 2, 0, N) * minor(a, 1, 3, 2, N)
        x += minor(a, 0, 3, 0, N) * minor(a, 1, 2, 2, N) + minor(a, 1, 2, 0, N) * minor(a, 0, 3, 2, N)
        x += minor(a, 2, 3, 0, N) * minor(a, 0, 1, 2, N) - minor(a, 1, 3, 0, N) * minor(a, 0, 2, 2, N)
    return x


@triton.jit
def numbers(B, M: tl.constexpr):
    """The number of each matrix of the program (M, 1), which of them exist, and the row of their first entry."""
    m = tl.program_id(0).to(tl.int64) * M + tl.arange(0, M)[:, None]
    return m, m < B, tl.arange(0, 1)[None, :]


@triton.jit
def polar(
    A, Q, H, V, FAILED, B, zero, SPECIAL: tl.constexpr, N: tl.constexpr, M: tl.constexpr, BAR: tl.constexpr,
    TINY: tl.constexpr, LARGEST: tl.constexpr, SWEEPS: tl.constexpr,
):  # fmt: skip
    """Q, h and the right singular vectors, as rows, of B matrices, and which of them failed.

    Eigenvalues up to ``zero`` times the largest are zero, and so is the sum of the last two.
    """
    m, live, row = numbers(B, M)
    offset = m * (N * N)
    a, e, good = loaded(A, offset, live, row, N, 1, N, N, N, 1, LARGEST)
    v = identity(a[0] * 0.0, row, N, N, 1)
    a, v, busy = orthogonal(a, v, good, N, N, N, 1, BAR, TINY, SWEEPS)
    good = good & (busy == 0)
    h, a, v = descending(a, v, N, N, N, 1)
    u = orthonormal(a, row, N, N, 1, TINY)
    cut = h[0] * zero
    for j in tl.static_range(N):
        h = put(h, j, tl.where(h[j] > cut, h[j], 0.0))
    if SPECIAL:
        mirrored = determinant(u, N) * determinant(v, N) < 0
        last = tl.where(mirrored, -h[N - 1], h[N - 1])
        if N > 1:
            last = tl.where(h[N - 2] + last > cut, last, -h[N - 2])
        h = put(h, N - 1, last)
        for i in tl.static_range(N):
            x = u[(N - 1) * N + i]
            u = put(u, (N - 1) * N + i, tl.where(mirrored, -x, x))
    for j in tl.static_range(N):
        tl.store(H + m * N + j, tl.where(good, ldexp(h[j], e) + 0.0, float("nan")), mask=live)
    store(Q, offset, multiplied(u, v, N, False, True), row, N, N, 1, live, good, N, N, 1)
    store(V, offset, v, row, N, 1, N, live, good, N, N, 1)
    tl.store(FAILED + m, tl.where(good, 0, 1).to(tl.int8), mask=live)


@triton.jit
def load(A, offset, live, down, right, N: tl.constexpr):
    """The entries of matrices."""
    a = ()
    for j in tl.static_range(N):
        for i in tl.static_range(N):
            a = a + (tl.load(A + offset + i * down + j * right, mask=live, other=0.0),)
    return a


@triton.jit
def derivative(Q, H, V, G, X, B, N: tl.constexpr, M: tl.constexpr):
    """The derivative X in the direction G. Sums of eigenvalues that are not positive count as infinite."""
    m, live, row = numbers(B, M)
    offset = m * (N * N)
    q = load(Q, offset, live, N, 1, N)
    v = load(V, offset, live, 1, N, N)
    w = multiplied(q, load(G, offset, live, N, 1, N), N, True, False)
    skew = ()
    for j in tl.static_range(N):
        for i in tl.static_range(N):
            skew = skew + (w[j * N + i] - w[i * N + j],)
    p = multiplied(v, multiplied(skew, v, N, False, False), N, True, False)
    for j in tl.static_range(N):
        p = put(p, j * N + j, p[j * N + j] * 0.0)  # exactly, so that a small eigenvalue amplifies no rounding error
        hj = tl.load(H + m * N + j, mask=live, other=0.0)
        for i in tl.static_range(j):
            weight = inverse_or_zero(tl.load(H + m * N + i, mask=live, other=0.0) + hj)
            x = p[j * N + i] * weight
            p = put(p, j * N + i, x)
            p = put(p, i * N + j, -x)
    p = multiplied(multiplied(v, p, N, False, False), v, N, False, True)
    store(X, offset, multiplied(q, p, N, False, False), row, N, N, 1, live, live, N, N, 1)
