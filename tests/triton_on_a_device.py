"""The library on the pretended device with the Triton kernels in their interpreter: see test_triton_kernels.py.

Only launches leave the device: they get the values of its tensors. So the tests of :mod:`tests.on_a_device` hold with
the kernels in use too: results and gradients as on the CPU, one read or none, failures that spoil no other matrix.
"""

import pytest
import torch

import spectralgrad as sg
from spectralgrad.diagnostics.every_function import matrix
from spectralgrad.solvers import devices
from spectralgrad.solvers.devices import availability, launching, selftest
from spectralgrad_lab.bench.studies import pretended_device as device
from spectralgrad_lab.bench.studies.pretended_device import counted, put

from .helpers import noise
from .on_a_device import (  # noqa: F401
    FUNCTIONS,
    backward,
    compared,
    most,
    test_a_failure_raises_the_error_of_the_cpu,
    test_an_unchecked_failure_is_nan_in_the_matrices_concerned,
    test_function,
    test_vmap,
)

launched = []


@pytest.fixture(autouse=True, scope="module")
def _with_triton():
    """Tensors of the device reach the kernels."""
    device.register()
    run = launching.run

    def launch(kernel, programs, *args, **known):
        launched.append(kernel)
        return run(kernel, programs, *map(device._on_host, args), **known)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(availability, "BACKENDS", (device.NAME,))
        patch.setattr(launching, "run", launch)
        patch.setattr(launching, "warp", lambda: 64)
        with counted() as count:
            assert devices.state(f"{device.NAME}:0") == ""
        assert len(count.reads) == 1
        yield


@pytest.fixture(autouse=True)
def _forget():
    launched.clear()


USED = {
    "eigh": (sg.eigvalsh, ["eigh.eigh"]),
    "svd": (sg.svdvals, ["svd.svd"]),
    "tall svd": (lambda A: sg.svdvals(torch.cat([A, A, A], -2)), ["tall.factor", "svd.svd", "tall.form"]),
    "root": (sg.matrix_sqrt, ["roots.root", "roots.derivative"]),
    "inverse root": (sg.matrix_inv_sqrt, ["roots.root", "roots.derivative"]),
    "function": (sg.matrix_log, ["eigh.eigh"]),
    "polar": (sg.polar, ["polar.polar", "polar.derivative"]),
    "rotation": (lambda A: sg.polar(A, special=True), ["polar.polar", "polar.derivative"]),
    "procrustes": (
        lambda A: sg.procrustes(A[..., :3], A.mT[..., :3]).rotation,
        ["points.cross_covariance", "polar.polar", "points.fit_distance", "polar.derivative", "points.point_gradients"],
    ),
    "weighted procrustes": (
        lambda A: sg.procrustes(A[..., :3], A.mT[..., :3], A[..., 3].square(), scale=True).residual,
        ["points.cross_covariance", "polar.polar", "points.fit_distance"],
    ),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", USED)
def test_batches_of_small_matrices(name, dtype):
    call, kernels = USED[name]
    A = torch.stack([matrix(seed) for seed in range(3)]).to(dtype)
    A, ours = A.requires_grad_(), put(A).requires_grad_()
    with counted() as count:
        found = call(ours)
        backward(found)
    assert len(count.reads) <= 1
    assert launched[: len(kernels)] == kernels or dtype == torch.bfloat16
    wanted = call(A)
    backward(wanted)
    close = {"rtol": 2e-2, "atol": 2e-2} if dtype == torch.bfloat16 else {"rtol": 1e-4, "atol": 1e-5}
    torch.testing.assert_close(found.detach().on_host, wanted.detach(), **close)
    torch.testing.assert_close(ours.grad.on_host, A.grad, **close)


def test_matrices_in_half_types_that_rounding_made_indefinite(most):  # noqa: F811
    """Their roots are composed, as the kernel does not know how large the rounding errors are."""
    X = noise(3, 2, 4)
    A = (X.mT @ X).to(torch.bfloat16)
    assert float(torch.linalg.eigvalsh(A.float()).min()) < 0
    with counted() as count:
        found = sg.matrix_sqrt(put(A)).on_host
    assert len(count.reads) <= most
    torch.testing.assert_close(found, sg.matrix_sqrt(A), rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("A", [torch.zeros(3, 3), torch.ones(3, 3), 1e38 * torch.eye(3), 1e-38 * torch.eye(3)])
def test_extreme_matrices(A, most):  # noqa: F811
    for call in (sg.matrix_sqrt, sg.eigvalsh, sg.svdvals):
        torch.testing.assert_close(call(put(A)).on_host, call(A))


def test_other_sizes_and_types_use_other_solvers(most):  # noqa: F811
    for A in (torch.eye(9), torch.eye(1), torch.eye(3, dtype=torch.complex64), torch.empty(0, 3, 3)):
        torch.testing.assert_close(sg.matrix_sqrt(put(A)).on_host, A)
        torch.testing.assert_close(sg.polar(put(A)).on_host, A)
    assert set(launched) <= {"svd.svd", "polar.polar"}  # of one row and column


def test_an_asymmetric_matrix_is_an_error():
    A = torch.eye(3).repeat(2, 1, 1)
    A[1, 0, 2] = 1
    with pytest.raises(sg.AsymmetricError, match=r"position \(1,\)"):
        sg.matrix_sqrt(put(A))
    with sg.solvers.unchecked():
        assert sg.matrix_sqrt(put(A)).on_host.isnan().flatten(1).all(1).tolist() == [False, True]
    with pytest.raises(sg.SpectralError, match="position 1"):
        sg.solvers.check()


def test_a_failure_goes_to_the_fallbacks(monkeypatch):
    """As one that does not converge."""
    monkeypatch.setattr(devices.small_eigh, "SWEEPS", 1)
    monkeypatch.setattr(devices.small_svd, "SWEEPS", 1)
    A = torch.stack([matrix(), torch.eye(4).double()])
    for call in (sg.eigvalsh, sg.svdvals, sg.matrix_inv_sqrt, lambda A: sg.polar(A, special=True)):
        torch.testing.assert_close(call(put(A)).on_host, call(A))
    with sg.solvers.unchecked():
        assert sg.eigvalsh(put(A)).on_host.isnan().all(-1).tolist() == [True, False]
    with pytest.raises(sg.SpectralError, match="eigvalsh at position 0"):
        sg.solvers.check()


WRONG = {
    "small_eigh.eigh": (lambda w, V, failed: (w, V * (1 + 1e-3), failed), ["eigh 3×3", "eigh 5×5"]),
    "small_svd.svd": (lambda U, S, Vh, failed: (U, S.flip(-1), Vh, failed), ["svd 3×3", "svd 40×3"]),
    "small_roots.root": (lambda S, *others: (S + 1e-3, *others), ["root", "derivative of the root"]),
    "small_polar.polar_derivative": (lambda *X: -X[0], ["derivative of the rotation"]),
    "point_sets.fit_distance": (lambda *e: e[0] * 0, ["distance"]),
}


@pytest.mark.parametrize("name", WRONG)
def test_the_self_test_names_what_is_wrong(name, monkeypatch):
    spoil, expected = WRONG[name]
    module, function = name.split(".")
    right = getattr(getattr(selftest, module), function)

    def wrong(*args):
        found = right(*args)
        return spoil(*(found if isinstance(found, tuple) else (found,)))

    monkeypatch.setattr(getattr(selftest, module), function, wrong)
    assert selftest.failures(torch.device("cpu")) == expected
