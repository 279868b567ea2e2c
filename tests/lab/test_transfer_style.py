"""Style transfer: encoder, statistics, transform and tiles compute what they say, for images of every size and rank."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import spectralgrad as sg
from spectralgrad.errors import ArgumentError, ShapeError
from spectralgrad_lab.transfer.features import feature_statistics
from spectralgrad_lab.transfer.features.feature_statistics import FeatureStatistics, whitening_coloring
from spectralgrad_lab.transfer.features.mirror_decoder import Decoder
from spectralgrad_lab.transfer.features.stylization import image_statistics, stylize
from spectralgrad_lab.transfer.features.tiles import padded, spans, tiles
from spectralgrad_lab.transfer.features.vgg_encoder import Encoder

from .style_networks import LEVELS, WIDTHS, encoder_tensors, small_decoder, small_encoder

ITERATIONS = ("newton-schulz", "pi", "svd-pi", "mtp", "mpa")
DECOMPOSING = [name for name in sg.methods("sqrt") if name not in ITERATIONS]


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    return small_encoder(tmp_path_factory.mktemp("encoder"))


@pytest.fixture(scope="module")
def decoders():
    return {level: small_decoder(level) for level in LEVELS}


def picture(height, width, seed=0):
    """Smooth shapes with some noise."""
    generator = torch.Generator().manual_seed(seed)
    coarse = torch.rand(1, 3, 6, 7, generator=generator)
    smooth = nn.functional.interpolate(coarse, (height, width), mode="bilinear")[0]
    return (0.8 * smooth + 0.2 * torch.rand(3, height, width, generator=generator)).clamp(0, 1)


class Watched(Decoder):
    """Keeps the features it is given."""

    def __init__(self, level):
        super().__init__(level, WIDTHS[level - 1], (6, 6, 6, 6))
        self.requires_grad_(False)
        self.seen = []

    def forward(self, features):
        self.seen.append(features.clone())
        return super().forward(features)


def moments(features):
    X = features.double().flatten(1)
    return X.mean(1), torch.cov(X, correction=0)


def range_projector(features):
    X = features.double().flatten(1)
    U, s, _ = torch.linalg.svd(X - X.mean(1, keepdim=True), full_matrices=False)
    U = U[:, s > 1e-6 * s[0]]
    return U @ U.mT


class TestEncoder:
    def test_it_is_the_network_of_the_file(self, encoder):
        """The layers of torchvision's ``vgg16().features`` by their numbers, with padding by reflection."""
        tensors = encoder_tensors()
        layers, found = [], {}
        for index in range(25):
            if f"{index}.weight" in tensors:
                weight = tensors[f"{index}.weight"]
                layer = nn.Conv2d(weight.shape[1], weight.shape[0], 3, padding=1, padding_mode="reflect")
                layer.load_state_dict({"weight": weight, "bias": tensors[f"{index}.bias"]})
                layers.append(layer)
            else:
                layers.append(nn.MaxPool2d(2) if index in (4, 9, 16, 23) else nn.ReLU())
        images = torch.rand(2, 3, 32, 48)
        x = (images - torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1)) / torch.tensor([0.229, 0.224, 0.225]).view(
            3, 1, 1
        )
        for index, layer in enumerate([*layers, nn.ReLU()]):
            x = layer(x)
            found[index] = x
        for level, index in zip(LEVELS, (1, 6, 11, 18, 25), strict=True):  # relu1_1, relu2_1, …
            assert_close(encoder(images, level), found[index])

    def test_several_levels_in_one_pass(self, encoder):
        images = torch.rand(1, 3, 32, 32)
        found = encoder.features(images, (4, 1, 3))
        assert sorted(found) == [1, 3, 4]
        assert all(torch.equal(found[level], encoder(images, level)) for level in found)

    @pytest.mark.parametrize(("shape", "level"), [((1, 3, 30, 32), 3), ((1, 3, 4, 32), 3), ((1, 1, 32, 32), 1)])
    def test_images_of_the_wrong_shape(self, encoder, shape, level):
        with pytest.raises(ShapeError, match="expected RGB images"):
            encoder(torch.rand(shape), level)

    def test_levels_and_widths_that_do_not_exist(self, encoder):
        for level in (0, 6):
            with pytest.raises(ArgumentError, match="level from 1 to 5"):
                encoder(torch.rand(1, 3, 64, 64), level)
        with pytest.raises(ArgumentError, match="five positive widths"):
            Encoder((64, 128))


