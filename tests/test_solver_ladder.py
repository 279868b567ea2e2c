"""N11: a matrix the driver fails on goes down the ladder, alone, and is accepted on its true residual."""

import itertools
from itertools import product

import numpy as np
import pytest
import torch
from torch.testing import assert_close

import spectralgrad as sg
from spectralgrad.native import kernel, library
from spectralgrad.native.calls import Symmetric
from spectralgrad.solvers.decompose import fallbacks, lapack, polar_algorithms

from .helpers import DTYPES, in_turn, rectangular, unit
from .lapack_matrices import BAR, KINDS, SINGULAR_KINDS, eigh_bar, hermitian_matrix, rectangular_matrix, svd_bar

SOLVE = {"eigh": sg.eigh, "svd": sg.svd}
RATIO = {"eigh": eigh_bar, "svd": svd_bar}
RUNGS = {
    "eigh": ("plain", "scale", "float64", "eigh_numpy", "eigh_by_svd", "jitter"),
    "svd": ("plain", "scale", "float64", "svd_numpy", "svd_by_eigh", "jitter"),
}
RESCUES = [(operation, rung) for operation, rungs in RUNGS.items() for rung in rungs[1:]]
MODES = ("raise", "nan", "nan values", "nan vectors", "wrong values", "wrong vectors")
PLACE = (1, 0)  # where the victim stands in the batch
SIZE = 8.0  # max|A| of every matrix, so that a scaled one can be told from one as it came in


@pytest.fixture(autouse=True)
def _lapack_alone_with_a_fresh_report(monkeypatch):
    """The drivers that are spoiled here stand behind the native kernel; test_native.py has its way down."""
    monkeypatch.setattr(library, "switched_off", True)
    sg.solvers.reset_report()


@pytest.fixture
def sabotage(monkeypatch):
    """Spoil what drivers return for the victim: the main one while ``fails(matrix)`` holds, the ``broken`` always.

    Gives back the list of (driver, type, max|A|) of all other matrices that a driver meets.
    """

    def install(operation, victim, mode="raise", fails=lambda A: True, broken=()):
        bystanders = []
        _install(bystanders, operation, victim, mode, fails)
        for name in RUNGS[operation][3:5]:
            _install(bystanders, name, victim, mode, lambda A, name=name: name in broken)
        return bystanders

    def _install(bystanders, name, victim, mode, fails):
        driver = getattr(lapack, name)
        error = np.linalg.LinAlgError if name.endswith("numpy") else torch.linalg.LinAlgError

        def spoiled(A):
            matrices = A.reshape(-1, *A.shape[-2:])
            bystanders.extend(
                (name, B.dtype, round(float(B.abs().max()))) for B in matrices if not _is_victim(B, victim)
            )
            hit = [_is_victim(B, victim) and fails(B) for B in matrices]
            if not any(hit):
                return driver(A)
            if mode == "raise" or (mode.startswith("wrong") and A.dim() > 2):  # something must start the climb
                raise error("sabotage")
            where = torch.tensor(hit).reshape(A.shape[:-2])
            return tuple(_spoil(f, where, mode, f.dim() == A.dim() - 1, victim.dtype) for f in driver(A))

        monkeypatch.setattr(lapack, name, spoiled)

    return install


def _is_victim(A, victim):
    """Whether ``A`` is the victim up to scale, precision and jitter."""
    return A.shape == victim.shape and _distance(A, victim) < 1e-3


def _is_unjittered(A, victim):
    return torch.finfo(A.dtype).bits == 32 or _distance(A, victim) < torch.finfo(victim.dtype).eps / 2


def _distance(A, B):
    return float((_unit(A) - _unit(B)).detach().abs().max())


def _unit(A):
    return _read(A) / _size(A)


def _size(A):
    return _read(A).abs().max()


def _read(A):
    """What a driver reads of a matrix (here the square ones are Hermitian), in double precision."""
    A = A.to(torch.promote_types(A.dtype, torch.float64))
    return A.tril(-1) + torch.diag(A.diagonal().real) if A.shape[0] == A.shape[1] else A


def _spoil(factor, where, mode, holds_values, dtype):
    """One factor of a decomposition, with NaN or an error just above the bar for the matrices at ``where``."""
    if mode != "nan" and mode.endswith("values") != holds_values:
        return factor
    bad = factor * (torch.nan if "nan" in mode else 1 + 3 * BAR * factor.shape[-1] * torch.finfo(dtype).eps)
    return torch.where(where.reshape(where.shape + (1,) * (factor.dim() - where.dim())), bad, factor)


