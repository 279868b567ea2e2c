"""The command verify: what it finds on a CPU and a pretended accelerator, that it notices errors, and its report."""

import argparse
import getpass
import html
import json
import platform

import pytest
import torch

import spectralgrad as sg
from spectralgrad_lab.bench.studies import pretended_device
from spectralgrad_lab.verify import (
    accelerator,
    agreement,
    anonymous,
    command,
    contract,
    decompositions,
    failures,
    report,
    speed,
    transforms,
)
from spectralgrad_lab.verify.checks import FAILED, PASSED, SKIPPED, Check, Outcome, Skip, Wrong, counts, outcomes
from spectralgrad_lab.verify.target import Target, present, target

from .. import forked
from ..helpers import NO_DEVICE

CPU = Target("cpu")


def parsed(*arguments):
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    return parser.parse_args(arguments)


def failed(found):
    return {f"{x.group}, {x.name}": x.message for x in found if x.status == FAILED}


@pytest.mark.parametrize("room", [decompositions, failures, transforms, accelerator], ids=lambda room: room.__name__)
@pytest.mark.parametrize("step", [pytest.param(1, marks=pytest.mark.full), 7])
def test_checks_of_a_cpu_pass(room, step):
    assert not failed(outcomes(list(room.checks(True))[::step], CPU))


@pytest.mark.parametrize("step", [pytest.param(1, marks=pytest.mark.full), 10])
def test_the_contract_on_a_cpu(step):
    """All checks, or every tenth."""
    found = list(outcomes(list(contract.checks(False))[::step], CPU))
    assert not failed(found)
    assert counts(found)[PASSED] > 350 / step


@pytest.mark.full
@NO_DEVICE
@pytest.mark.parametrize("kind", ["whole", "limited"])
def test_the_command_on_a_pretended_device(kind, tmp_path):
    code = f"import sys; sys.argv[1:] = [{str(tmp_path / 'out')!r}, {kind!r}]; from tests.lab import test_verify as t"
    done = forked.run("-c", f"{code}; t.pretend()")
    found = json.loads((tmp_path / "out" / report.DATA).read_text(encoding="utf-8"))
    wrong = {x["name"]: x["message"] for x in found["outcomes"] if x["status"] == FAILED}
    assert {name.partition(" ")[0] for name in wrong} == {"compile"}, wrong  # Dynamo does not know the device
    assert done.returncode == 1
    passed = {x["group"] for x in found["outcomes"] if x["status"] == PASSED}
    unlimited = {"failures", "host reads"}
    always = {"functions", "layers", "decompositions", "batches", "50 digits", "transforms"}
    assert passed >= always | (unlimited if kind == "whole" else set())


READ = {"matrix_sqrt", "procrustes", "DecorrelatedBatchNorm2d"}  # counting takes long


def pretend():
    """The command on the pretended device; with the argument ``limited``, one that has no float64."""
    import sys

    pretended_device.register()
    if "limited" in sys.argv:
        pretended_device._limited.append(True)
    every = command.checks
    chosen = lambda x: x.name in READ if x.group == "host reads" else x.group != "speed"  # noqa: E731
    command.checks = lambda quick, times: filter(chosen, every(quick, times))
    sys.exit(command.verify(parsed("--device", "pretended", "--quick", "--out", sys.argv[1])))


def test_a_slightly_wrong_result_or_gradient_is_noticed():
    way = contract.value_and_gradient(sg.matrix_sqrt)
    A = contract.spectra(torch.float32)["regular"]
    references = contract.answers(way, A, torch.float64)
    agreement.require(agreement.answer(way, A), references, A.dtype, "regular")
    for value, gradient, message in ((1.001, 1, "value has error"), (1, 1.001, "gradient has error")):
        found = agreement.answer(way, A).results
        changed = agreement.Answer((found[0] * value, found[1] * gradient))
        with pytest.raises(Wrong, match=f"regular: {message}"):
            agreement.require(changed, references, A.dtype, "regular")


def test_other_differences_are_noticed():
    one, nan = (agreement.Answer((torch.tensor([1.0, x]),)) for x in (2.0, torch.nan))
    error = agreement.Answer(None, sg.SpectralError("bad"))
    for found, references, message in (
        (nan, [one], "nan somewhere instead of finite"),
        (agreement.Answer((torch.ones(3),)), [one], "of shape"),
        (agreement.Answer((torch.ones(2).double(),)), [one], "x: value of type float64 on cpu"),
        (agreement.Answer((torch.ones(2, device="meta"),)), [one], "x: value of type float32 on meta"),
        (error, [one], "SpectralError where the CPU returns a result: bad"),
        (one, [error], "a result where the CPU raises bad"),
    ):
        with pytest.raises(Wrong, match=message):
            agreement.require(found, references, torch.float32, "x")
    agreement.require(error, [one, error], torch.float32, "x")  # rounding decides whether it is an error


def test_a_defect_on_a_device_is_reported_and_the_rest_goes_on(monkeypatch, tmp_path, capsys):
    """The polar factor has an error of 1 % in float32, in which the device computes here."""
    polar = transforms.FUNCTIONS["polar"]
    monkeypatch.setitem(transforms.FUNCTIONS, "polar", lambda A: (1.01 if A.dtype == torch.float32 else 1) * polar(A))
    monkeypatch.setattr(Target, "dtypes", (torch.float32,))
    assert command.verify(parsed("--device", "cpu", "--quick", "--only", "transforms", "--out", str(tmp_path))) == 1
    said = capsys.readouterr().out
    assert "transforms, jvp, polar: relative error 1.0e-02, allowed are 1e-03" in said
    assert "transforms, jvp, matrix_sqrt" not in said
    page = (tmp_path / report.PAGE).read_text(encoding="utf-8")
    assert "<strong>transforms, jvp, polar</strong>" in page
    assert json.loads((tmp_path / report.DATA).read_text(encoding="utf-8"))["headline"] in page


