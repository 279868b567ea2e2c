"""Thresholds decide about time only: each is used, measured and stored, and either way the results are the same."""

import json
from contextlib import nullcontext
from dataclasses import fields, replace
from typing import ClassVar

import pytest
import torch
from torch.testing import assert_close

import spectralgrad as sg
from spectralgrad.native import kernel, thresholds
from spectralgrad.native.thresholds import SIZES, Table, tuned
from spectralgrad.nn.functional import feature_matrices
from spectralgrad.solvers import batch_invariant
from spectralgrad.solvers.decompose import choice, tuning
from spectralgrad.solvers.decompose.measurements import MEASUREMENTS, Measurement

from .helpers import noise
from .kernel_calls import using
from .test_batch_invariance import DECOMPOSITIONS, IN_KERNEL, gradient, matrices, same_bits

needs_kernel = pytest.mark.skipif(kernel() is None, reason="without the kernel there is nothing to choose")
HUGE = 10**9
FIXED = {entry.name: entry.metadata["fixed"] for entry in fields(Table) if "fixed" in entry.metadata}
NAMES = [*tuned(), *FIXED]
NO_LANES = {name: (None,) * len(SIZES) for name in tuned() if "float" in name or "complex" in name}
BESIDE = {  # what else the table has to say, so that the threshold is read
    "pool": NO_LANES | {"single": (0,) * 4},
    "single": NO_LANES,
    "svd_single": NO_LANES,
}


def extremes(name):
    default = getattr(Table(), name)
    if not isinstance(default, tuple):
        return 0, HUGE
    return [(value,) * len(default) for value in ((None, 1) if len(default) == len(SIZES) else (0, HUGE))]


class Noting(Table):
    """A table that notes which entries are read."""

    read: ClassVar[set[str]] = set()

    def __getattribute__(self, name):
        Noting.read.add(name)
        return super().__getattribute__(name)


def positive(*shape, dtype):
    """Well-conditioned matrices, eigenvalues far apart."""
    d = shape[-1]
    X = noise(*shape, dtype=dtype)
    Q = torch.linalg.qr(X)[0]
    return (Q * torch.linspace(1, 3, d, dtype=dtype.to_real())) @ Q.mH


def rectangular(*shape, dtype):
    """Matrices with singular values between 1 and 3."""
    m, n = shape[-2:]
    U, V = (torch.linalg.qr(noise(*shape[:-2], size, min(m, n), dtype=dtype))[0] for size in (m, n))
    return (U * torch.linspace(3, 1, min(m, n), dtype=dtype.to_real())) @ V.mH


def features(channels, positions, dtype=torch.float32):
    return noise(6, 2 * channels, positions, dtype=dtype), noise(2, channels, dtype=dtype)


