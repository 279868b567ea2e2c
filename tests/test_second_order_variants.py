"""Second-order heads of later papers against their definitions: RiemGCP, SEB, So-ViT, DropCov, RankFeat."""

import math

import mpmath
import pytest
import torch
from torch import nn
from torch.autograd import gradcheck
from torch.testing import assert_close

import spectralgrad as sg
from spectralgrad.nn import functional
from spectralgrad.nn.functional.dropcov import drop_channels
from spectralgrad.testing import relative_error

from .helpers import unit

DOUBLE = torch.float64


def features(channels=5, positions=9, batch=2, dtype=DOUBLE):
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(batch, channels, positions, generator=generator, dtype=DOUBLE)
    return (X * torch.linspace(0.3, 1.5, channels, dtype=DOUBLE)[:, None]).to(dtype)


def function_of(C, f):
    """f(C) with 50 digits, on the range."""
    with mpmath.workdps(50):
        w, V = mpmath.eigsy(mpmath.matrix(C.tolist()))
        S = V * mpmath.diag([f(x) if x > 1e-12 else mpmath.mpf(0) for x in w]) * V.T
        return torch.tensor([[float(S[i, j]) for j in range(S.cols)] for i in range(S.rows)], dtype=DOUBLE)


def covariance(x):
    return torch.cov(x.double(), correction=0)


@pytest.mark.parametrize("positions", [9, 4], ids=["channels", "positions"])
@pytest.mark.parametrize("power", [0.5, 0.3])
class TestRiemannianHeads:
    def test_scaled(self, power, positions):
        X = features(positions=positions)
        S = functional.covariance_pooling(X, power=power, head="scaled", output="full")
        for x, found in zip(X, S, strict=True):
            assert relative_error(found, function_of(covariance(x), lambda w: w**power / power)) < 1e-12

    def test_tangent(self, power, positions):
        X = features(positions=positions)
        S = functional.covariance_pooling(X, power=power, head="tangent", output="full")
        identity = torch.eye(5, dtype=DOUBLE)
        for x, found in zip(X, S, strict=True):
            assert relative_error(found, (function_of(covariance(x), lambda w: w**power) - identity) / power) < 1e-12


def test_the_tangent_head_tends_to_the_logarithm():
    """The power-Euclidean metrics tend to the log-Euclidean one."""
    X = features()
    log = functional.covariance_pooling(X, power="log")
    errors = [relative_error(functional.covariance_pooling(X, power=p, head="tangent"), log) for p in (1e-2, 1e-4)]
    assert errors[1] < errors[0] / 50 < 1e-3


@pytest.mark.parametrize("options", [{}, {"eps": 0.1}, {"method": "svd-taylor"}, {"compute_dtype": torch.float64}])
@pytest.mark.parametrize("positions", [9, 4])
def test_the_scaling_eigen_branch(positions, options):
    X = features(positions=positions)
    layer = sg.nn.CovariancePooling(5, head="seb", output="full", **options)
    for x, found in zip(X, layer(X), strict=True):
        C = covariance(x) + options.get("eps", 0.0) * torch.eye(5, dtype=DOUBLE)
        root = function_of(C, mpmath.sqrt)
        branch = function_of(C, lambda w: mpmath.sqrt(w) * mpmath.exp(-w)).norm()
        assert relative_error(found, (1 + branch) * root) < 1e-12


def test_the_branch_for_features_of_any_size():
    """Its factor is 1 for large features, whose e^(−C) vanishes, and 1 + √tr C for small ones."""
    X = features(dtype=torch.float32)
    for size in (1e-18, 1e18):
        plain, branch = (functional.covariance_pooling(X * size, head=head) for head in ("plain", "seb"))
        assert_close(branch, plain, rtol=1e-6, atol=0)
    plain, branch = (functional.covariance_pooling(X * 1e-3, head=head, output="full") for head in ("plain", "seb"))
    trace = plain.square().sum((1, 2)).sqrt()
    assert_close(branch[:, 0, 0] / plain[:, 0, 0] - 1, trace, rtol=1e-3, atol=0)


