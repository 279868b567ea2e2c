"""Nearest rotations and the alignment of points: exact at ties and for planar clouds, defined everywhere."""

import mpmath
import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck
from torch.func import grad, jacfwd, jacrev, vmap
from torch.testing import assert_close

import spectralgrad as sg
from spectralgrad.testing import random_orthogonal, relative_error

from .helpers import DOUBLES, REAL, gradient, noise, rectangular, unit


def rotation(n, seed=0, dtype=torch.float64):
    Q = random_orthogonal(n, seed=seed)
    return (Q * torch.tensor([1.0] * (n - 1) + [float(torch.linalg.det(Q).sign())], dtype=torch.float64)).to(dtype)


def with_values(h, dtype=torch.float64):
    """A matrix whose nearest rotation is known: R V diag(h) Vᵀ, the last of h possibly negative."""
    R, V = rotation(len(h), 1), rotation(len(h), 2)
    return (R @ (V * torch.tensor(h, dtype=torch.float64)) @ V.mT).to(dtype), R, V


def special(M):
    return sg.polar(M, special=True)


DETERMINED = {
    "spread": [2.0, 1.0, 0.5],
    "mirrored": [2.0, 1.0, -0.5],
    "rotation": [1.0, 1.0, 1.0],
    "tie": [1.0, 1.0, -0.25],
    "planar": [2.0, 1.0, 0.0],
    "nearly planar": [2.0, 1.0, 1e-14],
    "two dimensions": [1.0, -0.3],
    "four dimensions": [3.0, 2.0, 2.0, -1.0],
}


@pytest.mark.parametrize("dtype", REAL, ids=str)
@pytest.mark.parametrize("name", DETERMINED)
def test_value_and_gradient_of_the_nearest_rotation(name, dtype, both_ways):
    """Against the formula with the true factors; the condition is that of the smallest weight."""
    h = DETERMINED[name]
    M, R, V = with_values(h, dtype)
    G = noise(*R.shape)
    w = torch.tensor(h, dtype=torch.float64)
    sums = (w[:, None] + w).fill_diagonal_(1.0)
    W = V.mT @ (R.mT @ G - G.mT @ R) @ V
    tolerance = 100 * unit(dtype) * max(h) / (h[-2] + h[-1])
    assert relative_error(special(M), R) < tolerance
    assert relative_error(gradient(special, M, G.to(dtype)), R @ V @ (W / sums) @ V.mT) < 10 * tolerance
    assert_close(torch.linalg.det(special(M).double()), torch.tensor(1.0, dtype=torch.float64), rtol=0, atol=tolerance)


@pytest.mark.parametrize("name", ["mirrored", "rotation", "planar", "nearly planar", "two dimensions"])
def test_second_order_of_rotations_is_exact(name, both_ways):
    M = with_values(DETERMINED[name])[0].requires_grad_()
    assert gradcheck(special, (M,), check_forward_ad=True)
    assert gradgradcheck(special, (M,), check_fwd_over_rev=True)


def test_gradient_has_fifty_digits_behind_it():
    """Kabsch in 50 digits by Newton's iteration for the polar factor of M, whose determinant is positive."""
    M, _, _ = with_values([1.0, 1.0 - 1e-9, 0.3])
    E = torch.randn(3, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(3))

    def factor(shift):
        X = mpmath.matrix(M.tolist()) + shift * mpmath.matrix(E.tolist())
        for _ in range(12):
            X = (X + (X.T) ** -1) / 2
        return X

    with mpmath.workdps(50):
        h = mpmath.mpf(10) ** -15
        slope = (factor(h) - factor(-h)) / (2 * h)
        expected = torch.tensor([[float(x) for x in slope[i, :]] for i in range(3)], dtype=torch.float64)
    got = torch.func.jvp(special, (M,), (E,))[1]
    assert relative_error(got, expected) < 100 * unit(torch.float64)


UNDETERMINED = [[2.0, 1.0, -1.0], [1.0, 1.0, -1.0], [1.0, -1.0], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0]]


