"""The pooling heads of TPAMI Table 7 and later ones: their values, their gradients, and how a run reaches them."""

import pytest
import torch
from torch.autograd import gradcheck

from spectralgrad.nn import CovariancePooling, SpectralModule, spectral_layers
from spectralgrad_lab import PRESETS, Config, train
from spectralgrad_lab.comparison.grid import grid
from spectralgrad_lab.comparison.results import summarize
from spectralgrad_lab.networks import POOLINGS, UNDECOMPOSED, build
from spectralgrad_lab.networks.second_order import LOG_EPS, second_order_pooling
from spectralgrad_lab.training.config.folder_names import label
from spectralgrad_lab.training.storage.records import Result

POOLED = POOLINGS[1:]
DECOMPOSING = tuple(name for name in POOLED if name not in UNDECOMPOSED)


def head(pooling, channels=4, **spectral):
    return second_order_pooling(pooling, channels, 0.5, False, spectral)


def of_matrix(A, f):
    """f(A) from numpy's eigenvectors, for a matrix of full rank."""
    w, V = torch.linalg.eigh(A)
    return (V * f(w)) @ V.T


def vector(S):
    """Signed roots of all entries of a symmetric matrix, of norm 1."""
    v = S.flatten().sign() * S.flatten().abs().sqrt()
    return v / v.norm()


def features(channels=4, positions=(3, 4), batch=2):
    generator = torch.Generator().manual_seed(0)
    return torch.randn(batch, channels, *positions, generator=generator, dtype=torch.float64)


def moment(x):
    return x.flatten(1) @ x.flatten(1).T / x[0].numel()


def test_deepo2p_is_the_logarithm_of_the_second_moment():
    layer, _ = head("deepo2p")
    x = features()
    S = of_matrix(moment(x[0]) + LOG_EPS * torch.eye(4, dtype=x.dtype), torch.log)
    rows, columns = torch.triu_indices(4, 4)
    torch.testing.assert_close(layer(x)[0], S[rows, columns])


def test_g2denet_is_the_root_of_the_gaussian_embedding():
    layer, _ = head("g2denet")
    x = features()
    mean, covariance = x[0].flatten(1).mean(1), torch.cov(x[0].flatten(1), correction=0)
    embedding = torch.ones(5, 5, dtype=x.dtype)
    embedding[:4, :4], embedding[:4, 4], embedding[4, :4] = covariance + torch.outer(mean, mean), mean, mean
    rows, columns = torch.triu_indices(5, 5)
    torch.testing.assert_close(layer(x)[0], of_matrix(embedding, torch.sqrt)[rows, columns])


@pytest.mark.parametrize("pooling", ["bcnn", "improved-bcnn"])
def test_bilinear_pooling_has_the_inner_products_of_the_whole_matrix(pooling):
    layer, _ = head(pooling)
    x = features()
    whole = [vector(moment(y) if pooling == "bcnn" else of_matrix(moment(y), torch.sqrt)) for y in x]
    pooled = layer(x)
    torch.testing.assert_close(pooled[0] @ pooled[1], whole[0] @ whole[1], rtol=0, atol=1e-6)  # δ = 1e-8
    torch.testing.assert_close(pooled.norm(dim=1), torch.ones(2, dtype=x.dtype))
    torch.testing.assert_close(pooled[0, 0], whole[0][0], rtol=0, atol=1e-6)


@pytest.mark.parametrize("pooling", POOLED)
def test_heads_have_the_features_they_announce(pooling):
    layer, size = head(pooling, channels=6)
    assert layer.double()(features(6)).shape == (2, size)
    assert size == {"g2denet": 28, "tokens": 24}.get(pooling, 21)


@pytest.mark.parametrize("pooling", POOLED)
@pytest.mark.parametrize("positions", [(3, 4), (1, 3)], ids=["regular", "singular"])
def test_gradients_are_those_of_the_function(pooling, positions):
    """Also with fewer positions than channels, where the matrices are singular."""
    layer, _ = head(pooling, channels=5)
    layer = layer.double().eval()  # DropCov is random in training
    assert gradcheck(layer, features(5, positions).requires_grad_(), atol=1e-5)


@pytest.mark.parametrize("pooling", POOLED)
def test_features_of_zeros_have_a_finite_gradient(pooling):
    layer, _ = head(pooling)
    x = torch.zeros(1, 4, 3, 3, requires_grad=True)
    layer(x).sum().backward()
    assert bool(torch.isfinite(x.grad).all())


