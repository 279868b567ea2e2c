"""The layers as citizens of torch.nn: state, train and eval, repr, copies, types, hooks, live methods."""

import copy
import inspect
import io
import pickle
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel
from torch.testing import assert_close

import spectralgrad as sg
from spectralgrad.diagnostics.every_layer import LAYERS, RUNNING, STATELESS, layer_and_input
from spectralgrad.nn.functional import feature_matrices

from .layers import conv1

FLOATS = (torch.float32, torch.float64)


def trained(name, steps=2, **options):
    layer, X = layer_and_input(name, **options)
    for step in range(steps):
        layer(X * (step + 1))
    return layer, X


@pytest.mark.parametrize("name", LAYERS)
def test_state_dict_round_trip(name):
    layer, X = trained(name)
    saved = io.BytesIO()
    torch.save(layer.state_dict(), saved)
    saved.seek(0)
    other, _ = layer_and_input(name, seed=1)
    other.eval()
    other.load_state_dict(torch.load(saved))
    assert_close(other(X), layer.eval()(X), rtol=0, atol=0)


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda layer: pickle.loads(pickle.dumps(layer))])
@pytest.mark.parametrize("name", LAYERS)
def test_copies_are_equal_and_independent(name, duplicate):
    layer, X = trained(name)
    for mode in (True, False):
        layer.train(mode)
        other = duplicate(layer)
        assert other.training == mode
        assert_close(other(X), layer(X), rtol=0, atol=0)
    before = {key: value.clone() for key, value in layer.state_dict().items()}
    other.train()(X)
    assert all(torch.equal(value, before[key]) for key, value in layer.state_dict().items())


@pytest.mark.parametrize("name", RUNNING | STATELESS)
def test_repr_names_the_method(name):
    layer, _ = layer_and_input(name)
    assert "method='" in repr(layer)
    assert repr(layer).startswith(("_Transfer", name.split("-")[0] + "("))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("name", LAYERS)
def test_types_and_moves(name, dtype):
    layer, X = trained(name)
    layer.to(dtype)
    assert layer(X.to(dtype)).dtype == dtype
    expected = layer.eval()(X.to(dtype))
    assert_close(layer.double()(X), expected.double(), rtol=1e-4, atol=1e-4)
    assert all(tensor.is_meta for tensor in layer.to("meta").state_dict().values())


def test_the_state_has_torchs_names():
    state = sg.nn.DecorrelatedBatchNorm2d(6, groups=2).state_dict()
    shapes = {key: tuple(value.shape) for key, value in state.items()}
    assert shapes == {
        "weight": (6,),
        "bias": (6,),
        "running_mean": (6,),
        "running_cov": (2, 3, 3),
        "num_batches_tracked": (),
    }
    bare = sg.nn.DecorrelatedBatchNorm2d(6, affine=False, track_running_stats=False)
    assert not bare.state_dict()
    assert bare.running_mean is bare.running_cov is bare.num_batches_tracked is bare.weight is None
    assert list(sg.nn.DecorrelatedBatchNorm2d(6, bias=False, track_running_stats=False).state_dict()) == ["weight"]


def test_a_state_of_the_other_statistics_is_refused():
    state = sg.nn.DecorrelatedBatchNorm2d(6).state_dict()
    other = sg.nn.DecorrelatedBatchNorm2d(6, statistics="whitening")
    with pytest.raises(RuntimeError, match=r"Missing key.*running_whitening[\s\S]*Unexpected key.*running_cov"):
        other.load_state_dict(state)