class TestDecoder:
    @pytest.mark.parametrize("level", LEVELS)
    def test_it_doubles_the_resolution_back_to_the_image(self, level):
        side = 2 ** (level - 1)
        assert Decoder(level, 4, (4, 4, 4, 4))(torch.rand(2, 4, 3, 5)).shape == (2, 3, 3 * side, 5 * side)

    def test_features_are_centred_and_scaled_by_constants(self):
        one, other = small_decoder(2), small_decoder(2)
        other.center.fill_(3.0)
        other.scale.fill_(2.0)
        X = torch.rand(1, WIDTHS[1], 4, 4)
        assert_close(other(2 * X + 3), one(X))

    def test_all_decoders_together_are_below_ten_megabytes_in_half_precision(self):
        sizes = [2 * sum(t.numel() for t in Decoder(level).state_dict().values()) for level in LEVELS]
        assert sum(sizes[:3]) < 1e6
        assert sum(sizes) < 10e6

    def test_features_of_the_wrong_shape(self):
        with pytest.raises(ShapeError, match=r"features \(N, 128, h, w\) of level 2"):
            Decoder(2)(torch.rand(1, 64, 4, 4))


class TestTiles:
    @pytest.mark.parametrize(("length", "stride", "side"), [(64, 4, 20), (16, 16, 16), (48, 1, 7), (160, 16, 33)])
    def test_every_pixel_belongs_to_one_tile(self, length, stride, side):
        found = spans(length, stride, margin=5, side=side)
        assert [i for span in found for i in range(length)[span.place]] == list(range(length))
        for span in found:
            assert all(edge % stride == 0 for edge in (span.start, span.stop, span.first, span.last))
            assert span.first == 0 or span.start - span.first >= 5
            assert span.last == length or span.last - span.stop >= 5
            assert span.length <= side
        assert len({span.last - span.first for span in found}) == 1

    @pytest.mark.parametrize("level", LEVELS)
    def test_the_margin_is_as_wide_as_necessary_and_no_wider(self, encoder, decoders, level):
        """In double precision the tiles equal the whole to rounding; with a margin one position less they do not."""
        stride, decoder = 2 ** (level - 1), decoders[level]
        networks = [type(decoder)(level, WIDTHS[level - 1], (6,) * 4), Encoder(WIDTHS)]
        for copy, original in zip(networks, (decoder, encoder), strict=True):
            copy.load_state_dict(original.state_dict())
        decode, encode = (network.double().requires_grad_(False) for network in networks)
        encode.mean, encode.std = encoder.mean.double(), encoder.std.double()
        image = padded(picture(70, 271), stride).double()
        whole = decode(encode(image[None], level))[0]

        def difference(margin):
            made = torch.empty_like(whole)
            for row, column in tiles(image, stride, margin, 32):
                part = decode(encode(image[None, :, row.outer, column.outer], level))[0]
                made[:, row.place, column.place] = part[:, row.inner(), column.inner()]
            return float((made - whole).abs().max())

        margin = encode.margin(level) + decode.margin
        assert difference(margin) < 1e-13
        assert difference(margin - stride) > 1e-9

    def test_padding_repeats_the_border(self):
        image = padded(torch.arange(12.0).view(1, 3, 4), 8)
        assert image.shape == (1, 16, 16)
        assert torch.equal(image[0, 2:, 3:], torch.full((14, 13), 11.0))

    def test_lengths_that_do_not_fit(self):
        with pytest.raises(ArgumentError, match="multiple of 4"):
            spans(30, 4, 0, 8)


