"""The study of launches: every public function has a row, and none launches more than the stored result says."""

import json
import re

import pytest
import torch

from spectralgrad.cli import main
from spectralgrad_lab.bench.studies import launches
from spectralgrad_lab.bench.studies.calls import CALLS
from spectralgrad_lab.bench.studies.composed_layers import LAYERS, features

from .. import forked
from ..documents import ROOT, text
from ..helpers import NO_DEVICE

STORED = ROOT / "docs" / "results" / "bench" / "launches.json"
ROWS = [launches.Row(row["name"], tuple(row["ours"]), tuple(row["torch"])) for row in json.loads(text(STORED))["rows"]]
# Where the composition is a few kernels, checks and exact derivatives are more than half as many again. New functions
# belong within the bar; the stored figures of those listed may not grow.
WITHIN_THE_BAR = {"covariance", "rmsd"}


def test_every_public_function_and_layer_has_a_row():
    assert [row.name for row in ROWS] == [call.name for call in (*CALLS, *LAYERS)]


def test_the_page_shows_the_stored_result():
    page = text(ROOT / "docs" / "gpu.md")
    shown = re.findall(r"^\| `.*` \|(?: \d+ \|){4} [\d.]+ \|$", page, re.MULTILINE)
    assert shown == list(launches.table(ROWS))[2:]


def test_few_functions_are_above_the_bar():
    assert {row.name for row in ROWS if row.ratio <= launches.BAR} == WITHIN_THE_BAR


@NO_DEVICE
def test_no_call_launches_more_than_before(tmp_path):
    """In a process of its own, because the pretended device changes torch."""
    file = tmp_path / "launches.json"
    done = forked.run("-m", "spectralgrad", "bench", "launches", "--json", file)
    assert done.returncode == 0, done.stderr
    found = {row["name"]: row["ours"] for row in json.loads(file.read_text())["rows"]}
    more = {
        row.name: (row.ours, found[row.name])
        for row in ROWS
        if any(now > before for now, before in zip(found[row.name], row.ours, strict=True))
    }
    assert not more


@pytest.mark.parametrize("layer", LAYERS, ids=lambda layer: layer.name)
def test_each_layer_agrees_with_its_composition(layer):
    pairs = []
    for call in layer.both(lambda module: module.double()):
        X = features().double().requires_grad_()
        Y = call(X)
        G = torch.cos(torch.arange(Y.numel(), dtype=Y.dtype).square()).view(Y.shape)
        pairs.append((Y.detach(), torch.autograd.grad(Y, X, G)[0]))
    for ours, theirs in zip(*pairs, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9)


def test_another_torch_is_an_error(monkeypatch, capsys):
    monkeypatch.setattr(launches.pretended_device, "available", False)
    assert main(["bench", "launches"]) != 0
    assert "expected torch 2.13" in capsys.readouterr().err