@pytest.mark.parametrize("pooling", DECOMPOSING)
def test_heads_that_decompose_are_watched_and_change_their_method(pooling):
    layer, _ = head(pooling, method="svd-pade", compute_dtype=torch.float64)
    (found,) = (module for module in layer.modules() if isinstance(module, SpectralModule))
    assert isinstance(found, CovariancePooling)
    assert (found.method.name, found.compute_dtype) == ("svd-pade", torch.float64)
    sizes = []
    found.register_spectral_hook(lambda _, matrices: sizes.append(matrices.shape[-1]))
    layer(features())
    assert sizes == [5 if pooling == "g2denet" else 4]


@pytest.mark.parametrize(
    ("pooling", "operations", "name"),
    [
        ("average", (), "batchnorm"),
        ("bcnn", (), "bcnn"),
        ("covariance", ("sqrt",), "exact"),
        ("improved-bcnn", ("sqrt",), "exact"),
        ("deepo2p", ("log",), "exact"),
        ("g2denet", ("sqrt",), "exact"),
        ("seb", ("sqrt",), "exact"),
        ("scaled-power", ("sqrt",), "exact"),
        ("dropcov", (), "dropcov"),
        ("tokens", (), "tokens"),
    ],
)
def test_a_configuration_knows_what_its_pooling_decomposes(pooling, operations, name):
    config = Config(layer="batchnorm", pooling=pooling)
    assert config.operations == operations
    assert config.spectral == bool(operations)
    assert label(config) == name


def test_methods_that_the_pooling_cannot_use_are_refused():
    with pytest.raises(ValueError, match="'newton-schulz' is not available for log"):
        Config(layer="batchnorm", pooling="deepo2p", method="newton-schulz")
    assert Config(layer="batchnorm", pooling="g2denet", method="newton-schulz").operations == ("sqrt",)
    with pytest.raises(ValueError, match=r"need a spectral layer.*other than average, bcnn, dropcov, tokens"):
        Config(layer="batchnorm", pooling="bcnn", nog=True)


@pytest.mark.parametrize("pooling", POOLED)
def test_networks_train_with_every_head(pooling):
    config = Config(
        layer="batchnorm", pooling=pooling, width=4, train_size=64, test_size=32, batch_size=32, epochs=1,
        tensorboard=False, reduce_to=6,
    )  # fmt: skip
    result = train(config)
    assert result.status == "done"
    net = build(config, 1, 28, 10)
    assert list(spectral_layers(net)) == {
        **{name: [] for name in UNDECOMPOSED},
        "improved-bcnn": ["head.pooling.0"],
        "g2denet": ["head.pooling.1"],
    }.get(pooling, ["head.pooling"])
    assert net.before_spectral == ("conv1" if pooling in UNDECOMPOSED else "head.reduction.0")


@pytest.mark.parametrize(
    ("pooling", "size"), [(name, {"g2denet": 33_153, "tokens": 32_856}.get(name, 32_896)) for name in POOLED]
)
def test_alexnet_has_the_heads_of_tpami_table_7(pooling, size):
    with torch.device("meta"):
        net = build(PRESETS["tpami-alexnet"].replaced(pooling=pooling), 3, 224, 1000)
    assert net.classifier[0].in_features == size


@pytest.mark.parametrize("name", ["scaled", "tangent", "seb"])
def test_heads_of_covariance_pooling(name):
    """Their values are tested with the library."""
    pooling = {"scaled": "scaled-power", "tangent": "tangent-power"}.get(name, name)
    layer, _ = head(pooling)
    assert (type(layer), layer.head) == (CovariancePooling, name)


def test_tokens_are_the_positions():
    layer, _ = head("tokens")
    x = features().float()
    assert torch.equal(layer(x), layer[1](x.flatten(2).transpose(1, 2)))


def test_a_comparison_of_poolings():
    base = Config(layer="batchnorm", reduce_to=8)
    runs = grid(base, ("exact", "svd-pade"), seeds=(0, 1), poolings=("average", "seb", "tokens"))
    names = [(run.pooling, label(run), run.seed) for run in runs]
    one = [("average", "batchnorm"), ("seb", "exact"), ("seb", "svd-pade"), ("tokens", "tokens")]
    assert names == [(*row, seed) for seed in (0, 1) for row in one]
    rows = summarize([Result(run) for run in runs])
    assert [row.name for row in rows] == [
        "batchnorm", "exact pooling=seb", "svd-pade pooling=seb", "tokens pooling=tokens"
    ]  # fmt: skip


def test_published_methods_raise_eigenvalues_to_the_epsilon_of_the_pooling():
    """TPAMI Algorithm 3, line 3; without an ε, the machine's as in the code of the ICCV paper."""
    net = build(Config(pooling="covariance", eps=1e-2, method="svd-taylor", form="published", width=4), 1, 28, 10)
    assert net.head.pooling.method.clamp == 1e-2
    net = build(Config(pooling="covariance", method="svd-taylor", form="published", width=4), 1, 28, 10)
    assert net.head.pooling.method.clamp == 2.0**-52
