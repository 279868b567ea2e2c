"""Measures of a spectrum: values to 50 digits, derivatives at ties and within a rank, zero, every scale, bad input."""

import math

import mpmath
import numpy as np
import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck
from torch.func import grad, hessian, jacfwd, jacrev, vmap
from torch.testing import assert_close

import spectralgrad as sg
from spectralgrad.testing import random_orthogonal, relative_error

from .helpers import DOUBLES, DTYPES, gradient, noise, rectangular, unit

MEASURES = {
    "spectral_entropy": sg.spectral_entropy,
    "spectral_entropy of squares": lambda M: sg.spectral_entropy(M, power=2),
    "effective_rank": sg.effective_rank,
    "RankMe": lambda M: sg.effective_rank(M, eps=1e-3),
    "stable_rank": sg.stable_rank,
    "condition_number": sg.condition_number,
    "log_det": sg.log_det,
}
SMOOTH = [name for name in MEASURES if name not in ("stable_rank", "condition_number")]  # at ties
SCALE_FREE = [name for name in MEASURES if name != "log_det"]
SPECTRA = {"spread": [2.0, 1.0, 0.5], "tie": [1.5, 1.0, 1.0], "near": [1.0, 1.0 - 1e-13, 0.25], "equal": [1.0] * 3}


def by_definition(name, values, count):
    """The measure at 50 digits, from the singular values that are not zero, of ``count`` in all."""
    values = [mpmath.mpf(float(s)) if isinstance(s, float) else s for s in values]
    if not values:
        return mpmath.mpf(0)
    if name == "stable_rank":
        return sum(s**2 for s in values) / max(values) ** 2
    if name == "condition_number":
        return max(values) / min(values)
    if name == "log_det":
        return sum(map(mpmath.log, values))
    power, eps = (2 if "squares" in name else 1), (mpmath.mpf(1e-3) if name == "RankMe" else 0)
    shares = [s**power for s in values] + [mpmath.mpf(0)] * (count - len(values))
    p = [s / sum(shares) + eps for s in shares]
    entropy = -sum(x * mpmath.log(x) for x in p if x > 0)
    return entropy if "entropy" in name else mpmath.exp(entropy)


@pytest.mark.parametrize("shape", [(4, 3), (3, 5), (3, 3)])
@pytest.mark.parametrize("name", MEASURES)
def test_values_to_50_digits(name, shape):
    M = noise(*shape, seed=3)
    with mpmath.workdps(50):
        S = mpmath.svd_r(mpmath.matrix(M.tolist()), compute_uv=False)
        expected = by_definition(name, list(S), 3)
        assert abs(MEASURES[name](M).item() / expected - 1) < 1e-14


