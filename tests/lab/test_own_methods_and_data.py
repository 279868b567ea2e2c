"""Methods and images of one's own: objects, names, module:callable and entry points."""

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import pytest
import torch
from torch import Tensor
from torch.utils.data import Dataset as TorchDataset
from torch.utils.data import TensorDataset

import spectralgrad as sg
from spectralgrad.cli import main
from spectralgrad.io import plugins
from spectralgrad.rules import METHODS
from spectralgrad_lab import Config, Result, ResultsFile, train
from spectralgrad_lab.comparison.grid import compare, grid
from spectralgrad_lab.data import DATASETS, Batches, DataError, Dataset, Source, as_dataset, register
from spectralgrad_lab.data import load as load_data
from spectralgrad_lab.report import report
from spectralgrad_lab.training.config.method_names import RecordedMethod, method_text
from spectralgrad_lab.training.config.run_config import ConfigError
from spectralgrad_lab.training.processes.interrupts import Stopped
from spectralgrad_lab.training.storage.checkpoints import load

from .helpers import QUICK, Interrupting, numbers

SMALL = QUICK.replaced(network="small", width=2, epochs=1, train_size=64)
BASE = SMALL.replaced(epochs=2)


@dataclass(frozen=True)
class Mine(sg.Taylor):
    """Another degree, under a name of its own."""

    name: ClassVar[str] = "mine"
    summary: ClassVar[str] = "the series of degree 4"
    reference: ClassVar[str] = "this test"
    degree: int = 4


@dataclass(frozen=True)
class Weighted(Mine):
    """A field that no word can hold, and that == cannot compare."""

    name: ClassVar[str] = "weighted"
    weights: Tensor = field(default_factory=lambda: torch.ones(2))


@pytest.fixture
def mine():
    sg.register_method(Mine)
    yield "mine"
    del METHODS["mine"]


@pytest.fixture
def names():
    """Names registered meanwhile are forgotten."""
    before, methods = dict(DATASETS), dict(METHODS)
    yield
    for known, kept in ((DATASETS, before), (METHODS, methods)):
        for name in set(known) - set(kept):
            del known[name]


# --- methods


def test_an_object_that_a_word_means_becomes_the_word():
    assert Config(method=sg.Taylor(degree=19)) == Config(method="svd-taylor:degree=19")
    hybrid = Config(method=sg.NewtonSchulz(), hybrid=sg.Pade(), milestones=(3,))
    assert (hybrid.method, hybrid.hybrid) == ("newton-schulz", "svd-pade")
    with pytest.raises(ConfigError, match="denoising needs eigenvectors"):
        Config(layer="denoising", method=sg.Exact())
    with pytest.raises(ConfigError, match="method: expected text, got 3"):
        Config(method=3)


def test_an_object_of_ones_own_trains_as_the_rule_it_is(tmp_path):
    ours = train(SMALL.replaced(method="svd-taylor:degree=4"))
    own = train(SMALL.replaced(method=Mine()), tmp_path)
    assert [{**e, "method": ""} for e in numbers(own)] == [{**e, "method": ""} for e in numbers(ours)]
    assert own.epochs[0].method == method_text(Mine()) == "Mine(degree=4, faithful=False, clamp=None)"
    back = ResultsFile(tmp_path / "none").read() or [Result.from_json(own.to_json())]
    assert back[0].config.method == RecordedMethod("Mine(degree=4, faithful=False, clamp=None)")
    assert back[0].to_json() == own.to_json()


def test_resuming_asks_for_the_object_again(tmp_path, capsys):
    config = BASE.replaced(method=Weighted())
    straight = train(config)
    with pytest.raises(Stopped):
        train(config, tmp_path, progress=Interrupting(3))
    assert load(tmp_path) is not None
    with pytest.raises(ConfigError, match=r"method was 'Weighted\(.*pass the object again"):
        train(BASE, tmp_path, resume=True)
    with pytest.raises(SystemExit):
        main(["train", "--out", str(tmp_path), "--resume"])
    assert "pass the object again, or give it a name with spectralgrad.register_method" in capsys.readouterr().err
    assert numbers(train(config, tmp_path, resume=True)) == numbers(straight)


def test_a_record_shows_a_method_and_cannot_be_used():
    with pytest.raises(sg.MethodError, match="known only from a record"):
        sg.matrix_sqrt(torch.eye(2, requires_grad=True), method=RecordedMethod("Lost(1)")).sum().backward()
    assert method_text(sg.NewtonSchulz(on_residual=print)).startswith("NewtonSchulz(")  # a name loses the callback


