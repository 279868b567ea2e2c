"""The layers compute what their formulas say, and their gradients are exact, ties and rank deficiency included."""

import pytest
import torch
from torch import nn
from torch.autograd import gradcheck, gradgradcheck
from torch.testing import assert_close

import spectralgrad as sg
from spectralgrad.diagnostics.every_layer import LAYERS, RUNNING, layer_and_input
from spectralgrad.nn import functional
from spectralgrad.nn.functional.whitening_matrices import leading

from .helpers import noise, unit
from .layers import channel_covariance, conv1, whitened


def input_gradient(layer, X, G):
    X = X.detach().clone().requires_grad_()
    (g,) = torch.autograd.grad(layer(X), X, G)
    return g


@pytest.mark.parametrize("groups", [1, 4])
@pytest.mark.parametrize("shape", [(6, 8, 5, 3), (30, 8), (5, 8, 9), (3, 8, 2, 3, 4)], ids=str)
def test_output_and_gradient_equal_the_textbook(shape, groups):
    torch.manual_seed(0)
    X, G = torch.randn(2, *shape, dtype=torch.float64)
    kind = {2: "1d", 3: "1d", 4: "2d", 5: "3d"}[len(shape)]
    layer = getattr(sg.nn, f"DecorrelatedBatchNorm{kind}")(8, groups=groups, affine=False)
    assert_close(layer(X), whitened(X, groups=groups))
    assert_close(input_gradient(layer, X, G), input_gradient(lambda x: whitened(x, groups=groups), X, G))


@pytest.mark.parametrize("name", LAYERS)
def test_gradcheck_of_the_whole_layer(name):
    layer, X = layer_and_input(name)
    names, parameters = zip(*layer.named_parameters(), strict=True) if list(layer.parameters()) else ((), ())

    def run(x, *values):
        return torch.func.functional_call(layer, dict(zip(names, values, strict=True)), (x,))

    inputs = (X.requires_grad_(), *parameters)
    assert gradcheck(run, inputs, fast_mode=True)
    assert gradgradcheck(run, inputs, fast_mode=True)


@pytest.mark.parametrize("name", RUNNING)
def test_gradcheck_in_evaluation(name):
    layer, X = layer_and_input(name)
    layer(X)
    layer.eval()
    assert gradcheck(layer, (X.requires_grad_(),), fast_mode=True)


@pytest.mark.parametrize("method", ["svd-taylor", "svd-clip", "newton-schulz", "svd-newton", "svd-pi"])
def test_every_method_has_the_gradient_that_the_core_gives_it(method):
    torch.manual_seed(0)
    X, G = torch.randn(2, 5, 6, 7, dtype=torch.float64)

    def composed(x):
        features = x.movedim(1, 0).flatten(1)
        M = sg.covariance(features, eps=1e-2)
        white = sg.matrix_inv_sqrt(M, method=method) @ (features - features.mean(1, keepdim=True))
        return white.view(6, 5, 7).movedim(0, 1)

    layer = sg.nn.DecorrelatedBatchNorm1d(6, affine=False, method=method)
    assert_close(layer(X), composed(X))
    assert_close(input_gradient(layer, X, G), input_gradient(composed, X, G))


def test_rank_deficient_convolution_in_single_precision():
    """The case that kills plain SVD: 27 inputs into 64 channels, where autograd through eigh gives NaN."""
    X = conv1()
    G = torch.randn(X.shape, generator=torch.Generator().manual_seed(1))
    layer = sg.nn.DecorrelatedBatchNorm2d(64, affine=False)
    reference = input_gradient(whitened, X.double(), G.double())
    assert (input_gradient(layer, X, G) - reference).norm() < 1e-4 * reference.norm()

    def plain(x):
        features = x.transpose(0, 1).flatten(1)
        w, V = torch.linalg.eigh(sg.covariance(features, eps=1e-2))
        return (V * w.rsqrt()) @ V.T @ (features - features.mean(1, keepdim=True))

    assert not input_gradient(plain, X, G.transpose(0, 1).flatten(1)).isfinite().all()


