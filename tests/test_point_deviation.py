"""The distance of aligned points (RMSD) and masks: references, equal sets, padding, undetermined rotations."""

import mpmath
import numpy as np
import pytest
import torch
from scipy.spatial.transform import Rotation
from torch.autograd import gradcheck, gradgradcheck
from torch.func import grad, hessian, jacfwd, jacrev, vmap
from torch.testing import assert_close

import spectralgrad as sg
from spectralgrad.testing import relative_error

from .helpers import DOUBLES, REAL, noise, unit

OPTIONS = {
    "plain": {},
    "scale": {"scale": True},
    "fixed": {"translation": False},
    "reflections": {"special": False},
    "all": {"scale": True, "special": False, "translation": False},
}


def clouds(*batch, n=8, k=3, dtype=torch.float64, seed=0, apart=0.3):
    X = noise(*batch, n, k, dtype=dtype, seed=seed)
    turn = sg.polar(noise(k, k, dtype=dtype, seed=seed + 1), special=not dtype.is_complex)
    return X, X @ turn.mT + 2 + apart * noise(*batch, n, k, dtype=dtype, seed=seed + 2)


def exact(X, Y, w):
    """The weighted sum of squares at 50 digits: Σw‖x‖² + Σw‖y‖² − 2(σ₁ + σ₂ ± σ₃)."""
    with mpmath.workdps(50):
        x, y, w = (mpmath.matrix(P.tolist()) for P in (X, Y, w[:, None]))
        total = mpmath.fsum(w)
        near, far = mpmath.matrix(x.rows, x.cols), mpmath.matrix(x.rows, x.cols)
        for P, centered in ((x, near), (y, far)):
            for j in range(P.cols):
                center = mpmath.fsum(w[i] * P[i, j] for i in range(P.rows)) / total
                for i in range(P.rows):
                    centered[i, j] = P[i, j] - center
        weighed = mpmath.matrix([[w[i] * far[i, j] for j in range(far.cols)] for i in range(far.rows)])
        C = weighed.T * near
        S = list(mpmath.svd_r(C, compute_uv=False))
        S[-1] *= mpmath.sign(mpmath.det(C))
        spread = mpmath.fsum(w[i] * (P[i, j] ** 2) for P in (near, far) for i in range(x.rows) for j in range(x.cols))
        return (spread - 2 * mpmath.fsum(S)) / total


def fixed(X, Y, w=None, mask=None, **options):
    """The mean square with the rotation, translation and scale of procrustes, none of them differentiated."""
    with torch.no_grad():
        R, t, s, *_ = sg.procrustes(X, Y, w, **options)
    squares = (s[..., None, None] * X @ R.mT + t.unsqueeze(-2) - Y).abs().square().sum(-1)
    w = torch.ones_like(squares) if w is None else w
    return (w * squares).sum(-1) / w.sum(-1)


@pytest.mark.parametrize("seed", range(3))
def test_values_to_50_digits(seed, both_ways):
    X, Y = clouds(seed=seed)
    Y = Y if seed else Y * torch.tensor([1.0, 1.0, -1.0])  # a mirror image
    w = noise(8, seed=5).square()
    for weights in (None, w):
        expected = exact(X, Y, torch.ones_like(w) if weights is None else w)
        assert abs(sg.rmsd(X, Y, weights=weights).item() / expected - 1) < 1e-14
        assert abs(sg.rmsd(X, Y, weights=weights, squared=False).item() ** 2 / expected - 1) < 1e-14


def test_values_of_scipy():
    X, Y = clouds(5)
    w = noise(5, 8, seed=3).square()
    found = sg.rmsd(X, Y, weights=w, translation=False, squared=False)
    for i in range(5):
        _, rssd = Rotation.align_vectors(Y[i].numpy(), X[i].numpy(), weights=w[i].numpy())
        assert np.isclose(found[i].item(), rssd / w[i].sum().sqrt().item(), rtol=1e-12)