def test_a_name_of_ones_own_goes_wherever_names_go(mine, tmp_path):
    assert "mine" in sg.methods("eigh")
    config = SMALL.replaced(method=Mine(degree=5))
    assert config.method == "mine:degree=5"
    (tmp_path / "config.toml").write_text(config.to_toml(), "utf-8")
    assert Config.from_toml(tmp_path / "config.toml") == config
    arguments = ["train", "--config", str(tmp_path / "config.toml"), "--out", str(tmp_path / "run")]
    assert main([*arguments, "--method", "mine"]) == 0
    assert Result.from_json((tmp_path / "run" / "result.json").read_bytes()).config.method == "mine"


def plain(limit=1):
    return limit


class Bare(sg.Method):
    name, summary, reference, operations = "bare", "", "", frozenset({"eigh"})


@dataclass(frozen=True)
class Taken(Mine):
    name: ClassVar[str] = "svd-taylor"


@dataclass(frozen=True)
class Reserved(Mine):
    name: ClassVar[str] = "batchnorm"


@dataclass(frozen=True)
class Spaced(Mine):
    name: ClassVar[str] = "my rule:x=1"


@dataclass(frozen=True)
class Wanting(sg.GapMethod):
    limit: float
    name: ClassVar[str] = "wanting"
    summary: ClassVar[str] = "no default"
    reference: ClassVar[str] = "this test"


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (plain, "expected a class derived from GapMethod"),
        (Bare, "expected Bare to implement decompose"),
        (Mine(), "expected a class derived from GapMethod"),
        (Taken, "the name 'svd-taylor' is already used by spectralgrad.rules.taylor.Taylor"),
        (Reserved, "expected a name of lower-case letters"),
        (Spaced, "expected a name of lower-case letters"),
        (Wanting, "expected a default value for limit"),
    ],
)
def test_what_cannot_be_a_method_is_not_registered(kind, words):
    before = dict(METHODS)
    with pytest.raises(sg.MethodError, match=words):
        sg.register_method(kind)
    assert before == METHODS


def test_objects_are_compared_with_names(tmp_path):
    runs = grid(SMALL, methods=("exact", Mine()), group_sizes=(16,), seeds=(0,))
    first = compare(runs, tmp_path)
    again = compare(runs, tmp_path)
    assert [r.to_json() for r in again] == [r.to_json() for r in first]
    assert len((tmp_path / "results.jsonl").read_text("utf-8").splitlines()) == 2
    page = report(tmp_path).path.read_text("utf-8")
    assert "Mine(degree=4, faithful=False, clamp=None)" in page


# --- entry points


@pytest.fixture
def installed(tmp_path, monkeypatch, names):
    """Installs a package with entry points; returns what does it."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(plugins, "_tried", set())

    def install(group, **points):
        folder = tmp_path / "stranger-1.0.dist-info"
        folder.mkdir(exist_ok=True)
        (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: stranger\nVersion: 1.0\n", "utf-8")
        lines = "".join(f"{name.replace('_', '-')} = {value}\n" for name, value in points.items())
        (folder / "entry_points.txt").write_text(f"[{group}]\n{lines}", "utf-8")
        return tmp_path

    yield install
    for module in ("stranger", "stranger_broken"):
        sys.modules.pop(module, None)


METHOD = """
from dataclasses import dataclass
from typing import ClassVar
from spectralgrad import Taylor

@dataclass(frozen=True)
class Strange(Taylor):
    name: ClassVar[str] = "strange"
    summary: ClassVar[str] = "of another package"
    limit: float = 1.5
"""


def test_methods_of_installed_packages_are_found_by_name_and_loaded_when_asked_for(installed):
    folder = installed("spectralgrad.methods", strange="stranger:Strange")
    (folder / "stranger.py").write_text(METHOD, "utf-8")
    assert sg.eigh(torch.eye(2), method="svd-taylor:degree=3").eigenvalues.tolist() == [1.0, 1.0]
    with pytest.raises(sg.MethodError, match="unknown method 'no-such'"):
        sg.eigh(torch.eye(2), method="no-such")
    assert "stranger" not in sys.modules
    assert Config(method="strange:limit=2.0").method == "strange:limit=2.0"
    assert "stranger" in sys.modules
    assert sg.methods()["strange"] == "of another package"


@pytest.mark.parametrize("value", ["stranger_broken:Strange", "stranger_missing:x", "math:pi", "stranger:Strange"])
def test_a_broken_method_of_a_package_is_a_warning(value, installed, capsys):
    folder = installed("spectralgrad.methods", other=value)
    (folder / "stranger_broken.py").write_text("raise SystemError('broken')", "utf-8")
    (folder / "stranger.py").write_text(METHOD, "utf-8")  # under another name than the entry point's
    with pytest.warns(UserWarning, match=r"entry point 'other' of spectralgrad.methods is ignored: "):
        assert "other" not in sg.methods()
    assert main(["info"]) == 0  # the warning is not repeated
    with pytest.raises(sg.MethodError, match="unknown method 'other'"):
        sg.eigh(torch.eye(2), method="other")


DATA = """
import torch

