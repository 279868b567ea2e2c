"""override_linalg().enable(): the switch acts on every thread and on new processes, and is undone completely."""

import multiprocessing
import pickle
import queue
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from multiprocessing.process import BaseProcess

import pytest
import torch
from torch.linalg import eigh as imported_before
from torch.utils.checkpoint import checkpoint

import spectralgrad as sg
from spectralgrad.native import library
from spectralgrad.rescue import process
from spectralgrad.rescue.children import Rescued

linalg = torch.linalg
EIGH, SVD, START = linalg.eigh, torch.svd, threading.Thread.start


def rule(function=None):
    """The method by which this library serves a call of torch's function here, or None if torch does."""
    grad_fn = (function or linalg.eigh)(torch.eye(2, requires_grad=True))[0].grad_fn
    return getattr(grad_fn, "rule", None) and grad_fn.rule.name


class Runner(threading.Thread):
    """A thread that runs the functions it is given; it overrides ``run`` and never calls that of Thread."""

    def __init__(self):
        super().__init__(daemon=True)
        self.given, self.results = queue.Queue(), queue.Queue()

    def run(self):
        for function in iter(self.given.get, None):
            self.results.put(function())

    def __call__(self, function):
        self.given.put(function)
        return self.results.get(timeout=60)


@pytest.fixture
def running():
    """A thread that was started before the switch is on."""
    thread = Runner()
    thread.start()
    yield thread
    thread.given.put(None)
    thread.join()


@pytest.fixture(autouse=True)
def _everything_is_undone():
    yield
    assert not process._enabled
    assert (linalg.eigh, torch.svd, threading.Thread.start) == (EIGH, SVD, START)
    assert linalg.eigh is EIGH
    assert BaseProcess.start.__module__ == BaseProcess.__module__
    assert torch._C._len_torch_function_stack() == 0
    assert rule() is rule(imported_before) is None


class switched_on:
    def __init__(self, method="svd-pade"):
        self.rescue = sg.override_linalg(method)

    def __enter__(self):
        return self.rescue.enable()

    def __exit__(self, *error):
        self.rescue.disable()


def test_threads_that_run_already(running):
    functions = [lambda A: linalg.svd(A), lambda A: torch.svd(A), lambda A: linalg.eigh(A, "U")]
    before = [running(partial(rule, f)) for f in functions]
    with switched_on():
        assert [running(partial(rule, f)) for f in functions] == ["svd-pade"] * 3
        assert running(torch._C._len_torch_function_stack) == 0
    assert running(rule) is None
    assert before == [None] * 3


@pytest.mark.parametrize("start", ["Thread", "subclass", "ThreadPoolExecutor"])
def test_threads_that_are_started_later(start):
    with switched_on("svd-taylor"):
        for function in (rule, partial(rule, imported_before)):
            if start == "ThreadPoolExecutor":
                with ThreadPoolExecutor(1) as pool:
                    assert pool.submit(function).result() == "svd-taylor"
            elif start == "subclass":
                thread = Runner()
                thread.start()
                assert thread(function) == "svd-taylor"
                thread.given.put(None)
                thread.join()
                assert "run" not in vars(thread)
            else:
                seen = []
                thread = threading.Thread(target=lambda function=function, seen=seen: seen.append(function()))
                thread.run = partial(thread.run)  # somebody else's replacement stays
                thread.start()
                thread.join()
                assert seen == ["svd-taylor"]
                assert type(vars(thread)["run"]) is partial


def test_a_thread_that_survives_the_switch_calls_torch():
    with switched_on():
        thread = Runner()
        thread.start()
        assert thread(partial(rule, imported_before)) == "svd-pade"
    assert thread(rule) is thread(partial(rule, imported_before)) is None
    with switched_on("svd-clip"):
        assert thread(partial(rule, imported_before)) == "svd-clip"
    thread.given.put(None)
    thread.join()


def test_somebody_elses_start_of_threads_stays(monkeypatch):
    def start():
        thread = threading.Thread(target=lambda: seen.append(rule(imported_before)))
        thread.start()
        thread.join()

    seen, theirs = [], []
    with switched_on():
        ours = threading.Thread.start
        monkeypatch.setattr(threading.Thread, "start", lambda thread: theirs.append(thread) or ours(thread))
        start()
    start()
    with switched_on():
        start()
        monkeypatch.undo()  # as ours was the one before
    assert seen == ["svd-pade", None, "svd-pade"]
    assert len(theirs) == 3


def test_names_imported_before_in_this_thread():
    with switched_on():
        assert rule(imported_before) == rule(partial(imported_before, UPLO="U")) == "svd-pade"