@pytest.mark.parametrize("rotated", [True, False])
@pytest.mark.parametrize("h", UNDETERMINED, ids=str)
def test_undetermined_rotations_are_finite(h, rotated, both_ways):
    """At exact ties, and at ties up to rounding error; the pair that is tied contributes nothing."""
    M = (rectangular(h) if rotated else torch.diag(torch.tensor(h, dtype=torch.float64))).requires_grad_()
    Q = special(M)
    assert_close(torch.linalg.det(Q), torch.tensor(1.0, dtype=torch.float64))
    G = noise(*M.shape)
    (g,) = torch.autograd.grad((Q * G).sum(), M, create_graph=True)
    (second,) = torch.autograd.grad(g.square().sum(), M)
    least = min([abs(a + b) for i, a in enumerate(h) for b in h[:i] if a + b], default=1.0)
    assert g.norm() <= 4 * G.norm() / least
    assert second.norm() <= 1000 * (G.norm() / least) ** 2 / least


@pytest.mark.parametrize("batch", [1, 12])  # of few matrices the tolerance is looked at in another way
@pytest.mark.parametrize("gap", [1e-3, 1e-13])
def test_a_rotation_that_is_barely_determined_has_its_steep_gradient(gap, batch, both_ways):
    """Of the pair whose sum is ``gap``; the tolerance for it is some units of rounding error."""
    M = torch.stack([rectangular([2.0, 1.0, gap - 1.0], seed=seed) for seed in range(batch)])
    sizes = gradient(special, M, noise(batch, 3, 3)).flatten(1).norm(dim=1)
    assert bool(((1e-3 / gap < sizes) & (sizes < 1e2 / gap)).all())


def test_complex_matrices_have_no_reflections():
    M = torch.randn(4, 3, 3, dtype=torch.complex128, generator=torch.Generator().manual_seed(0))
    assert_close(special(M), sg.polar(M))
    assert_close(torch.linalg.det(special(M)).abs(), torch.ones(4, dtype=torch.float64))


def test_special_needs_square_matrices_and_the_exact_method():
    with pytest.raises(sg.ShapeError, match="square"):
        special(torch.ones(3, 2))
    with pytest.raises(sg.MethodError, match="special"):
        sg.polar(torch.eye(2), method="polar-express", special=True)


def clouds(dtype=torch.float64, k=3, n=6, batch=(2,)):
    generator = torch.Generator().manual_seed(5)
    wide = torch.complex128 if dtype.is_complex else torch.float64
    X, Y = (torch.randn(*batch, n, k, dtype=wide, generator=generator).to(dtype) for _ in range(2))
    weights = torch.rand(*batch, n, generator=generator, dtype=torch.float64).to(X.real.dtype)
    return X, Y, weights


@pytest.mark.parametrize("dtype", [*REAL, *DOUBLES[1:]], ids=str)
@pytest.mark.parametrize("scale", [False, True])
@pytest.mark.parametrize("translation", [False, True])
def test_procrustes_recovers_the_motion(translation, scale, dtype):
    X, _, weights = clouds(dtype)
    R = rotation(3, dtype=dtype)
    t = torch.tensor([1.0, -2.0, 3.0], dtype=dtype) * translation
    s = 2.5 if scale else 1.0
    found = sg.procrustes(X, s * X @ R.mT + t, weights, scale=scale, translation=translation)
    tolerance = 1e3 * unit(dtype)
    assert_close(found.rotation, R.expand(2, 3, 3), rtol=0, atol=tolerance)
    assert_close(found.translation, t.expand(2, 3), rtol=0, atol=10 * tolerance)
    assert_close(found.scale, torch.full((2,), s, dtype=found.scale.dtype), rtol=tolerance, atol=0)
    assert float(found.residual.max()) < tolerance**2 * 100
    assert float(found.margin.min()) > 0.01


