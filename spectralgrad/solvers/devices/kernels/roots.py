r"""Roots and inverse roots of positive semi-definite matrices with up to eight rows, and their derivatives.

:math:`S=V\,\mathrm{diag}(f)V^T` on the range, with :math:`f=\sqrt\lambda` or :math:`1/\sqrt\lambda`, is formed as
:math:`YY^T` with :math:`Y=V\,\mathrm{diag}(\sqrt f)`, so that it is symmetric bit for bit. The derivative in the
direction H is :math:`V(\Gamma\circ V^THV)V^T`; with :math:`s=\sqrt\lambda`

.. math:: \Gamma_{ij}=\frac{1}{s_i+s_j}\quad\text{or}\quad \Gamma_{ij}=-\frac{1}{s_is_j}\cdot\frac{1}{s_i+s_j},

between range and null space :math:`f(\lambda)/\lambda`, within the null space 0 (native/src/gradients). The matrices
are divided by 2ᵉ with an even e, so that a root exists in the range of the type whenever the matrix does.
"""

import triton
import triton.language as tl

from .eigh import eigenpairs, places, store_columns
from .language import ldexp, per_matrix, put, reciprocal, sqrt


@triton.jit
def at_row(x, j: tl.constexpr, i: tl.constexpr, row, BLOCKS: tl.constexpr, ROWS: tl.constexpr):
    """Entry (i, j) of a matrix, for all its threads."""
    if ROWS == 1:
        found = x[j * BLOCKS + i]
    else:
        found = per_matrix(tl.where(row == i, x[j], 0.0), ROWS)
    return found


@triton.jit
def inverse_or_zero(x):
    """1/x for x > 0, otherwise 0."""
    return tl.where(x > 0, reciprocal(tl.where(x > 0, x, 1.0)), 0.0)


@triton.jit
def square_of(y, row, N: tl.constexpr, BLOCKS: tl.constexpr, ROWS: tl.constexpr):
    """Y Yᵀ."""
    found = ()
    for j in tl.static_range(N):
        for b in tl.static_range(BLOCKS):
            total = y[b] * at_row(y, 0, j, row, BLOCKS, ROWS)
            for k in tl.static_range(1, N):
                total += y[k * BLOCKS + b] * at_row(y, k, j, row, BLOCKS, ROWS)
            found = found + (total,)
    return found


@triton.jit
def root(
    A, S, R, V, STATE, B, zero, negative, limit, INVERSE: tl.constexpr, N: tl.constexpr, M: tl.constexpr,
    ROWS: tl.constexpr, BAR: tl.constexpr, TINY: tl.constexpr, LARGEST: tl.constexpr, NORMAL: tl.constexpr,
    SWEEPS: tl.constexpr, BOTH: tl.constexpr,
):  # fmt: skip
    """The root S, √λ with zeros off the range R, and V; STATE is 1 where a matrix failed and 2 where it is indefinite.

    Eigenvalues up to ``zero`` times the norm count as zero, and those below −``negative`` times the norm, or the
    smallest normal number, below which rounding errors do not shrink, as negative.
    """
    BLOCKS: tl.constexpr = (N + ROWS - 1) // ROWS
    m, live, row = places(B, M, ROWS)
    w, v, e, good = eigenpairs(A, m * (N * N), live, row, limit, N, BLOCKS, ROWS, BAR, TINY, LARGEST, SWEEPS, BOTH)
    once = live & (row == 0)
    top = tl.maximum(tl.abs(w[0]), tl.abs(w[N - 1]))
    cut = top * zero
    indefinite = w[0] < -tl.maximum(top, ldexp(top * 0.0 + NORMAL, -e)) * negative
    state = tl.where(good, tl.where(indefinite, 2, 0), 1).to(tl.int8)
    tl.store(STATE + m, state, mask=once)
    half = e >> 1
    y = v
    for j in tl.static_range(N):
        r = tl.where(w[j] > cut, sqrt(tl.maximum(w[j], 0.0)), 0.0)
        tl.store(R + m * N + j, tl.where(good, ldexp(r, half), float("nan")), mask=once)
        factor = sqrt(inverse_or_zero(r) if INVERSE else r)
        for b in tl.static_range(BLOCKS):
            y = put(y, j * BLOCKS + b, v[j * BLOCKS + b] * factor)
    found = square_of(y, row, N, BLOCKS, ROWS)
    x = ()
    for k in tl.static_range(N * BLOCKS):
        x = x + (ldexp(found[k], -half if INVERSE else half),)
    store_columns(S, m * (N * N), x, row, live, good, N, BLOCKS, ROWS)
    store_columns(V, m * (N * N), v, row, live, good, N, BLOCKS, ROWS)