@pytest.mark.parametrize("whitening", ["zca", "pca", "cholesky"])
def test_white_output_has_the_covariance_that_the_formula_says(whitening):
    """I − εM⁻¹ in the coordinates of the whitening: W C Wᵀ = I − ε W Wᵀ."""
    X = conv1(samples=16)
    layer = sg.nn.DecorrelatedBatchNorm2d(64, affine=False, whitening=whitening)
    Y = layer(X)
    M = channel_covariance(X) + 1e-2 * torch.eye(64, dtype=torch.float64)
    if whitening == "zca":
        assert (channel_covariance(Y) - torch.eye(64) + 1e-2 * torch.linalg.inv(M)).abs().max() < 1e-4
    elif whitening == "pca":
        w = torch.linalg.eigvalsh(M).flip(0)
        assert (channel_covariance(Y) - torch.diag(1 - 1e-2 / w)).abs().max() < 1e-4
    else:
        L = torch.linalg.inv(torch.linalg.cholesky(M))
        assert (channel_covariance(Y) - torch.eye(64) + 1e-2 * L @ L.T).abs().max() < 1e-4


def test_fewer_samples_than_channels():
    torch.manual_seed(0)
    X = torch.randn(5, 16, dtype=torch.float64)
    layer = sg.nn.DecorrelatedBatchNorm1d(16, eps=0.0, affine=False)
    Y = layer(X.requires_grad_())
    singular = torch.linalg.svdvals(Y.detach() / 5**0.5)
    assert_close(singular, torch.tensor([1.0, 1, 1, 1, 0], dtype=torch.float64), atol=1e-12, rtol=0)
    Y.sum().backward()
    assert X.grad.isfinite().all()


@pytest.mark.parametrize("kind", ["1d", "2d", "3d"])
def test_groups_of_one_channel_are_batch_normalisation(kind):
    torch.manual_seed(0)
    shape = {"1d": (9, 6), "2d": (4, 6, 5, 3), "3d": (2, 6, 3, 2, 4)}[kind]
    ours = getattr(sg.nn, f"DecorrelatedBatchNorm{kind}")(6, eps=1e-5, groups=6, dtype=torch.float64)
    torchs = getattr(nn, f"BatchNorm{kind}")(6, dtype=torch.float64)
    for _ in range(3):
        X, G = 3 * torch.randn(2, *shape, dtype=torch.float64) + 1
        assert_close(ours(X), torchs(X))
        assert_close(input_gradient(ours, X, G), input_gradient(torchs, X, G))
    assert_close(ours.running_cov.flatten(), torchs.running_var)
    assert_close(ours.running_mean, torchs.running_mean)
    assert_close(ours.eval()(X), torchs.eval()(X))


def test_groups_are_layers_of_their_own():
    torch.manual_seed(0)
    X = torch.randn(4, 6, 5, 3, dtype=torch.float64)
    whole = sg.nn.DecorrelatedBatchNorm2d(6, groups=2)
    halves = [sg.nn.DecorrelatedBatchNorm2d(3) for _ in range(2)]
    assert_close(whole(X), torch.cat([half(x) for half, x in zip(halves, X.chunk(2, 1), strict=True)], 1))
    assert_close(whole.running_cov, torch.cat([half.running_cov for half in halves]))


@pytest.mark.parametrize("layout", ["channels_last", "strided", "expanded"])
@pytest.mark.parametrize("groups", [1, 2])
def test_layout_in_memory_does_not_matter(layout, groups):
    torch.manual_seed(0)
    X, G = torch.randn(2, 4, 6, 5, 3, dtype=torch.float64)
    layer = sg.nn.DecorrelatedBatchNorm2d(6, groups=groups)
    expected, gradient = layer(X), input_gradient(layer, X, G)
    if layout == "channels_last":
        X, G = (T.contiguous(memory_format=torch.channels_last) for T in (X, G))
        assert layer(X).is_contiguous(memory_format=torch.channels_last)
    elif layout == "strided":
        X = X.repeat_interleave(2, -1)[..., ::2]
    else:
        G = G[:1, :1, :1, :1].expand(4, 6, 5, 3)
        gradient = input_gradient(layer, X, G.contiguous())
    assert_close(layer(X), expected)
    assert_close(input_gradient(layer, X, G), gradient)