@pytest.mark.parametrize("dtype", DOUBLES, ids=str)
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_derivatives(options, dtype, both_ways):
    X, Y = (P.requires_grad_() for P in clouds(2, n=5, dtype=dtype))
    w = (noise(2, 5, seed=4).square() + 0.1).requires_grad_()
    for arguments in ((X, Y), (X, Y, w)):
        f = lambda X, Y, w=None: sg.rmsd(X, Y, weights=w, **options)  # noqa: E731
        assert gradcheck(f, arguments, check_forward_ad=dtype == torch.float64)
        assert gradgradcheck(f, arguments)
        root = lambda *given: sg.rmsd(*given[:2], weights=(*given, None)[2], squared=False, **options)  # noqa: E731
        assert gradcheck(root, arguments)
        expected = torch.autograd.grad(fixed(*arguments, **options).sum(), arguments)
        for found, wanted in zip(torch.autograd.grad(f(*arguments).sum(), arguments), expected, strict=True):
            assert_close(found, wanted)


def test_derivatives_where_singular_values_are_equal():
    """A tetrahedron, whose singular values are all equal, and a square in space: planar, with a tie."""
    tetrahedron = torch.tensor([[1, 1, 1], [1, -1, -1], [-1, 1, -1], [-1, -1, 1]], dtype=torch.float64)
    square = torch.tensor([[1, 0, 0], [0, 1, 0], [-1, 0, 0], [0, -1, 0]], dtype=torch.float64)
    for X in (tetrahedron, square):
        leaves = X.clone().requires_grad_(), (1.5 * X).requires_grad_()
        assert gradcheck(sg.rmsd, leaves, check_forward_ad=True)
        assert gradgradcheck(sg.rmsd, leaves)


@pytest.mark.parametrize("dtype", REAL, ids=str)
@pytest.mark.parametrize("far", [0.0, 1000.0])
def test_equal_sets(far, dtype):
    """Value and gradient vanish to rounding error; of the root the gradient is zero or of norm 1/√n at most."""
    X = (clouds()[0] + far).to(dtype)
    size = float(X.abs().max())
    for Y in (X.clone(), X.flip(-1) * torch.tensor([1, 1, -1])):
        leaves = X.clone().requires_grad_(), Y.requires_grad_()
        value = sg.rmsd(*leaves)
        assert 0 <= value <= (20 * unit(dtype) * size) ** 2
        assert all(g.abs().max() < 20 * unit(dtype) * size for g in torch.autograd.grad(value, leaves))
        root = sg.rmsd(*leaves, squared=False)
        assert all(g.norm() < 1.001 / 8**0.5 for g in torch.autograd.grad(root, leaves))
    zero = torch.zeros(4, 3, dtype=dtype, requires_grad=True)
    assert not torch.autograd.grad(sg.rmsd(zero, zero.detach(), squared=False), zero)[0].any()


def test_undetermined_rotations_have_finite_gradients_at_one_of_the_minimisers():
    line = torch.outer(torch.arange(6.0, dtype=torch.float64), torch.tensor([1.0, 2.0, 2.0], dtype=torch.float64))
    tetrahedron = torch.tensor([[1, 1, 1], [1, -1, -1], [-1, 1, -1], [-1, -1, 1]], dtype=torch.float64)
    cases = {
        "line": (line, clouds(n=6)[0]),
        "two lines": (line, 1.1 * line.flip(-1)),
        "point": (torch.ones(6, 3, dtype=torch.float64), clouds(n=6)[0]),
        "mirror image": (tetrahedron, -tetrahedron),
    }
    for name, (X, Y) in cases.items():
        leaves = X.clone().requires_grad_(), Y.clone().requires_grad_()
        found = torch.autograd.grad(sg.rmsd(*leaves), leaves)
        assert all(g.isfinite().all() for g in found), name
        step = 1e-5 * noise(*X.shape, seed=9)  # the minimum over R is below the value at the R that was found
        bound = sg.rmsd(X, Y) + (found[0] * step).sum() + (step * step).sum() / len(X)
        assert sg.rmsd(X + step, Y) <= bound + 1e-14, name
        assert torch.autograd.grad(sg.rmsd(*leaves, scale=True), leaves)[0].isfinite().all(), name
    leaves = cases["two lines"][0].clone().requires_grad_(), cases["two lines"][1].clone().requires_grad_()
    assert gradcheck(sg.rmsd, leaves)  # there all minimisers agree


# --- masks ------------------------------------------------------------------------------------------------------------


