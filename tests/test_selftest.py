"""The kernel's test of itself at first use: wrong results are refused, torch.linalg serves, and ``info`` says so."""

import json
import warnings
from functools import cache
from pathlib import Path
from types import FunctionType

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.testing import assert_close

import spectralgrad as sg
from spectralgrad.cli import main
from spectralgrad.native import Kernel, derivative_calls, kernel, library, selftest
from spectralgrad.native.calls import Singular, Symmetric
from spectralgrad.native.derivative_calls import Derivatives, SingularDerivatives

from . import forked

NATIVE = kernel()
pytestmark = pytest.mark.skipif(NATIVE is None, reason="the native kernel was not built or is switched off")
WRONG = 1 + 1e-3


def _off(result):
    """The result of one of the kernel's calls with an error of a thousandth in its first tensor."""
    return result * WRONG if isinstance(result, torch.Tensor) else (_off(result[0]), *result[1:])


@pytest.fixture
def loading(monkeypatch):
    """The kernel is loaded and tested again. Afterwards there is the object of before, which other tests hold."""
    monkeypatch.setattr(library, "_load", cache(library._load.__wrapped__))


METHODS = [  # of the kernel's calls, in each way that there is
    (kind, name, lanes)
    for kind, ways in {
        Symmetric: (True, False),
        Singular: (True, False),
        Derivatives: [None],
        SingularDerivatives: [None],
    }.items()
    for name, method in vars(kind).items()
    if isinstance(method, FunctionType) and name[0] != "_"
    for lanes in ((True, False) if "lanes" in kind._fields else [None])
]


def _replace(monkeypatch, kind, method, changed, lanes=None):
    """Replace the results of a method by ``changed`` of them, in one of the two ways to decompose or in both."""
    right = getattr(kind, method)

    def wrong(self, *args):
        results = right(self, *args)
        return changed(results) if lanes in (None, self.lanes) else results

    monkeypatch.setattr(kind, method, wrong)


@pytest.mark.parametrize(("kind", "name", "lanes"), METHODS)
def test_an_error_in_any_function_is_noticed(kind, name, lanes, monkeypatch):
    _replace(monkeypatch, kind, name, _off, lanes)
    assert selftest.problem(NATIVE) is not None


def test_every_entry_of_the_kernel_is_exercised_under_the_sanitizers():
    exercised = (Path(__file__).parent / "native" / "exercise.cpp").read_text(encoding="utf-8")
    names = {name for name, _ in NATIVE.functions}
    assert {name for name in names if f'("{name}")' not in exercised} == set()


def test_an_error_in_divided_differences_is_noticed(monkeypatch):
    right = derivative_calls.divided_differences
    monkeypatch.setattr(derivative_calls, "divided_differences", lambda *args: _off(right(*args)))
    assert selftest.problem(NATIVE) is not None


@pytest.mark.parametrize("place", range(10))
def test_an_error_in_any_part_of_an_alignment_is_noticed(place, monkeypatch):
    _replace(monkeypatch, Singular, "align", lambda found: (_off_at(place, found[0]), found[1]))
    assert selftest.problem(NATIVE) is not None


def _off_at(place, tensors):
    return tuple(x * 1.01 if at == place else x for at, x in enumerate(tensors))


@pytest.mark.parametrize("place", range(3))
def test_an_error_in_any_part_of_a_polar_decomposition_is_noticed(place, monkeypatch):
    _replace(monkeypatch, Singular, "polar", lambda found: (_off_at(place, found[0]), found[1]))
    assert selftest.problem(NATIVE) is not None


@pytest.mark.parametrize("written", [8, 9, 10])
def test_an_error_in_the_gradient_of_points_is_noticed(written, monkeypatch):
    """The results are written into tensors: gX, gY and gw."""
    right = Kernel.pull_points

    def wrong(self, *tensors):
        right(self, *tensors)
        tensors[written].mul_(1.01)

    monkeypatch.setattr(Kernel, "pull_points", wrong)
    assert selftest.problem(NATIVE) is not None


@pytest.mark.parametrize(
    ("damage", "named"),
    [
        (lambda w, V, failed: ((w.flip(-1), V.flip(-1)), failed), "eigh of 3×3 matrices in float32"),
        (lambda w, V, failed: ((w, V * torch.nan), failed), "eigh of 3×3 matrices in float32"),
        (lambda w, V, failed: ((w, V), failed + 1), "eigh of 3×3 matrices in float32"),
        (lambda w, V, failed: ((w, V.index_fill(0, torch.tensor(16), 0.0)), failed), "eigh of 3×3 matrices in float32"),
    ],
    ids=["descending", "not a number", "counted as failed", "last matrix"],
)
def test_damaged_results_are_noticed(damage, named, monkeypatch):
    _replace(monkeypatch, Symmetric, "eigh", lambda found: damage(*found[0], found[1]))
    assert selftest.problem(NATIVE) == named


def test_an_error_in_one_type_and_size_only_is_noticed(monkeypatch):
    wrong = lambda V: V.dtype == torch.float64 and V.shape[-1] > 4  # noqa: E731
    _replace(monkeypatch, Symmetric, "eigh", lambda found: _off(found) if wrong(found[0][1]) else found)
    assert selftest.problem(NATIVE) == "eigh of 6×6 matrices in float64"


