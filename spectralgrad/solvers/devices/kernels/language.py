"""What the kernels share: correctly rounded roots and quotients, powers of two, and matrices held as tuples of entries.

Layout. A program decomposes ``M`` matrices. A matrix is a tuple of tensors (M, ROWS); tensor j·BLOCKS + b holds column
j of rows b·ROWS … b·ROWS + ROWS − 1 of each matrix, and all indices into a tuple are known to the compiler, so that
everything stays in registers. With ``ROWS`` = 1 each thread has one whole matrix; with ``ROWS`` = 8 a group of eight
threads has one row each. A number per matrix is a tensor (M, 1), or (M, ROWS) with equal entries.

Arithmetic. Roots and quotients are rounded as IEEE 754 requires, and the launchers switch the contraction of products
and sums off, so that each operation is rounded as in Triton's interpreter, where the tests run. Only the order of the
sums over threads differs.
"""

import triton
import triton.language as tl


@triton.jit
def sqrt(x):
    """√x, correctly rounded; Triton's own in single precision is an estimate."""
    if x.dtype == tl.float32:
        y = tl.sqrt_rn(x)
    else:
        y = tl.sqrt(x)
    return y


@triton.jit
def divided(x, y):
    """x/y, correctly rounded; Triton's own in single precision is an estimate."""
    if y.dtype == tl.float32:
        z = tl.div_rn(x, y)
    else:
        z = x / y
    return z


@triton.jit
def reciprocal(x):
    """1/x, correctly rounded."""
    return divided(x * 0.0 + 1.0, x)


@triton.jit
def power_of_two(e, like):
    """2ᵉ for integers e in the exponent range of normal numbers, in the type of ``like``."""
    if like.dtype == tl.float32:
        x = ((e + 127) << 23).to(tl.int32).to(tl.float32, bitcast=True)
    else:
        x = ((e + 1023).to(tl.int64) << 52).to(tl.float64, bitcast=True)
    return x


@triton.jit
def ldexp(x, e):
    """2ᵉ x, by two factors. Both are normal numbers, although 2ᵉ need not be one."""
    half = e >> 1
    return x * power_of_two(half, x) * power_of_two(e - half, x)


@triton.jit
def exponent(x):
    """The exponent e of 2ᵉ ≤ x < 2ᵉ⁺¹ for finite x > 0, subnormal ones too; a small number for x = 0.

    Subnormal numbers are multiplied by a power of two first: their own exponent bits are zero.
    """
    if x.dtype == tl.float32:
        lift = tl.where(x < 5.421010862427522e-20, 64, 0)  # 2⁻⁶⁴
        field = (ldexp(x, lift).to(tl.int32, bitcast=True) >> 23) & 255
        e = field - 127 - lift
    else:
        lift = tl.where(x < 7.458340731200207e-155, 512, 0)  # 2⁻⁵¹²
        field = (ldexp(x, lift).to(tl.int64, bitcast=True) >> 52) & 2047
        e = field.to(tl.int32) - 1023 - lift
    return e


@triton.jit
def even_exponent(x):
    """The exponent of x, made even, so that the square root of the power of two is one too."""
    e = exponent(x)
    return e - (e & 1)


@triton.jit
def per_matrix(x, ROWS: tl.constexpr):
    """The sum over the rows (M, 1) of a tensor (M, ROWS)."""
    if ROWS > 1:
        total = tl.sum(x, axis=1, keep_dims=True)
    else:
        total = x
    return total


@triton.jit
def largest_of(x, ROWS: tl.constexpr):
    """The maximum over the rows (M, 1) of a tensor (M, ROWS) without NaN."""
    if ROWS > 1:
        top = tl.max(x, axis=1, keep_dims=True)
    else:
        top = x
    return top


@triton.jit
def any_of(mask):
    """True if a mask holds anywhere in the program."""
    return tl.max(tl.max(mask.to(tl.int32), axis=1), axis=0) > 0


@triton.jit
def put(matrix, i: tl.constexpr, x):
    """The tuple with element i replaced."""
    return matrix[:i] + (x,) + matrix[i + 1 :]


@triton.jit
def turned(matrix, p: tl.constexpr, q: tl.constexpr, c, s, BLOCKS: tl.constexpr):
    """The matrix with columns p and q rotated: p becomes c p − s q and q becomes s p + c q."""
    for b in tl.static_range(BLOCKS):
        x = matrix[p * BLOCKS + b]
        y = matrix[q * BLOCKS + b]
        matrix = put(matrix, p * BLOCKS + b, c * x - s * y)
        matrix = put(matrix, q * BLOCKS + b, s * x + c * y)
    return matrix


@triton.jit
def swapped(matrix, p: tl.constexpr, q: tl.constexpr, wrong, BLOCKS: tl.constexpr):
    """The matrix with columns p and q exchanged where ``wrong``."""
    for b in tl.static_range(BLOCKS):
        x = matrix[p * BLOCKS + b]
        y = matrix[q * BLOCKS + b]
        matrix = put(matrix, p * BLOCKS + b, tl.where(wrong, y, x))
        matrix = put(matrix, q * BLOCKS + b, tl.where(wrong, x, y))
    return matrix


@triton.jit
def moved(matrix, by: tl.constexpr, N: tl.constexpr, BLOCKS: tl.constexpr):
    """The columns, moved by so many places on a circle of N places.

    Sweeps rotate pairs in the modulus ordering: a round has the pairs of places whose sum is r modulo N, which have no
    column in common. The loop over the rounds rotates the pairs with sum 0 and, for even N, 1, and then moves all
    columns by one place, which adds 2 to the sums: a small body, which compiles in a part of the time that a whole
    sweep would take.
    """
    found = ()
    for j in tl.static_range(N):
        for b in tl.static_range(BLOCKS):
            found = found + (matrix[((j + by) % N) * BLOCKS + b],)
    return found


@triton.jit
def identity(zero, row, N: tl.constexpr, BLOCKS: tl.constexpr, ROWS: tl.constexpr):
    """Unit matrices of size N; ``zero`` (M, ROWS) gives shape and type."""
    found = ()
    for j in tl.static_range(N):
        for b in tl.static_range(BLOCKS):
            found = found + (tl.where(row + b * ROWS == j, zero + 1.0, zero),)
    return found
