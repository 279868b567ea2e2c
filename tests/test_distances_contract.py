"""N2, N4, N5, N7–N10, N13 for the distances: finite everywhere, transforms, half types, bad and odd input."""

import math

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck
from torch.func import grad, hessian, jacfwd, jacrev, jvp, vmap
from torch.testing import assert_close

import spectralgrad as sg
from spectralgrad.testing import relative_error, with_spectrum

from .distances import OF_LOGARITHMS, PAIRS, SAMPLES, SMOOTH, samples
from .helpers import DOUBLES, DTYPES, SPECTRA, matrix, unit

DOUBLE = torch.float64
DEFINITE = ("spread", "tie", "near-tie", "identity", "clustered")
SPREAD, TIED = [0.4, 0.9, 1.7, 2.5], [1.0, 1.0, 2.0, 2.0]


def _gradients(f, *inputs):
    leaves = [x.detach().clone().requires_grad_() for x in inputs]
    value = f(*leaves)
    weights = torch.linspace(1, 2, value.numel(), dtype=DOUBLE).reshape(value.shape).to(value.dtype)
    return value.detach(), *torch.autograd.grad((value * weights).sum().real, leaves)


def _symmetrized(f):
    return lambda A, B: f((A + A.mH) / 2, (B + B.mH) / 2)


def _finite(*tensors):
    return all(bool(torch.isfinite(torch.view_as_real(t) if t.is_complex() else t).all()) for t in tensors)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", PAIRS)
def test_n2_finite_for_all_pairs_of_spectra(name, dtype):
    spectra = DEFINITE if name in OF_LOGARITHMS else SPECTRA
    A = torch.stack([matrix(s, dtype) for s in spectra])
    B = torch.stack([matrix(s, dtype, seed=1) for s in spectra])
    for second in (A.unsqueeze(1), B.unsqueeze(1)):  # every spectrum with every other, in the same basis and another
        assert _finite(*_gradients(PAIRS[name][0], A, second))
    A = torch.stack([matrix(s, dtype) for s in SPECTRA])
    assert _finite(*_gradients(PAIRS[name][0], A, 2 * A))  # the same range


@pytest.mark.parametrize("name", PAIRS)
def test_n4_neighbours_make_no_difference(name):
    spectra = DEFINITE if name in OF_LOGARITHMS else SPECTRA
    A, B = (torch.stack([matrix(s, seed=seed) for s in spectra]) for seed in (0, 1))
    C, D = A.clone(), B.clone()
    C[1:], D[1:] = B[1:], A[1:]
    for x, y in zip(_gradients(PAIRS[name][0], A, B), _gradients(PAIRS[name][0], C, D), strict=True):
        assert torch.equal(x[0], y[0])


@pytest.mark.parametrize(("dtype", "scale"), [(torch.float32, 1e18), (DOUBLE, 1e150)], ids=str)
@pytest.mark.parametrize("spectrum", ["spread", "tie", "rank-three"])
@pytest.mark.parametrize("name", [name for name, (_, degree) in PAIRS.items() if degree is not None])
def test_n5_scale(name, spectrum, dtype, scale):
    f, degree = PAIRS[name]
    A, B = matrix(spectrum, dtype), matrix(spectrum, dtype, seed=1)
    bound = 1e4 * unit(dtype)
    if name in OF_LOGARITHMS and spectrum == "rank-three":
        B = A @ A  # has the same range
        if name == "log_euclidean":  # its range turns by rounding errors, which two logarithms of the unit multiply
            bound *= math.log(scale) ** 2
    expected = _gradients(f, A, B)
    for c in (scale, 1 / scale):
        found = _gradients(f, A * c, B * c)
        for x, y, power in zip(found, expected, (degree, degree - 1, degree - 1), strict=True):
            assert relative_error(x.double() / float(c) ** power, y) < bound


@pytest.mark.parametrize("name", SAMPLES)
@pytest.mark.parametrize("dtype", [torch.float32, DOUBLE], ids=str)
def test_n5_scale_of_samples(name, dtype):
    X, Y = samples(name, dtype)
    distance = lambda X, Y: sg.frechet_distance(X, Y, squared=False)  # noqa: E731
    expected = _gradients(distance, X, Y)
    for c in (2.0**90, 2.0**-90):  # the squares do not fit into single precision
        found = _gradients(distance, X * c, Y * c)
        for x, y, factor in zip(found, expected, (c, 1, 1), strict=True):
            assert relative_error(x.double() / factor, y) < 100 * unit(dtype)