@pytest.mark.parametrize("momentum", [0.1, 1.0, None])
@pytest.mark.parametrize("statistics", ["covariance", "whitening"])
def test_running_statistics_are_the_averages_they_say(statistics, momentum):
    torch.manual_seed(0)
    layer = sg.nn.DecorrelatedBatchNorm1d(3, momentum=momentum, statistics=statistics).double()
    mean, matrix = torch.zeros(3, dtype=torch.float64), torch.eye(3, dtype=torch.float64)
    for step in range(1, 4):
        X = torch.randn(20, 3, dtype=torch.float64) + step
        layer(X)
        rate = 1 / step if momentum is None else momentum
        if statistics == "covariance":
            batch = torch.cov(X.T)
        else:
            w, V = torch.linalg.eigh(torch.cov(X.T, correction=0) + 1e-2 * torch.eye(3))
            batch = (V / w.sqrt()) @ V.T
        mean, matrix = (1 - rate) * mean + rate * X.mean(0), (1 - rate) * matrix + rate * batch
    assert layer.num_batches_tracked == 3
    assert_close(layer.running_mean, mean)
    assert_close(layer._averaged[0], matrix)


def test_averaged_projectors_are_as_released_up_to_the_divisor_of_the_variance():
    """The released layer standardises with n − 1, which for 20 rows is ε larger by a factor of 20/19 here."""
    torch.manual_seed(0)
    layer = sg.nn.PCADenoising1d(4, keep=2, eps=1e-3, affine=False, statistics="projector").double()
    mean, variance = torch.zeros(4, dtype=torch.float64), torch.ones(4, dtype=torch.float64)
    projector = torch.eye(4, dtype=torch.float64)
    for step in range(3):
        X = torch.randn(20, 4, dtype=torch.float64) @ torch.randn(4, 4, dtype=torch.float64) + step
        Y = layer(X)
        Z = (X - X.mean(0)) / (X.var(0, correction=0) + 1e-3).sqrt()
        V = torch.linalg.svd(Z).Vh[:2].T
        assert_close(Y, Z @ V @ V.T)
        mean, variance = 0.9 * mean + 0.1 * X.mean(0), 0.9 * variance + 0.1 * X.var(0)
        projector = 0.9 * projector + 0.1 * V @ V.T
    assert_close(layer.running_projector[0], projector)
    assert_close(layer.running_var, variance)
    assert_close(layer.eval()(X), (X - mean) / (variance + 1e-3).sqrt() @ projector)


@pytest.mark.parametrize("name", RUNNING)
def test_evaluation_before_training_divides_by_the_root_of_one_plus_eps(name):
    layer, X = layer_and_input(name, affine=False)
    Y = layer.eval()(X)
    if "whitening" in name:
        assert_close(Y, X)
    elif "PCA" not in name:
        assert_close(Y.movedim(1, -1).norm(dim=-1), X.movedim(1, -1).norm(dim=-1) / 1.01**0.5)
    else:
        assert (Y.movedim(1, -1).norm(dim=-1) <= X.movedim(1, -1).norm(dim=-1)).all()


@pytest.mark.parametrize("name", RUNNING)
def test_evaluation_is_a_fixed_affine_map(name):
    layer, X = trained(name)
    layer.eval()
    state = {key: value.clone() for key, value in layer.state_dict().items()}
    assert_close(layer(X)[:2], layer(X[:2]))
    zero = layer(torch.zeros_like(X))
    assert_close(layer(2 * X) - zero, 2 * (layer(X) - zero))
    assert all(torch.equal(value, state[key]) for key, value in layer.state_dict().items())


@pytest.mark.parametrize("name", RUNNING)
def test_buffers_are_the_same_in_training_and_evaluation(name):
    """Averages of a net go through the buffers of both in step, the average evaluated and the net in training."""
    layer, X = layer_and_input(name)
    net = nn.Sequential(layer, nn.BatchNorm1d(8) if X.dim() < 4 else nn.Identity()).double()
    average = AveragedModel(net, use_buffers=True, avg_fn=lambda average, new, count: (average + new) / 2)
    for scale in (1, 3):
        net(scale * X)
        average.update_parameters(net)
        average.eval()
    assert [name for name, _ in net.named_buffers()] == [name for name, _ in average.module.named_buffers()]
    fresh = copy.deepcopy(average.module).train().eval()
    assert_close(average(X), fresh(X), rtol=0, atol=0)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("grad", [True, False])
