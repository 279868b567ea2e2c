"""Converted nets keep what they had; folded nets compute what they computed."""

import copy
import inspect
import pickle

import pytest
import torch
from torch import nn
from torch.nn.utils.parametrizations import weight_norm
from torch.testing import assert_close

import spectralgrad as sg
from spectralgrad.nn import convert_decorrelated_batchnorm, fuse_whitening, fusion


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.conv2, self.bn2 = nn.Conv2d(4, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4)

    def forward(self, x):
        return torch.relu(x + self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x))))))


def small_net(dtype=torch.float64):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4, momentum=0.3), nn.ReLU(), Residual()).to(dtype)
    for _ in range(3):
        net(torch.randn(8, 3, 6, 6, dtype=dtype) + 1)
    with torch.no_grad():
        net[1].weight.uniform_(0.5, 2)
        net[1].bias.uniform_(-1, 1)
    return net


X = torch.randn(4, 3, 6, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
WITHOUT_BIAS = pytest.param(
    {"bias": False},
    marks=pytest.mark.skipif(
        "bias" not in inspect.signature(nn.BatchNorm2d).parameters, reason="this torch has no BatchNorm2d(bias=False)"
    ),
)


class TestConversion:
    @pytest.mark.parametrize("which", ["first", "all", ["1", "3.bn2"], "3.bn1", lambda name, layer: name.endswith("2")])
    def test_with_the_old_eps_the_evaluated_net_is_the_same_function(self, which):
        net = small_net().eval()
        expected = net(X)
        converted = convert_decorrelated_batchnorm(net, which, eps=1e-5)
        assert converted is net
        assert_close(net(X), expected)

    @pytest.mark.parametrize(
        ("which", "names"),
        [
            ("first", ["1"]),
            ("all", ["1", "3.bn1", "3.bn2"]),
            (["3.bn2"], ["3.bn2"]),
            (lambda name, layer: layer.num_features == 4 and name != "1", ["3.bn1", "3.bn2"]),
        ],
        ids=["first", "all", "names", "predicate"],
    )
    def test_replaces_what_was_asked_for(self, which, names):
        net = convert_decorrelated_batchnorm(small_net(), which, groups=2)
        found = [n for n, m in net.named_modules() if isinstance(m, sg.nn.DecorrelatedBatchNorm2d)]
        assert found == names
        assert all(net.get_submodule(name).name == name for name in names)

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
    @pytest.mark.parametrize("training", [True, False])
    def test_keeps_what_the_layer_had(self, dtype, training):
        net = small_net(dtype).train(training)
        net[1].weight.requires_grad_(False)
        old = net[1]
        new = convert_decorrelated_batchnorm(net)[1]
        assert_close(new.weight, old.weight)
        assert_close(new.bias, old.bias)
        assert_close(new.running_mean, old.running_mean)
        assert_close(new.running_cov[0], torch.diag(old.running_var))
        assert (new.num_batches_tracked, new.momentum, new.training) == (3, 0.3, training)
        assert not new.weight.requires_grad
        assert new.bias.requires_grad
        assert new.weight.dtype == dtype

    def test_an_optimiser_made_before_goes_on_training_the_layer(self):
        net = small_net()
        optimiser = torch.optim.SGD(net.parameters(), lr=0.1)
        before = net[1].weight.clone()
        convert_decorrelated_batchnorm(net)
        net(X).square().sum().backward()
        optimiser.step()
        assert not torch.equal(net[1].weight, before)

    def test_another_type_has_parameters_of_its_own(self):
        old = nn.BatchNorm2d(4)
        new = convert_decorrelated_batchnorm(old, dtype=torch.float64)
        assert new.weight.dtype == torch.float64
        assert old.weight.dtype == torch.float32

    def test_a_layer_with_a_forward_pass_of_its_own_is_refused(self):
        class Activated(nn.BatchNorm2d):
            def forward(self, x):
                return torch.relu(super().forward(x))

        net = nn.Sequential(Activated(4), nn.BatchNorm2d(4))
        with pytest.raises(sg.ArgumentError, match="Activated at '0' has its own forward method"):
            convert_decorrelated_batchnorm(net)
        assert type(convert_decorrelated_batchnorm(net, "1")[0]) is Activated

    def test_a_layer_that_only_describes_itself_otherwise_is_converted(self):
        class Described(nn.BatchNorm2d):
            def __init__(self, channels):
                super().__init__(channels)

            def extra_repr(self):
                return "described"

            def reset_parameters(self):
                super().reset_parameters()

        assert type(convert_decorrelated_batchnorm(Described(4))) is sg.nn.DecorrelatedBatchNorm2d

    def test_device(self):
        net = convert_decorrelated_batchnorm(nn.Sequential(nn.BatchNorm2d(4, device="meta")))
        assert all(tensor.is_meta for tensor in net.state_dict().values())

    @pytest.mark.parametrize(
        "options", [{"affine": False}, {"track_running_stats": False}, {"momentum": None}, WITHOUT_BIAS], ids=str
    )
    @pytest.mark.parametrize("kind", ["1d", "2d", "3d"])
    def test_other_forms(self, kind, options):
        old = getattr(nn, f"BatchNorm{kind}")(4, **options)
        new = convert_decorrelated_batchnorm(old)
        assert type(new) is getattr(sg.nn, f"DecorrelatedBatchNorm{kind}")
        assert set(new.state_dict()) == {key.replace("running_var", "running_cov") for key in old.state_dict()}
        assert new.momentum == old.momentum

    def test_running_whitening_matrices(self):
        net = small_net().eval()
        expected = net(X)
        assert_close(convert_decorrelated_batchnorm(net, "all", statistics="whitening", eps=1e-5)(X), expected)

    def test_synchronised_layers_stay_so(self):
        net = nn.Sequential(nn.SyncBatchNorm(4))
        new = convert_decorrelated_batchnorm(net)[0]
        assert new.sync
        assert new.process_group is None

    def test_a_shared_layer_stays_shared(self):
        shared = nn.BatchNorm2d(4)
        net = nn.ModuleDict({"a": nn.Sequential(shared), "b": nn.Sequential(shared)})
        convert_decorrelated_batchnorm(net, "all")
        assert net["a"][0] is net["b"][0]
        assert isinstance(net["b"][0], sg.nn.DecorrelatedBatchNorm2d)

    def test_converted_nets_save_load_copy_and_train(self):
        net = convert_decorrelated_batchnorm(small_net(), "all", groups=2)
        other = convert_decorrelated_batchnorm(small_net(), "all", groups=2)
        net(X).sum().backward()
        other.load_state_dict(net.state_dict())
        expected = net.eval()(X)
        for same in (other.eval(), copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
            assert_close(same(X), expected)


def evaluated(*layers, steps=2, shape=(8, 3, 6, 6)):
    torch.manual_seed(0)
    net = nn.Sequential(*layers).double()
    for _ in range(steps):
        net(torch.randn(shape, dtype=torch.float64) + 1)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return net.eval()


class TestFusing:
    @pytest.mark.parametrize(
        ("layers", "shape"),
        [
            ((nn.Conv2d(3, 8, 3, padding=1), sg.nn.DecorrelatedBatchNorm2d(8)), (8, 3, 6, 6)),
            ((nn.Conv2d(3, 8, 3, bias=False), sg.nn.DecorrelatedBatchNorm2d(8, groups=4)), (8, 3, 6, 6)),
            ((nn.Conv2d(4, 8, 3, groups=2), sg.nn.DecorrelatedBatchNorm2d(8, groups=4)), (8, 4, 6, 6)),
            ((nn.Conv2d(3, 8, 3), sg.nn.DecorrelatedBatchNorm2d(8, affine=False, whitening="pca")), (8, 3, 6, 6)),
            ((nn.Conv2d(3, 8, 3), sg.nn.DecorrelatedBatchNorm2d(8, statistics="whitening", bias=False)), (8, 3, 6, 6)),
            ((nn.ConvTranspose2d(4, 8, 3, groups=2), sg.nn.DecorrelatedBatchNorm2d(8, groups=4)), (8, 4, 6, 6)),
            ((nn.Conv1d(3, 8, 3), sg.nn.DecorrelatedBatchNorm1d(8)), (8, 3, 9)),
            ((nn.Conv3d(3, 8, 2), sg.nn.DecorrelatedBatchNorm3d(8)), (4, 3, 4, 4, 4)),
            ((nn.Linear(3, 8), sg.nn.DecorrelatedBatchNorm1d(8)), (20, 3)),
            ((nn.Linear(3, 8, bias=False), sg.nn.PCADenoising1d(8, keep=2)), (20, 3)),
        ],
        ids=str,
    )
    @pytest.mark.parametrize("watched", [False, True], ids=["traced", "watched"])
    def test_folded_nets_compute_the_same(self, layers, shape, watched):
        net = evaluated(*copy.deepcopy(layers), nn.ReLU(), shape=shape)
        x = torch.randn(shape, dtype=torch.float64)
        expected = net(x)
        assert fuse_whitening(net, x if watched else None) is net
        assert_close(net(x), expected)
        assert isinstance(net[1], nn.Identity)
        assert_close(copy.deepcopy(net)(x), expected)
        assert_close(pickle.loads(pickle.dumps(net))(x), expected)
        torch._dynamo.reset()  # older torch counts the exports of all nets of a class together
        assert_close(torch.export.export(net, (x,)).module()(x), expected)

    @pytest.mark.parametrize("watched", [False, True], ids=["traced", "watched"])
    def test_nested_nets(self, watched):
        net = convert_decorrelated_batchnorm(small_net(), "all")
        net(X)
        expected = net.eval()(X)
        fuse_whitening(net, (X,) if watched else None)
        assert not any(isinstance(m, sg.nn.SpectralModule) for m in net.modules())
        assert_close(net(X), expected)

    @pytest.mark.parametrize("watched", [False, True], ids=["traced", "watched"])
    def test_results_that_are_no_floats(self, watched):
        net = Labelling().double()
        net(X)
        expected = net.eval()(X)
        assert_close(fuse_whitening(net, X if watched else None)(X), expected)
        assert isinstance(net.norm, nn.Identity)

    def test_single_precision_to_rounding(self):
        net = evaluated(nn.Conv2d(3, 64, 3), sg.nn.DecorrelatedBatchNorm2d(64)).float()
        x = torch.randn(4, 3, 8, 8)
        expected = copy.deepcopy(net).double()(x.double())
        fuse_whitening(net)
        assert (net(x) - expected).abs().max() < 1e-4 * expected.abs().max()

    def test_nets_without_such_layers_are_left_alone(self):
        net = nn.Sequential(nn.Linear(2, 2))
        assert fuse_whitening(net) is net

    def test_frozen_weights_stay_frozen(self):
        net = evaluated(nn.Conv2d(3, 8, 3), sg.nn.DecorrelatedBatchNorm2d(8)).requires_grad_(False)
        fuse_whitening(net)
        assert not any(p.requires_grad for p in net.parameters())


class TwoUsers(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 4, 3), sg.nn.DecorrelatedBatchNorm2d(4)

    def forward(self, x):
        y = self.conv(x)
        return self.norm(y) + y


class Branching(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 4, 3), sg.nn.DecorrelatedBatchNorm2d(4)

    def forward(self, x):
        return self.norm(self.conv(x)) if x.sum() > 0 else self.norm(self.conv(-x))


class Twice(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 3, 1), sg.nn.DecorrelatedBatchNorm2d(3)

    def forward(self, x):
        return self.norm(self.conv(self.norm(self.conv(x))))


class Halved(nn.Module):
    """A function, not a layer, stands before the norm."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 4, 3), sg.nn.DecorrelatedBatchNorm2d(4)

    def forward(self, x):
        return self.norm(self.conv(x) / 2)


class Named(nn.Module):
    """The norm is called by keyword."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 4, 3), sg.nn.DecorrelatedBatchNorm2d(4)

    def forward(self, x):
        return self.norm(X=self.conv(x))


class Labelling(Named):
    """Not all results are floats."""

    def forward(self, x):
        y = self.norm(self.conv(x))
        return {"features": y, "labels": y.argmax(1), "positive": y > 0}


class Autoencoder(nn.Module):
    """The weight of the convolution is used a second time."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 4, 3), sg.nn.DecorrelatedBatchNorm2d(4)

    def forward(self, x):
        return nn.functional.conv_transpose2d(self.norm(self.conv(x)), self.conv.weight)


class Shifted(nn.Module):
    """The statistics of the norm are used outside of it."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 4, 3), sg.nn.DecorrelatedBatchNorm2d(4)

    def forward(self, x):
        return self.norm(self.conv(x)) + self.norm.running_mean.view(-1, 1, 1)


def hooked():
    net = nn.Sequential(nn.Conv2d(3, 4, 3), sg.nn.DecorrelatedBatchNorm2d(4))
    net[0].register_forward_hook(lambda layer, inputs, output: output.abs())
    return net


def tied():
    net = nn.Sequential(nn.Conv2d(3, 3, 1), sg.nn.DecorrelatedBatchNorm2d(3), nn.Conv2d(3, 3, 1))
    net[2].weight = net[0].weight
    return net


class TestRefusals:
    @pytest.mark.parametrize(
        ("net", "traced", "watched"),
        [
            (TwoUsers(), "'conv' is used elsewhere too", "gives a different result on the example"),
            (Twice(), "called 2 times", "called 2 times"),
            (Autoencoder(), "'conv.weight' is used elsewhere", "gives a different result on the example"),
            (hooked(), "has forward hooks", "is not the output of a layer|has forward hooks"),
            (Named(), "called by keyword", "called by keyword"),
            (Halved(), "comes from call_function", "is not the output of a layer"),
            (tied(), "shared: 0.weight, 2.weight", "shared: 0.weight, 2.weight"),
            (
                nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), sg.nn.DecorrelatedBatchNorm2d(4)),
                "is ReLU, not a conv",
                "is ReLU, not a conv",
            ),
            (nn.Sequential(sg.nn.DecorrelatedBatchNorm2d(3)), "comes from placeholder", "is not the output of a layer"),
            (sg.nn.DecorrelatedBatchNorm2d(3), "got a single layer", "is not the output of a layer"),
            (
                nn.Sequential(nn.Conv2d(3, 6, 3), sg.nn.DecorrelatedBatchNorm2d(6, track_running_stats=False)),
                "has no running statistics",
                "has no running statistics",
            ),
            (
                nn.Sequential(nn.Conv2d(3, 6, 3, groups=3), sg.nn.DecorrelatedBatchNorm2d(6)),
                "mixes channels that the 3 groups of '0'",
                "mixes channels that the 3 groups of '0'",
            ),
            (
                nn.Sequential(weight_norm(nn.Conv2d(3, 4, 3)), sg.nn.DecorrelatedBatchNorm2d(4)),
                "parametrised",
                "is not the output of a layer|parametrised",
            ),
        ],
        ids=lambda value: type(value).__name__ if isinstance(value, nn.Module) else "",
    )
    def test_what_cannot_be_exact_is_refused_and_left_alone(self, net, traced, watched):
        net = copy.deepcopy(net).double()
        x = torch.randn(8, 3, 6, 6, dtype=torch.float64)
        net(x)
        expected = net.eval()(x)
        for example, message in ((None, traced), (x, watched)):
            with pytest.raises(sg.ArgumentError, match=message):
                fuse_whitening(net, example)
            assert_close(net(x), expected, rtol=0, atol=0)

    def test_a_net_that_fails_when_folded_is_left_as_it_was(self):
        net = Shifted().double()
        net(X)
        expected = net.eval()(X)
        with pytest.raises(sg.ArgumentError, match=r"'norm.running_mean' is used elsewhere"):
            fuse_whitening(net)
        with pytest.raises(AttributeError, match="running_mean"):
            fuse_whitening(net, X)
        assert_close(net(X), expected, rtol=0, atol=0)

    def test_another_result_is_noticed_in_half_types_too(self):
        net = TwoUsers().bfloat16()
        nn.init.constant_(net.norm.weight, 3)
        x = X.bfloat16()
        net(x)
        with pytest.raises(sg.ArgumentError, match="gives a different result on the example"):
            fuse_whitening(net.eval(), x)

    def test_training_is_refused(self):
        net = nn.Sequential(nn.Conv2d(3, 4, 3), sg.nn.DecorrelatedBatchNorm2d(4))
        with pytest.raises(sg.ArgumentError, match=r"'1' in training; call net.eval\(\)"):
            fuse_whitening(net)

    def test_what_torch_fx_cannot_trace_is_watched_on_request(self):
        net = Branching().double()
        x = torch.rand(8, 3, 6, 6, dtype=torch.float64)
        net(x)
        expected = net.eval()(x)
        with pytest.raises(sg.ArgumentError, match=r"torch.fx cannot trace this network .* pass an example"):
            fuse_whitening(net)
        assert_close(fuse_whitening(net, x)(x), expected)