def test_each_outcome():
    def skip(target):
        raise Skip("no such thing")

    def broken(target):
        raise ZeroDivisionError("<b>oops</b>")

    found = list(
        outcomes([Check("a", "1", lambda target: "fine"), Check("a", "2", skip), Check("b", "3", broken)], CPU)
    )
    assert [(x.status, x.message) for x in found] == [
        (PASSED, "fine"),
        (SKIPPED, "no such thing"),
        (FAILED, "ZeroDivisionError: <b>oops</b>"),
    ]
    run = report.here(CPU, False, found, [speed.Time("eigh", "3×3", (1.0, 2.0), (2.0, 2.0))], "no <Triton>")
    page = report.page(run)
    assert html.escape("ZeroDivisionError: <b>oops</b>") in page
    assert "<b>oops" not in page
    assert "<Triton>" not in page
    assert report.speed_rows(run) == [["eigh", "3×3", "1.0", "2.00", "2.0", "1.00"]]
    assert report.groups(run)[0] == ["a", "1", "0", "1", "0.0"]
    assert run.headline == "cpu: 1 checks passed, 1 failed, 1 skipped, in 0 s"


def test_an_interruption_is_none():
    def interrupted(target):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(outcomes([Check("a", "1", interrupted)], CPU))


def test_complete_groups_are_saved_if_the_process_ends(monkeypatch, tmp_path):
    def interrupted(target):
        raise KeyboardInterrupt

    checks = [Check("functions", "1", lambda target: ""), Check("layers", "2", lambda target: "")]
    monkeypatch.setattr(command, "checks", lambda quick, times: [*checks, Check("graphs", "3", interrupted)])
    with pytest.raises(KeyboardInterrupt):
        command.verify(parsed("--device", "cpu", "--out", str(tmp_path)))
    saved = json.loads((tmp_path / report.DATA).read_text(encoding="utf-8"))
    assert [x["group"] for x in saved["outcomes"]] == ["functions"]


def test_nothing_identifies_the_user(tmp_path, monkeypatch):
    monkeypatch.setattr(getpass, "getuser", lambda: "jdoe42")
    monkeypatch.setattr(platform, "node", lambda: "wheatley.example.org")
    message = f"jdoe42 on wheatley: no file {tmp_path}/cache/x.cu, see https://pytorch.org/docs/x.html"
    assert anonymous.anonymous(message) == "… on …: no file x.cu, see https://pytorch.org/docs/x.html"
    for text in ("/home/jdoe42/a b/x.py", "~/x.py", r"C:\Users\jdoe42\x.py", "file:///tmp/jdoe42/x.py"):
        assert anonymous.anonymous(text) == "x.py"
    assert len(anonymous.anonymous("word " * 1000)) < 700
    found = Outcome("a", "1", FAILED, "", 0.0)
    written = report.page(report.here(CPU, False, [found], [], ""))
    assert str(tmp_path) not in written
    assert "wheatley" not in written


def test_a_device_that_torch_does_not_have():
    for name in ("cuda", "mps", "nonsense", "meta"):
        if name not in present():
            with pytest.raises(sg.SpectralError, match=f"--device {name}: torch .* has no such device; it has the CPU"):
                target(name)


def test_groups_on_the_command_line(capsys):
    assert parsed("--only", "functions,50 digits").only == ("functions", "50 digits")
    with pytest.raises(SystemExit):
        parsed("--only", "function")
    assert "expected some of functions, methods" in capsys.readouterr().err
    assert {check.group for check in command.checks(False, [])} == set(command.GROUPS)
    with pytest.raises(SystemExit):
        parsed("--help")
    assert "spectralgrad verify --device mps --out report" in capsys.readouterr().out


def test_times_are_taken_once_results_agree():
    times = []
    checks = {check.name: check for check in speed.checks(True, times)}
    assert "matrix_sqrt, 64×8×8" in checks
    wrong = speed.Call("wrong", sg.matrix_sqrt, lambda A: 1.1 * sg.matrix_sqrt(A))
    with pytest.raises(Wrong, match="differs from the composition"):
        speed._measured(wrong, speed._matrices(3, 4), "3×4×4", CPU, 0.01)

    def missing(A):
        raise NotImplementedError

    with pytest.raises(Skip, match="composition does not run"):
        speed._measured(speed.Call("x", sg.matrix_sqrt, missing), speed._matrices(3, 4), "3×4×4", CPU, 0.01)
    right = speed.Call("polar", sg.polar, sg.polar)
    found = speed._measured(right, speed._matrices(3, 4), "3×4×4", CPU, 0.01)
    assert len(found.ratios) == 2
    assert all(0.2 < float(ratio) < 5 for ratio in found.ratios)


def test_triton_is_in_use_or_says_why_not(monkeypatch):
    (check,) = [check for check in accelerator.checks(True) if check.group == "Triton"]
    for reason, status in (("", PASSED), ("it is not installed", SKIPPED), ("the self-test failed for eigh", FAILED)):
        monkeypatch.setattr(accelerator, "reason_against_triton", lambda target, reason=reason: reason)
        (found,) = outcomes([check], CPU)
        assert (found.status, reason in found.message) == (status, True)


def test_reads_are_counted():
    A = torch.eye(2)
    assert accelerator.reads(lambda: A + 1) == []
    assert accelerator.reads(lambda: (bool(A.any()), A[A > 0])) == ["_local_scalar_dense", "nonzero"]
    assert accelerator.reads(lambda: torch.linalg.eigh(A)) == []
