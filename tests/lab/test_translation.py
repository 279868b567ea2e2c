"""The translation network: its shapes, its whitening, its gradients, its losses."""

import pytest
import torch
from PIL import Image
from torch import nn

from spectralgrad_lab.training.config.settings import ConfigError
from spectralgrad_lab.training.processes.surroundings import Session
from spectralgrad_lab.transfer.translation import TranslationConfig
from spectralgrad_lab.transfer.translation.coloring_hop import Hop
from spectralgrad_lab.transfer.translation.discriminator import Discriminator
from spectralgrad_lab.transfer.translation.generator import Decoder, Generator
from spectralgrad_lab.transfer.translation.learned_whitening import LearnedWhiteningColoring2d
from spectralgrad_lab.transfer.translation.losses import LOSS_NAMES, discriminator_losses, generator_losses, translate
from spectralgrad_lab.transfer.translation.networks import Discriminators, Generators
from spectralgrad_lab.transfer.translation.task import TranslationTask
from spectralgrad_lab.transfer.translation.whitening import Whitening

from .translation_runs import TINY, pictures

METHODS = ["exact", "svd-taylor", "svd-clip", "svd-pi", "gd"]


def generator(seed=0, **whitening):
    torch.manual_seed(seed)
    return Generator(4, Whitening(**whitening), group_size=8)


def covariance(features):
    return torch.stack([torch.cov(x.flatten(1), correction=0) for x in features])


def test_shapes_at_the_size_of_the_paper():
    net, images = Generator(), torch.rand(1, 3, 64, 64)
    content, style = net.content(images), net.style(images)
    assert content.shape == (1, 256, 16, 16)
    assert style.shape == (1, 256)
    assert len(net.decode.hops) == 5
    matrix, mean = net.decode.hops[0].network(style)
    assert (matrix.shape, mean.shape) == ((1, 8, 32, 32), (1, 256))
    assert net.decode.hops[0].transform.groups == 8
    assert net.blends == pytest.approx([0.6] * 5)
    with torch.no_grad():
        decoded = net.decode(content, style)
    assert decoded.images.shape == images.shape
    assert decoded.images.abs().max() <= 1
    judged = Discriminator()(torch.rand(1, 3, 256, 256))
    assert [tuple(y.shape) for y in judged] == [(1, 1, 16, 16), (1, 1, 8, 8), (1, 1, 4, 4)]


def test_the_settings_of_the_paper_are_the_defaults():
    config = TranslationConfig()
    assert (config.width, config.groups, config.eps) == (64, 8, 1e-2)
    assert (config.lr, config.weight_decay) == (1e-4, 1e-4)
    published = {"adversarial": 1, "reconstruction": 10, "cycle": 10, "content": 1, "style": 1}
    assert config.loss_weights == published
    assert config.replaced(method="gd").loss_weights == {**published, "whitening": 0.001, "coloring": 10}
    assert config.replaced(style_weight=0.5).loss_weights == {**published, "style": 0.5}
    taylor = Generator(2, Whitening("svd-taylor")).decode.hops[0].transform.method
    assert taylor.degree == 9


@pytest.mark.parametrize("per_sample", [True, False])
def test_a_hop_whitens_then_colors_then_blends(per_sample):
    hop = Hop(8, 2, Whitening(eps=0.0, per_sample=per_sample)).double()
    x = torch.randn(3, 8, 6, 7, dtype=torch.float64) * torch.arange(1, 9).view(8, 1, 1)
    style = torch.randn(3, 8, dtype=torch.float64)
    matrix, mean = hop.network(style)
    hop.blend.data.fill_(1.0)
    whole, penalties = hop(x, style)
    assert penalties == {}
    groups = whole.sub(mean[..., None, None]).reshape(3, 2, 4, 42)
    white = torch.linalg.solve(matrix, groups)
    sets = white if per_sample else white.permute(1, 2, 0, 3).reshape(1, 2, 4, 126)
    torch.testing.assert_close(sets @ sets.mT / sets.shape[-1], torch.eye(4).double().expand(len(sets), 2, 4, 4))
    hop.blend.data.fill_(0.25)
    torch.testing.assert_close(hop(x, style)[0], 0.25 * whole + 0.75 * x)
    hop.blend.data.zero_()
    assert torch.equal(hop(x, style)[0], x)