@pytest.mark.parametrize("translation", [False, True])
@pytest.mark.parametrize("special", [False, True])
@pytest.mark.parametrize("learning", [False, True])
@pytest.mark.parametrize("k", [3, 10])  # the kernel takes up to eight coordinates
def test_procrustes_is_a_minimum(k, learning, special, translation, both_ways):
    """Nothing near it is better: small rotations, translations and scales of a fit with noise."""
    X, Y, weights = clouds(k=k, n=2 * k)
    leaf = X.clone().requires_grad_(learning)
    found = sg.procrustes(leaf, Y, weights, scale=True, special=special, translation=translation)
    R, t, s, residual, _ = (part.detach() for part in found)
    assert translation or bool((t == 0).all())
    generator = torch.Generator().manual_seed(1)
    for size in (1e-1, 1e-3):
        A = size * torch.randn(k, k, dtype=torch.float64, generator=generator)
        nearby = [(torch.matrix_exp(A - A.mT) @ R, t, s), (R, t, s * (1 + size)), (R, t, s * (1 - size))]
        nearby += [(R, t + A[0], s), (torch.matrix_exp(A - A.mT) @ R, t - A[1], s)] if translation else []
        for turn, move, factor in [(R, t, s), *nearby]:
            miss = factor[:, None, None] * X @ turn.mT + move[:, None] - Y
            total = (weights * miss.square().sum(-1)).sum(-1)
            if turn is R and move is t and factor is s:
                assert_close(total, residual)
            else:
                assert bool((total > residual).all())


CASES = [
    {"k": 3},
    {"k": 2, "scale": True, "weigh": True},
    {"k": 2, "translation": False, "special": False, "weigh": True},
    {"k": 1, "scale": True},
    {"k": 2, "scale": True, "weigh": True, "dtype": torch.complex128},
]


def _procrustes(k, dtype=torch.float64, weigh=False, **options):
    X, Y, weights = (x[:1, :4].clone().requires_grad_() for x in clouds(dtype, k))
    arguments = (X, Y, weights) if weigh else (X, Y)
    return arguments, lambda *a: [r for r in sg.procrustes(*a, **options)[:4] if r.requires_grad]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_gradcheck_of_procrustes(case, both_ways):
    arguments, f = _procrustes(**case)
    assert gradcheck(f, arguments, check_batched_grad=True)
    if case.get("k") == 2 and "dtype" not in case:
        assert gradgradcheck(f, arguments)


@pytest.mark.parametrize("scale", [False, True])
def test_a_gradient_with_a_graph_is_right_if_one_set_of_points_is_a_function_of_the_other(scale):
    X, turn, cotangent = noise(10, 3).requires_grad_(), noise(3, 3, seed=1), noise(3, 3, seed=2)
    fitted = sg.procrustes(X, (X @ turn).tanh(), scale=scale)
    loss = (fitted.rotation * cotangent).sum() + fitted.residual
    plain, again = (torch.autograd.grad(loss, X, retain_graph=True, create_graph=graph)[0] for graph in (False, True))
    assert_close(again, plain)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_transforms_agree_with_the_eager_formulas(case):
    """The eager backward pass has formulas of its own; everything else differentiates the composition."""
    options = {key: value for key, value in case.items() if key not in ("k", "dtype", "weigh")}
    X, Y, weights = clouds(case.get("dtype", torch.float64), case["k"])
    w = weights if case.get("weigh") else None

    def loss(X, w):
        R, t, s, e, _ = sg.procrustes(X, Y[0], w, **options)
        return (R * 1.3).abs().square().sum() + R.real.sum() + t.real.sin().sum() + s.square() + e.cos()

    leaf = X[0].clone().requires_grad_()
    (expected,) = torch.autograd.grad(loss(leaf, None if w is None else w[0]), leaf)
    one = lambda x: loss(x, None if w is None else w[0])  # noqa: E731
    assert_close(grad(one)(X[0]), expected)
    assert_close(vmap(grad(one))(X)[0], expected)
    if not X.is_complex():
        assert_close(jacfwd(one)(X[0]), expected)
        assert_close(jacrev(one)(X[0]), expected)
    assert_close(torch.autograd.grad(one(leaf), leaf, create_graph=True)[0], expected)


TETRAHEDRON = [[1, 1, 1], [1, -1, -1], [-1, 1, -1], [-1, -1, 1]]
DEGENERATE = {  # points, the factors that map them to their targets, and whether the rotation is determined
    "planar": ([[0, 0, 0], [1, 0, 0], [0, 2, 0], [1, 1, 0]], [1, 1, 1], True),
    "mirrored": (TETRAHEDRON, [3, 2, -1], True),
    "mirrored tie": (TETRAHEDRON, [1, 1, -1], False),
    "collinear": ([[0, 0, 0], [1, 0, 0], [2, 0, 0], [5, 0, 0]], [1, 1, 1], False),
    "one point": ([[1, 2, 3]] * 4, [1, 1, 1], False),
}