@pytest.mark.parametrize("head", ["scaled", "tangent", "seb"])
def test_gradients_at_ties_and_at_zero(head):
    """Equal eigenvalues: the rows of a Hadamard matrix are features whose covariance is the identity."""
    hadamard = torch.tensor([[1.0, 1, -1, -1], [1.0, -1, 1, -1], [1.0, -1, -1, 1]], dtype=DOUBLE)
    pool = lambda x: functional.covariance_pooling(x, head=head)  # noqa: E731
    assert gradcheck(pool, hadamard[None].requires_grad_())
    X = torch.zeros(2, 3, 4, requires_grad=True)
    pool(X).sum().backward()
    assert bool(torch.isfinite(X.grad).all())


def test_heads_that_do_not_exist():
    with pytest.raises(sg.ArgumentError, match=r"expected head to be 'plain' or .* 'seb', got 'cho'"):
        sg.nn.CovariancePooling(4, head="cho")
    with pytest.raises(sg.ArgumentError, match="expected normalize=False with head='scaled'"):
        sg.nn.CovariancePooling(4, head="scaled", normalize=True)
    with pytest.raises(sg.ArgumentError, match="expected a power other than 0 with head='tangent', got 'log'"):
        sg.nn.CovariancePooling(4, head="tangent", power="log")
    with pytest.raises(sg.ArgumentError, match=r"covariance_pooling: expected power=0\.5 with head='seb', got 0\.3"):
        functional.covariance_pooling(torch.randn(2, 4, 5), head="seb", power=0.3)
    assert "head='seb'" in repr(sg.nn.CovariancePooling(4, head="seb"))


def singular_power(M, power):
    """U Σ^α Vᵀ with 50 digits."""
    with mpmath.workdps(50):
        U, s, Vt = mpmath.svd_r(mpmath.matrix(M.tolist()))
        S = U * mpmath.diag([x**power if x > 1e-12 else mpmath.mpf(0) for x in s]) * Vt
        return torch.tensor([[float(S[i, j]) for j in range(S.cols)] for i in range(S.rows)], dtype=DOUBLE)


def cross_covariance(x, y):
    return (x - x.mean(0)).mT @ (y - y.mean(0)) / len(x)