def eigh(A):
    w, V = sg.eigh((A + A.mH) / 2)
    half = V[..., : A.shape[-1] // 2]
    return w, half @ half.mH, sg.eigvalsh(A.detach())


def svd(M):
    U, S, Vh = sg.svd(M)
    return S, U[..., :2] @ Vh[..., :2, :], sg.svdvals(M.detach())


def functions(A):
    A = (A + A.mH) / 2
    return sg.matrix_sqrt(A), sg.matrix_inv_sqrt(A), sg.matrix_log(A), sg.matrix_power(A, 0.3), *eigh(A)


def singular_functions(M):
    return *svd(M), sg.singular_value_threshold(M, 1.5), sg.nuclear_norm(M)


def polar(M):
    return sg.polar(M), sg.polar(M, special=True)


def points(X):
    found = sg.procrustes(X, X.flip(-2).roll(1, -1), scale=True)
    return found.rotation, found.translation, found.scale


def passes(X, mean):
    matrix = noise(2, mean.shape[-1], mean.shape[-1], dtype=X.dtype, seed=3)
    Y = X.cos()
    scatter, sums = feature_matrices.moments(X, mean, Y)
    mapped = feature_matrices.affine(X, mean, matrix, mean)
    return (
        scatter,
        sums,
        feature_matrices.outer(X, mean),
        mapped,
        feature_matrices.merged(Y, X, mean, mean, matrix, matrix.mT),
    )


def eigh_cases(name):
    dtype = getattr(torch, name)
    return [(eigh, positive(*shape, dtype=dtype)) for shape in ((5, 3, 3), (2, 17, 17), (2, 70, 70))]


def svd_cases(name):
    dtype = getattr(torch, name)
    return [(svd, rectangular(*shape, dtype=dtype)) for shape in ((5, 3, 3), (2, 12, 40), (2, 70, 60))]


def cases(name):
    """Calls that the entry decides: functions and their arguments."""
    single, double = torch.float32, torch.float64
    squares = [
        positive(*shape, dtype=dtype) for shape in ((3, 3), (4, 17, 17), (2, 70, 70)) for dtype in (single, double)
    ]
    if name.startswith("svd_") and name in NO_LANES:
        return svd_cases(name.removeprefix("svd_"))
    if name in NO_LANES:
        return eigh_cases(name)
    return {
        "single": lambda: [case for dtype in thresholds.NAMES.values() for case in eigh_cases(dtype)],
        "svd_single": lambda: [case for dtype in thresholds.NAMES.values() for case in svd_cases(dtype)],
        "pool": lambda: eigh_cases("complex128") + eigh_cases("float32"),
        "fused": lambda: [(functions, A) for A in squares],
        "svd_gradient": lambda: [
            (singular_functions, rectangular(*shape, dtype=dtype))
            for shape in ((4, 5, 3), (2, 12, 40), (300, 280))
            for dtype in (single, double)
        ],
        "polar": lambda: [(polar, A) for A in squares],
        "tall": lambda: [
            (sg.polar, rectangular(*shape, dtype=single)) for shape in ((3, 10, 8), (2, 90, 8), (4, 3, 3))
        ],
        "gram_blocks": lambda: [
            (sg.polar, rectangular(*shape, dtype=single)) for shape in ((2, 90, 8), (400, 100), (2, 480, 150))
        ],
        "few": lambda: [
            *((f, A) for f in (functions, sg.matrix_exp, polar) for A in (squares[0], squares[1].repeat(40, 1, 1))),
            *((points, noise(*shape, dtype=double)) for shape in ((7, 3), (50, 9, 3))),
        ],
        "channels_from": lambda: [(passes, *features(d, 33)) for d in (1, 2, 3, 5)],
        "channels_up_to": lambda: [(passes, *features(d, 33)) for d in (3, 33, 400)],
        "positions": lambda: [(passes, *features(5, n)) for n in (1, 2, 15, 16, 33)],
        "invariant_lanes": lambda: eigh_cases("float32") + svd_cases("float64"),
        "piece": lambda: [
            (passes, *features(3, 7)),
            *((passes, X.mT.contiguous().mT, mean) for X, mean in (features(2, 33), features(40, 7))),
        ],
    }[name]()  # fmt: skip


def results(name):
    """Values and gradients of all cases."""
    threads, found = torch.get_num_threads(), []
    torch.set_num_threads(2 if name == "pool" else threads)
    try:
        with batch_invariant() if name == "invariant_lanes" else nullcontext():
            for f, X, *others in cases(name):
                leaf = X.clone().requires_grad_(f is not passes)
                values = f(leaf, *others)
                values = values if isinstance(values, tuple) else (values,)
                learned = [x for x in values if x.requires_grad]
                cotangents = [noise(*x.shape, dtype=x.dtype, seed=5) for x in learned]
                gradients = torch.autograd.grad(learned, leaf, cotangents) if learned else ()
                found.append([x.detach() for x in (*values, *gradients)])
    finally:
        torch.set_num_threads(threads)
    return found


@needs_kernel
@pytest.mark.parametrize("name", NAMES)
def test_an_entry_is_read_and_changes_no_result(name):
    """Whatever it is: none of what it decides, or all of it."""
    Noting.read.clear()
    with using(Noting(**BESIDE.get(name, {}))):
        expected = results(name)
    assert name in Noting.read
    for value in extremes(name):
        with using(Table(**(BESIDE.get(name, {}) | {name: value}))):
            found = results(name)
        for case, right in zip(found, expected, strict=True):
            for x, y in zip(case, right, strict=True):
                size = y.abs().amax().item()
                assert_close(x, y, rtol=0, atol=2000 * torch.finfo(y.dtype).eps * size)


@needs_kernel
@pytest.mark.parametrize("name", NAMES)
def test_batch_invariant_mode_keeps_its_promise_whatever_is_tuned(name):
    for value in extremes(name):
        with using(Table(**{name: value})), batch_invariant():
            for d in (3, 20, 50):
                for f in DECOMPOSITIONS.values():
                    assert same_bits(f, matrices(d, torch.float32))
                if name not in ("single", "svd_single", "fused", "svd_gradient"):  # whether the kernel computes these
                    for f in (*IN_KERNEL.values(), gradient(sg.eigh), gradient(sg.svd), gradient(sg.matrix_sqrt)):
                        assert same_bits(f, matrices(d, torch.float32))


@needs_kernel
@pytest.mark.parametrize("measurement", MEASUREMENTS, ids=lambda measurement: measurement.name)
def test_both_ways_of_a_measurement_compute_the_same(measurement):
    torch.manual_seed(0)
    given = measurement.tensors(measurement.sizes[0])
    small, large = (way(*given) for way in (measurement.small, measurement.large))
    for x, y in zip(*(way if isinstance(way, tuple) else (way,) for way in (small, large)), strict=True):
        x, y = torch.as_tensor(x), torch.as_tensor(y)
        if measurement.name == "gram_blocks":
            x, y = x.tril(), y.tril()
        assert_close(x, y, rtol=0, atol=1e-5 * y.abs().amax().item())


@pytest.mark.parametrize(
    ("included", "limit", "expected"), [(True, 20, 16), (True, 1, 4), (True, 99, 32), (False, 20, 32), (False, 99, 64)]
)
def test_a_measurement_finds_the_last_size_of_the_faster_way(included, limit, expected):
    """``small`` is faster up to a limit."""
    measurement = Measurement("name", "words", min, max, lambda d: (torch.empty(d),), (8, 16, 32), included)

    def faster(first, second, tensors):
        return (len(tensors()[0]) <= limit) == (first is min)

    assert measurement.found(faster) == expected


def test_the_time_of_a_way_is_that_of_its_fastest_run(monkeypatch):
    clock = iter([0.0, 0.0, 1.0, 4.0, 4.5, 4.5, 6.5, 7.0, 7.0, 9.5, 100.0])  # three runs: of 3, 2 and 2.5 seconds
    monkeypatch.setattr(tuning.time, "perf_counter", lambda: next(clock))
    assert tuning._time(torch.neg, (torch.ones(1),), seconds=10.0) == 2.0


@pytest.fixture
def cache(monkeypatch, tmp_path):
    """A cache folder of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    choice.forget()
    yield tmp_path / "spectralgrad" / "solvers.json"
    choice.forget()


@needs_kernel
def test_tune_measures_stores_and_uses_every_entry(cache, monkeypatch):
    """As if the first way were always the faster one, and then the other."""
    found = []
    for wins in (True, False):
        lines = []
        monkeypatch.setattr(tuning, "_faster", lambda first, second, tensors, wins=wins: wins)
        found.append(sg.solvers.tune(lines.append))
        assert thresholds.table() == found[-1]
        assert len(lines) == 8 + 8 * len(SIZES) + len(MEASUREMENTS)
    for name in tuned():
        one, other = (getattr(table, name) for table in found)
        pairs = zip(one, other, strict=True) if isinstance(one, tuple) else [(one, other)]
        assert all(x != y for x, y in pairs), name
    assert {m.name for m in MEASUREMENTS} == {name for name, default in tuned().items() if isinstance(default, int)}


def changed():
    """A table whose entries are all different from the defaults."""
    values = {
        name: (7,) * len(default) if isinstance(default, tuple) else default + 1 for name, default in tuned().items()
    }
    return Table(**values)


@needs_kernel
def test_a_table_is_stored_with_the_tables_of_other_instruction_sets(cache):
    thresholds.store("other", Table())
    thresholds.store(kernel().isa, changed())
    assert thresholds.table() == changed()
    assert set(json.loads(cache.read_text())) == {"other", kernel().isa}
    assert set(json.loads(cache.read_text())["other"]) == set(tuned())


@needs_kernel
@pytest.mark.parametrize("missing", tuned())
def test_an_older_file_leaves_new_entries_at_their_defaults(cache, missing):
    thresholds.store(kernel().isa, changed())
    stored = json.loads(cache.read_text())
    del stored[kernel().isa][missing]
    cache.write_text(json.dumps(stored))
    assert thresholds.table() == replace(changed(), **{missing: tuned()[missing]})


@needs_kernel
@pytest.mark.parametrize("wrong", [None, "many", [], [1, 2], {}, float("inf")], ids=str)
@pytest.mark.parametrize("name", ["float32", "single", "fused"])
def test_a_damaged_entry_makes_the_whole_table_the_default(cache, name, wrong):
    thresholds.store(kernel().isa, changed())
    stored = json.loads(cache.read_text())
    stored[kernel().isa][name] = wrong
    cache.write_text(json.dumps(stored))
    assert thresholds.table() == Table()


@needs_kernel
def test_fixed_entries_have_a_reason_and_cannot_be_tuned(cache):
    thresholds.store(kernel().isa, replace(changed(), **dict.fromkeys(FIXED, 5)))
    stored = json.loads(cache.read_text())
    assert not stored[kernel().isa].keys() & FIXED.keys()
    stored[kernel().isa] |= dict.fromkeys(FIXED, 5)
    cache.write_text(json.dumps(stored))
    assert thresholds.table() == changed()
    assert all(FIXED.values())


def test_every_entry_is_documented():
    assert [name for name in NAMES if name not in Table.__doc__] == []