def _until(rung, operation, victim):
    """When the main driver is to fail, and which of the others, for ``rung`` to be the first that works."""
    fails = {
        "scale": lambda A: float(_size(A)) > 2,
        "float64": lambda A: A.dtype == victim.dtype,
        "jitter": lambda A: _is_unjittered(A, victim),
    }.get(rung, lambda A: True)
    others = RUNGS[operation][3:5]
    return fails, others[: {others[1]: 1, "jitter": 2}.get(rung, 0)]


def _batch(operation, dtype=torch.float32, batch=(2, 3)):
    d = (5, 5) if operation == "eigh" else (6, 4)
    A = torch.randn(*batch, *d, dtype=dtype, generator=torch.Generator().manual_seed(0))
    A = A + A.mH if operation == "eigh" else A
    return A * (SIZE / A.abs().amax((-2, -1), keepdim=True))


def _break_everything(sabotage, operation, victim):
    sabotage(operation, victim, broken=RUNGS[operation][3:5])


@in_turn(
    "operation, rung, mode",
    [(*rescue, mode) for rescue in RESCUES for mode in MODES],
    dtype=[torch.float32, torch.complex64],
)
def test_each_rung_rescues_the_victim_alone(sabotage, operation, rung, mode, dtype):
    A = _batch(operation, dtype)
    bystanders = sabotage(operation, A[PLACE], mode, *_until(rung, operation, A[PLACE]))
    factors = SOLVE[operation](A)
    assert max(RATIO[operation](A[i], *(f[i] for f in factors)) for i in np.ndindex(2, 3)) < BAR
    assert set(bystanders) == {(operation, dtype, SIZE)}
    assert sg.solvers.report() == sg.solvers.SolverReport(calls=1, matrices=6, fallbacks={rung: 1}, failures=0)


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128], ids=str)
@pytest.mark.parametrize(("operation", "rung"), [r for r in RESCUES if r[1] != "float64"])
def test_a_double_without_a_batch_is_rescued(sabotage, operation, rung, dtype):
    A = _batch(operation, dtype, ())
    sabotage(operation, A, "raise", *_until(rung, operation, A))
    assert RATIO[operation](A, *SOLVE[operation](A)) < BAR
    assert sg.solvers.report().fallbacks == {rung: 1}


@pytest.mark.parametrize("rung", RUNGS["eigh"][1:])
@pytest.mark.parametrize("disguise", ["upper triangle", "imaginary diagonal"])
def test_what_eigh_does_not_read_does_not_disturb_the_climb(sabotage, disguise, rung):
    A = _batch("eigh", torch.complex64, ())
    B = A + torch.full_like(A, 1e6).triu(1) if disguise == "upper triangle" else A + 5j * torch.eye(len(A))
    assert_close(torch.linalg.eigh(B)[0], torch.linalg.eigh(A)[0])
    sabotage("eigh", B, "raise", *_until(rung, "eigh", B))
    assert eigh_bar(A, *sg.eigh(B)) < BAR
    assert sg.solvers.report().fallbacks == {rung: 1}


@pytest.mark.parametrize("operation", SOLVE)
def test_several_victims_are_counted_each(sabotage, operation):
    A = _batch(operation)[:, :1].expand(2, 3, -1, -1)  # every row holds three copies of one matrix
    sabotage(operation, A[PLACE], fails=lambda B: B.dtype == A.dtype)
    SOLVE[operation](A)
    assert "rescued: 3 by float64; failed: 0" in repr(sg.solvers.report())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_types_are_rescued_too(sabotage, dtype):
    A = _batch("eigh").to(dtype)
    expected = sg.eigh(A).eigenvalues
    sabotage("eigh", A[PLACE].float(), fails=lambda B: B.dtype == torch.float32)
    assert_close(sg.eigh(A).eigenvalues, expected)
    assert sg.solvers.report().fallbacks == {"float64": 1}


@pytest.mark.parametrize("operation", SOLVE)
def test_vmap_goes_down_the_same_ladder(sabotage, operation):
    A = _batch(operation)
    sabotage(operation, A[PLACE], fails=lambda B: B.dtype == A.dtype)
    for solve in (torch.func.vmap(SOLVE[operation]), torch.func.vmap(torch.func.vmap(SOLVE[operation]))):
        assert RATIO[operation](A[PLACE], *(f[PLACE] for f in solve(A))) < BAR
    assert sg.solvers.report() == sg.solvers.SolverReport(calls=2, matrices=12, fallbacks={"float64": 2}, failures=0)


