"""Whether the Triton kernels are used on a device, and what is said if not; no kernel runs here."""

import pytest
import torch

from spectralgrad.cli import commands, main
from spectralgrad.solvers import devices
from spectralgrad.solvers.devices import availability, selftest

from . import forked

CPU = torch.device("cpu")


@pytest.fixture
def tested(monkeypatch):
    """The CPU counts as a device that Triton supports; the list has the devices that were tested."""
    tested = []
    monkeypatch.setattr(availability, "BACKENDS", ("cpu",))
    monkeypatch.setattr(availability, "_outcomes", {})
    monkeypatch.setattr(availability, "missing", lambda: "")
    monkeypatch.setattr(selftest, "failures", lambda device: tested.append(device) or [])
    return tested


def test_a_device_is_tested_once(tested):
    assert [devices.state("cpu"), devices.state(CPU)] == ["", ""]
    assert tested == [CPU]


def test_a_device_that_fails_is_left_alone(tested, monkeypatch):
    monkeypatch.setattr(selftest, "failures", lambda _: ["root", "distance"])
    with pytest.warns(RuntimeWarning, match="not used on cpu: the self-test failed for root, distance"):
        assert devices.state("cpu") == "the self-test failed for root, distance"
    assert devices.plans.symmetric(torch.eye(3), "eigh") is None


def test_a_compiler_that_fails(tested, monkeypatch):
    def stop(_):
        raise RuntimeError("no compiler")

    monkeypatch.setattr(selftest, "failures", stop)
    with pytest.warns(RuntimeWarning, match="please report"):
        assert devices.state("cpu") == "the self-test stopped with RuntimeError: no compiler"


def test_kernels_can_be_switched_off(tested, monkeypatch):
    monkeypatch.setattr(availability, "switched_off", True)
    assert devices.state("cpu") == "switched off by SPECTRALGRAD_TRITON=0"
    assert not tested


@pytest.mark.parametrize("value", ["0", "1"])
def test_environment_variable(value):
    code = "from spectralgrad.solvers.devices import availability; print(availability.switched_off)"
    done = forked.run("-c", code, environment={"SPECTRALGRAD_TRITON": value}, check=True)
    assert done.stdout.strip() == str(value == "0")


def test_without_triton(tested, monkeypatch):
    monkeypatch.setattr(availability, "missing", lambda: "Triton is not installed")
    assert devices.state("cpu") == "Triton is not installed"


def test_devices_without_kernels():
    assert devices.state("cpu") == "there are none for devices of type cpu"
    assert devices.state("mps") == "there are none for devices of type mps"
    if not torch.cuda.is_available():
        assert devices.state("cuda") == "torch finds no device of this type"


def test_info_says_which_solver_an_accelerator_has(capsys, monkeypatch):
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: torch.device("mps"))
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: 1)
    monkeypatch.setattr(commands, "has_double", lambda _: True)
    main(["info"])
    assert (
        "mps:0            torch.linalg (Triton kernels: there are none for devices of type mps)"
        in capsys.readouterr().out
    )
    monkeypatch.setattr(availability, "_outcomes", {torch.device("mps:0"): ""})
    main(["info"])
    assert "mps:0            Triton kernels for small matrices, torch.linalg behind them" in capsys.readouterr().out


def test_which_matrices_fit(tested):
    def fits(plan, *shape, entry, dtype=torch.float64):
        return plan(torch.ones(shape, dtype=dtype), entry) is not None

    plans = devices.plans
    assert [fits(plans.symmetric, 2, d, d, entry="eigh") for d in (1, 2, 8, 9)] == [False, True, True, False]
    assert not fits(plans.symmetric, 3, 3, entry="function")
    assert [fits(plans.singular, 50, n, entry="svd") for n in (1, 8, 9)] == [True, True, False]
    assert [fits(plans.singular, n, 4, entry="polar") for n in (4, 5)] == [True, False]
    assert not fits(plans.singular, 9000, 3, entry="svd")
    assert [fits(plans.derivatives, 3, 3, entry=name) for name in ("root", "series")] == [True, False]
    assert [fits(plans.singular_derivatives, n, n, entry="polar") for n in (4, 5)] == [True, False]
    X = torch.ones(5, 4)
    assert plans.points(X, X, None)
    assert not plans.points(torch.ones(5, 5), X, None)
    assert not plans.points(X, X.double())
    for dtype in (torch.complex64, torch.bfloat16):
        assert not fits(plans.symmetric, 3, 3, entry="eigh", dtype=dtype)
    assert not fits(plans.symmetric, 0, 3, 3, entry="eigh")