@pytest.mark.parametrize(
    ("shape", "groups"),
    [
        ((300, 64, 6, 6), 4),
        ((3000, 256), 2),
        ((2, 16, 300, 300), 1),
        ((90, 256, 5, 5), 1),
        ((2, 48, 120, 120), 6),
        ((2, 8, 400, 400), 2),
    ],
    ids=str,
)
def test_large_batches_come_in_pieces(shape, groups):
    """More than one piece of the cache-sized passes: over samples, rows, positions and groups, short rows joined."""
    torch.manual_seed(0)
    X, G = torch.randn(2, *shape)
    layer = getattr(sg.nn, f"DecorrelatedBatchNorm{'2d' if len(shape) == 4 else '1d'}")(shape[1], groups=groups)

    def reference(x):
        features = x.transpose(0, 1).reshape(groups, shape[1] // groups, -1)
        white = sg.matrix_inv_sqrt(sg.covariance(features, eps=1e-2)) @ (features - features.mean(-1, keepdim=True))
        return white.view(shape[1], shape[0], *shape[2:]).transpose(0, 1)

    expected = input_gradient(reference, X.double(), G.double())
    assert (layer(X) - reference(X.double())).abs().max() < 1e-4
    assert (input_gradient(layer, X, G) - expected).norm() < 1e-5 * expected.norm()


def test_a_huge_mean_costs_no_accuracy():
    """E[xx] − E[x]E[x] would lose all digits here; centring first loses none."""
    torch.manual_seed(0)
    X = torch.randn(64, 8, 6, 6).mul(2**10).round().div(2**10)  # so that adding the mean is exact
    far = X + 1000.0
    layer = sg.nn.DecorrelatedBatchNorm2d(8, affine=False)
    assert (layer(far) - layer(far.double() - 1000).float()).abs().max() < 64 * unit(torch.float32) * 1000
    C = channel_covariance(far) * far[:, 0].numel() / (far[:, 0].numel() - 1)
    fresh = sg.nn.DecorrelatedBatchNorm2d(8, momentum=1.0)
    fresh(far)
    assert (fresh.running_cov[0] - C).abs().max() < 64 * unit(torch.float32)


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last], ids=str)
def test_the_mean_of_many_values_is_exact_to_rounding(layout):
    torch.manual_seed(0)
    X = (torch.randn(64, 8, 32, 32) + 100).contiguous(memory_format=layout)
    layer = sg.nn.DecorrelatedBatchNorm2d(8, momentum=1.0, affine=False)
    Y = layer(X)
    mean = X.double().mean((0, 2, 3))
    assert ((layer.running_mean - mean).abs() <= 2 * unit(torch.float32) * mean).all()
    assert Y.mean((0, 2, 3), dtype=torch.float64).abs().max() < 4 * unit(torch.float32) * 100


@pytest.mark.parametrize("scale", [1e-15, 1e-9, 1e9, 1e15])
def test_scale_does_not_matter(scale):
    """With ε = 0 the output is the same and the gradient scales as 1/c, though M^(-3/2) leaves float32."""
    torch.manual_seed(0)
    X, G = torch.randn(2, 6, 8, 5, 5)
    layer = sg.nn.DecorrelatedBatchNorm2d(8, eps=0.0, affine=False)
    scaled = X * scale
    expected, gradient = layer(X.double()), input_gradient(layer, X.double(), G.double())
    assert (layer(scaled) - expected).abs().max() < 1e-5
    assert (input_gradient(layer, scaled, G).double() * scale - gradient).norm() < 1e-5 * gradient.norm()


def test_constant_channels_stay_constant_and_finite():
    torch.manual_seed(0)
    X = torch.randn(4, 6, 5, 5)
    X[:, 2], X[:, 4] = 7.0, 0.0
    for eps in (0.0, 1e-2):
        layer = sg.nn.DecorrelatedBatchNorm2d(6, eps=eps, affine=False)
        Y = layer(X.requires_grad_())
        assert Y[:, [2, 4]].abs().max() < 1e-5
        assert torch.autograd.grad(Y.square().sum() + Y.sum(), X)[0].isfinite().all()


def test_two_samples():
    X = torch.tensor([[1.0, 5.0], [3.0, 5.0]], dtype=torch.float64)
    layer = sg.nn.DecorrelatedBatchNorm1d(2, eps=0.0, affine=False)
    assert_close(layer(X), torch.tensor([[-1.0, 0], [1, 0]], dtype=torch.float64))