@pytest.mark.parametrize("form", ["sound", "published"])
def test_the_method_has_the_form_asked_for(form):
    methods = {str(hop.transform.method) for hop in generator(method="svd-taylor", form=form).decode.hops}
    assert methods == {{"sound": "svd-taylor", "published": "svd-taylor:faithful=True:clamp=0.01"}[form]}


def gradients(net, content, style, weights):
    content, style = content.clone().requires_grad_(), style.clone().requires_grad_()
    decoded = net(content, style)
    loss = (decoded.images * weights).sum() + sum(decoded.penalties.values(), torch.zeros(()))
    net.zero_grad()
    loss.backward()
    return {"content": content.grad, "style": style.grad} | {name: p.grad for name, p in net.named_parameters()}


@pytest.mark.parametrize("method", METHODS)
def test_gradients_of_five_hops_agree_with_double_precision(method):
    net = generator(method=method).decode
    given = [torch.randn(2, 16, 8, 8), torch.randn(2, 16), torch.randn(2, 3, 32, 32)]
    single = gradients(net, *given)
    double = gradients(net.double(), *(x.double() for x in given))
    total = torch.cat([g.flatten() for g in double.values()]).norm()
    for name, wanted in double.items():
        error = (single[name].double() - wanted).norm()
        assert error <= 1e-3 * wanted.norm() + 1e-6 * total, name