def test_a_kernel_that_raises_is_refused(monkeypatch):
    def broken(results):
        raise OSError("bad address")

    _replace(monkeypatch, Symmetric, "eigh", broken)
    assert selftest.problem(NATIVE) == "OSError: bad address"


def test_a_wrong_kernel_is_not_used_and_said_once(monkeypatch, loading, capsys):
    _replace(monkeypatch, Symmetric, "eigh", _off)
    A = torch.diag(torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])).expand(8, 6, 6)
    with pytest.warns(RuntimeWarning, match=rf"its {NATIVE.isa} code fails its self-test \(eigh of 3×3") as caught:
        w = sg.eigh(A).eigenvalues
    assert len(caught) == 1
    assert_close(w, torch.arange(1.0, 7.0).expand(8, 6))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert kernel() is None
        assert main(["info"]) == 0
    assert f"not used: its {NATIVE.isa} code fails its self-test" in capsys.readouterr().out


@pytest.mark.parametrize(
    "mode",
    [FakeTensorMode, lambda: torch.device("meta"), torch.inference_mode, lambda: torch.autocast("cpu", torch.bfloat16)],
    ids=["fake", "meta", "inference", "autocast"],
)
def test_the_mode_at_first_use_does_not_matter(mode, loading):
    with mode():
        assert kernel() is not None


def test_the_transform_at_first_use_does_not_matter(loading):
    A = torch.diag(torch.tensor([1.0, 2.0, 3.0])).expand(4, 3, 3)
    w = torch.func.vmap(torch.func.jacrev(lambda X: sg.eigh(X).eigenvalues.sum()))(A)
    assert_close(w, torch.eye(3).expand(4, 3, 3))
    assert kernel() is not None


@pytest.mark.native
def test_every_instruction_set_passes_and_they_agree():
    """The machine's own and those below it, each in a process of its own, since the choice is made once."""
    code = (
        "import json, torch; from spectralgrad.native import kernel, selftest\n"
        "k = kernel(); A = torch.from_numpy(selftest._matrices(6)[0])\n"
        "from tests.kernel_calls import calls; K = calls(k)\n"
        "w, Z = K.eigh(A)[0], K.root_and_eigenpairs(A, True, 0.0, 1.0)[0]\n"
        "print(json.dumps([k.isa, selftest.problem(k), w.tolist(), Z.tolist()]))"
    )
    results = {}
    for isa in ("baseline", "avx2", "avx512"):
        environment = {"SPECTRALGRAD_ISA": isa}
        done = forked.run("-c", code, check=True, environment=environment)
        used, problem, *found = json.loads(done.stdout)
        assert problem is None
        results[used] = [torch.tensor(x, dtype=torch.float64) for x in found]
    bar = 2 * 30 * 6 * torch.finfo(torch.float64).eps / 2  # two results within LAPACK's bar of the truth
    first = next(iter(results.values()))
    for w, Z in results.values():
        assert_close(w, first[0], rtol=0, atol=bar * float(w.max()))
        assert_close(Z, first[1], rtol=0, atol=bar * float(w.max()))


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("ISA", "garbage", "SPECTRALGRAD_ISA=garbage: expected one of baseline, avx2, avx512, .*; the kernel uses "),
        ("ISA", "AVX2", "SPECTRALGRAD_ISA=AVX2: expected one of baseline, avx2, avx512, .*; the kernel uses "),
        ("ISA", "lacking", "SPECTRALGRAD_ISA=lacking: this machine does not have it; the kernel uses "),
        ("ISA", "left out", "SPECTRALGRAD_ISA=left out: the kernel was built without it .*; the kernel uses "),
        ("NATIVE", "off", "SPECTRALGRAD_NATIVE=off: expected 0 or 1; the kernel is used"),
    ],
)
def test_a_wish_that_is_not_met_is_said_once(name, value, words, monkeypatch, loading):
    monkeypatch.setattr(library, "X86", {**library.X86, "lacking": [], "left out": []})
    monkeypatch.setattr(library, "sets_of", lambda file: {*library.X86} - {"left out"})
    monkeypatch.setenv(f"SPECTRALGRAD_{name}", value)
    with pytest.warns(RuntimeWarning, match=words):
        assert kernel() is not None
    assert kernel() is not None  # a second warning would be an error


@pytest.mark.parametrize(("name", "value"), [("ISA", ""), ("ISA", NATIVE and NATIVE.isa), ("NATIVE", "1")])
def test_a_wish_that_is_met_is_not_mentioned(name, value, monkeypatch, loading):
    monkeypatch.setenv(f"SPECTRALGRAD_{name}", value)
    assert kernel() is not None


def test_the_instruction_set_in_use_is_the_one_that_the_warning_names():
    code = "from spectralgrad.native import kernel; print(kernel().isa)"
    done = forked.run("-c", code, check=True, environment={"SPECTRALGRAD_ISA": "garbage"})
    assert f"the kernel uses {done.stdout.strip()}\n" in done.stderr