class TestDenoising:
    def test_all_kept_is_batch_normalisation(self):
        torch.manual_seed(0)
        ours, torchs = sg.nn.PCADenoising2d(6, keep=1.0).double(), nn.BatchNorm2d(6).double()
        six = sg.nn.PCADenoising2d(6, keep=6).double()
        for _ in range(2):
            X, G = torch.randn(2, 4, 6, 5, 3, dtype=torch.float64)
            expected = torchs(X)
            assert_close(ours(X), expected)
            assert_close(six(X), expected)
            assert_close(input_gradient(ours, X, G), input_gradient(torchs, X, G))
        assert_close(ours.eval()(X), torchs.eval()(X))

    @pytest.mark.parametrize("keep", [1.0, 6])
    def test_all_kept_needs_no_decomposition(self, keep):
        """Uncorrelated features tie all eigenvalues, where plain SVD has no gradient."""
        pair = torch.tensor([[1.0, 1.0], [1.0, -1.0]], dtype=torch.float64)
        X, G = torch.kron(pair, torch.kron(pair, pair))[:, 1:7], noise(8, 6)
        ours, torchs = sg.nn.PCADenoising1d(6, keep=keep, method="svd").double(), nn.BatchNorm1d(6).double()
        assert_close(input_gradient(ours, X, G), input_gradient(torchs, X, G))

    @pytest.mark.parametrize("keep", [1, 3, 0.5, 0.9])
    def test_projection_of_standardised_features(self, keep):
        torch.manual_seed(0)
        X = torch.randn(50, 6, dtype=torch.float64) @ torch.randn(6, 6, dtype=torch.float64)
        standard = (X - X.mean(0)) / (X.var(0, correction=0) + 1e-5).sqrt()
        _, S, Vh = torch.linalg.svd(standard, full_matrices=False)
        share = S.square().cumsum(0) / S.square().sum()
        count = keep if isinstance(keep, int) else int((share < keep).sum()) + 1
        layer = sg.nn.PCADenoising1d(6, keep=keep, affine=False)
        assert_close(layer(X), standard @ Vh[:count].T @ Vh[:count])

    def test_evaluation_uses_running_statistics(self):
        torch.manual_seed(0)
        X = torch.randn(500, 6, dtype=torch.float64) @ torch.randn(6, 6, dtype=torch.float64)
        layer = sg.nn.PCADenoising1d(6, keep=2, momentum=1.0).double()
        trained = layer(X)
        assert_close(layer.eval()(X), trained, rtol=2e-3, atol=2e-3)  # n − 1 instead of n
        assert torch.linalg.matrix_rank(layer(torch.randn_like(X)) - layer.bias) <= 3


