"""A run is what its configuration says, wherever that comes from: code, TOML, flags, a preset."""

import argparse
import json
import math
import re

import pytest

from spectralgrad.cli import main
from spectralgrad_lab import PRESETS, Config, Epoch, Failure, Result
from spectralgrad_lab.commands.train import add_train_arguments, config_from, unreached_milestones
from spectralgrad_lab.data import DATASETS
from spectralgrad_lab.networks import NETWORKS
from spectralgrad_lab.training.config.run_config import FIELDS, ConfigError
from spectralgrad_lab.training.config.values import from_flag

from .. import forked

# Section 7 of the claims: epochs, batch, rate, weight decay, milestones.
PROTOCOLS = {
    "tpami-cifar10": (350, 128, 0.1, 5e-4, (100, 200, 300)),
    "tpami-cifar100": (350, 128, 0.1, 5e-4, (100, 200, 300)),
    "tpami-tiny-imagenet": (90, 128, 0.1, 5e-4, (30, 60)),
    "neurips-cifar10-pca": (350, 128, 0.1, 5e-4, (100, 200, 300)),
    "iccv-alexnet": (30, 128, 0.0794, 5e-4, (10, 20)),
    "iccv-resnet50": (60, 256, 0.0794, 1e-4, (30, 45)),
    "iccv-resnet101": (60, 256, 0.0794, 1e-4, (30, 45)),
    "iccv-birds": (50, 10, 1.2e-3, 1e-4, ()),
    "iccv-dogs": (50, 10, 1.2e-3, 1e-4, ()),
    "iccv-cars": (50, 10, 1.2e-3, 1e-4, ()),
    "eccv-cifar10": (350, 128, 0.1, 5e-4, (100, 200, 300)),
    "eccv-cifar100": (350, 128, 0.1, 5e-4, (100, 200, 300)),
    "eccv-resnet18": (60, 256, 0.1, 1e-4, (30, 45)),
}


def options(*arguments):
    parser = argparse.ArgumentParser()
    add_train_arguments(parser)
    return parser.parse_args([str(argument) for argument in arguments])


@pytest.mark.parametrize("name", PROTOCOLS)
def test_presets_are_the_papers_protocols(name):
    c = PRESETS[name]
    epochs, batch, lr, decay, milestones = PROTOCOLS[name]
    assert (c.epochs, c.batch_size, c.weight_decay, c.milestones) == (epochs, batch, decay, milestones)
    assert c.lr == pytest.approx(lr, rel=1e-3)
    assert (c.momentum, c.gamma, c.clip) == (0.9, 0.1, None)
    assert (c.classifier_lr == 6e-3) == (c.dataset in ("birds", "dogs", "cars"))


@pytest.mark.parametrize("name", PRESETS)
def test_presets_name_what_exists_and_survive_toml(name, tmp_path):
    config = PRESETS[name]
    assert config.dataset in DATASETS
    assert config.network in NETWORKS
    (tmp_path / "config.toml").write_text(config.to_toml(), "utf-8")
    assert Config.from_toml(tmp_path / "config.toml") == config


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"lr": -0.1}, "lr: expected a number ≥ 0, got -0.1"),
        ({"lr": math.inf}, "lr: expected a number ≥ 0, got inf"),
        ({"epochs": 0}, "epochs: expected a whole number ≥ 1, got 0"),
        ({"epochs": 2.5}, "epochs: expected a whole number, got 2.5"),
        ({"seed": True}, "seed: expected a whole number, got True"),
        ({"nog": 1}, "nog: expected true or false, got 1"),
        ({"batch_size": None}, "batch_size: expected a whole number, got nothing"),
        ({"layer": "whitning"}, "layer: expected one of batchnorm, whitening, denoising, got 'whitning'"),
        ({"milestones": 3}, "milestones: expected a list of whole numbers, got 3"),
        ({"milestones": (5, 3)}, "milestones: expected increasing epochs"),
        ({"method": "svd-tailor"}, "unknown method 'svd-tailor'; choose from"),
        ({"layer": "denoising"}, "method 'exact' is not available for eigh; choose from: "),
        ({"hybrid": "svd-pade"}, "hybrid: expected milestones"),
        ({"hybrid": "exact", "milestones": (3,)}, "hybrid: expected a method other than"),
        ({"hybrid": "svd", "milestones": (2,), "warmup_epochs": 3}, "3 do not fit before the last milestone, 2"),
        ({"layer": "batchnorm", "nog": True}, "need a spectral layer"),
        ({"colour": 1}, "unknown field 'colour'; the fields are dataset, data"),
    ],
)
def test_wrong_values_are_refused_in_words(values, message):
    with pytest.raises(ConfigError, match=re.escape(message)):
        Config().replaced(**values)