@pytest.mark.parametrize("name", SMOOTH)
def test_n7_complex_agrees_with_its_real_form(name):
    """[[B, −C], [C, B]] for A = B + iC has every eigenvalue twice, so squared distances double."""
    if name == "gaussian_wasserstein":
        pytest.skip("its means are the diagonals here, which the real form does not have twice")
    A, B = matrix("tie", torch.complex128), matrix("spread", torch.complex128, seed=1)
    real = lambda Z: torch.cat([torch.cat([Z.real, -Z.imag], -1), torch.cat([Z.imag, Z.real], -1)], -2)  # noqa: E731
    f = PAIRS[name][0]
    expected = real(f(A, B)) if name == "gaussian_transport" else 2 * f(A, B)
    assert_close(f(real(A), real(B)), expected, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", PAIRS)
def test_n8_half_types_and_autocast(name, dtype):
    f = PAIRS[name][0]
    A, B = matrix("tie", torch.float32).to(dtype), matrix("spread", torch.float32, seed=1).to(dtype)
    wide = _gradients(f, A.float(), B.float())
    for x, y in zip(_gradients(f, A, B), wide, strict=True):
        assert x.dtype == dtype
        assert_close(x, y.to(dtype), rtol=4 * torch.finfo(dtype).eps, atol=4 * torch.finfo(dtype).eps)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = _gradients(f, A.float(), B.float())
    for x, y in zip(found, wide, strict=True):
        assert torch.equal(x, y)


@pytest.mark.parametrize(("spectrum", "dtype"), [(SPREAD, DOUBLE), *((TIED, dtype) for dtype in DOUBLES)], ids=str)
@pytest.mark.parametrize("name", SMOOTH)
def test_n9_first_and_second_derivatives(name, spectrum, dtype):
    """Between different matrices, and of a matrix and itself."""
    A = with_spectrum(spectrum, dtype=dtype).requires_grad_()
    f = _symmetrized(PAIRS[name][0])
    for other in (with_spectrum(TIED, dtype=dtype, seed=1), A.detach().clone()):
        inputs = (A, other.requires_grad_())
        assert gradcheck(f, inputs, check_forward_ad=True, check_batched_grad=True, fast_mode=True)
        assert gradgradcheck(f, inputs, check_fwd_over_rev=True, fast_mode=True)


@pytest.mark.parametrize("dtype", DOUBLES, ids=str)
@pytest.mark.parametrize("name", SAMPLES)
def test_n9_derivatives_in_samples(name, dtype):
    inputs = [X.requires_grad_() for X in samples(name, dtype)]
    assert gradcheck(sg.frechet_distance, inputs, check_forward_ad=True, check_batched_grad=True, fast_mode=True)
    assert gradgradcheck(sg.frechet_distance, inputs, check_fwd_over_rev=True, fast_mode=True)


@pytest.mark.parametrize("name", [*SMOOTH, *SAMPLES])
def test_n9_transforms(name):
    if name in SAMPLES:
        f = sg.frechet_distance
        batch, other = torch.stack([samples(name, seed=s)[0] for s in range(3)]), samples(name)[1]
    else:
        f, other = PAIRS[name][0], with_spectrum(TIED)
        batch = torch.stack([with_spectrum(SPREAD, seed=s) for s in range(3)])
    loss = lambda X: f(X, other).square().sum()  # noqa: E731
    expected = torch.stack([grad(loss)(X) for X in batch])
    assert_close(vmap(grad(loss))(batch), expected)
    assert_close(grad(lambda X: vmap(loss)(X).sum())(batch), expected)
    assert_close(vmap(f, in_dims=(1, None))(batch.movedim(0, 1), other), f(batch, other))
    X = batch[0]
    assert_close(jacfwd(loss)(X), expected[0])
    assert_close(jvp(loss, (X,), (torch.ones_like(X),))[1], expected[0].sum())
    assert_close(hessian(loss)(X), jacrev(jacrev(loss))(X), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("name", [*SMOOTH, "few", "many"])
def test_n9_compiled_equals_eager(name):
    torch._dynamo.reset()
    f = sg.frechet_distance if name in SAMPLES else PAIRS[name][0]
    A, B = samples(name) if name in SAMPLES else (with_spectrum(TIED), with_spectrum(SPREAD, seed=1))
    compiled = torch.compile(f, fullgraph=True, backend="aot_eager")
    for x, y in zip(_gradients(compiled, A, B), _gradients(f, A, B), strict=True):
        assert_close(x, y)


@pytest.mark.parametrize("name", PAIRS)
def test_n10_the_lower_triangle_is_read_and_gradients_are_hermitian(name):
    f = PAIRS[name][0]
    A, B = matrix("spread", torch.complex128), matrix("tie", torch.complex128, seed=1)
    junk = torch.triu(torch.full_like(A, 1e-5), 1)
    assert_close(f(A + junk, B + junk), f(A, B))
    for pair in ((A + 1e5 * junk, B), (A, B + 1e5 * junk)):
        with pytest.raises(sg.AsymmetricError, match=f"{name.removesuffix('-root')}: expected a symmetric"):
            f(*pair)
    for g in _gradients(f, A, B)[1:]:
        assert_close(g, g.mH)


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("side", [0, 1])
def test_n10_bad_values_are_refused_by_position(name, side):
    f, verb = PAIRS[name][0], name.removesuffix("-root")
    pair = [torch.eye(3).repeat(4, 1, 1) for _ in range(2)]
    pair[side][2, 1, 0] = torch.nan
    with pytest.raises(sg.NonFiniteError, match=rf"{verb}: .*position 2 of a batch of shape \(4,\)"):
        f(*pair)
    pair[side] = -torch.eye(3)
    with pytest.raises(sg.IndefiniteError, match=verb):
        f(*pair)


@pytest.mark.parametrize("side", [0, 1])
def test_n10_bad_samples_are_refused_by_position(side):
    for shape in ((4, 3, 5), (4, 7, 5)):
        pair = [torch.randn(shape) for _ in range(2)]
        pair[side][1, 0, 0] = torch.inf
        with pytest.raises(sg.NonFiniteError, match=r"frechet_distance: .*position 1 of a batch of shape \(4,\)"):
            sg.frechet_distance(*pair)


@pytest.mark.parametrize("name", SMOOTH)
def test_n10_shapes_and_types_are_checked(name):
    f = PAIRS[name][0]
    for A, B, message in (
        (torch.eye(3), torch.eye(4), "same last dimension"),
        (torch.eye(3).repeat(2, 1, 1), torch.eye(3).repeat(3, 1, 1), "batch dimensions that broadcast"),
        (torch.eye(3), torch.eye(3, dtype=DOUBLE), "same dtype"),
        (torch.ones(3, 2), torch.ones(3, 2), "square"),
        (torch.eye(3).long(), torch.eye(3).long(), "floating-point"),
    ):
        with pytest.raises(sg.ShapeError, match=rf"{name}(, \w+)?: .*{message}"):
            f(A, B)


def test_n10_arguments_of_the_others():
    with pytest.raises(sg.ShapeError, match="frechet_distance, X: expected at least 2 samples"):
        sg.frechet_distance(torch.ones(1, 3), torch.ones(4, 3))
    with pytest.raises(sg.ShapeError, match=r"frechet_distance: .*\(4, 3\) and \(4, 2\)"):
        sg.frechet_distance(torch.ones(4, 3), torch.ones(4, 2))
    with pytest.raises(sg.ShapeError, match=r"gaussian_wasserstein, mean1: expected a mean \(\*, 2\)"):
        sg.gaussian_wasserstein(torch.zeros(3), torch.eye(2), torch.zeros(2), torch.eye(2))
    with pytest.raises(sg.ArgumentError, match="log_euclidean: expected rtol"):
        sg.log_euclidean(torch.eye(2), torch.eye(2), rtol=2.0)


@pytest.mark.parametrize("name", PAIRS)
def test_n13_odd_shapes(name):
    f = PAIRS[name][0]
    tail = lambda A: A.shape[-2:] if name == "gaussian_transport" else ()  # noqa: E731
    for shape in ((0, 3, 3), (2, 0, 0), (0, 0), (2, 0, 1, 1)):
        for dtype in (torch.float32, torch.complex64):
            A = torch.zeros(shape, dtype=dtype)
            value, *gradients = _gradients(f, A, A)
            assert value.shape == (*shape[:-2], *tail(A))
            assert all(g.shape == shape for g in gradients)
    A, B = torch.tensor([[4.0]]), torch.tensor([[9.0]])
    numbers = {"bures_wasserstein": 1.0, "gaussian_transport": 1.5, "gaussian_wasserstein": 26.0}
    logs = torch.tensor(9 / 4).log()
    squared = name.removesuffix("-root")
    expected = torch.as_tensor(numbers.get(squared, logs.square()))
    assert_close(f(A, B).reshape(()), expected if squared == name else expected.sqrt())
    A, B = torch.stack([matrix("spread"), matrix("tie")]), matrix("near-tie")
    assert_close(f(A.mT.contiguous().mT, B), torch.stack([f(A[0], B), f(A[1], B)]))
    assert_close(f(A[:, None], A), torch.stack([torch.stack([f(a, b) for b in A]) for a in A]), rtol=1e-6, atol=1e-7)


def test_n13_empty_samples():
    assert sg.frechet_distance(torch.zeros(0, 4, 3), torch.zeros(5, 3)).shape == (0,)
    assert sg.frechet_distance(torch.zeros(4, 0), torch.zeros(5, 0)).item() == 0


def test_the_root_of_a_zero_distance_has_gradient_zero():
    A = torch.eye(3, dtype=DOUBLE)
    for f in (sg.bures_wasserstein, sg.affine_invariant, sg.log_euclidean):
        value, *gradients = _gradients(lambda A, B, f=f: f(A, B, squared=False), A, A)
        assert value == 0
        assert all(torch.equal(g, torch.zeros_like(g)) for g in gradients)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", OF_LOGARITHMS)
def test_matrices_of_different_ranges_are_refused(name, dtype):
    """Their distance is infinite. A finite value would reward a loss for losing rank."""
    f, identity, zero = PAIRS[name][0], matrix("identity", dtype), matrix("zero", dtype)
    one, other = matrix("rank-three", dtype), matrix("rank-three", dtype, seed=1)
    words = "expected two matrices with the same range, such as two of full rank, got"
    for A, B, got in (
        (identity, zero, "ranks 6 and 0"),
        (one, identity, "ranks 3 and 6"),
        (one, matrix("rank-one", dtype), "ranks 3 and 1"),
        (one, other, "two different ranges of rank 3"),
    ):
        with pytest.raises(sg.ArgumentError, match=f"{words} {got}. Add a multiple of the identity"):
            f(A, B)
        with pytest.raises(sg.ArgumentError, match=rf"{got} in batch position \(1,\)"):
            f(torch.stack([A, A]), torch.stack([2 * A, B]))
        with pytest.raises(sg.ArgumentError, match=rf"{got} in batch position \(1,\)"):
            vmap(f, in_dims=(None, 0))(A, torch.stack([2 * A, B]))


@pytest.mark.parametrize("name", ["log_euclidean", "affine_invariant"])
def test_different_ranges_are_refused_when_compiled(name):
    torch._dynamo.reset()
    compiled = torch.compile(PAIRS[name][0], fullgraph=True, backend="aot_eager")
    with pytest.raises(sg.ArgumentError, match="the same range"):
        compiled(matrix("identity"), matrix("zero"))


@pytest.mark.parametrize("condition", [1.0, 1e3, 1e6])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", OF_LOGARITHMS)
def test_rounding_does_not_make_two_ranges_of_one(name, dtype, condition):
    if condition * unit(dtype) > 1e-3:
        condition = 1e3
    w = torch.logspace(0, -float(torch.tensor(condition).log10()), 12, dtype=DOUBLE)
    wide = torch.complex128 if dtype.is_complex else DOUBLE
    for seed in range(10):
        basis = with_spectrum([0.0] * 20 + [1.0] * 12, seed=seed, dtype=wide)
        basis = torch.linalg.eigh(basis)[1][:, 20:]
        A, B = (basis @ with_spectrum(w.tolist(), seed=seed + k, dtype=wide) @ basis.mH for k in (100, 200))
        assert torch.isfinite(PAIRS[name][0](A.to(dtype), B.to(dtype)))
