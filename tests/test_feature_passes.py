"""The kernel's passes over features: equal to float64 sums, whatever the shape, the scale and the number of threads."""

import pytest
import torch

from spectralgrad.native import kernel
from spectralgrad.nn import DecorrelatedBatchNorm2d
from spectralgrad.nn.functional import feature_matrices
from spectralgrad.solvers.kernel import feature_passes

needs_kernel = pytest.mark.skipif(kernel() is None, reason="no kernel")
# samples, groups, channels of a group, positions: whole panels and remainders of every kind, few and many positions
SHAPES = [
    (1, 1, 8, 16),
    (3, 2, 9, 49),
    (40, 1, 16, 16),
    (19, 3, 12, 17),
    (2, 1, 64, 300),
    (2, 1, 33, 1031),
    (1, 1, 130, 33),
    (3, 5, 4, 20),
    (2, 3, 7, 33),
]
DTYPES = (torch.float32, torch.float64)


def _features(shape, dtype, seed=0, offset=0.0):
    samples, groups, d, n = shape
    generator = torch.Generator().manual_seed(seed)
    X = torch.randn(samples, groups * d, n, generator=generator, dtype=torch.float64) + offset
    return X.to(dtype)


def _wide(X, mean):
    """Features (samples, groups, d, n) in float64, minus a mean."""
    return X.double().view(len(X), *mean.shape, -1) - mean.double().unsqueeze(-1)


@needs_kernel
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("offset", [0.0, 1e3])
def test_moments_equal_sums_in_float64(shape, dtype, offset):
    """Sums of up to 256 products in the type itself, the rest in float64: at most 128 u of the sum of |y||x|."""
    X, Y = _features(shape, dtype, 0, offset), _features(shape, dtype, 1)
    mean = X.double().mean((0, 2)).to(dtype).view(shape[1], shape[2])
    for other in (None, Y):
        C, sums = feature_passes.moments(X, mean, other)
        x = _wide(X, mean)
        y = x if other is None else _wide(Y, torch.zeros_like(mean))
        unit = 256 * torch.finfo(dtype).eps / 2
        assert ((C.double() - (y @ x.mT).sum(0)).abs() <= unit * (y.abs() @ x.abs().mT).sum(0)).all()
        assert ((sums.double() - y.sum((0, 3))).abs() <= unit * y.abs().sum((0, 3))).all()
        assert other is not None or torch.equal(C, C.mT)


@needs_kernel
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_affine_maps_equal_products_in_float64(shape, dtype):
    _, groups, d, _ = shape
    X, Y = _features(shape, dtype, 0), _features(shape, dtype, 1)
    generator = torch.Generator().manual_seed(2)
    A, B = (torch.randn(groups, d, d, generator=generator, dtype=torch.float64).to(dtype) for _ in range(2))
    x0, y0, shift = (torch.randn(groups, d, generator=generator, dtype=torch.float64).to(dtype) for _ in range(3))
    x, y, bar = _wide(X, x0), _wide(Y, y0), (2 * d + 2) * torch.finfo(dtype).eps / 2
    for second, start in ((None, shift), ((X, x0, B), None)):
        out = feature_passes.affine(Y, y0, A, start, second).view(y.shape).double()
        right, size = A.double() @ y, A.double().abs() @ y.abs()
        if second is None:
            right, size = right + shift.double().unsqueeze(-1), size + shift.double().abs().unsqueeze(-1)
        else:
            right, size = right + B.double() @ x, size + B.double().abs() @ x.abs()
        assert ((out - right).abs() <= bar * size).all()


@needs_kernel
def test_results_do_not_depend_on_the_number_of_threads():
    X, mean = _features((33, 1, 16, 200), torch.float32), torch.zeros(1, 16)
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 5):
            torch.set_num_threads(threads)
            found.append((*feature_passes.moments(X, mean, X), feature_passes.affine(X, mean, torch.ones(1, 16, 16))))
    finally:
        torch.set_num_threads(before)
    for other in found[1:]:
        assert all(torch.equal(a, b) for a, b in zip(found[0], other, strict=True))


@needs_kernel
def test_what_the_kernel_does_not_take_is_left_to_torch():
    X, mean = _features((4, 1, 8, 16), torch.float32), torch.zeros(1, 8)
    assert feature_passes.moments(X, mean) is not None
    assert feature_passes.moments(X.double(), mean) is None
    assert feature_passes.moments(X[..., :9], mean) is None
    assert feature_passes.moments(X.transpose(0, 2), torch.zeros(1, 8)) is None
    assert feature_passes.moments(X.to(torch.bfloat16), mean) is None
    assert feature_passes.moments(X.view(8, 4, 16).contiguous(), torch.zeros(2, 2)) is None
    layers_last = torch.randn(4, 8, 4, 4).to(memory_format=torch.channels_last)
    assert feature_passes.moments(layers_last, mean) is None


@needs_kernel
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_layer_is_the_same_with_and_without_the_passes(groups, dtype, monkeypatch):
    generator = torch.Generator().manual_seed(0)
    X, G = (torch.randn(6, 16, 5, 5, generator=generator, dtype=torch.float64).to(dtype) + 3 for _ in range(2))
    X.requires_grad_()
    found, calls = [], []
    for kernels in (True, False):
        if not kernels:
            monkeypatch.setattr(feature_passes, "_kernel", lambda *_: calls.append(1))
        layer = DecorrelatedBatchNorm2d(16, groups=groups, dtype=dtype)
        Y = layer(X)
        found.append([Y, *torch.autograd.grad(Y, [X, *layer.parameters()], G), layer.running_cov])
        assert len(calls) == (0 if kernels else 4)  # two passes forward, two backward
    for ours, torchs in zip(*found, strict=True):
        assert (ours - torchs).abs().max() <= 1000 * torch.finfo(dtype).eps * torchs.abs().max()


def test_an_empty_batch_has_empty_results():
    X, mean = torch.zeros(0, 8, 4, 4), torch.zeros(1, 8)
    assert torch.equal(feature_matrices.outer(X, mean), torch.zeros(1, 8, 8))
    assert feature_matrices.affine(X, mean, torch.ones(1, 8, 8), mean).shape == X.shape