class TestTokens:
    tokens = torch.randn(2, 3, 7, 4, dtype=DOUBLE, generator=torch.Generator().manual_seed(0))  # X and Y

    @pytest.mark.parametrize("dtype", [torch.float32, DOUBLE], ids=str)
    @pytest.mark.parametrize("power", [0.5, 1.0, 0.25])
    def test_powers_of_all_singular_values(self, power, dtype):
        X, Y = self.tokens.to(dtype)
        S = functional.cross_covariance_pooling(X, Y, power=power)
        for x, y, found in zip(X.double(), Y.double(), S, strict=True):
            assert relative_error(found, singular_power(cross_covariance(x, y), power)) < 1e3 * unit(dtype)

    def test_fewer_tokens_than_features(self):
        X, Y = self.tokens[..., :3, :]
        S = functional.cross_covariance_pooling(X, Y)
        assert relative_error(S[0], singular_power(cross_covariance(X[0], Y[0]), 0.5)) < 1e-10

    def test_the_approximation_has_leading_powers_and_one_divisor_for_the_rest(self):
        X, Y = self.tokens
        S = functional.cross_covariance_pooling(X, Y, leading=2, iterations=300)
        U, s, Vh = torch.linalg.svd(cross_covariance(X[0], Y[0]))
        values = torch.cat([s[:2].sqrt(), s[2:] / (s[1].sqrt() + 1e-5)])
        assert_close(S[0], U @ values.diag() @ Vh, rtol=1e-8, atol=1e-8)

    def test_one_step_starts_from_the_given_vector(self):
        X, Y = self.tokens
        start = torch.arange(1.0, 5.0, dtype=DOUBLE)
        M = cross_covariance(X[0], Y[0])
        u = nn.functional.normalize(M @ start, dim=0)
        v = nn.functional.normalize(M.mT @ u, dim=0)
        s = u @ M @ v
        expected = s.sqrt() * torch.outer(u, v) + (M - s * torch.outer(u, v)) / (s.sqrt() + 1e-5)
        assert_close(functional.cross_covariance_pooling(X, Y, leading=1, start=start)[0], expected)

    def test_centring(self):
        X, Y = self.tokens
        whole = functional.cross_covariance_pooling(X, Y, power=1.0, center="entries")
        assert_close(whole[0], (X[0] - X[0].mean()).mT @ (Y[0] - Y[0].mean()) / 7)
        assert_close(functional.cross_covariance_pooling(X, Y, power=1.0, center="none")[0], X[0].mT @ Y[0] / 7)

    def test_the_layer_projects_each_head(self):
        layer = sg.nn.TokenPooling(4, num_heads=2, head_dim=3, dtype=DOUBLE)
        X = self.tokens[0]
        projected = X @ layer.projection.weight.mT
        expected = [
            functional.cross_covariance_pooling(
                projected[..., 3 * h : 3 * h + 3], projected[..., 6 + 3 * h : 9 + 3 * h]
            )
            for h in range(2)
        ]
        assert_close(layer(X), torch.cat([S.flatten(1) for S in expected], dim=1))

    @pytest.mark.parametrize("leading", [None, 1])
    def test_equal_tokens_have_a_finite_gradient(self, leading):
        layer = sg.nn.TokenPooling(4, num_heads=1, head_dim=3, leading=leading)
        X = torch.ones(2, 5, 4, requires_grad=True)
        layer(X).sum().backward()
        assert all(bool(torch.isfinite(p.grad).all()) for p in (X, *layer.parameters()))

    def test_covariance_pooling_of_tokens_is_that_of_their_transpose(self):
        """The other head of the So-ViT code: a linear reduction, whose bias centring removes, and the root."""
        X = self.tokens[0]
        pool = sg.nn.CovariancePooling(4, reduce_to=3, dtype=DOUBLE, output="full")
        reduced = X @ pool.reduction.weight[..., 0].mT + 5.0
        for x, found in zip(reduced, pool(X.mT), strict=True):
            assert relative_error(found, function_of(covariance(x.detach().mT), mpmath.sqrt)) < 1e-12

    def test_bad_input(self):
        layer = sg.nn.TokenPooling(4, num_heads=2, head_dim=3)
        with pytest.raises(
            sg.ShapeError, match=r"TokenPooling: expected tokens \(B, n, 4\) with n ≥ 1, got shape \(2, 4, 5\)"
        ):
            layer(torch.randn(2, 4, 5))
        with pytest.raises(sg.ArgumentError, match="expected leading to be an integer from 1 to 3, got 4"):
            sg.nn.TokenPooling(4, head_dim=3, leading=4)
        with pytest.raises(sg.NonFiniteError, match="TokenPooling: expected finite input"):
            layer(torch.full((1, 5, 4), torch.nan))
        with pytest.raises(sg.ShapeError, match=r"expected start of shape \(4,\), got \(3,\)"):
            functional.cross_covariance_pooling(*self.tokens, leading=1, start=torch.ones(3))