def test_the_layout_of_the_input_is_kept(training, grad):
    layer, X = layer_and_input("DecorrelatedBatchNorm2d")
    layer.train(training)
    for layout in (torch.contiguous_format, torch.channels_last):
        with torch.set_grad_enabled(grad):
            assert layer(X.contiguous(memory_format=layout)).is_contiguous(memory_format=layout)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_evaluation_without_gradients_goes_in_pieces(mode, monkeypatch):
    """A view of a parameter requires a gradient even where none is recorded; that must not cost the faster way."""
    layer, X = trained("DecorrelatedBatchNorm2d")
    expected = layer.eval()(X)
    calls = []
    affine = feature_matrices.affine
    monkeypatch.setattr(feature_matrices, "affine", lambda *args: calls.append(args) or affine(*args))
    with mode():
        assert_close(layer(X), expected.detach())
    assert len(calls) == 1


def test_without_running_statistics_evaluation_uses_the_batch():
    layer, X = layer_and_input("DecorrelatedBatchNorm2d", track_running_stats=False)
    assert_close(layer.eval()(X), layer.train()(X))


def test_evaluation_follows_statistics_eps_and_method_that_change_under_it():
    layer, X = trained("DecorrelatedBatchNorm2d")
    before = layer.eval()(X)
    with torch.no_grad():
        layer.running_cov *= 4
    assert_close(layer(X), _evaluated_anew(layer)(X))
    layer.eps = 1.0
    assert_close(layer(X), _evaluated_anew(layer)(X))
    layer.method = sg.NewtonSchulz(steps=1)
    assert_close(layer(X), _evaluated_anew(layer)(X))
    assert not torch.allclose(layer(X), before)


def _evaluated_anew(layer):
    fresh = type(layer)(layer.num_features, eps=layer.eps, method=layer.method).double()
    fresh.load_state_dict(layer.state_dict())
    return fresh.eval()