calls = []

def images(folder=None):
    "Noise."
    calls.append(folder)
    images, labels = torch.rand(40, 1, 28, 28, generator=torch.Generator().manual_seed(0)), torch.arange(40) % 4
    return (images, labels), (images, labels)

def without():
    return images()

def wrong():
    return [1, 2, 3]
"""


def test_images_of_installed_packages_are_found_by_name(installed, capsys):
    folder = installed("spectralgrad.data", noise="stranger:images", broken="stranger_missing:x", wrong="math:pi")
    (folder / "stranger.py").write_text(DATA, "utf-8")
    assert "stranger" not in sys.modules
    arguments = ["train", "--dataset", "noise", "--data", str(folder), "--width", "2", "--epochs", "1",
                 "--batch-size", "20", "--no-tensorboard", "--out", str(folder / "run")]  # fmt: skip
    assert main(arguments) == 0
    assert sys.modules["stranger"].calls == [folder]
    for name in ("broken", "wrong"):
        with pytest.warns(UserWarning, match=f"'{name}' of spectralgrad.data is ignored"), pytest.raises(DataError):
            load_data(name)


# --- images


def test_images_by_module_and_callable(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("mine_data.py").write_text(DATA, "utf-8")
    try:
        data = load_data("mine_data:images", "somewhere", train_size=8)
        assert (len(data.train), len(data.test), data.classes) == (8, 40, ("0", "1", "2", "3"))
        assert sys.modules["mine_data"].calls == [Path("somewhere")]
        assert len(load_data("mine_data:without").train) == 40
        for name, words in (
            ("mine_data:wrong", "expected a spectralgrad_lab.data.Dataset, or a pair .*, got list"),
            ("mine_data:calls", "expected a callable, got list"),
            ("mine_data:none", "no attribute 'none'"),
            ("no_such_data:x", "dataset module 'no_such_data' not found"),
            ("mine_data:", "expected a dataset as 'module:callable'"),
        ):
            with pytest.raises(DataError, match=words):
                load_data(name)
        with pytest.raises(DataError, match="parameter `folder`"):
            load_data("mine_data:without", "somewhere")
        arguments = ["train", "--width", "2", "--epochs", "1", "--batch-size", "20", "--no-tensorboard"]
        assert main([*arguments, "--dataset", "mine_data:images"]) == 0
        assert "small on mine_data:images" in capsys.readouterr().out
        assert main([*arguments, "--dataset", "mine_data:images", "--resume"]) == 0
        assert main([*arguments, "--dataset", "mine_data:wrong", "--resume"]) == 1
    finally:
        sys.modules.pop("mine_data", None)


def test_results_do_not_make_us_import_what_they_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("forged.py").write_text("raise SystemExit('imported')", "utf-8")
    for k, values in enumerate(({"network": "forged:net"}, {"dataset": "forged:data"}, {"method": "forged"})):
        config = SMALL.replaced(seed=k, **{"method": "exact", **values}) if k < 2 else SMALL.replaced(seed=k)
        row = Result(config, "done").to_json()
        with Path("results.jsonl").open("a", encoding="utf-8") as file:
            file.write(row.replace('"method": "exact"', '"method": "forged"') + "\n" if k == 2 else row + "\n")
    (result,) = compare([SMALL.replaced(seed=9)], tmp_path)  # its checkpoint is beside them
    assert result.status == "done"
    report(tmp_path)
    assert "forged" not in sys.modules


class Listed(TorchDataset):
    """Images of one shape and labels, one after another."""

    classes = ("cat", "dog", "bird")

    def __init__(self, images, labels):
        self.images, self.labels = images, labels

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        return self.images[i], self.labels[i]


IMAGES = torch.rand(48, 3, 8, 8, generator=torch.Generator().manual_seed(0)) * torch.tensor([1.0, 5.0, 0.1]).view(
    3, 1, 1
)
LABELS = torch.arange(48) % 3
BYTES = (IMAGES.clamp(0, 1) * 255).to(torch.uint8)


@pytest.mark.parametrize(
    "part",
    [
        TensorDataset(IMAGES, LABELS),
        (IMAGES, LABELS.int()),
        Listed(IMAGES, LABELS),
        Listed(IMAGES.double(), LABELS.tolist()),
        Listed(BYTES, LABELS),
        (BYTES[:, 0], LABELS),
    ],
    ids=["TensorDataset", "tensors", "Dataset", "float64", "bytes", "grey bytes"],
)
def test_images_as_objects_are_normalized_and_trained(part):
    data = as_dataset((part, part))
    batches = Batches(data.train, 48, mean=data.mean, std=data.std, shuffle=False)
    images, labels = next(batches.epoch(0))
    assert torch.equal(labels, LABELS)
    tolerance = 1e-5  # means of 3072 numbers of size 1 in float32
    assert images.mean((0, 2, 3)).abs().max() < tolerance
    assert (images.std((0, 2, 3), correction=0) - 1).abs().max() < tolerance
    config = Config(epochs=1, batch_size=16, width=2, tensorboard=False, threads=1)
    result = train(config, data=(part, part))
    assert result.status == "done"
    assert result.config.dataset.startswith("own@")


def test_classes_have_the_datasets_names_and_sizes_are_taken(tmp_path):
    data = as_dataset((Listed(BYTES, LABELS), Listed(BYTES[:6], LABELS[:6])))
    assert data.classes == ("cat", "dog", "bird")
    result = train(Config(epochs=1, batch_size=8, width=2, train_size=24, tensorboard=False), tmp_path, data=data)
    assert (result.status, result.config.train_size) == ("done", 24)


def test_resuming_asks_for_the_same_images(tmp_path, capsys):
    config = Config(epochs=2, batch_size=16, width=2, tensorboard=False, threads=1)
    images, others = ((BYTES, LABELS),) * 2, ((255 - BYTES, LABELS),) * 2
    straight = train(config, data=images)
    with pytest.raises(Stopped):
        train(config, tmp_path, data=images, progress=Interrupting(4))
    with pytest.raises(ConfigError, match="contains another run: dataset was 'own@"):
        train(config, tmp_path, data=others, resume=True)
    with pytest.raises(DataError, match="this dataset was an object: pass it to train again as `data=`"):
        train(straight.config, tmp_path, resume=True)
    with pytest.raises(SystemExit):
        main(["train", "--out", str(tmp_path), "--resume"])
    assert "pass it to train again as `data=`" in capsys.readouterr().err
    assert numbers(train(config, tmp_path, data=images, resume=True)) == numbers(straight)


FLOATS = torch.zeros(4, 1, 8, 8)
FEW = torch.tensor([0, 1, 0, 1])


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (3, "or a pair .*, got int"),
        ((3, 4), "training images: .*got int"),
        ((FLOATS, FLOATS), "expected .image, label. at 0, got Tensor"),
        (((FLOATS, FEW.float()),) * 2, "training labels: expected whole numbers"),
        (((FLOATS, FEW[:3]),) * 2, "expected one label per image, got 4 and 3"),
        (((FLOATS, -FEW),) * 2, "training labels: expected 0 to 0, got -1 to 0"),
        (((FLOATS / 0, FEW),) * 2, "training images: expected finite numbers"),
        (((FLOATS.long(), FEW),) * 2, "expected uint8 or floating-point .N, C, H, W., got torch.int64"),
        (((FLOATS[:, 0, 0], FEW),) * 2, "expected uint8 or floating-point"),
        (((FLOATS, FEW), (FLOATS[:, :, :4], FEW)), "of one shape, got .1, 8, 8. and .1, 4, 8."),
        (((FLOATS, FEW), (FLOATS[:0], FEW[:0])), "test images: expected at least one, got none"),
        ((Listed([FLOATS[0], FLOATS[0, :, :4]], [0, 1]),) * 2, "expected one shape"),
        ((Listed(["a"], [0]),) * 2, "expected a tensor .C, H, W. at 0, got str"),
        ((Listed([FLOATS[0]], [0.5]),) * 2, "expected a whole number for a label at 0, got 0.5"),
    ],
)
def test_what_cannot_be_images_is_refused_in_words(value, words):
    with pytest.raises(DataError, match=words):
        as_dataset(value)


def test_names_for_images(names):
    register("noise", Source("noise", lambda _: ((BYTES, LABELS),) * 2, folder=False))
    assert isinstance(load_data("noise"), Dataset)
    assert load_data("noise", train_size=6).name == "noise"
    for name, source, words in (
        ("noise", plain, "a name that is not in use"),
        ("fashion", plain, "a name that is not in use"),
        ("a:b", plain, "a name of letters, digits"),
        ("a@b", plain, "a name of letters, digits"),
        ("other", 3, "expected a Source or a reader to call, got int"),
    ):
        with pytest.raises(DataError, match=words):
            register(name, source)
