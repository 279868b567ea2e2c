"""Thresholds decide about time only: each entry of the table is read, and whatever it is, the results are the same."""

from contextlib import nullcontext
from dataclasses import fields
from typing import ClassVar

import pytest
import torch
from torch.testing import assert_close

import spectralgrad as sg
from spectralgrad.native import kernel, thresholds
from spectralgrad.native.thresholds import SIZES, Table, tuned
from spectralgrad.nn.functional import feature_matrices
from spectralgrad.solvers import batch_invariant

from .helpers import noise
from .kernel_calls import using
from .test_batch_invariance import DECOMPOSITIONS, IN_KERNEL, gradient, matrices, same_bits

needs_kernel = pytest.mark.skipif(kernel() is None, reason="without the kernel there is nothing to choose")
HUGE = 10**9
NAMES = [entry.name for entry in fields(Table)]
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


def test_every_entry_is_documented():
    assert [name for name in NAMES if name not in Table.__doc__] == []
