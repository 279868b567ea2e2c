"""The pooling heads of TPAMI Table 7: their values, their gradients, and how a run reaches them."""

import pytest
import torch
from torch.autograd import gradcheck

from spectralgrad.nn import CovariancePooling, SpectralModule, spectral_layers
from spectralgrad_lab import PRESETS, Config, train
from spectralgrad_lab.networks import POOLINGS, build
from spectralgrad_lab.networks.second_order import LOG_EPS, second_order_pooling
from spectralgrad_lab.training.folder_names import label

HEADS = POOLINGS[1:]
DECOMPOSING = tuple(name for name in HEADS if name != "bcnn")


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


@pytest.mark.parametrize("pooling", HEADS)
def test_heads_have_the_features_they_announce(pooling):
    layer, size = head(pooling, channels=6)
    assert layer(features(6)).shape == (2, size)
    assert size == (28 if pooling == "g2denet" else 21)


@pytest.mark.parametrize("pooling", HEADS)
@pytest.mark.parametrize("positions", [(3, 4), (1, 3)], ids=["regular", "singular"])
def test_gradients_are_those_of_the_function(pooling, positions):
    """Also with fewer positions than channels, where the matrices are singular."""
    layer, _ = head(pooling, channels=5)
    assert gradcheck(layer, features(5, positions).requires_grad_(), atol=1e-5)


@pytest.mark.parametrize("pooling", HEADS)
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
    with pytest.raises(ValueError, match=r"need a spectral layer.*other than 'average' and 'bcnn'"):
        Config(layer="batchnorm", pooling="bcnn", nog=True)


@pytest.mark.parametrize("pooling", HEADS)
def test_networks_train_with_every_head(pooling):
    config = Config(
        layer="batchnorm", pooling=pooling, width=4, train_size=64, test_size=32, batch_size=32, epochs=1,
        tensorboard=False, reduce_to=6,
    )  # fmt: skip
    result = train(config)
    assert result.status == "done"
    net = build(config, 1, 28, 10)
    assert list(spectral_layers(net)) == {
        "bcnn": [],
        "improved-bcnn": ["head.pooling.0"],
        "g2denet": ["head.pooling.1"],
    }.get(pooling, ["head.pooling"])
    assert net.before_spectral == ("conv1" if pooling == "bcnn" else "head.reduction.0")


@pytest.mark.parametrize(("pooling", "size"), [*((name, 32_896) for name in HEADS[:-1]), ("g2denet", 33_153)])
def test_alexnet_has_the_heads_of_tpami_table_7(pooling, size):
    with torch.device("meta"):
        net = build(PRESETS["tpami-alexnet"].replaced(pooling=pooling), 3, 224, 1000)
    assert net.classifier[0].in_features == size


def test_published_methods_raise_eigenvalues_to_the_epsilon_of_the_pooling():
    """TPAMI Algorithm 3, line 3; without an ε, the machine's as in the code of the ICCV paper."""
    net = build(Config(pooling="covariance", eps=1e-2, method="svd-taylor", form="published", width=4), 1, 28, 10)
    assert net.head.pooling.method.clamp == 1e-2
    net = build(Config(pooling="covariance", method="svd-taylor", form="published", width=4), 1, 28, 10)
    assert net.head.pooling.method.clamp == 2.0**-52