def test_evaluation_matrix_is_computed_once(monkeypatch):
    layer, X = trained("DecorrelatedBatchNorm2d")
    layer.eval()
    for net in (layer, copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        monkeypatch.setattr(net, "_from_running", lambda: pytest.fail("computed again"))
        net(X)


def test_gradients_of_what_is_asked_for_only():
    layer, X = layer_and_input("DecorrelatedBatchNorm2d")
    layer.weight.requires_grad_(False)
    layer(X).square().sum().backward()
    assert layer.weight.grad is None
    assert layer.bias.grad is not None
    frozen, X = layer_and_input("DecorrelatedBatchNorm2d")
    frozen.requires_grad_(False)
    assert not frozen(X).requires_grad
    frozen(X.requires_grad_()).square().sum().backward()
    assert X.grad is not None
    with torch.no_grad():
        assert not layer(X).requires_grad


def test_backward_twice_wants_retain_graph():
    layer, X = layer_and_input("DecorrelatedBatchNorm2d")
    Y = layer(X.requires_grad_()).square().sum()
    (first,) = torch.autograd.grad(Y, X, retain_graph=True)
    (second,) = torch.autograd.grad(Y, X)
    assert_close(first, second, rtol=0, atol=0)
    with pytest.raises(RuntimeError, match="second time"):
        torch.autograd.grad(Y, X)


def test_initial_weights():
    assert sg.nn.DecorrelatedBatchNorm2d(64).weight.eq(1).all()
    torch.manual_seed(0)
    weight = sg.nn.DecorrelatedBatchNorm2d(64, init="uniform").weight
    assert 0 < weight.min() < 0.2 < 0.8 < weight.max() < 1
    layer, _ = trained("DecorrelatedBatchNorm2d")
    layer.reset_parameters()
    assert layer.weight.eq(1).all()
    assert layer.bias.eq(0).all()
    assert torch.equal(layer.running_cov[0], torch.eye(8, dtype=torch.float64))
    assert layer.num_batches_tracked == 0


class TestHalf:
    @pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
    @pytest.mark.parametrize("name", LAYERS)
    def test_half_features_are_computed_in_single_precision(self, name, dtype):
        layer, X = layer_and_input(name, torch.float32)
        half = X.to(dtype)
        expected = layer(half.float())
        layer, _ = layer_and_input(name, torch.float32)
        if "Pooling" in name:  # the linear map before it wants the type of its input
            layer = layer.to(dtype)
            expected = layer.float()(half.float())
            layer = layer.to(dtype)
        result = layer(half)
        assert result.dtype == dtype
        scale = expected.abs().max()
        assert (result.float() - expected).abs().max() < 4 * torch.finfo(dtype).eps * scale

    @pytest.mark.parametrize("name", RUNNING)
    def test_autocast_trains(self, name):
        layer, X = layer_and_input(name, torch.float32)
        net = nn.Sequential(nn.Identity(), layer)
        expected, _ = layer_and_input(name, torch.float32)
        expected = expected(X)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            Y = net(X.requires_grad_())
            low = layer(X.bfloat16())
        assert_close(Y, expected)
        assert low.dtype == torch.bfloat16
        (Y.square().sum() + low.float().sum()).backward()
        assert X.grad.isfinite().all()

    def test_a_net_trains_in_half(self):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Conv2d(3, 16, 3), sg.nn.DecorrelatedBatchNorm2d(16), nn.ReLU(), nn.Flatten())
        net = net.append(sg.nn.PCADenoising1d(16 * 16, keep=8)).append(nn.Linear(256, 2))
        optimiser = torch.optim.SGD(net.parameters(), lr=0.05)
        X, y = torch.rand(32, 3, 6, 6), torch.arange(32) % 2
        X[y == 1, 0] += 0.5
        losses = []
        for _ in range(12):
            optimiser.zero_grad()
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = nn.functional.cross_entropy(net(X), y)
            loss.backward()
            optimiser.step()
            losses.append(loss.item())
        assert losses[-1] < 0.5 * losses[0]

    def test_half_buffers_evaluate(self):
        """Rounding makes the running covariance of rank 27 indefinite; ε = 0.01 must still bound what comes out."""
        layer = sg.nn.DecorrelatedBatchNorm2d(64, momentum=1.0)
        X = 5 * conv1(samples=4)
        layer(X)
        assert torch.linalg.eigvalsh(layer.running_cov.bfloat16().double()).min() < -1e-2
        Y = layer.bfloat16().eval()(X.bfloat16())
        assert Y.isfinite().all()
        assert torch.linalg.matrix_norm(layer.evaluation_matrix()[0].double(), 2) < 1.01 / 0.01**0.5

    def test_compute_dtype(self):
        X = conv1(samples=4)
        layer = sg.nn.DecorrelatedBatchNorm2d(64, compute_dtype=torch.float64)
        exact = sg.nn.DecorrelatedBatchNorm2d(64).double()
        assert layer(X).dtype == torch.float32
        assert_close(layer(X), exact(X.double()).float(), rtol=1e-6, atol=1e-6)