@pytest.mark.parametrize("dtype", [*DTYPES, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", MEASURES)
def test_values_in_every_type_and_at_rank_loss(name, dtype, both_ways):
    for values in (*SPECTRA.values(), [2.0, 1.0], [3.0], []):
        # Entries of half types are rounded, which no tolerance should call zero: these matrices are diagonal.
        half = dtype in (torch.bfloat16, torch.float16)
        diagonal = torch.nn.functional.pad(torch.tensor(values, dtype=torch.float64), (0, 3 - len(values)))
        M = torch.diag(diagonal).to(dtype) if half else rectangular(diagonal.tolist(), 4, 3, dtype)
        got, expected = MEASURES[name](M), float(by_definition(name, values, 3))
        assert got.dtype == M.real.dtype
        assert abs(float(got) - expected) < 300 * torch.finfo(dtype).eps * max(1, abs(expected)) / (99 if half else 1)


def test_the_names_of_others():
    """RankMe and the condition number as everybody writes them, and the eigenvalues of a density matrix."""
    Z = noise(20, 6, dtype=torch.float32)
    p = torch.linalg.svdvals(Z) / torch.linalg.svdvals(Z).sum() + 1e-7
    assert_close(sg.effective_rank(Z, eps=1e-7), torch.exp(-(p * p.log()).sum()))
    M = noise(5, 5)
    assert math.isclose(sg.condition_number(M), np.linalg.cond(M.numpy()), rel_tol=1e-12)
    assert_close(sg.log_det(M), torch.linalg.slogdet(M).logabsdet)
    assert_close(sg.log_det(M.mT @ M), 2 * sg.log_det(M))
    w = torch.linalg.eigvalsh(Z.double().mT @ Z.double())
    assert_close(sg.spectral_entropy(Z.double(), power=2), -(w / w.sum() * (w / w.sum()).log()).sum())


def test_tolerance_decides_what_belongs_to_the_range():
    M = torch.diag(torch.tensor([1.0, 0.5, 1e-3]))
    assert_close(sg.condition_number(M), torch.tensor(1e3))
    assert_close(sg.condition_number(M, rtol=1e-2), torch.tensor(2.0))
    assert_close(sg.log_det(M, rtol=1e-2), torch.tensor(0.5).log())
    assert sg.effective_rank(M, rtol=0.6) == 1
    assert sg.condition_number(torch.diag(torch.tensor([1.0, 1e-30])), rtol=0) > 9e29


@pytest.mark.parametrize("dtype", DOUBLES, ids=str)
@pytest.mark.parametrize("spectrum", SPECTRA)
@pytest.mark.parametrize("name", MEASURES)
def test_derivatives_at_full_rank(name, spectrum, dtype, both_ways):
    if name not in SMOOTH and spectrum != "spread":
        return
    M = rectangular(SPECTRA[spectrum], 4, 3, dtype).requires_grad_()
    assert gradcheck(MEASURES[name], (M,), check_forward_ad=dtype == torch.float64)
    if spectrum != "near":  # between exact ties and separated values finite differences see less
        assert gradgradcheck(MEASURES[name], (M,))


@pytest.mark.parametrize("values", [[2.0, 0.7], [1.0, 1.0], [3.0]])
@pytest.mark.parametrize("name", MEASURES)
def test_derivatives_within_the_matrices_of_one_rank(name, values):
    """M = A Bᵀ keeps its rank where A and B change, so the derivative in A and B exists at rank loss."""
    if name not in SMOOTH and values == [1.0, 1.0]:
        return
    A, B = rectangular(values, 4, len(values)), noise(3, len(values), seed=4)
    B = torch.linalg.qr(B)[0] if values == [1.0, 1.0] else B
    leaves = (A.requires_grad_(), B.requires_grad_())
    assert gradcheck(lambda A, B: MEASURES[name](A @ B.mT), leaves)
    assert gradgradcheck(lambda A, B: MEASURES[name](A @ B.mT), leaves)


@pytest.mark.parametrize("name", MEASURES)
def test_gradients_do_not_depend_on_the_choice_of_vectors(name):
    """At ties and at rank loss the gradient turns with the matrix: it is one of the matrix, not of a basis."""
    P, Q = random_orthogonal(4, seed=7), random_orthogonal(3, seed=8)
    for values in ([1.0, 1.0, 0.5], [2.0, 1.0, 1.0], [1.0, 1.0, 0.0], [1.0, 0.0, 0.0], [1.0] * 3, [0.0] * 3):
        M, one = rectangular(values, 4, 3), torch.tensor(1.0, dtype=torch.float64)
        turned = gradient(MEASURES[name], P @ M @ Q, one)
        assert_close(turned, P @ gradient(MEASURES[name], M, one) @ Q, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", MEASURES)
def test_zero_and_empty(name):
    for shape in ((3, 2), (2, 3), (0, 3), (3, 0), (2, 0, 3), (0, 2, 2)):
        M = torch.zeros(shape, dtype=torch.float64, requires_grad=True)
        value = MEASURES[name](M)
        assert torch.equal(value, torch.zeros(shape[:-2], dtype=torch.float64))
        assert torch.equal(torch.autograd.grad(value.sum(), M)[0], torch.zeros_like(M))


@pytest.mark.parametrize("name", SCALE_FREE)
@pytest.mark.parametrize(("dtype", "scale"), [(torch.float32, 1e30), (torch.float64, 1e150), (torch.float64, 1e300)])
def test_no_scale_changes_the_measures(name, dtype, scale):
    M, one = noise(2, 4, 3).to(dtype), torch.ones(2, dtype=dtype)
    for factor in (2.0 ** round(math.log2(scale)), 2.0 ** -round(math.log2(scale))):
        assert relative_error(MEASURES[name](M * factor), MEASURES[name](M)) < 30 * unit(dtype)
        moved, base = gradient(MEASURES[name], M * factor, one), gradient(MEASURES[name], M, one)
        assert relative_error(moved * factor, base) < 100 * unit(dtype)


@pytest.mark.parametrize(("dtype", "e"), [(torch.float32, 100), (torch.float32, -120), (torch.float64, 1000)])
def test_log_determinants_at_any_scale(dtype, e):
    """The determinant itself would overflow or underflow."""
    M = noise(4, 3).to(dtype)
    assert_close(sg.log_det(M * 2.0**e), sg.log_det(M) + 3 * e * math.log(2), rtol=8 * unit(dtype), atol=0)
    one = torch.tensor(1.0, dtype=dtype)
    assert_close(gradient(sg.log_det, M * 2.0**e, one) * 2.0**e, torch.linalg.pinv(M).mT, rtol=1e-4, atol=0)


@pytest.mark.parametrize("name", MEASURES)
def test_transforms_and_compilation(name):
    f, M = MEASURES[name], noise(3, 4, 3, seed=2)
    assert_close(vmap(f)(M), f(M))
    one = torch.tensor(1.0, dtype=torch.float64)
    expected = torch.stack([gradient(f, x, one) for x in M])
    assert_close(vmap(grad(f))(M), expected)
    assert_close(jacfwd(f)(M[0]), expected[0])
    assert_close(hessian(f)(M[0]), jacrev(jacrev(f))(M[0]), rtol=1e-6, atol=1e-8)
    leaf = M.clone().requires_grad_()
    compiled = torch.compile(lambda X: f(X), fullgraph=True, backend="aot_eager")(leaf)
    assert_close(compiled, f(M))
    assert_close(torch.autograd.grad(compiled.sum(), leaf)[0], expected)


@pytest.mark.parametrize("name", MEASURES)
def test_batches_and_values_without_a_gradient(name):
    M = noise(2, 3, 5, 4)
    M[1, 1], M[0, 2] = 0, M[0, 2, :, :1] @ M[0, 2, :1]
    one_by_one = torch.stack([torch.stack([MEASURES[name](x) for x in row]) for row in M])
    assert_close(MEASURES[name](M), one_by_one)
    assert torch.equal(MEASURES[name](M.clone().requires_grad_()).detach(), MEASURES[name](M))


def test_effective_rank_as_a_loss_undoes_collapse():
    """From embeddings of rank one, but for rounding, to all directions; without noise no gradient leaves the rank."""
    Z = (noise(32, 1) @ noise(1, 6, seed=1) + 1e-3 * noise(32, 6, seed=2)).requires_grad_()
    optimizer = torch.optim.Adam([Z], lr=0.05)
    for _ in range(200):
        optimizer.zero_grad()
        (-sg.effective_rank(Z, eps=1e-7)).backward()
        optimizer.step()
    assert sg.effective_rank(Z) > 5.9


def test_bad_input():
    bad = noise(2, 3, 3)
    bad[1, 0, 0] = torch.nan
    for name, f in MEASURES.items():
        with pytest.raises(sg.NonFiniteError, match="position 1 of a batch") as raised:
            f(bad)
        assert name.split()[0] in str(raised.value) or name == "RankMe"
        with pytest.raises(sg.ShapeError, match=r"matrices \(\*, m, n\)"):
            f(torch.ones(3))
        with pytest.raises(sg.ShapeError, match="int64"):
            f(torch.eye(2, dtype=torch.int64))
    for options in ({"power": 0.0}, {"power": math.inf}, {"eps": -0.1}, {"eps": 2.0}, {"rtol": -1.0}, {"rtol": 1.5}):
        for f in (sg.effective_rank, sg.spectral_entropy):
            with pytest.raises(sg.ArgumentError, match=next(iter(options))):
                f(torch.eye(2), **options)
    for f in (sg.condition_number, sg.log_det):
        with pytest.raises(sg.ArgumentError, match="rtol"):
            f(torch.eye(2), rtol=2.0)