@pytest.mark.parametrize("name", DEGENERATE)
def test_degenerate_clouds_have_finite_values_and_gradients(name, both_ways):
    points, factors, determined = DEGENERATE[name]
    X = torch.tensor(points, dtype=torch.float64, requires_grad=True)
    found = sg.procrustes(X, X.detach() * torch.tensor(factors), scale=True)
    (g,) = torch.autograd.grad(sum(part.sum() for part in found[:4]), X, create_graph=True)
    (second,) = torch.autograd.grad(g.square().sum(), X)
    assert all(bool(x.isfinite().all()) for x in (*found, g, second))
    assert_close(torch.linalg.det(found.rotation), torch.tensor(1.0, dtype=torch.float64))
    assert bool(found.margin > 0.1) if determined else float(found.margin) == 0


def test_margin_is_the_gap_of_the_signed_singular_values():
    h = [2.0, 1.0, -0.5]
    C, _, _ = with_values(h)
    X = torch.eye(3, dtype=torch.float64)  # then C = Yᵀ X for points without translation
    for special, margin in ((True, (1 - 0.5) / 2), (False, 0.5 / 2)):
        found = sg.procrustes(X, C.mT, translation=False, special=special)
        assert_close(found.margin, torch.tensor(margin, dtype=torch.float64))


def test_points_of_zero_weight_and_all_zero_weights():
    X, Y, weights = clouds()
    weights[:, 3:] = 0
    found, without = sg.procrustes(X, Y, weights), sg.procrustes(X[:, :3], Y[:, :3], weights[:, :3])
    for a, b in zip(found, without, strict=True):
        assert_close(a, b)
    X.requires_grad_()
    nothing = sg.procrustes(X, Y, torch.zeros_like(weights), scale=True)
    assert_close(nothing.rotation, torch.eye(3, dtype=torch.float64).expand(2, 3, 3))
    assert_close(nothing.scale, torch.ones(2, dtype=torch.float64))
    (g,) = torch.autograd.grad(sum(part.sum() for part in nothing[:4]), X)
    assert bool((g == 0).all())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_types_are_computed_in_single_precision(dtype):
    X, Y, weights = (x.to(dtype) for x in clouds(torch.float32))
    found = sg.procrustes(X, Y, weights, scale=True)
    assert {part.dtype for part in found} == {dtype}
    with torch.autocast("cpu", dtype=torch.bfloat16):
        wide = sg.procrustes(X.float(), Y.float(), weights.float(), scale=True)
    for a, b in zip(found, wide, strict=True):
        assert_close(a, b.to(dtype))


@pytest.mark.parametrize(("dtype", "factor"), [(torch.float32, 2.0**60), (torch.float64, 2.0**498)], ids=str)
def test_rotations_do_not_depend_on_the_scale_of_the_points(dtype, factor):
    X, Y, _ = clouds(dtype)
    expected = sg.procrustes(X, Y, scale=True)
    G = torch.randn(2, 3, 3, generator=torch.Generator().manual_seed(0)).to(dtype)
    turn = lambda P: sg.procrustes(P, Y).rotation  # noqa: E731
    g = gradient(turn, X, G)
    for c in (factor, 1 / factor):
        found = sg.procrustes(X * c, Y, scale=True)
        assert_close(found.rotation, expected.rotation, rtol=0, atol=64 * unit(dtype))
        assert_close(found.scale * c, expected.scale, rtol=64 * unit(dtype), atol=0)
        assert relative_error(gradient(turn, X * c, G) * c, g) < 1e3 * unit(dtype)


