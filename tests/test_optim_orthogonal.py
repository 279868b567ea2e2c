"""Orthogonal weights: the loss and its minimum, the convolution as an operator."""

import copy

import pytest
import torch
from torch.autograd import gradcheck
from torch.testing import assert_close

import spectralgrad as sg
from spectralgrad.nn import OrthogonalConv2d, orthogonality_loss
from spectralgrad.nn.orthogonal import norm_bound, series, skew


def gaussian(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def operator(conv, size):
    """The matrix of a convolution on maps of height and width ``size``, column by column."""
    inputs = torch.eye(conv.in_channels * size * size, dtype=torch.float64)
    with torch.no_grad():
        return conv(inputs.reshape(-1, conv.in_channels, size, size)).flatten(1).T


@pytest.mark.parametrize("shape", [(4, 4), (3, 7), (7, 3), (64, 27), (6, 2, 3, 3)], ids=str)
def test_the_loss_and_its_minimum(shape):
    W = gaussian(*shape)
    M = W.flatten(1)
    m, n = M.shape
    assert_close(orthogonality_loss(W, side="rows"), (M @ M.T - torch.eye(m)).norm())
    small = M @ M.T - torch.eye(m) if m <= n else M.T @ M - torch.eye(n)
    assert_close(orthogonality_loss(W), small.norm())
    assert_close(orthogonality_loss(W, squared=True), small.norm().square())
    U, _, Vh = torch.linalg.svd(M, full_matrices=False)
    assert float(orthogonality_loss(U @ Vh)) < 1e-13 * max(m, n)
    assert float(orthogonality_loss(U @ Vh, side="rows")) == pytest.approx(max(0, m - n) ** 0.5, abs=1e-12)


@pytest.mark.parametrize("side", ["rows", "smaller"])
@pytest.mark.parametrize("squared", [False, True])
def test_the_gradient_of_the_loss(side, squared):
    for shape in ((3, 4), (4, 3)):
        W = gaussian(*shape).requires_grad_()
        assert gradcheck(lambda W: orthogonality_loss(W, side=side, squared=squared), W)
    at_minimum = torch.eye(3, dtype=torch.float64, requires_grad=True)
    orthogonality_loss(at_minimum, side=side, squared=squared).backward()
    assert bool((at_minimum.grad == 0).all())


def test_gradient_descent_on_the_loss_reaches_the_minimum():
    W = (gaussian(9, 5) / 3).requires_grad_()
    optimizer = torch.optim.SGD([W], lr=0.05)
    for _ in range(400):
        optimizer.zero_grad()
        orthogonality_loss(W, squared=True).backward()
        optimizer.step()
    assert float(orthogonality_loss(W.detach())) < 1e-10


@pytest.mark.parametrize("padding_mode", ["zeros", "circular"])
@pytest.mark.parametrize("channels", [(3, 3), (2, 4), (4, 2), (1, 1)], ids=str)
@pytest.mark.parametrize("kernel_size", [1, 3, 5])
def test_the_operator_is_orthogonal_to_the_tolerance(padding_mode, channels, kernel_size):
    torch.manual_seed(0)
    for tolerance in (1e-2, 1e-6, 1e-12):
        conv = OrthogonalConv2d(
            *channels, kernel_size, bias=False, padding_mode=padding_mode, tolerance=tolerance, dtype=torch.float64
        )
        S = operator(conv, 5)
        S = S if channels[0] <= channels[1] else S.T
        defect = float(torch.linalg.matrix_norm(S.T @ S - torch.eye(S.shape[1]), 2))
        assert defect <= tolerance + 1e-14
        if kernel_size > 1 and channels != (1, 1):
            assert float((S[:, : S.shape[1]] - torch.eye(*S.shape)[:, : S.shape[1]]).norm()) > 0.1  # not the identity


@pytest.mark.parametrize("norm", [0.0, 0.3, 1.27, 4.0, 30.0])
def test_large_norms_are_taken_in_parts(norm):
    torch.manual_seed(0)
    conv = OrthogonalConv2d(3, 3, bias=False, tolerance=1e-10, max_norm=None, dtype=torch.float64)
    with torch.no_grad():
        conv.weight.mul_(norm / float(norm_bound(skew(conv.weight))))
    S = operator(conv, 4)
    J = operator_of(skew(conv.weight.detach()), 4)
    assert float(torch.linalg.matrix_norm(S.T @ S - torch.eye(48), 2)) <= 1e-10
    assert_close(S, torch.linalg.matrix_exp(J), rtol=0, atol=1e-9)


def operator_of(L, size, circular=False):
    c, reach = L.shape[0], L.shape[-1] // 2
    x = torch.eye(c * size * size, dtype=torch.float64).reshape(-1, c, size, size)
    if circular:
        x = torch.nn.functional.pad(x, (reach,) * 4, mode="circular")
    return torch.nn.functional.conv2d(x, L, padding=0 if circular else reach).flatten(1).T


@pytest.mark.parametrize("kernel_size", [1, 3, 5])
@pytest.mark.parametrize("seed", range(4))
def test_the_bound_is_a_bound_and_not_far_off(kernel_size, seed):
    L = skew(gaussian(4, 4, kernel_size, kernel_size, seed=seed))
    bound = float(norm_bound(L))
    for circular in (False, True):
        J = operator_of(L, 8, circular)
        assert float((J + J.T).abs().max()) == 0
        true = float(torch.linalg.matrix_norm(J, 2))
        assert true <= bound * (1 + 1e-12)
        assert bound < 2.5 * true


@pytest.mark.parametrize("norm", [0.1, 1.0, 3.14159, 10.0, 100.0])
@pytest.mark.parametrize("tolerance", [1e-1, 1e-3, 1e-8])
def test_no_more_terms_than_needed(norm, tolerance):
    parts, terms = series(norm, tolerance)
    theta = norm / parts

    def bound(k):
        remainder = 1.0
        for j in range(1, k + 2):
            remainder *= theta / j
        return (1 + 2 * remainder + remainder**2) ** parts - 1

    assert bound(terms) <= tolerance
    assert terms == 0 or (1 + bound(terms - 1)) ** 1.2 - 1 > tolerance


def test_max_norm_caps_the_angle_and_keeps_the_gradient():
    torch.manual_seed(0)
    conv = OrthogonalConv2d(2, 2, bias=False, tolerance=1e-12, dtype=torch.float64)
    with torch.no_grad():
        conv.weight.mul_(50)
    x = gaussian(1, 2, 4, 4)
    angles = torch.linalg.eigvals(operator(conv, 4)).angle().abs().max()
    assert float(angles) <= torch.pi
    weight = conv.weight.detach().clone().requires_grad_()

    def apply(weight):
        return torch.func.functional_call(conv, {"weight": weight}, (x,))

    assert gradcheck(apply, weight, fast_mode=True)


@pytest.mark.parametrize("size", [0.0, 1e-6, 1e-4])
def test_a_small_filter_still_learns(size):
    torch.manual_seed(0)
    conv = OrthogonalConv2d(3, 3, bias=False, tolerance=1e-1, dtype=torch.float64)
    with torch.no_grad():
        conv.weight.mul_(size)
    x, wanted = gaussian(2, 3, 5, 5), gaussian(2, 3, 5, 5, seed=1)
    (found,) = torch.autograd.grad((conv(x) * wanted).sum(), conv.weight)
    conv.tolerance = 1e-14
    (true,) = torch.autograd.grad((conv(x) * wanted).sum(), conv.weight)
    assert float((found - true).norm()) < 1e-3 * float(true.norm())


def test_gradcheck_in_input_weight_and_bias():
    torch.manual_seed(0)
    conv = OrthogonalConv2d(2, 3, tolerance=1e-12, max_norm=10.0, padding_mode="circular", dtype=torch.float64)
    with torch.no_grad():
        conv.weight.mul_(0.2)
    inputs = [p.detach().clone().requires_grad_() for p in (conv.weight, conv.bias)]

    def apply(x, weight, bias):
        return torch.func.functional_call(conv, {"weight": weight, "bias": bias}, (x,))

    assert gradcheck(apply, (gaussian(1, 2, 4, 4).requires_grad_(), *inputs), fast_mode=True)


def test_precision_types_and_autocast():
    torch.manual_seed(0)
    conv = OrthogonalConv2d(3, 4, bias=False, tolerance=1e-5)
    x = torch.randn(2, 3, 6, 6)
    with torch.autocast("cpu", torch.bfloat16):
        y = conv(x)
    assert y.dtype == torch.float32
    assert torch.equal(y, conv(x))
    half = conv.to(torch.bfloat16)(x.to(torch.bfloat16))
    assert half.dtype == torch.bfloat16
    ratio = half.float().norm().item() / x.to(torch.bfloat16).float().norm().item()
    assert abs(ratio - 1) < 2 * torch.finfo(torch.bfloat16).eps


def test_module_habits():
    conv = OrthogonalConv2d(3, 8)
    assert "OrthogonalConv2d(3, 8, kernel_size=3, padding_mode=zeros, tolerance=0.001)" in repr(conv)
    other = OrthogonalConv2d(3, 8)
    other.load_state_dict(conv.state_dict())
    x = torch.randn(1, 3, 5, 5)
    assert torch.equal(conv(x), other(x))
    assert torch.equal(copy.deepcopy(conv)(x), conv(x))
    assert OrthogonalConv2d(2, 2, device="meta").weight.device.type == "meta"
    compiled = torch.compile(conv, backend="eager", fullgraph=True)
    assert_close(compiled(x), conv(x), rtol=0, atol=2 * conv.tolerance * x.norm().item())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kernel_size": 2}, "odd kernel_size ≥ 1, the same for rows and columns, got 2"),
        ({"padding_mode": "reflect"}, "'zeros' or 'circular', got 'reflect'"),
        ({"tolerance": 0.0}, "tolerance to be a number x with 0 < x < 1, got 0"),
        ({"max_norm": -1.0}, "max_norm to be a finite number > 0, got -1"),
        ({"out_channels": 0}, "out_channels to be an integer ≥ 1, got 0"),
    ],
)
def test_bad_requests_say_what_is_wanted(options, message):
    with pytest.raises(sg.ArgumentError, match=message):
        OrthogonalConv2d(**{"in_channels": 2, "out_channels": 2, **options})


def test_bad_input_says_what_is_wanted():
    with pytest.raises(sg.ShapeError, match=r"\(B, 3, H, W\), got \(2, 4, 5, 5\)"):
        OrthogonalConv2d(3, 3)(torch.zeros(2, 4, 5, 5))
    with pytest.raises(sg.ArgumentError, match="'smaller' or 'rows', got 'columns'"):
        orthogonality_loss(torch.eye(2), side="columns")
    with pytest.raises(sg.ShapeError, match=r"\(\*, m, n\)"):
        orthogonality_loss(torch.ones(3))


def test_a_weight_that_is_not_finite_is_named():
    conv = sg.nn.OrthogonalConv2d(2, 2)
    with torch.no_grad():
        conv.weight[0, 0, 0, 0] = torch.nan
    with pytest.raises(sg.NonFiniteError, match="OrthogonalConv2d: weight"):
        conv(torch.zeros(1, 2, 4, 4))