@triton.jit
def load_column(X, offset, row, live, N: tl.constexpr, BLOCKS: tl.constexpr, ROWS: tl.constexpr):
    """The column of a square matrix whose first entry is at ``offset``."""
    found = ()
    for b in tl.static_range(BLOCKS):
        i = row + b * ROWS
        found = found + (tl.load(X + offset + i * N, mask=live & (i < N), other=0.0),)
    return found


@triton.jit
def load_columns(X, offset, row, live, N: tl.constexpr, BLOCKS: tl.constexpr, ROWS: tl.constexpr):
    """The columns of square matrices."""
    found = ()
    for j in tl.static_range(N):
        found = found + load_column(X, offset + j, row, live, N, BLOCKS, ROWS)
    return found


@triton.jit
def load_symmetric(X, offset, row, live, N: tl.constexpr, BLOCKS: tl.constexpr, ROWS: tl.constexpr):
    """The columns of the symmetric part; halves first, so that no sum overflows."""
    found = ()
    for j in tl.static_range(N):
        for b in tl.static_range(BLOCKS):
            i = row + b * ROWS
            x = tl.load(X + offset + i * N + j, mask=live & (i < N), other=0.0)
            y = tl.load(X + offset + j * N + i, mask=live & (i < N), other=0.0)
            found = found + (x * 0.5 + y * 0.5,)
    return found


@triton.jit
def weighed(x, si, sj, INVERSE: tl.constexpr):
    """x Γ_ij. For the inverse root in two steps, as Γ may overflow where the product does not."""
    total = inverse_or_zero(si + sj)
    if INVERSE:
        zi = inverse_or_zero(si)
        zj = inverse_or_zero(sj)
        x = x * tl.where((zi > 0) & (zj > 0), -zi * zj, (zi + zj) * (zi + zj))
    return x * total


@triton.jit
def coupled(
    v, h, x, u, s, sj, row, INVERSE: tl.constexpr, N: tl.constexpr, BLOCKS: tl.constexpr, ROWS: tl.constexpr
):  # fmt: skip
    """Add to x what eigenvector u with the root ``sj`` contributes: c uᵀ, where c = V (Γ_·j ∘ Vᵀ H u)."""
    b = ()
    c = ()
    for k in tl.static_range(BLOCKS):
        total = h[k] * at_row(u, 0, 0, row, BLOCKS, ROWS)
        for i in tl.static_range(1, N):
            total += h[i * BLOCKS + k] * at_row(u, 0, i, row, BLOCKS, ROWS)
        b = b + (total,)
        c = c + (total * 0.0,)
    for p in tl.static_range(N):
        t = v[p * BLOCKS] * b[0]
        for k in tl.static_range(1, BLOCKS):
            t += v[p * BLOCKS + k] * b[k]
        t = weighed(per_matrix(t, ROWS), s[p], sj, INVERSE)
        for k in tl.static_range(BLOCKS):
            c = put(c, k, c[k] + v[p * BLOCKS + k] * t)
    for i in tl.static_range(N):
        for k in tl.static_range(BLOCKS):
            x = put(x, i * BLOCKS + k, x[i * BLOCKS + k] + c[k] * at_row(u, 0, i, row, BLOCKS, ROWS))
    return x


@triton.jit
def derivative(
    V, S, G, X, B, INVERSE: tl.constexpr, N: tl.constexpr, M: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """X = V (Γ ∘ Vᵀ sym(G) V) Vᵀ, from V and S = √λ with zeros off the range; the lower triangle is mirrored.

    The loop over the eigenvectors loads each a second time: unrolled, it would keep all entries of V in every thread.
    """
    BLOCKS: tl.constexpr = (N + ROWS - 1) // ROWS
    number = tl.program_id(0).to(tl.int64) * M + tl.arange(0, M)[:, None]
    live = number < B
    row = tl.arange(0, ROWS)[None, :]
    offset = number * (N * N)
    v = load_columns(V, offset, row, live, N, BLOCKS, ROWS)
    h = load_symmetric(G, offset, row, live, N, BLOCKS, ROWS)
    s = ()
    for i in tl.static_range(N):
        s = s + (tl.load(S + number * N + i, mask=live, other=0.0),)
    x = ()
    for k in tl.static_range(N * BLOCKS):
        x = x + (h[k] * 0.0,)
    for j in range(N):
        u = load_column(V, offset + j, row, live, N, BLOCKS, ROWS)
        sj = tl.load(S + number * N + j, mask=live, other=0.0)
        x = coupled(v, h, x, u, s, sj, row, INVERSE, N, BLOCKS, ROWS)
    for j in tl.static_range(N):
        for b in tl.static_range(BLOCKS):
            i = row + b * ROWS
            tl.store(X + offset + i * N + j, x[j * BLOCKS + b], mask=live & (i < N) & (i >= j))
            tl.store(X + offset + j * N + i, x[j * BLOCKS + b], mask=live & (i < N) & (i > j))