class TestDropCov:
    X = features(6, 10, 3)

    def test_the_rate(self):
        importance = torch.rand(3, 6, dtype=DOUBLE, generator=torch.Generator().manual_seed(1)) - 0.4
        rows = torch.stack([covariance(x).sum(1) for x in self.X])
        cosines = [torch.dot(y, r) / (y.norm() * r.norm()) for y, r in zip(importance, rows, strict=True)]
        expected = 1 - 10 / math.log2(6) * sum(cosines) / 3
        assert 0 < expected < 1  # otherwise the clamp hides the formula
        assert_close(functional.dropcov_rate(self.X, importance), expected)

    def test_one_position_has_a_rate_and_none_is_refused(self):
        X, importance = features(6, 10, 3), torch.rand(3, 6, dtype=DOUBLE)
        assert 0 <= functional.dropcov_rate(X[..., :1], importance) <= 1
        with pytest.raises(sg.ShapeError, match=r"dropcov_rate: expected features .* got \(3, 6, 0\)"):
            functional.dropcov_rate(X[..., :0], importance)

    def test_channels_are_dropped_whole_and_the_mean_is_preserved(self):
        torch.manual_seed(0)
        X = torch.ones(2000, 4, 3)
        found = drop_channels(X, torch.tensor(0.25))
        values = found[..., 0]
        assert torch.equal(found, values[..., None].expand_as(found))
        assert set(values.unique().tolist()) == {0.0, torch.tensor(1 / 0.75).item()}
        assert abs(values.mean() - 1) < 5 * (0.25 / 0.75 / values.numel()) ** 0.5
        assert drop_channels(X, torch.tensor(1.0)).eq(0).all()

    def test_training_and_evaluation(self):
        layer = sg.nn.DropCov(6, output="full", dtype=DOUBLE)
        assert_close(layer.eval()(self.X), torch.stack([covariance(x) for x in self.X]))
        layer.train()
        torch.manual_seed(3)
        found = layer(self.X)
        y = nn.functional.conv1d(self.X.mean(2)[:, None], layer.attention.weight, padding=1)[:, 0].softmax(1)
        weighted = self.X * (1 + y[..., None])
        torch.manual_seed(3)
        dropped = drop_channels(weighted, functional.dropcov_rate(weighted, y))
        assert_close(found, torch.stack([torch.cov(x, correction=0) for x in dropped]))
        found.sum().backward()
        assert layer.attention.weight.grad.ne(0).any()

    def test_bad_input(self):
        with pytest.raises(sg.ArgumentError, match="DropCov: expected an odd kernel_size, got 2"):
            sg.nn.DropCov(4, kernel_size=2)
        with pytest.raises(sg.ShapeError, match=r"DropCov: expected features \(N, 4, \*\) .* got shape \(2, 5, 3\)"):
            sg.nn.DropCov(4)(torch.randn(2, 5, 3))
        with pytest.raises(sg.ShapeError, match=r"importance \(N, C\), got \(2, 5, 3\) and \(2, 4\)"):
            functional.dropcov_rate(torch.randn(2, 5, 3), torch.randn(2, 4))
        assert functional.dropcov_rate(torch.ones(2, 4, 3), torch.ones(2, 4)) == 1  # constant features

    def test_shapes_and_types(self):
        layer = sg.nn.DropCov(6)
        assert repr(layer).startswith("DropCov(\n  6, output='triangle'")
        assert layer.bfloat16()(self.X.bfloat16()).dtype == torch.bfloat16
        assert layer(torch.randn(0, 6, 4, 4).bfloat16()).shape == (0, layer.out_features)


@pytest.mark.parametrize("k", [0, 1, 2])
def test_rankfeat_removes_the_leading_directions(k):
    X = features(5, 12).view(2, 5, 3, 4)
    found = functional.rankfeat(X, k)
    for x, y in zip(X.flatten(2), found.flatten(2), strict=True):
        U, s, Vh = torch.linalg.svd(x, full_matrices=False)
        assert_close(y, (U[:, k:] * s[k:]) @ Vh[k:])
    assert gradcheck(lambda x: functional.rankfeat(x, k), X[:1].clone().requires_grad_(), fast_mode=True)


def test_rankfeat_with_bad_input():
    with pytest.raises(sg.ArgumentError, match="rankfeat: expected k to be an integer from 0 to 3, got 4"):
        functional.rankfeat(torch.randn(2, 5, 3), 4)
    with pytest.raises(sg.ShapeError, match=r"rankfeat: expected features \(N, C, \*\), got shape \(2, 5\)"):
        functional.rankfeat(torch.randn(2, 5))