class TestPooling:
    @pytest.mark.parametrize("shape", [(3, 5, 4, 4), (3, 9, 2, 3)], ids=["channels", "positions"])
    @pytest.mark.parametrize("power", [0.5, 0.3, 1.0, 2.0, "log"])
    def test_both_sides_give_the_function_of_the_covariance(self, shape, power):
        torch.manual_seed(0)
        X = torch.randn(shape, dtype=torch.float64)
        C = torch.stack([torch.cov(x.flatten(1), correction=0) for x in X])
        w, V = torch.linalg.eigh(C)
        kept = w > 1e-12
        f = w.clamp_min(1e-300).log() if power == "log" else w.clamp_min(0) ** power
        expected = (V * torch.where(kept, f, 0).unsqueeze(-2)) @ V.mT
        results = [
            functional.covariance_pooling(X, power=power, output="full", side=side)
            for side in ("auto", "channels", "positions")
        ]
        for result in results:
            assert_close(result, expected, atol=1e-10, rtol=1e-10)

    def test_the_smaller_side_is_decomposed(self):
        layer = sg.nn.CovariancePooling(9)
        sizes = []
        layer.register_spectral_hook(lambda _, M: sizes.append(M.shape[-1]))
        layer(torch.randn(2, 9, 2, 2))
        layer.method = "newton-schulz"
        layer(torch.randn(2, 9, 2, 2))
        assert sizes == [4, 9]

    def test_normalised_to_frobenius_norm_one(self):
        X = torch.randn(3, 5, 4, 4) * torch.tensor([1e-12, 1.0, 1e12]).view(3, 1, 1, 1)
        S = functional.covariance_pooling(X, normalize=True, output="full")
        assert_close(S.flatten(1).norm(dim=1), torch.ones(3))
        assert functional.covariance_pooling(torch.ones(1, 3, 2, 2), normalize=True).eq(0).all()

    def test_triangle_is_the_upper_one_row_by_row(self):
        X = torch.randn(2, 4, 3, 3)
        full = functional.covariance_pooling(X, output="full")
        rows, columns = torch.triu_indices(4, 4)
        assert_close(functional.covariance_pooling(X), full[:, rows, columns])

    def test_newton_schulz_is_isqrt_cov(self):
        """Trace pre-normalisation, five coupled steps, post-compensation by the root of the trace."""
        X = torch.randn(2, 4, 5, 5, dtype=torch.float64)
        C = torch.stack([torch.cov(x.flatten(1), correction=0) for x in X])
        trace = C.diagonal(dim1=-2, dim2=-1).sum(-1)[:, None, None]
        Y, Z = C / trace, torch.eye(4, dtype=torch.float64).expand(2, 4, 4)
        for _ in range(5):
            T = (3 * torch.eye(4, dtype=torch.float64) - Z @ Y) / 2
            Y, Z = Y @ T, T @ Z
        assert_close(functional.covariance_pooling(X, method="newton-schulz", output="full"), Y * trace.sqrt())