class Reported(sg.nn.DecorrelatedBatchNorm2d):
    """A subclass that changes nothing about the result."""

    def extra_repr(self):
        return "reported"


class Activated(sg.nn.DecorrelatedBatchNorm2d):
    def forward(self, X):
        return torch.relu(super().forward(X))


class Doubled(nn.Conv2d):
    def _conv_forward(self, *args):
        return 2 * super()._conv_forward(*args)


class Through(nn.Module):
    """The norm is called by a second name, or through a list that is not registered."""

    def __init__(self, registered):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 4, 3), sg.nn.DecorrelatedBatchNorm2d(4)
        if registered:
            self.again = self.norm
        else:
            self.listed = [self.norm]

    def forward(self, x):
        return (self.again if hasattr(self, "again") else self.listed[0])(self.conv(x))


def pair(conv=nn.Conv2d, norm=sg.nn.DecorrelatedBatchNorm2d):
    net = nn.Sequential(conv(3, 4, 3), norm(4)).double()
    net(X)
    return net.eval()


def patched(place):
    net = pair()
    original = net[place].forward
    net[place].forward = lambda x: original(x).abs()
    return net


PASSES = ("forward", "forward_pre", "full_backward", "full_backward_pre")


class TestWhatUsersAttach:
    """Subclasses, patched methods, hooks and attributes are carried over, or the layer is refused."""

    @pytest.mark.parametrize("watched", [False, True], ids=["traced", "watched"])
    @pytest.mark.parametrize(
        ("net", "reason"),
        [
            (pair(norm=Activated), "'1' has its own forward method"),
            (pair(conv=Doubled), "'0' has its own _conv_forward method|comes from call_function mul"),
            (patched(0), "'0' has its own forward method"),
            (patched(1), "'1' has its own forward method"),
        ],
        ids=["subclass", "convolution", "patched convolution", "patched norm"],
    )
    def test_a_layer_that_computes_something_else_is_not_folded(self, net, reason, watched):
        expected = net(X)
        with pytest.raises(sg.ArgumentError, match=reason):
            fuse_whitening(net, X if watched else None)
        assert_close(net(X), expected, rtol=0, atol=0)

    @pytest.mark.parametrize(
        "kind", ["forward", "forward_pre", "full_backward", "full_backward_pre", "state_dict_post"]
    )
    @pytest.mark.parametrize("place", [0, 1], ids=["convolution", "norm"])
    def test_a_layer_with_hooks_is_not_folded(self, kind, place):
        net = pair()
        handle = getattr(net[place], f"register_{kind}_hook")(lambda *_: None)
        if place == 0 and "state" in kind:  # the convolution stays, and so do its hooks
            assert isinstance(fuse_whitening(net)[1], nn.Identity)
            return
        with pytest.raises(sg.ArgumentError, match=f"'{place}' has .*hooks"):
            fuse_whitening(net)
        handle.remove()
        assert isinstance(fuse_whitening(net)[1], nn.Identity)

    def test_a_subclass_that_computes_the_same_is_folded(self):
        net = pair(norm=Reported)
        expected = net(X)
        assert_close(fuse_whitening(net)(X), expected)
        assert isinstance(net[1], nn.Identity)

    @pytest.mark.parametrize("watched", [False, True], ids=["traced", "watched"])
    def test_a_layer_with_two_names_is_replaced_under_both(self, watched):
        net = Through(registered=True).double()
        net(X)
        expected = net.eval()(X)
        assert_close(fuse_whitening(net, X if watched else None)(X), expected)
        assert net.norm is net.again

    def test_a_layer_in_an_unregistered_list_is_not_folded(self):
        net = Through(registered=False).double()
        net(X)
        expected = net.eval()(X)
        for example, reason in ((None, "calls a folded layer in another way"), (X, "gives a different result")):
            with pytest.raises(sg.ArgumentError, match=reason):
                fuse_whitening(net, example)
            assert_close(net(X), expected, rtol=0, atol=0)

    def test_a_converted_layer_keeps_its_hooks_and_their_handles(self):
        net, seen = nn.Sequential(nn.BatchNorm2d(3)).double(), []

        def note(kind):
            return lambda layer, *args, **kwargs: seen.append((kind, type(layer).__name__))

        states = ("state_dict_post", "state_dict_pre", "load_state_dict_pre", "load_state_dict_post")
        handles = [getattr(net[0], f"register_{kind}_hook")(note(kind)) for kind in (*PASSES, *states)]
        convert_decorrelated_batchnorm(net)
        net(X.clone().requires_grad_()).sum().backward()
        net.load_state_dict(net.state_dict())
        assert {kind for kind, _ in seen} == {*PASSES, *states}
        assert {layer for _, layer in seen} == {"DecorrelatedBatchNorm2d"}
        for handle in handles:
            handle.remove()
        seen.clear()
        net(X.clone().requires_grad_()).sum().backward()
        net.load_state_dict(net.state_dict())
        assert seen == []

    def test_a_converted_layer_keeps_attributes(self):
        old = nn.BatchNorm2d(3)
        old.stage, old.name = "stem", "first"
        new = convert_decorrelated_batchnorm(old)
        assert (new.stage, new.name) == ("stem", "first")

    @pytest.mark.parametrize(
        ("change", "reason"),
        [
            (lambda layer: setattr(layer, "forward", torch.relu), "has its own forward method"),
            (lambda layer: weight_norm(layer), "has 'parametrizations'"),
            (lambda layer: layer.register_buffer("count", torch.zeros(1)), "has 'count'"),
            (lambda layer: setattr(layer, "matrix", 1), "has an attribute 'matrix', which means something else"),
            (lambda layer: setattr(layer, "__class__", Frozen), "has its own train method"),
        ],
        ids=["patched", "parametrization", "buffer", "attribute", "subclass"],
    )
    def test_a_layer_that_would_lose_something_is_not_converted(self, change, reason):
        net = nn.Sequential(nn.BatchNorm2d(3), nn.BatchNorm2d(3))
        change(net[1])
        with pytest.raises(sg.ArgumentError, match=reason):
            convert_decorrelated_batchnorm(net, "all")
        assert type(net[0]) is nn.BatchNorm2d


class Frozen(nn.BatchNorm2d):
    def train(self, mode=True):
        return super().train(False)


@pytest.mark.parametrize(
    ("dtype", "share"), [(torch.float32, 1e3 * 2**-23), (torch.float64, 1e3 * 2**-52), (torch.bfloat16, 2**-4)]
)
def test_two_results_are_the_same_within_a_share_of_the_largest_entry(dtype, share):
    for size in (1.0, 2.0**40):
        x = torch.tensor([size, 0.0, -size / 2], dtype=dtype)
        for factor, same in ((0.7, True), (1.5, False)):
            y = x + torch.tensor([0.0, factor * share * size, 0.0]).to(dtype)
            assert fusion._same([{"a": y}, 3], [{"a": x}, 3]) is same
    zero = torch.zeros(3, dtype=dtype)
    assert fusion._same(zero, zero)
    assert not fusion._same(zero + 1e-20, zero)
    assert not fusion._same(torch.tensor([1, 2]), torch.tensor([1, 3]))