def padded(dtype=torch.float64):
    """Three clouds of 8, 5 and 4 points, padded with NaN, and their mask."""
    X, Y = clouds(3, dtype=dtype)
    mask = torch.arange(8) < torch.tensor([[8], [5], [4]])
    X, Y = (torch.where(mask.unsqueeze(-1), P, torch.nan) for P in (X, Y))
    return X, Y, mask


@pytest.mark.parametrize("dtype", DOUBLES, ids=str)
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_padding_costs_nothing_and_has_no_gradient(options, dtype, both_ways):
    X, Y, mask = padded(dtype)
    w = torch.where(mask, noise(3, 8, seed=6).square(), torch.nan)
    for weights in (None, w):
        leaves = [P.clone().requires_grad_() for P in (X, Y, *([] if weights is None else [w]))]
        given = leaves[2] if weights is not None else None
        found = sg.procrustes(leaves[0], leaves[1], given, mask=mask, **options)
        together = found.rotation.abs().sum() + found.translation.abs().sum() + found.scale.sum() + found.residual.sum()
        for value in (together, sg.rmsd(leaves[0], leaves[1], weights=given, mask=mask, **options).sum()):
            for g in torch.autograd.grad(value, leaves, retain_graph=True):
                outside = g[~mask]
                assert torch.equal(outside, torch.zeros_like(outside))
                assert g.isfinite().all()
        for i, count in enumerate((8, 5, 4)):
            part = [P[i, :count].detach() for P in (X, Y)]
            each = None if weights is None else w[i, :count]
            alone = sg.procrustes(*part, each, **options)
            for name, expected in alone._asdict().items():
                assert_close(getattr(found, name)[i].detach(), expected, msg=name)
            assert_close(
                sg.rmsd(X, Y, weights=weights, mask=mask, **options)[i], sg.rmsd(*part, weights=each, **options)
            )


def test_masks_broadcast_and_may_be_empty():
    X, Y = clouds(4)
    mask = torch.arange(8) < 6
    assert_close(sg.rmsd(X, Y, mask=mask), sg.rmsd(X[:, :6], Y[:, :6]))
    assert_close(sg.rmsd(X[0], Y, mask=mask.expand(4, 8)), sg.rmsd(X[0, :6], Y[:, :6]))
    several = torch.stack([mask, ~mask])
    assert_close(sg.rmsd(X[0], Y[0], mask=several)[1], sg.rmsd(X[0, 6:], Y[0, 6:]))
    leaf = X.clone().requires_grad_()
    for squared in (True, False):
        nothing = sg.rmsd(leaf, Y, mask=torch.zeros(8, dtype=torch.bool), squared=squared)
        assert not nothing.any()
        assert not torch.autograd.grad(nothing.sum(), leaf)[0].any()
    assert torch.equal(
        sg.procrustes(X, Y, mask=torch.zeros(8, dtype=torch.bool)).rotation, torch.eye(3).double().expand(4, 3, 3)
    )
    assert sg.rmsd(X[:, :0], Y[:, :0]).tolist() == [0.0] * 4
    assert sg.rmsd(X[:0], Y[:0]).shape == (0,)
    assert not sg.rmsd(X[..., :0], Y[..., :0]).any()


def test_mask_of_unstable_rotations():
    """What naver/roma #6 asks for: a line beside clouds that determine their rotation."""
    line = torch.outer(torch.arange(8.0), torch.tensor([1.0, 2.0, 2.0])).double()
    X, Y = clouds(3)
    X[1], Y[1] = line, line
    assert sg.procrustes(X, Y).unstable().tolist() == [False, True, False]
    assert sg.procrustes(X, Y).unstable(1.9).all()
    assert sg.procrustes(X.bfloat16(), Y.bfloat16()).unstable().tolist() == [False, True, False]


# --- types, scales, transforms ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_types_are_computed_in_single_precision(dtype):
    X, Y, mask = padded()
    X, Y = X.to(dtype), Y.to(dtype)
    found = sg.rmsd(X, Y, mask=mask)
    assert found.dtype == dtype
    assert_close(found, sg.rmsd(X.float(), Y.float(), mask=mask).to(dtype))
    assert sg.procrustes(X, Y, mask=mask).rotation.dtype == dtype
    with torch.autocast("cpu", torch.bfloat16):
        assert_close(sg.rmsd(*clouds(dtype=torch.float32)), sg.rmsd(*clouds(dtype=torch.float32)))


