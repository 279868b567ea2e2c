"""What is measured of translations: sharpness, style accuracy, time; and the benchmark of their whitening."""

import json
import math

import numpy as np
import pytest
import torch

from spectralgrad.cli import main
from spectralgrad.errors import ArgumentError, ShapeError
from spectralgrad_lab.bench.studies import group_whitening
from spectralgrad_lab.transfer.measures import reference_times, sharpness, translations
from spectralgrad_lab.transfer.pictures.random_crops import RandomCrops
from spectralgrad_lab.transfer.style_classifier import StyleClassifier
from spectralgrad_lab.transfer.translation import TranslationConfig, Translator
from spectralgrad_lab.transfer.translation.networks import Generators

from .translation_runs import pictures


class TestSharpness:
    def test_it_is_the_mean_norm_of_the_gradient(self):
        """As numpy computes it, in levels of 8 bits."""
        grey = torch.rand(1, 9, 7)
        down, right = np.gradient(255 * grey[0].double().numpy())
        assert sharpness(grey) == pytest.approx(float(np.hypot(down, right).mean()), rel=1e-5)

    def test_colors_count_as_their_intensity(self):
        step = torch.zeros(3, 4, 6)
        step[1, :, 3:] = 1.0  # green
        jump = 255 * 0.587
        assert sharpness(step) == pytest.approx(jump / 2 * 2 / 6, rel=1e-5)  # two columns of six see half of it

    def test_blurring_lowers_it_and_brightness_does_not_matter(self):
        image = torch.rand(3, 32, 32) / 2
        blurred = torch.nn.functional.avg_pool2d(image, 3, 1, 1, count_include_pad=False)
        assert sharpness(blurred) < sharpness(image) / 2
        assert sharpness(image + 0.3) == pytest.approx(sharpness(image), rel=1e-4)
        assert sharpness(torch.full((3, 8, 8), 0.4)) == 0

    @pytest.mark.parametrize("shape", [(2, 8, 8), (3, 1, 8), (8, 8), (1, 3, 8, 8)])
    def test_other_shapes_are_refused(self, shape):
        with pytest.raises(ShapeError, match="sharpness: expected"):
            sharpness(torch.zeros(shape))


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return pictures(tmp_path_factory.mktemp("pictures"))


@pytest.fixture(scope="module")
def judge(folders):
    return StyleClassifier.trained_on(folders, size=32, crops=96, tested=32, epochs=3, width=4)


class TestStyleClassifier:
    def test_it_tells_domains_apart(self, judge, folders):
        assert judge.domains == ("a", "b")
        assert judge.held_out > 90
        others = {
            name: RandomCrops(folder, size=32, resize=36, seed=99).batch(0, 32) for name, folder in folders.items()
        }
        assert judge.accuracy(others["a"], "a") > 85
        assert judge.accuracy(others["b"], "b") > 85
        assert judge.accuracy(others["b"], "a") == pytest.approx(100 - judge.accuracy(others["b"], "b"))

    def test_translated_crops_can_be_judged(self, judge, folders):
        a, b = (RandomCrops(folders[name], size=32, resize=36) for name in ("a", "b"))
        made = translations(Translator(Generators(TranslationConfig(width=2))), a, b, 4)
        assert made.shape == (4, 3, 32, 32)
        assert 0 <= judge.accuracy(made, "b") <= 100

    def test_wrong_arguments_are_refused(self, judge):
        with pytest.raises(ArgumentError, match="expected a domain of a, b, got 'c'"):
            judge.accuracy(torch.zeros(1, 3, 32, 32), "c")
        with pytest.raises(ShapeError, match="expected images"):
            judge.predicted(torch.zeros(3, 32, 32))

    def test_the_same_seed_gives_the_same_classifier(self, judge, folders):
        again = StyleClassifier.trained_on(folders, size=32, crops=96, tested=32, epochs=3, width=4)
        images = torch.rand(8, 3, 32, 32)
        assert torch.equal(again.net(images), judge.net(images))


def test_the_reference_time_is_that_of_every_method():
    times = reference_times(["gd", "svd-pi", "svd-taylor"], width=2, size=32, rounds=1)
    assert list(times) == ["gd", "svd-pi", "svd-taylor"]
    assert all(0 < seconds < math.inf for seconds in times.values())


class TestBenchmark:
    """The whitening of the network against two rivals: right before fast. No time is asserted."""

    SHAPE, GROUPS = (2, 8, 6, 6), 2

    def test_all_results_agree(self):
        figures = group_whitening.check(group_whitening.features(self.SHAPE), self.GROUPS)
        assert len(figures) == 7
        assert [figure.name for figure in figures if not figure.reached] == []

    def test_a_wrong_result_is_noticed(self, monkeypatch):
        real = group_whitening.contestants

        def wrong(groups):
            return {**real(groups), "svd-taylor": lambda X: 1.01 * X}

        monkeypatch.setattr(group_whitening, "contestants", wrong)
        figures = group_whitening.check(group_whitening.features(self.SHAPE), self.GROUPS)
        assert [figure.name for figure in figures if not figure.reached] == ["svd-taylor: value"]

    def test_the_clip_rule_clips(self):
        A = torch.diag(torch.tensor([1.0, 1.0 + 1e-6])).requires_grad_()
        _, V = group_whitening.ClippedEigh.apply(A)
        (V * torch.tensor([[1.0, 2.0], [3.0, 4.0]])).sum().backward()
        assert 0 < A.grad.abs().max() <= 100 * 4

    def test_the_command(self, monkeypatch, tmp_path, capsys):
        small = group_whitening.features(self.SHAPE)
        monkeypatch.setattr(group_whitening, "features", lambda: small)
        target = tmp_path / "whitening.json"
        assert main(["bench", "group-whitening", "--seconds", "0.01", "--threads", "1", "--json", str(target)]) == 0
        assert "exact / unrolled power iteration" in capsys.readouterr().out
        record = json.loads(target.read_text("utf-8"))
        assert len(record["milliseconds"]) == 5