def test_compiled_code_goes_down_the_same_ladder(sabotage):
    A = _batch("eigh")
    sabotage("eigh", A[PLACE], fails=lambda B: B.dtype == A.dtype)
    w, V = torch.compile(lambda A: tuple(sg.eigh(A)), backend="aot_eager", fullgraph=True)(A)
    assert eigh_bar(A[PLACE], w[PLACE], V[PLACE]) < BAR
    assert sg.solvers.report().fallbacks == {"float64": 1}


@pytest.mark.parametrize("f", [sg.matrix_sqrt, sg.polar], ids=lambda f: f.__name__)
def test_a_rescue_changes_neither_value_nor_gradient(sabotage, f):
    operation = "eigh" if f is sg.matrix_sqrt else "svd"
    A = _batch("eigh", torch.float64)
    A = (A @ A.mH + torch.eye(5)).requires_grad_()
    G = torch.randn(A.shape, dtype=A.dtype, generator=torch.Generator().manual_seed(1))
    clean = f(A).detach(), *torch.autograd.grad((f(A) * G).sum(), A)
    sg.solvers.reset_report()
    sabotage(operation, A[PLACE].detach())
    rescued = f(A)
    assert_close((rescued.detach(), *torch.autograd.grad((rescued * G).sum(), A)), clean, rtol=1e-10, atol=1e-10)
    assert sg.solvers.report().fallbacks == {RUNGS[operation][3]: 1}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("operation", SOLVE)
def test_when_all_fail_the_error_holds_position_and_matrix(sabotage, monkeypatch, operation, dtype):
    monkeypatch.delenv("SPECTRALGRAD_DUMP", raising=False)
    A = _batch(operation, dtype)
    _break_everything(sabotage, operation, A[PLACE])
    tried = [rung for rung in RUNGS[operation] if rung != "float64" or torch.finfo(dtype).bits == 32]
    message = (
        rf"{operation}: .* of shape {_escaped(A)} at batch position \(1, 0\); tried {', '.join(tried)}; "
        "set SPECTRALGRAD_DUMP"
    )
    with pytest.raises(sg.SolverError, match=message) as caught:
        SOLVE[operation](A)
    assert caught.value.position == PLACE
    assert caught.value.saved is None
    assert_close(caught.value.matrix, A[PLACE], rtol=0, atol=0)
    assert sg.solvers.report().failures == 1


def _escaped(A):
    return str(tuple(A.shape[-2:])).replace("(", r"\(").replace(")", r"\)")


@pytest.mark.parametrize("mode", MODES)
def test_no_spoiled_result_is_ever_accepted(sabotage, mode):
    A = _batch("eigh")
    sabotage("eigh", A[PLACE], mode, broken=RUNGS["eigh"][3:5])
    with pytest.raises(sg.SolverError, match=r"position \(1, 0\)"):
        sg.eigh(A)


@pytest.mark.parametrize("transform", [lambda f: f, torch.func.vmap], ids=("plain", "vmap"))
@pytest.mark.parametrize("operation", SOLVE)
def test_the_position_is_that_in_the_batch(sabotage, operation, transform):
    A = _batch(operation, batch=(4,))
    _break_everything(sabotage, operation, A[2])
    with pytest.raises(sg.SolverError, match=r"position \(2,\)"):
        transform(SOLVE[operation])(A)


@pytest.mark.parametrize("operation", SOLVE)
def test_without_a_batch_the_position_is_empty(sabotage, operation):
    A = _batch(operation, batch=())
    _break_everything(sabotage, operation, A)
    with pytest.raises(sg.SolverError, match=r"position \(\)") as caught:
        SOLVE[operation](A)
    assert caught.value.position == ()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("verb", [sg.eigh, sg.svd, sg.polar], ids=lambda f: f.__name__)
def test_the_failing_matrix_is_saved_on_request(sabotage, monkeypatch, tmp_path, verb, dtype):
    """Also for an input that requires a gradient, and for the conjugate view that polar takes of a wide matrix."""
    if verb is sg.polar and dtype == torch.float32:
        pytest.skip("well-conditioned single precision goes through the Gram matrix, not the SVD spoiled here")
    folder = tmp_path / "new" / "folder"
    monkeypatch.setenv("SPECTRALGRAD_DUMP", str(folder))
    A = _batch("eigh" if verb is sg.eigh else "svd", dtype)
    _break_everything(sabotage, "eigh" if verb is sg.eigh else "svd", A[PLACE])
    with pytest.raises(sg.SolverError, match=r"saved as .*\.npy") as caught:
        verb((A.mH if verb is sg.polar else A).requires_grad_())
    (path,) = folder.iterdir()
    assert caught.value.saved == str(path)
    assert_close(torch.from_numpy(np.load(path, allow_pickle=False)), A[PLACE].detach(), rtol=0, atol=0)