@pytest.mark.parametrize(
    "scales", [(1e18, 1e-18), (1e-12, 1e12), (1e-15, 1e-15), (1e-25, 1e-18), (1e15, 1e15)], ids=str
)
def test_the_scale_between_points_of_very_different_size(scales):
    """C may be ordinary where the squares of the points are not; with and without a gradient to compute."""
    P = torch.randn(1000, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    X, Y = ((c * Z).float() for c, Z in zip(scales, (P, P @ rotation(3).mT + 0.1 * P.sin()), strict=True))
    values, gradients = [], []
    for dtype in (torch.float32, torch.float64):
        leaves = [Z.to(dtype).requires_grad_() for Z in (X, Y)]
        values.append(sg.procrustes(*leaves, scale=True).scale)
        gradients.append(torch.autograd.grad(values[-1], leaves))
    values.append(sg.procrustes(X, Y, scale=True).scale)
    tolerance = 100 * torch.finfo(torch.float32).eps  # sums over 1000 points
    assert_close(values[0].double(), values[1], rtol=tolerance, atol=0)
    assert_close(values[2].double(), values[1], rtol=tolerance, atol=0)
    for found, expected in zip(*gradients, strict=True):
        tiny = torch.finfo(torch.float32).tiny
        assert (found.double() - expected).abs().max() <= tolerance * expected.abs().max() + tiny


def test_broadcasting_empty_batches_and_a_matrix_beside_others():
    X, Y, weights = clouds(batch=(3, 2))
    each = sg.procrustes(X, Y[0], weights[:, 1:])
    assert each.rotation.shape == (3, 2, 3, 3)
    assert_close(each.rotation[2, 1], sg.procrustes(X[2, 1], Y[0, 1], weights[2, 1]).rotation)
    assert sg.procrustes(X[:0], Y[:0]).rotation.shape == (0, 2, 3, 3)
    none = sg.procrustes(X[..., :0, :], Y[..., :0, :])
    assert_close(none.rotation, torch.eye(3, dtype=torch.float64).expand(3, 2, 3, 3))
    assert sg.procrustes(X[..., :0], Y[..., :0]).rotation.shape == (3, 2, 0, 0)
    leaf = X.mT.contiguous().mT.clone().requires_grad_()
    for A in (leaf, leaf[:1]):
        (g,) = torch.autograd.grad(sg.procrustes(A, Y[:1]).rotation[0].sum(), leaf)
        assert relative_error(g, torch.autograd.grad(sg.procrustes(leaf[:1], Y[:1]).rotation.sum(), leaf)[0]) < 1e-13


def test_bad_input_is_named():
    X, Y, weights = clouds()
    bad = X.clone()
    bad[1, 2, 0] = torch.nan
    with pytest.raises(sg.NonFiniteError, match=r"procrustes.*position 1"):
        sg.procrustes(bad, Y)
    for arguments in ((X, Y[:, :4]), (X, Y.float()), (X, Y, weights[:, :2]), (X[0, 0], Y[0, 0]), (X, Y, [1.0])):
        with pytest.raises(sg.ShapeError, match="procrustes"):
            sg.procrustes(*arguments)


def _aligned(M):
    return sg.procrustes(M, M.sin() + M.flip(-2), scale=True).rotation


@pytest.mark.parametrize("f", [special, _aligned])
def test_rotations_compile(f):
    torch._dynamo.reset()
    M = with_values([2.0, 1.0, -0.5])[0].requires_grad_()
    weights = torch.arange(9.0, dtype=torch.float64).reshape(3, 3).cos()
    (expected,) = torch.autograd.grad((f(M) * weights).sum(), M)
    compiled = torch.compile(lambda X: (f(X) * weights).sum(), fullgraph=True, backend="aot_eager")
    (g,) = torch.autograd.grad(compiled(M), M)
    assert_close(g, expected)
    assert_close(compiled(M.detach()), (f(M) * weights).sum().detach())


def test_matrices_whose_columns_lie_apart_in_memory():
    """Of a batch of wide matrices those with a small singular value are decomposed again, in their own layout."""
    generator = torch.Generator().manual_seed(0)
    M = torch.randn(5, 17, 52, generator=generator)
    M[1::2, 0] = M[1::2, 1]  # rank 16
    for X in (M, M.mT, M.mT.contiguous().mT):
        Q = sg.polar(X)
        assert_close(Q, sg.polar(X.contiguous()))
        H = (Q.mT @ X if X.shape[-2] > X.shape[-1] else X @ Q.mT).double()
        assert_close(H, H.mT, rtol=0, atol=1e-5 * float(X.norm()))
        assert float(torch.linalg.eigvalsh(H).min()) > -1e-5 * float(X.norm())