class TestHooks:
    @pytest.mark.parametrize("name", ["DecorrelatedBatchNorm2d", "PCADenoising2d", "CovariancePooling"])
    def test_hooks_see_the_matrices_and_their_gradient(self, name):
        layer, X = layer_and_input(name)
        seen = []

        def hook(module, M):
            assert module is layer
            assert not M.requires_grad
            seen.append(M)
            return seen.append

        handle = layer.register_spectral_hook(hook)
        layer(X.requires_grad_()).square().sum().backward()
        matrices, gradient = seen
        assert matrices.shape == gradient.shape
        assert torch.linalg.eigvalsh(matrices).min() > -1e-12
        assert gradient.abs().max() > 0
        handle.remove()
        layer(X)
        layer.eval()(X)
        assert len(seen) == 2

    def test_the_gradient_is_that_of_the_matrix(self):
        layer, X = layer_and_input("DecorrelatedBatchNorm2d", affine=False)
        told = []
        layer.register_spectral_hook(lambda module, M: told.append)
        G = torch.randn_like(X)
        layer(X.requires_grad_()).backward(G)
        rows = X.detach().transpose(0, 1).flatten(1)
        centred = rows - rows.mean(1, keepdim=True)
        M = (centred @ centred.T / rows.shape[1] + 1e-2 * torch.eye(8)).requires_grad_()
        (sg.matrix_inv_sqrt(M) @ centred).backward(G.transpose(0, 1).flatten(1))
        assert_close(told[0][0], M.grad)

    def test_second_order_shows_nothing_twice(self):
        layer, X = layer_and_input("DecorrelatedBatchNorm2d")
        shown, told = [], []
        layer.register_spectral_hook(lambda module, M: shown.append(M) or told.append)
        (g,) = torch.autograd.grad(layer(X.requires_grad_()).square().sum(), X, create_graph=True)
        assert (len(shown), len(told)) == (1, 1)
        g.square().sum().backward()
        assert len(shown) == 1

    def test_hooks_are_not_copied_or_saved(self):
        layer, X = layer_and_input("DecorrelatedBatchNorm2d")
        seen = []
        layer.register_spectral_hook(lambda module, M: seen.append(M))
        copy.deepcopy(layer)(X)
        pickle.loads(pickle.dumps(layer))(X)
        assert not seen

    def test_transfer_shows_content_and_style(self):
        layer = sg.nn.WhiteningColoring2d(groups=2)
        seen = []
        layer.register_spectral_hook(lambda module, M: seen.append(tuple(M.shape)))
        layer(torch.randn(3, 4, 5, 5), torch.randn(1, 4, 6, 6))
        assert seen == [(3, 2, 2, 2), (1, 2, 2, 2)]


@pytest.mark.parametrize("name", ["DecorrelatedBatchNorm2d", "CovariancePooling"])
def test_method_changes_on_the_live_layer(name):
    layer, X = layer_and_input(name)
    exact = layer(X)
    layer.method = sg.NewtonSchulz(steps=2)
    rough = layer(X)
    assert (rough - exact).norm() > 1e-3 * exact.norm()
    layer.method = "exact"
    assert_close(layer(X), exact)
    with pytest.raises(sg.MethodError, match="unknown method"):
        layer.method = "nonsense"


@pytest.mark.parametrize("name", LAYERS)
def test_an_empty_batch_is_evaluated(name):
    layer, X = trained(name)
    full = layer.eval()(X)
    assert layer(X[:0]).shape == (0, *full.shape[1:])


@pytest.mark.parametrize("name", RUNNING)
def test_every_method_trains_the_layer(name):
    layer, X = layer_and_input(name)
    for method in sg.methods(layer.operation) if "cholesky" not in name else ["exact"]:
        layer.method = method
        X = X.detach().requires_grad_()
        layer(X).square().sum().backward()
        assert X.grad.isfinite().all(), method


def test_every_layer_is_in_the_lists_of_layers():
    layers = {name for name in sg.nn.__all__ if inspect.isclass(getattr(sg.nn, name))}
    other = {"OrthogonalConv2d", "SpectralModule", "WhiteningMSELoss"}  # a convolution, the base class, a loss
    assert {name.partition("-")[0] for name in LAYERS} == layers - other, "add the layer to a list in every_layer.py"


def test_every_public_name_has_an_example_and_a_place_in_the_guide():
    docs = Path(__file__).resolve().parent.parent / "docs"
    guide = "".join((docs / page).read_text("utf-8") for page in ("layers.md", "training.md"))
    for name in sg.nn.__all__:
        if name != "functional":
            assert ">>>" in getattr(sg.nn, name).__doc__, name
            assert name in guide or name[:-2] in guide or name == "SpectralModule", name
    for name in sg.nn.functional.__all__:
        assert ">>>" in getattr(sg.nn.functional, name).__doc__, name