def test_flags_override_the_file_which_overrides_the_preset(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text('epochs = 7\nlr = 1\nmethod = "svd-pi"\n', "utf-8")
    config = config_from(
        options("--preset", "tpami-cifar10", "--config", file, "--lr", "0.5", "--group-size", "16", "--nog")
    )
    assert unreached_milestones(config) == "; milestones 100, 200, 300 are not reached"
    assert (config.epochs, config.lr, config.method, config.group_size, config.nog) == (7, 0.5, "svd-pi", 16, True)
    assert config.milestones == (100, 200, 300)


def test_no_augmentation_can_be_asked_for():
    assert config_from(options("--augmentation", "none")).augmentation == "none"


def test_a_field_that_is_misspelt_is_guessed():
    with pytest.raises(ConfigError, match=r"unknown field 'group-size'; did you mean group_size\?"):
        Config().replaced(**{"group-size": 16})


def test_denoising_has_a_method_of_its_own_by_default():
    assert config_from(options("--layer", "denoising")).method == "svd-pade"
    assert config_from(options("--layer", "denoising", "--method", "svd-taylor")).method == "svd-taylor"


def test_flags_that_a_network_of_ones_own_would_not_use_are_refused():
    with pytest.raises(ConfigError, match=r"--group-size: tests\.lab\.helpers:tiny has no parameter of that name"):
        config_from(options("--network", "tests.lab.helpers:tiny", "--group-size", "4", "--lr", "0.1"))


def test_a_switch_that_never_comes_is_refused():
    with pytest.raises(ConfigError, match="100, which is not within 5 epochs"):
        Config(method="newton-schulz", hybrid="svd-pade", milestones=(100,))
    assert Config(method="newton-schulz", hybrid="svd-pade", milestones=(5,), warmup_epochs=1).hybrid == "svd-pade"


def test_files_that_are_wrong_are_named(tmp_path):
    file = tmp_path / "mine.toml"
    wrong = {"lr = ": "not a TOML file", "rate = 3": "unknown field 'rate'", "lr = -1": "lr: expected"}
    for text, message in wrong.items():
        file.write_text(text, "utf-8")
        with pytest.raises(ConfigError, match=f"mine.toml: {message}"):
            Config.from_toml(file)


@pytest.mark.parametrize("name", FIELDS)
def test_every_field_is_a_flag_with_a_help_text_and_its_default(name, capsys):
    with pytest.raises(SystemExit):
        options("--help")
    flag = f"--{name.replace('_', '-')}"
    after = re.split(rf"\n  {flag}[ ,]", capsys.readouterr().out)[1]
    entry = " ".join(after.split("\n  --")[0].split())
    assert FIELDS[name].metadata["help"].split()[0] in entry
    assert "default" in entry or FIELDS[name].default is None
    default = getattr(PRESETS["small"], name)
    if default is not None and name != "milestones":
        assert f"(default: {('no', 'yes')[default] if isinstance(default, bool) else default})" in entry


def test_help_has_groups_presets_and_exit_codes(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["train", "--help"])
    assert stop.value.code == 0
    out = capsys.readouterr().out
    for words in ("training (SGD):", "conditioning and hybrid", "iccv-resnet101", "resnet50-cifar", "3 the run failed"):
        assert words in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--lr", "fast"], "argument --lr: expected a number, got 'fast'"),
        (["--milestones", "3,x"], "argument --milestones: expected whole numbers, got 'x'"),
        (["--layer", "none"], "argument --layer: expected one of batchnorm, whitening, denoising, got 'none'"),
        (["--preset", "tpami"], "unknown preset 'tpami'; the presets are: tpami-cifar10"),
        (["--dataset", "mnist"], "dataset: expected a dataset of fashion, "),
        (["--network", "resnet9"], "resnet9"),
        (["--method", "svd-tailor"], "unknown method"),
        (["--momentun", "1"], "unrecognized arguments"),
    ],
)
def test_wrong_usage_exits_with_two(arguments, message, capsys, tmp_path):
    with pytest.raises(SystemExit) as stop:
        main(["train", "--out", str(tmp_path / "run"), *arguments])
    assert stop.value.code == 2
    assert message in capsys.readouterr().err


def test_none_and_shares_on_the_command_line():
    assert from_flag(FIELDS["reduce_to"], "none") is None
    with pytest.raises(ValueError, match="expected a whole number"):
        from_flag(FIELDS["epochs"], "none")
    for text, kind in (("1", int), ("1.0", float)):
        assert type(from_flag(FIELDS["keep"], text)) is kind


def test_other_commands_do_not_load_the_lab():
    code = "import sys; from spectralgrad.cli.parser import parser; parser(); "
    out = forked.run("-c", code + "print([m for m in sys.modules if '.lab' in m])", check=True).stdout
    assert out.strip() == "[]"


def test_a_result_is_one_line_of_strict_json():
    epochs = [Epoch(0, 0.1, 2.0, 50.0, math.inf, 40.0, 1.0, 10.0, 5.0, math.nan, 3, "exact")]
    failure = Failure(7, 1, "the loss is not finite", "bn1", (0.0, 1.0, math.inf))
    result = Result(Config(milestones=(3,)), "failed", epochs, failure, started="2026-01-01T00:00:00+00:00")
    text = result.to_json()
    assert "\n" not in text
    json.loads(text, parse_constant=lambda word: pytest.fail(f"{word} is not JSON"))
    back = Result.from_json(text)
    assert back.to_json() == text
    assert (back.config, back.failure, back.epochs[0].test_loss) == (result.config, failure, math.inf)
    assert math.isnan(back.epochs[0].condition)


def test_an_older_version_reads_a_newer_result():
    values = Result(Config()).to_dict()
    values["config"]["invented_later"] = 1
    assert Result.from_dict(values).config == Config()


def test_errors_of_a_result():
    epochs = [Epoch(i, 0.1, 1.0, 50.0, 1.0, e, 1.0, 1.0, 1.0) for i, e in enumerate((40.0, 30.0, 35.0))]
    assert (Result(Config(), "done", epochs).best_error, Result(Config(), "done", epochs).final_error) == (30.0, 35.0)
    assert math.isnan(Result(Config()).best_error)