@pytest.mark.parametrize(("dtype", "e"), [(torch.float32, 100), (torch.float32, -100), (torch.float64, 900)])
def test_any_scale(dtype, e):
    X, Y = (P.to(dtype) for P in clouds())
    base = sg.rmsd(X, Y, squared=False)
    assert_close(sg.rmsd(X * 2.0**e, Y * 2.0**e, squared=False), base * 2.0**e, rtol=4 * unit(dtype), atol=0)
    assert_close(sg.rmsd(X * 2.0**e, Y, scale=True), sg.rmsd(X, Y, scale=True), rtol=64 * unit(dtype), atol=0)
    w = noise(8, dtype=dtype, seed=4).square()
    assert_close(sg.rmsd(X, Y, weights=w * 2.0**e), sg.rmsd(X, Y, weights=w), rtol=16 * unit(dtype), atol=0)
    leaf = (X * 2.0**e).requires_grad_()
    (g,) = torch.autograd.grad(sg.rmsd(leaf, Y * 2.0**e, squared=False), leaf)
    assert relative_error(g, grad(lambda X: sg.rmsd(X, Y, squared=False))(X)) < 100 * unit(dtype)


def test_transforms_and_compilation():
    X, Y = clouds(3)
    mask = padded()[2]
    expected = torch.stack([grad(sg.rmsd)(x, y) for x, y in zip(X, Y, strict=True)])
    leaf = X.clone().requires_grad_()
    assert_close(torch.autograd.grad(sg.rmsd(leaf, Y).sum(), leaf)[0], expected)
    assert_close(vmap(grad(sg.rmsd))(X, Y), expected)
    assert_close(jacfwd(sg.rmsd)(X[0], Y[0]), expected[0])
    assert_close(hessian(sg.rmsd)(X[0], Y[0]), jacrev(jacrev(sg.rmsd))(X[0], Y[0]))
    masked = lambda x, y, m: sg.rmsd(x, y, mask=m)  # noqa: E731
    assert_close(vmap(masked)(X, Y, mask), sg.rmsd(X, Y, mask=mask))
    assert_close(vmap(masked, in_dims=(None, 0, None))(X[0], Y, mask[1]), sg.rmsd(X[0], Y, mask=mask[1]))
    compiled = torch.compile(lambda x, y, m: sg.rmsd(x, y, mask=m), fullgraph=True, backend="aot_eager")
    found = compiled(leaf, Y, mask)
    assert_close(found, sg.rmsd(X, Y, mask=mask))
    wanted = torch.autograd.grad(sg.rmsd(leaf, Y, mask=mask).sum(), leaf)[0]
    assert_close(torch.autograd.grad(found.sum(), leaf)[0], wanted)


def test_bad_input():
    X, Y = clouds(3)
    bad = X.clone()
    bad[1, 0, 0] = torch.nan
    with pytest.raises(sg.NonFiniteError, match=r"rmsd.*position 1"):
        sg.rmsd(bad, Y)
    with pytest.raises(sg.NonFiniteError, match=r"rmsd.*position 1"):
        sg.rmsd(bad, Y, mask=torch.ones(8, dtype=torch.bool))
    mask = torch.ones(8, dtype=torch.bool)
    for f in (lambda m: sg.rmsd(X, Y, mask=m), lambda m: sg.procrustes(X, Y, mask=m)):
        for wrong in (mask[:5], mask.expand(2, 8), mask[0], mask.double()):
            with pytest.raises(sg.ShapeError, match="mask"):
                f(wrong)
    with pytest.raises(sg.ArgumentError, match="rmsd: expected weights ≥ 0"):
        sg.rmsd(X, Y, weights=-torch.ones(8))
    with pytest.raises(sg.ShapeError, match=r"rmsd: expected weights \(\*, n\)"):
        sg.rmsd(X, Y, weights=torch.ones(5), mask=mask)
    with pytest.raises(sg.ShapeError, match="rmsd"):
        sg.rmsd(X, Y[:, :5])
    outside = torch.where(torch.arange(8) < 4, 1.0, -1.0)
    assert (
        sg.rmsd(X, Y, weights=outside, mask=torch.arange(8) < 4).isfinite().all()
    )  # only weights that count are checked