def in_a_process(results):
    results.put((rule(), rule(imported_before)))


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="processes are not forked here")
def test_forked_processes(running):
    context = multiprocessing.get_context("fork")
    with switched_on():
        results = context.Queue()
        child = context.Process(target=in_a_process, args=(results,))
        child.start()
        assert results.get(timeout=60) == ("svd-pade", "svd-pade")
        child.join()
        assert "run" not in vars(child)


class Spawned:
    """What a spawned child unpickles, without its process: the object and its ``run``."""

    def __init__(self):
        self.seen = None

    def run(self):
        self.seen = rule(), rule(imported_before)


def test_spawned_processes_switch_it_on_first():
    started = Spawned()
    started.run = Rescued(started, None, (sg.override_linalg("svd-clip"),))
    child = pickle.loads(pickle.dumps(started))
    rescue = child.run.enabled[0]
    child.run()
    rescue.disable()
    assert child.seen == ("svd-clip", "svd-clip")
    assert "run" not in vars(child)


def test_it_is_switched_off_from_another_thread_twice_and_in_any_order(running):
    first, second = sg.override_linalg("svd-clip").enable(), sg.override_linalg("svd-taylor").enable()
    assert rule() == running(rule) == "svd-taylor"
    running(first.disable)
    assert rule() == running(rule) == "svd-taylor"
    second.enable()
    running(second.disable)
    assert rule() is rule(imported_before) is running(rule) is None
    second.disable()  # now this thread's stack is clean as well
    second.disable()


def test_contexts_take_precedence_and_end_in_any_order(running):
    with sg.override_linalg("svd-clip"):
        rescue = sg.override_linalg("svd-taylor").enable()
        assert rule() == "svd-clip"
        assert running(rule) == "svd-taylor"
        assert running(sg.override_linalg("svd-clip")(rule)) == "svd-clip"
    assert rule() == "svd-taylor"
    with sg.override_linalg("svd-clip"):
        rescue.disable()
        assert rule() == "svd-clip"
    assert rule() is None


def test_a_default_device_may_come_and_go():
    with switched_on(), torch.device("cpu"):
        assert rule() == "svd-pade"
    with torch.device("cpu"):
        rescue = sg.override_linalg().enable()
        assert rule() == "svd-pade"
    torch.set_default_device("cpu")
    rescue.disable()
    rescue.enable()
    torch.set_default_device(None)
    assert rule() == "svd-pade"
    rescue.disable()


def test_what_stands_for_torchs_functions_can_be_used_like_them():
    class Model:
        decompose = None

    with switched_on():
        function = linalg.eigh
        Model.decompose = function
        assert function is not EIGH
        assert function == EIGH
        assert {EIGH: 1}[function] == {function: 1}[EIGH] == 1
        assert function.__name__ == EIGH.__name__
        assert repr(function) == repr(EIGH)
        assert rule(Model().decompose) == "svd-pade"  # not bound to the instance
        stored = [pickle.dumps(f) for f in (function, torch.svd)]
    assert [pickle.loads(s) for s in stored] == [EIGH, SVD]
    assert rule(function) is rule(Model().decompose) is None


def test_torchscript_compiles_torchs_functions_while_it_is_on():
    def scripted(A: torch.Tensor):
        return torch.linalg.eigh(A)[0] + torch.svd(A)[1] + A.svd()[1] + torch.norm(A)

    with switched_on():
        assert torch.equal(torch.jit.script(scripted)(torch.eye(2)), torch.full((2,), 3 + 2**0.5))


def test_a_checkpointed_function_is_repeated_with_it_on():
    A = torch.eye(2, requires_grad=True)
    with switched_on():
        checkpoint(lambda A: linalg.eigh(A).eigenvectors[0], A, use_reentrant=False).sum().backward()
    assert A.grad.isfinite().all()


def test_compiled_functions(running):
    def loss(A):
        return linalg.eigh(A).eigenvectors[0].sum()

    def gradient():
        A = torch.eye(3, requires_grad=True)
        return torch.autograd.grad(compiled(A), A)[0].isfinite().all().item()

    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    assert not gradient()
    with switched_on():
        assert gradient()
        assert running(gradient)
    assert not gradient()
    assert not running(gradient)


def test_the_solvers_own_lapack_calls_are_not_replaced(running, monkeypatch):
    monkeypatch.setattr(library, "switched_off", True)
    sg.solvers.reset_report()
    with switched_on():
        for run in (lambda function: function(), running):
            run(lambda: sg.eigh(torch.eye(3).requires_grad_()))
    assert sg.solvers.report().calls == 2


def test_one_matrix_and_a_stack_have_the_same_bits():
    X = torch.randn(40, 17, 17, generator=torch.Generator().manual_seed(0))
    A = X @ X.mT
    for context in (sg.override_linalg(), switched_on()):
        with context:
            together = linalg.eigh(A).eigenvectors
            assert all(torch.equal(linalg.eigh(M).eigenvectors, V) for M, V in zip(A, together, strict=True))