class TestStatistics:
    def test_pieces_make_the_whole(self):
        X = 1000 + torch.randn(9, 700, generator=torch.Generator().manual_seed(0))
        found = FeatureStatistics(9)
        for piece in X.split([1, 5, 300, 394], 1):
            found.add(piece)
        mean, covariance = moments(X)
        assert (found.count, found.features) == (700, None)
        assert_close(found.mean, mean, rtol=1e-13, atol=0)
        assert_close(found.covariance, covariance, rtol=1e-10, atol=1e-10)

    def test_large_maps_are_converted_in_chunks(self, monkeypatch):
        X = torch.randn(5, 90, dtype=torch.float64) + 3
        kept = X.clone()
        whole = FeatureStatistics(5).add(X)
        made = whitening_coloring(whole, FeatureStatistics(5).add(2 * X), 0.5)(X)
        monkeypatch.setattr(feature_statistics, "_CHUNK", 7)
        parts = FeatureStatistics(5).add(X.view(5, 9, 10))
        assert_close(parts.covariance, whole.covariance)
        assert_close(whitening_coloring(parts, FeatureStatistics(5).add(2 * X), 0.5)(X.view(5, 9, 10)).flatten(1), made)
        assert torch.equal(X, kept)

    def test_features_are_kept_while_there_are_fewer_positions_than_channels(self):
        X = torch.randn(20, 12)
        found = FeatureStatistics(20).add(X[:, :5]).add(X[:, 5:])
        assert torch.equal(found.features, X)
        assert_close(found.root() @ found.root(), found.covariance)
        assert found.add(X).features is None

    def test_statistics_of_an_image_do_not_depend_on_tiles(self, encoder):
        image = picture(90, 75)
        whole, parts = (image_statistics(image, encoder, LEVELS, side) for side in (1000, 32))
        for level in LEVELS:
            assert whole[level].count == parts[level].count
            assert_close(whole[level].mean, parts[level].mean, rtol=0, atol=1e-6)
            assert_close(whole[level].covariance, parts[level].covariance, rtol=0, atol=1e-6)

    @pytest.mark.parametrize("value", [0.0, 0.3, 900.0])
    def test_rounding_of_constant_features_has_no_variance(self, value):
        noise = (torch.rand(6, 200) - 0.5) * torch.finfo(torch.float32).eps
        found = FeatureStatistics(6).add((value * (1 + noise)).float())
        assert torch.equal(found.inverse_root(), torch.zeros(6, 6, dtype=torch.float64))

    @pytest.mark.parametrize("strength", [1.0, 0.3])
    def test_the_map_gives_mean_and_covariance(self, strength):
        generator = torch.Generator().manual_seed(0)
        X, Y = (torch.randn(8, 8, generator=generator) @ torch.randn(8, n, generator=generator) + 5 for n in (300, 200))
        statistics = [FeatureStatistics(8).add(x) for x in (X, Y)]
        full = whitening_coloring(*statistics)(X)
        (mean, covariance), (ours, found) = moments(Y), moments(full)
        assert (found - covariance).abs().max() < 1e-4 * covariance.abs().max()
        assert (ours - mean).abs().max() < 1e-4
        made = whitening_coloring(*statistics, strength=strength)(X)
        assert_close(made, strength * full + (1 - strength) * X, rtol=1e-4, atol=1e-4)