def test_gradients_of_five_hops_agree_with_finite_differences():
    net = generator().double().decode
    content, style = torch.randn(1, 16, 8, 8).double(), torch.randn(1, 16).double()
    weights, direction = torch.randn(1, 3, 32, 32).double(), torch.randn(1, 16, 8, 8).double()
    loss = lambda t: (net(content + t * direction, style).images * weights).sum()  # noqa: E731
    wanted = (gradients(net, content, style, weights)["content"] * direction).sum()
    with torch.no_grad():
        h = 1e-6
        torch.testing.assert_close((loss(h) - loss(-h)) / (2 * h), wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("form", ["sound", "published"])
def test_constant_maps_have_finite_gradients(method, form):
    net = generator(method=method, form=form).decode
    for content in (torch.zeros(2, 16, 8, 8), torch.randn(2, 16, 1, 1).expand(2, 16, 8, 8)):
        found = gradients(net, content, torch.randn(2, 16), torch.randn(2, 3, 32, 32))
        assert all(bool(torch.isfinite(g).all()) for g in found.values())


@pytest.mark.parametrize("method", ["exact", "gd"])
def test_pictures_of_one_color_do_no_harm(method, tmp_path):
    """Without the noise in the levels the gradient of the first layers would be 1e20 and more."""
    for domain, color in (("a", "white"), ("b", "gray")):
        (tmp_path / domain).mkdir()
        Image.new("RGB", (40, 40), color).save(tmp_path / domain / "0.png")
    config = TINY.replaced(a=str(tmp_path / "a"), b=str(tmp_path / "b"), method=method)
    torch.manual_seed(0)
    task = TranslationTask(config, Session())
    for number in range(3):
        task.step(number)
        assert max(float(p.grad.abs().max()) for p in task.generators.parameters()) < 1e6


class TestLearnedWhitening:
    def test_the_matrix_is_made_of_columns_and_their_norms(self):
        x, matrix, mean = torch.randn(2, 6, 4, 4), torch.randn(2, 2, 3, 3), torch.randn(2, 6)
        y, _ = LearnedWhiteningColoring2d(2)(x, matrix, mean)
        norms = matrix.norm(dim=-2)
        columns = matrix / norms.unsqueeze(-2)
        wanted = columns @ torch.diag_embed(norms) @ columns.mT
        centered = (x - x.mean((2, 3), keepdim=True)).reshape(2, 2, 3, 16)
        expected = (wanted @ centered).reshape(2, 6, 4, 4) + mean[..., None, None]
        torch.testing.assert_close(y, expected)

    def test_white_features_and_orthogonal_columns_cost_nothing(self):
        x = torch.randn(1, 3, 10, 10, dtype=torch.float64)
        flat = x.flatten(2) - x.flatten(2).mean(-1, keepdim=True)
        white = torch.linalg.solve(torch.linalg.cholesky(flat @ flat.mT / 100), flat).reshape(x.shape)
        Q = torch.linalg.qr(torch.randn(3, 3, dtype=torch.float64)).Q * torch.tensor([1.0, 2.0, 3.0]).double()
        layer = LearnedWhiteningColoring2d(1)
        _, penalties = layer(white, Q[None, None], torch.zeros(1, 3).double())
        assert penalties["whitening"] < 1e-4  # the ε on the diagonal
        assert penalties["coloring"] < 1e-12
        _, penalties = layer(2 * white, Q[None, None] + 1, torch.zeros(1, 3).double())
        assert penalties["whitening"] == pytest.approx(1.0, rel=1e-4)  # 3 on the diagonal, a third of the entries
        assert penalties["coloring"] > 0.1

    def test_statistics_of_the_batch(self):
        x = torch.randn(3, 4, 5, 5)
        layer = LearnedWhiteningColoring2d(2, per_sample=False)
        y, penalties = layer(x, torch.eye(2).expand(3, 2, 2, 2), torch.zeros(3, 4))
        torch.testing.assert_close(y, x - x.mean((0, 2, 3), keepdim=True))
        together = x.permute(1, 0, 2, 3).reshape(2, 2, 75)
        wanted = torch.stack([torch.cov(g, correction=0) - torch.eye(2) for g in together]).abs().mean()
        torch.testing.assert_close(penalties["whitening"], wanted, rtol=1e-3, atol=1e-4)

    def test_a_matrix_of_zeros_has_a_finite_gradient(self):
        matrix = torch.zeros(1, 1, 3, 3, requires_grad=True)
        y, penalties = LearnedWhiteningColoring2d(1)(torch.randn(1, 3, 4, 4), matrix, torch.zeros(1, 3))
        (y.sum() + penalties["coloring"]).backward()
        assert torch.isfinite(matrix.grad).all()


class Constant(nn.Module):
    """A discriminator that says the same of every image."""

    def __init__(self, *said):
        super().__init__()
        self.said = said

    def forward(self, images):
        return [images.mean() * 0 + said for said in self.said]


def test_the_adversarial_losses_are_least_squares():
    nets = generator(), generator(1)
    images = torch.rand(1, 3, 32, 32), torch.rand(1, 3, 32, 32)
    there = translate(*nets, *images)
    judges = Constant(0.25), Constant(0.5, 1.0)
    found = discriminator_losses(judges, images, there)["discriminator"]
    assert float(found) == pytest.approx(0.75**2 + 0.5**2 + 0 + 0.25**2 + 0.5**2 + 1)
    fooled = generator_losses(nets, judges, images, there)["adversarial"]
    assert float(fooled.detach()) == pytest.approx(0.75**2 + 0.5**2)


def test_the_losses_compare_what_belongs_together():
    """With identity decoders and encoders, translation there and back is the image, and codes are kept."""

    class Identity(nn.Module):
        def content(self, x):
            return x

        def style(self, x):
            return x.mean((2, 3))

        def decode(self, content, style):
            shifted = content - content.mean((2, 3), keepdim=True) + style[..., None, None]
            return type("D", (), {"images": shifted, "penalties": {}})

    nets, judges = (Identity(), Identity()), (Constant(1.0), Constant(1.0))
    images = torch.rand(2, 3, 4, 4), torch.rand(2, 3, 4, 4)
    losses = generator_losses(nets, judges, images, translate(*nets, *images))
    zero = {name: float(value) for name, value in losses.items() if name != "content"}
    assert zero == pytest.approx(dict.fromkeys(zero, 0.0), abs=1e-6)
    assert set(losses) == set(LOSS_NAMES)


def test_generators_and_discriminators_do_not_train_each_other():
    config = TINY.replaced(a="a", b="b")
    torch.manual_seed(0)
    nets, judges = Generators(config), Discriminators(config)
    images = torch.rand(1, 3, 32, 32), torch.rand(1, 3, 32, 32)
    there = translate(*nets.both, *images)
    discriminator_losses(judges.both, images, there)["discriminator"].backward()
    assert all(p.grad is None for p in nets.parameters())
    assert all(p.grad is not None for p in judges.parameters())


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return pictures(tmp_path_factory.mktemp("pictures"))


def test_the_blend_stays_between_0_and_1(folders):
    task = TranslationTask(TINY.replaced(**folders, lr=0.01), Session())
    hops = [hop for net in task.generators.both for hop in net.decode.hops]
    for i, hop in enumerate(hops):
        hop.blend.data.fill_(i % 2)
    found = task.step(0)
    blends = [float(hop.blend.detach()) for hop in hops]
    assert all(0 <= blend <= 1 for blend in blends)
    assert any(blend in (0, 1) for blend in blends)
    assert any(blend not in (0, 1) for blend in blends)
    assert found["blend"] == pytest.approx(sum(blends) / 10)


def test_a_step_changes_every_network_and_the_discriminators_are_free_again(folders):
    torch.manual_seed(0)
    task = TranslationTask(TINY.replaced(**folders), Session())
    before = {name: p.detach().clone() for name, p in task.net.named_parameters()}
    found = task.step(0)
    assert set(found) == {*LOSS_NAMES, "discriminator", "blend"}
    assert all(not torch.equal(p, before[name]) for name, p in task.net.named_parameters())
    assert all(p.requires_grad for p in task.net.parameters())


def test_the_learning_rate_is_halved(folders):
    task = TranslationTask(TINY.replaced(**folders, lr=1.0, hold=1, halve_every=2), Session())
    task.step(5)
    assert {g["lr"] for optimizer in task.optimizers.values() for g in optimizer.param_groups} == {0.25}


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"method": "svd-tailor"}, "method: expected gd, or one of the library's: unknown method 'svd-tailor'"),
        ({"size": 66}, "size: expected a multiple of 4, at least 64 for 3 scales, got 66"),
        ({"size": 32}, "at least 64 for 3 scales, got 32"),
        ({"resize": 60}, "resize: expected at least size, 64, got 60"),
        ({"width": 2, "group_size": 3}, "group_size: expected groups of equal size in 8 channels, got 3"),
        ({"statistics": "both"}, "statistics: expected one of sample, batch, got 'both'"),
        ({"form": "better"}, "form: expected one of sound, published"),
        ({"steps": 0}, "steps: expected a whole number ≥ 1"),
        ({"seed": 2**32}, "seed: expected a whole number below 2³²"),
    ],
)
def test_invalid_settings_are_refused(values, said):
    with pytest.raises(ConfigError, match=said.replace("(", r"\(")):
        TranslationConfig(**values)


def test_the_configuration_survives_toml(tmp_path):
    config = TranslationConfig(a="x", b="y", method="svd-taylor:degree=19", resize=100, steps=3)
    (tmp_path / "config.toml").write_text(config.to_toml(), "utf-8")
    assert TranslationConfig.from_toml(tmp_path / "config.toml") == config


def test_decoders_need_no_square():
    net = Decoder(2, 1)
    assert net(torch.randn(1, 8, 3, 5), torch.randn(1, 8)).images.shape == (1, 3, 12, 20)