class TestColoring:
    def test_result_has_the_style_statistics(self):
        torch.manual_seed(0)
        content = torch.randn(2, 6, 9, 9, dtype=torch.float64)
        mix = torch.randn(6, 6, dtype=torch.float64)
        style = torch.einsum("ij,njhw->nihw", mix, torch.randn(2, 6, 7, 8, dtype=torch.float64)) + 3
        for groups in (1, 3):
            Y = functional.wct(content, style, groups=groups, eps=0.0)
            for y, s in zip(Y, style, strict=True):
                ours, wanted = torch.cov(y.flatten(1), correction=0), torch.cov(s.flatten(1), correction=0)
                mask = torch.block_diag(*[torch.ones(6 // groups, 6 // groups)] * groups).bool()
                assert_close(ours[mask], wanted[mask])
                assert_close(y.mean((1, 2)), s.mean((1, 2)))

    def test_a_map_transferred_on_itself_comes_back(self):
        X = torch.randn(2, 6, 9, 9, dtype=torch.float64) + 2
        assert_close(functional.wct(X, X), X)

    def test_strength_is_a_mixture(self):
        content, style = torch.randn(2, 1, 4, 6, 6, dtype=torch.float64)
        full = functional.wct(content, style)
        assert_close(functional.wct(content, style, strength=0.0), content)
        assert_close(functional.wct(content, style, strength=0.25), 0.25 * full + 0.75 * content)

    def test_a_tensor_of_strengths_leaves_the_type_alone(self):
        content, style = torch.randn(2, 2, 4, 6, 6).bfloat16()
        strength = torch.tensor([0.0, 1.0]).view(2, 1, 1, 1)
        Y = functional.wct(content, style, strength=strength)
        assert_close(Y, torch.stack([content[0], functional.wct(content, style)[1]]))

    def test_given_matrices_are_applied_to_white_features(self):
        content = torch.randn(2, 4, 6, 6, dtype=torch.float64)
        matrix, mean = torch.randn(2, 2, 2, 2, dtype=torch.float64), torch.randn(2, 4, dtype=torch.float64)
        white = functional.whiten(content, groups=2)
        expected = torch.einsum("ngij,ngjhw->ngihw", matrix, white.view(2, 2, 2, 6, 6)).flatten(1, 2)
        expected = expected + mean[..., None, None]
        assert_close(functional.wct(content, matrix=matrix, mean=mean, groups=2), expected)
        layer = sg.nn.WhiteningColoring2d(groups=2)
        assert_close(layer(content, matrix=matrix, mean=mean), expected)

    def test_every_sample_has_its_own_given_matrix_whatever_is_whitened_together(self):
        """TPAMI 2021 whitens over the batch, and colours each sample with the matrix of its own style."""
        content = torch.randn(3, 4, 5, 5, dtype=torch.float64)
        matrix, mean = torch.randn(3, 2, 2, 2, dtype=torch.float64), torch.randn(3, 4, dtype=torch.float64)
        white = functional.whiten(content, groups=2, per_sample=False)
        expected = torch.einsum("ngij,ngjhw->ngihw", matrix, white.view(3, 2, 2, 5, 5)).flatten(1, 2)
        layer = sg.nn.WhiteningColoring2d(groups=2, per_sample=False)
        assert_close(layer(content, matrix=matrix, mean=mean), expected + mean[..., None, None])

    def test_statistics_of_the_batch_or_of_each_sample(self):
        X = torch.randn(3, 4, 5, 5, dtype=torch.float64)
        joint = functional.whiten(X, eps=0.0, per_sample=False)
        assert_close(channel_covariance(joint), torch.eye(4, dtype=torch.float64))
        assert_close(functional.whiten(X), torch.cat([functional.whiten(x[None]) for x in X]))

    def test_whitening_is_the_nearest_one(self):
        """ZCA moves the features least among all whitenings of the same data."""
        torch.manual_seed(0)
        X = torch.randn(1, 5, 20, 20, dtype=torch.float64) * torch.arange(1, 6).view(1, 5, 1, 1)
        X = X - X.mean((2, 3), keepdim=True)
        distance = {
            kind: (functional.whiten(X, eps=0.0, whitening=kind) - X).norm() for kind in ("zca", "pca", "cholesky")
        }
        assert min(distance, key=distance.get) == "zca"


def test_the_share_of_variance_is_held_by_the_fewest_vectors():
    """A share that is reached exactly needs no further vector."""
    assert leading(torch.tensor([1.0, 1.0, 2.0]), 0.5).tolist() == [False, False, True]
    assert leading(torch.tensor([1.0, 1.0, 2.0]), 0.75).tolist() == [False, True, True]


@pytest.mark.parametrize("power", [0.5, 0.3, "log"])
@pytest.mark.parametrize("center", [True, False])
def test_pooling_from_positions_has_the_gradient_of_pooling_from_channels(center, power):
    X = torch.randn(2, 6, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    weights = torch.randn(2, 21, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    pool = lambda side: functional.covariance_pooling(X, power=power, center=center, side=side)  # noqa: E731
    gradients = (torch.autograd.grad((pool(side) * weights).sum(), X)[0] for side in ("positions", "channels"))
    assert_close(*gradients, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
def test_normalised_pooling_does_not_depend_on_the_scale(scale):
    """The squares of these covariances leave single precision."""
    X = torch.randn(2, 3, 8, generator=torch.Generator().manual_seed(0))
    pooled = lambda features: functional.covariance_pooling(features, power=1.0, normalize=True)  # noqa: E731
    assert_close(pooled(X * scale**0.5), pooled(X))


@pytest.mark.parametrize("groups", [1, 2])
def test_normalization_by_a_matrix_whose_gradient_is_not_symmetric(groups):
    """W = BCD: then C̄ = BᵀW̄Dᵀ has no symmetry, and only its symmetric part is a gradient of the features."""
    X, G = noise(5, 4, 3), noise(5, 4, 3, seed=1)
    B, D = noise(4 // groups, 4 // groups, seed=2), noise(4 // groups, 4 // groups, seed=3)
    weight, bias = (noise(4, seed=seed).requires_grad_() for seed in (4, 5))

    def composed(x):
        parts = []
        for part in x.transpose(0, 1).reshape(groups, -1, 15):
            centered = part - part.mean(-1, keepdim=True)
            parts.append(B @ (centered @ centered.mT / 15) @ D @ centered)
        Y = torch.stack(parts).reshape(4, 5, 3).transpose(0, 1)
        return weight[:, None] * Y + bias[:, None]

    ours = lambda x: functional.normalization.normalize(x, lambda C: B @ C @ D, weight, bias, groups=groups).output  # noqa: E731
    assert_close(ours(X), composed(X))
    for leaf in (X.requires_grad_(), weight, bias):
        expected, found = (torch.autograd.grad(f(X), leaf, G)[0] for f in (composed, ours))
        assert_close(found, expected)