class TestStylize:
    @pytest.mark.parametrize("size", [(128, 128), (32, 48)], ids=str)
    @pytest.mark.parametrize("level", LEVELS)
    def test_decoded_features_have_mean_and_covariance_of_the_style(self, encoder, level, size):
        """Or S P S, with the projector P on the range of the content and the root S of the style's covariance.

        Levels 1 and 2 have full rank. Deeper ones have dead channels, and level 5 of the small image has six positions
        for its 12 channels.
        """
        content, style = picture(*size), picture(128, 128, seed=1)
        decoder = Watched(level)
        stylize(content, style, encoder, {level: decoder}, (level,), strength=1.0)
        (features,) = decoder.seen
        P = range_projector(encoder(content[None], level)[0])
        mean, covariance = moments(encoder(style[None], level)[0])
        w, V = torch.linalg.eigh(covariance)
        S = (V * w.clamp_min(0).sqrt()) @ V.mT
        wanted = covariance if level < 3 else S @ P @ S
        ours, found = moments(features[0])
        assert (found - wanted).abs().max() < 1e-4 * covariance.abs().max()
        assert (ours - mean).abs().max() < 1e-4 * mean.abs().max()

    @pytest.mark.parametrize("size", [(128, 96), (32, 48)], ids=str)
    @pytest.mark.parametrize("level", LEVELS)
    def test_features_with_their_own_style_come_back(self, encoder, level, size):
        content, decoder = picture(*size), Watched(level)
        stylize(content, content, encoder, {level: decoder}, (level,), strength=1.0)
        features = encoder(content[None], level)
        assert (decoder.seen[0] - features).abs().max() < 1e-3 * features.abs().max()

    def test_strength_zero_is_the_content(self, encoder, decoders):
        content, style = picture(45, 33), picture(20, 20, seed=1)
        for strength in (0, [0.0] * 5):
            assert torch.equal(stylize(content, style, encoder, decoders, LEVELS, strength=strength), content)

    def test_a_level_of_strength_zero_is_left_out(self, encoder, decoders):
        content, style = picture(45, 33), picture(20, 20, seed=1)
        some = stylize(content, style, encoder, decoders, (3, 2, 1), strength=(0.5, 0, 0.7))
        assert torch.equal(some, stylize(content, style, encoder, decoders, (3, 1), strength=(0.5, 0.7)))

    def test_levels_go_from_the_deepest_to_the_first(self, encoder, decoders):
        content, style = picture(45, 33), picture(20, 20, seed=1)
        made = stylize(content, style, encoder, decoders, (1, 3), strength=(0.7, 0.5))
        step = stylize(content, style, encoder, decoders, (3,), strength=0.5)
        assert torch.equal(made, stylize(step, style, encoder, decoders, (1,), strength=0.7))

    @pytest.mark.parametrize("level", LEVELS)
    def test_there_are_no_seams(self, encoder, decoders, level):
        content, style = picture(150, 171), picture(90, 80, seed=1)
        whole, parts = (
            stylize(content, style, encoder, decoders, (level,), strength=1.0, side=side) for side in (1000, 32)
        )
        assert (whole - parts).abs().max() < 1e-4

    @pytest.mark.parametrize("size", [(1, 1), (2, 5), (1, 70), (33, 16)], ids=str)
    def test_images_of_any_size(self, encoder, decoders, size):
        for content, style in ((picture(*size), picture(40, 40)), (picture(40, 40), picture(*size))):
            made = stylize(content, style, encoder, decoders, LEVELS, strength=1.0)
            assert made.shape == content.shape
            assert made.isfinite().all()
            assert 0 <= made.min() <= made.max() <= 1

    def test_images_of_one_colour(self, encoder, decoders):
        """A content without variance becomes one without variance; a style without variance removes it."""
        flat, varied = torch.full((3, 40, 40), 0.3), picture(40, 40)
        for content, style in ((flat, varied), (varied, flat)):
            made = stylize(content, style, encoder, {1: decoders[1]}, (1,), strength=1.0)
            assert made.flatten(1).std(1).max() < 1e-5
        reference = decoders[1](encoder(flat[None], 1))[0].clamp(0, 1)
        assert_close(made, reference, rtol=0, atol=1e-5)

    @pytest.mark.parametrize("method", DECOMPOSING)
    def test_methods_differ_in_gradients_only(self, encoder, decoders, method):
        content, style = picture(64, 64), picture(64, 64, seed=1)
        made, exact = (stylize(content, style, encoder, decoders, (1,), method=m) for m in (method, "exact"))
        assert (made - exact).abs().max() < 1e-4

    @pytest.mark.parametrize("method", ITERATIONS)
    def test_iterations_are_finite(self, encoder, decoders, method):
        content, style = picture(64, 64), picture(64, 64, seed=1)
        assert stylize(content, style, encoder, decoders, (5, 1), method=method).isfinite().all()

    def test_no_feature_map_is_larger_than_a_tile_with_its_margin(self, encoder, decoders):
        """So that memory does not grow with the image."""
        largest = 0

        def watch(module, inputs, output):
            nonlocal largest
            largest = max(largest, inputs[0].shape[-1], inputs[0].shape[-2])

        networks = (*encoder.modules(), *decoders[3].modules())
        handles = [m.register_forward_hook(watch) for m in networks if isinstance(m, nn.Conv2d)]
        stylize(picture(300, 400), picture(500, 200, seed=1), encoder, decoders, (3,), side=64)
        for handle in handles:
            handle.remove()
        assert largest <= 64 + 2 * 24 + 2  # the margin of level 3, and the padding of a convolution

    def test_progress_counts_pixels(self, encoder, decoders):
        counts = []
        stylize(picture(64, 48), picture(32, 32), encoder, decoders, (2, 1), side=32, progress=counts.append)
        assert sum(counts) == 32 * 32 + 2 * 2 * 64 * 48

    @pytest.mark.parametrize(
        ("options", "said"),
        [
            ({"levels": (0,)}, "level from 1 to 5, got 0"),
            ({"levels": (2, 2)}, r"different levels, got \[2, 2\]"),
            ({"levels": ()}, "different levels"),
            ({"strength": 1.5}, "strength from 0 to 1, got 1.5"),
            ({"strength": float("nan")}, "strength from 0 to 1, got nan"),
            ({"strength": (1, 0.5)}, "one strength or 3, one for each level, got 2"),
            ({"decoders": {}}, "no decoder of level 3"),
            ({"decoders": {3: small_decoder(1)}, "levels": (3,)}, "got one of level 1"),
            ({"content": torch.rand(1, 8, 8)}, "expected content as float32 RGB"),
            ({"style": torch.full((3, 8, 8), float("nan"))}, "NaN or infinity in style"),
            ({"method": "svd-tailor"}, "svd-tailor"),
        ],
        ids=lambda value: value if isinstance(value, str) else "",
    )
    def test_wrong_arguments(self, encoder, decoders, options, said):
        given = {"content": picture(16, 16), "style": picture(16, 16), "encoder": encoder, "decoders": decoders}
        with pytest.raises((ArgumentError, sg.errors.MethodError), match=said):
            stylize(**{**given, **options})