UNSCALED = [name for name, kind in KINDS.items() if kind.scale == "one"]
SHAPES = ((1, 1), (4, 4), (16, 16), (7, 3), (3, 7), (1, 5), (5, 1))


@in_turn("driver, kind", product(RUNGS["eigh"][3:5], UNSCALED), dtype=DTYPES)
def test_other_eigh_drivers_are_correct_on_their_own(driver, kind, dtype):
    for n in (1, 2, 5, 16):
        A = hermitian_matrix(KINDS[kind], n, dtype)
        w, V = getattr(lapack, driver)(A + torch.ones_like(A).triu(1))  # the lower triangle is what is read
        assert eigh_bar(A, w, V) < BAR, n
        assert (w.dtype, V.dtype) == (A.real.dtype, dtype)
        assert bool((w.diff() >= 0).all()), n


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", [name for name, kind in SINGULAR_KINDS.items() if kind.scale == "one"])
@pytest.mark.parametrize("driver", RUNGS["svd"][3:5])
def test_other_svd_drivers_are_correct_on_their_own(driver, kind, dtype):
    for shape in SHAPES:
        M = rectangular_matrix(SINGULAR_KINDS[kind], *shape, dtype)
        U, S, Vh = getattr(lapack, driver)(M)
        assert svd_bar(M, U, S, Vh) < BAR, shape
        assert (U.dtype, S.dtype, Vh.dtype) == (dtype, M.real.dtype, dtype)
        assert float(S.min()) >= 0, shape
        assert bool((S.diff() <= 0).all()), shape


@pytest.mark.parametrize("n", [100, 128, 150])
def test_the_gram_matrix_of_the_polar_factor_is_whole_below_the_diagonal(n):
    """A hole in it would only send the matrix to the slower route."""
    M = torch.randn(n + 3, n, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert_close(polar_algorithms._lower_gram(M).tril(), (M.mT @ M).tril())


@pytest.mark.parametrize("by_kernel", [False, True])
def test_eigenvalues_of_a_matrix_that_fails_are_computed_again_alone(by_kernel, monkeypatch):
    A = torch.stack([hermitian_matrix(kind, 6, torch.float64) for kind in list(KINDS.values())[3:8]])
    expected = torch.linalg.eigvalsh(A)
    spoiled, climbed = expected.clone(), []
    spoiled[3] = torch.nan
    if by_kernel:
        monkeypatch.setattr(library, "switched_off", False)
        if kernel() is None:
            pytest.skip("the native kernel was not built")
        monkeypatch.setattr(Symmetric, "eigvalsh", lambda self, A: (spoiled, 1))
    else:
        monkeypatch.setattr(lapack, "eigvalsh", lambda A: (spoiled, 1))
    climb = fallbacks.Problem._climb
    monkeypatch.setattr(fallbacks.Problem, "_climb", lambda self, *a: climbed.append(a[1]) or climb(self, *a))
    values = sg.solvers.eigvalsh(A)
    assert climbed == [(3,)]
    assert torch.equal(values[[0, 1, 2, 4]], expected[[0, 1, 2, 4]])
    assert_close(values[3], expected[3], rtol=1e-13, atol=1e-13 * float(A[3].abs().max()))
    assert sg.solvers.report().matrices == 5


@pytest.mark.parametrize("name", SOLVE)
def test_a_ratio_sees_an_error_in_any_factor(name):
    """Also in vectors of singular values that are zero, which M = U S Vh does not see; and nothing below the bar."""
    A = rectangular([2.0, 1.0, 0.0, 0.0]) if name == "svd" else sg.testing.with_spectrum([0.0, 0.0, 1.0, 2.0])
    ratio, factors = {"svd": sg.solvers.svd_ratio, "eigh": sg.solvers.eigh_ratio}[name], SOLVE[name](A)
    places = [(number, column) for number in range(len(factors)) for column in range(4)]
    for of in (RATIO[name], lambda A, *found: ratio(A, found)):
        assert of(A, *factors) < BAR / 3
        for (number, column), size in itertools.product(places, (1e3, 1e-3)):
            spoiled = [factor.clone() for factor in factors]
            vector = spoiled[number][column] if number == 2 else spoiled[number][..., column]
            vector += size * BAR * 4 * unit(torch.float64)
            assert (of(A, *spoiled) > BAR) == (size > 1), (number, column)
            edge = 1.9 * 2.0**1022  # the values still fit, sums of entries do not
            huge = [f * edge if f.dim() == 1 else f for f in spoiled]
            for B, found in ((A, spoiled), (A * edge, huge)) if size > 1 else ():
                assert ratio(B, found) == pytest.approx(RATIO[name](B, *found), rel=1e-2)
