"""eigsh: eigenpairs of operators known by their products, and gradients against the whole decomposition."""

import sys
from types import SimpleNamespace

import pytest
import torch
from torch.testing import assert_close

import spectralgrad as sg
from spectralgrad.testing import relative_error, with_spectrum

from .features import needs
from .helpers import DTYPES, unit

N, K = 90, 3
SPECTRUM = torch.cat([torch.tensor([-9.0, -8.0, -7.5]), torch.linspace(-5, 5, N - 6), torch.tensor([7.0, 7.0, 9.0])])


def _matrix(dtype=torch.float64, spectrum=SPECTRUM):
    A = with_spectrum(spectrum.double().tolist(), dtype=dtype, seed=4)
    return (A + A.mH) / 2


def _loss(w, V):
    """It does not depend on signs, phases or the choice of vectors at a tie."""
    weights = torch.arange(float(N)).cos().to(V.dtype.to_real())
    return w.exp().sum() / 1e3 + (V.abs().square().sum(-1) * weights).sum()


def _gradient(f, A):
    leaf = A.detach().clone().requires_grad_()
    return torch.autograd.grad(_loss(*f(leaf)), leaf)[0]


@pytest.fixture(params=["scipy", pytest.param("lobpcg", marks=needs("torch.lobpcg"))])
def solver(request, monkeypatch):
    """scipy where it is installed, and the way without it."""
    if request.param == "scipy":
        pytest.importorskip("scipy.sparse.linalg")
    else:
        monkeypatch.setitem(sys.modules, "scipy.sparse", None)
    return request.param


def test_both_solvers_give_the_pairs_and_the_gradient_of_the_whole_decomposition(solver):
    A = _matrix()
    for largest in (True, False):
        part, whole = sg.eigsh(A, K, largest=largest), sg.eigh(A, k=K, largest=largest)
        assert_close(part.eigenvalues, whole.eigenvalues)
        g = _gradient(lambda A, e=largest: sg.eigsh(A, K, largest=e), A)
        expected = _gradient(lambda A, e=largest: sg.eigh(A, k=K, largest=e), A)
        assert relative_error(g, expected) < {"scipy": 1e-10, "lobpcg": 1e-6}[solver]  # LOBPCG stops at √ε
        assert_close(g, g.mT)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_type(dtype):
    """The solves stop at 100 ε, and the smallest gap between kept and discarded is an eighth of the norm."""
    A = _matrix(dtype)
    w, V = sg.eigsh(A, K)
    assert (A @ V - V * w).abs().max() < 30 * N * unit(dtype) * 9
    g = _gradient(lambda A: sg.eigsh(A, K), A)
    assert relative_error(g, _gradient(lambda A: sg.eigh(A, k=K), A)) < 1e4 * unit(dtype)


def _in_every_form(values, pattern):
    """The matrix with these values, as the forms in which an operator may come."""
    sparse = torch.sparse_coo_tensor(pattern, values, (N, N), check_invariants=True)
    return {
        "dense": sparse.to_dense(),
        "coo": sparse,
        "callable": (lambda X: sparse.to_dense() @ X),
        "matmul": SimpleNamespace(shape=(N, N), dtype=values.dtype, matmul=lambda X: sparse.to_dense() @ X),
        "_matmul": SimpleNamespace(shape=(N, N), dtype=values.dtype, _matmul=lambda X: sparse.to_dense() @ X),
    }


@pytest.mark.parametrize("form", ["dense", "coo", "callable", "matmul", "_matmul"])
def test_the_gradient_reaches_the_parameters_of_every_form(form):
    """A tridiagonal matrix, and the derivative along a change of its values by finite differences."""
    i = torch.arange(N)
    pattern = torch.cat([torch.stack([i, i]), torch.stack([i[1:], i[:-1]]), torch.stack([i[:-1], i[1:]])], 1)
    side = 1 + torch.arange(N - 1.0, dtype=torch.float64).sin()
    values = torch.cat([torch.linspace(-3, 3, N, dtype=torch.float64), side, side])
    change = torch.cat([i.double().cos(), *[i[1:].double().sin()] * 2])

    def loss(values):
        size = {"size": N, "dtype": torch.float64} if form == "callable" else {}
        return _loss(*sg.eigsh(_in_every_form(values, pattern)[form], K, **size))

    leaf = values.clone().requires_grad_()
    (g,) = torch.autograd.grad(loss(leaf), leaf)
    h = 1e-5
    slope = (loss(values + h * change) - loss(values - h * change)) / (2 * h)
    assert abs((g * change).sum() - slope) < 1e-8 * max(1, abs(slope))


def test_operator_objects_that_override_torch_functions_are_used_by_their_products():
    """Those of linear_operator raise an error for functions that they do not know."""

    class Refusing(SimpleNamespace):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            raise NotImplementedError

    A = _matrix()
    operator = Refusing(shape=A.shape, dtype=A.dtype, device=A.device, matmul=A.matmul)
    assert torch.equal(sg.eigsh(operator, K).eigenvalues, sg.eigsh(A, K).eigenvalues)


def test_the_gradient_of_a_sparse_tensor_is_sparse():
    A = torch.diag(SPECTRUM.double()).to_sparse().requires_grad_()
    (g,) = torch.autograd.grad(_loss(*sg.eigsh(A, K)), A)
    assert g.layout == torch.sparse_coo
    assert g.coalesce().values().numel() == N


def test_dropping_the_discarded_space_would_be_wrong():
    A = _matrix().requires_grad_()
    _, V = sg.eigsh(A, K)
    (g,) = torch.autograd.grad((V.square().sum(-1) * torch.arange(N)).sum(), A)
    P = (V @ V.mT).detach()
    assert relative_error(P @ g @ P, g) > 0.9  # a loss of the projector: all of its gradient is outside


@pytest.mark.parametrize("k", [1, N // 2, N])
def test_any_number_of_pairs(k):
    A = _matrix()
    assert relative_error(_gradient(lambda A: sg.eigsh(A, k), A), _gradient(lambda A: sg.eigh(A, k=k), A)) < 1e-9


@pytest.mark.parametrize("tol", [0.0, 1e-3])
@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128], ids=str)
def test_copies_of_repeated_eigenvalues_are_not_missed(dtype, tol):
    """A Krylov space of one vector contains only one vector of each eigenspace, up to rounding."""
    pytest.importorskip("scipy.sparse.linalg")
    spectrum = torch.cat([torch.linspace(-5, 5, N - 4), torch.full((4,), 7.0)])
    for sign in (1, -1):
        w, V = sg.eigsh(sign * _matrix(dtype, spectrum), 4, largest=sign > 0, tol=tol)
        assert (w - 7.0 * sign).abs().max() <= max(tol, 1e-12) * 7
        assert_close(V.mH @ V, torch.eye(4, dtype=dtype))


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_the_scale_of_the_operator_does_not_matter(solver, dtype, largest):
    """Powers of two, so that the matrices agree to the last digit; the spectrum touches zero."""
    A = _matrix(dtype, torch.linspace(0, 1, N))
    steps = 1 / (N - 1)  # between the eigenvalues: errors of vectors are residuals divided by it
    accuracy = torch.finfo(dtype).eps if solver == "scipy" else torch.finfo(dtype).eps ** 0.5
    whole, expected = sg.eigh(A, k=K, largest=largest), _gradient_of_projector(A, largest, sg.eigh)
    for exponent in {torch.float32: (-35, -60, -100, 100), torch.float64: (-66, -500, -1000, 1000)}[dtype]:
        c = 2.0**exponent
        w, V = sg.eigsh(A * c, K, largest=largest)
        assert (w / c - whole.eigenvalues).abs().max() <= N * accuracy
        P = whole.eigenvectors @ whole.eigenvectors.mT
        assert relative_error(V @ V.mT, P) <= 10 * accuracy / steps
        g = _gradient_of_projector(A * c, largest, sg.eigsh)
        assert relative_error(g * c, expected) <= 100 * accuracy / steps


def _gradient_of_projector(A, largest, f):
    leaf = A.clone().requires_grad_()
    V = f(leaf, k=K, largest=largest).eigenvectors
    return torch.autograd.grad((V.square().sum(-1) * torch.arange(N)).sum() / N, leaf)[0]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_operators_of_rank_zero_and_one(dtype):
    """The zero operator, and one that is zero once its eigenvalue is moved to the edge of the kept part."""
    pytest.importorskip("scipy.sparse.linalg")
    for value in (0.0, 1.0):
        A = torch.zeros(N, N, dtype=dtype)
        A[5, 5] = value
        for sign in (1, -1):
            leaf = (sign * A).requires_grad_()
            w, V = sg.eigsh(leaf, K, largest=sign > 0)
            assert_close((sign * w).sort().values, torch.tensor([0, 0, value], dtype=w.dtype))
            assert_close(V.mH @ V, torch.eye(K, dtype=dtype))
            (g,) = torch.autograd.grad(w.sum(), leaf)
            assert_close(g.diagonal().sum().real, w.new_tensor(K))


def test_pairs_that_did_not_converge_are_refused(monkeypatch):
    linalg = pytest.importorskip("scipy.sparse.linalg")
    found = linalg.eigsh

    def coarse(*args, **options):
        return found(*args, **{**options, "tol": 0.1})

    A = _matrix(spectrum=torch.linspace(0, 1, N))
    monkeypatch.setattr(linalg, "eigsh", coarse)
    with pytest.raises(sg.ConvergenceError, match="residual"):
        sg.eigsh(A, K)
    assert len(sg.eigsh(A, K, tol=0.1).eigenvalues) == K


def test_a_tie_across_the_cut_is_refused_and_its_eigenvalues_are_not():
    A = _matrix().requires_grad_()
    w, V = sg.eigsh(A, 2)  # the eigenvalue 7 is double, and one copy is discarded
    with pytest.raises(sg.ConvergenceError, match="Choose k"):
        torch.autograd.grad((V.square().sum(-1) * torch.arange(N)).sum(), A, retain_graph=True)
    (g,) = torch.autograd.grad(w[-1], A)
    assert abs(float(g.diagonal().sum()) - 1) < 1e-12


def test_a_looser_tolerance_gives_a_coarser_gradient():
    A = _matrix()
    exact = _gradient(lambda A: sg.eigh(A, k=K), A)
    errors = [relative_error(_gradient(lambda A, t=t: sg.eigsh(A, K, tol=t), A), exact) for t in (1e-3, 0.0)]
    assert 1e-9 < errors[0] < 1e-2
    assert errors[1] < 1e-10


def test_nothing_is_recorded_without_a_gradient_and_random_numbers_are_left_alone():
    before = torch.random.get_rng_state()
    first, second = sg.eigsh(_matrix(), K), sg.eigsh(_matrix(), K)
    assert not first.eigenvectors.requires_grad
    assert torch.equal(first.eigenvectors, second.eigenvectors)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_half_types_return_their_own_type():
    w, V = sg.eigsh(_matrix(torch.float32).bfloat16(), K)
    assert w.dtype == V.dtype == torch.bfloat16


def test_bad_input_is_refused(monkeypatch):
    A = _matrix()
    for k in (0, N + 1, 1.5, True):
        with pytest.raises(sg.ArgumentError, match="k to be an integer"):
            sg.eigsh(A, k)
    with pytest.raises(sg.ArgumentError, match="Hermitian"):
        sg.eigsh(A + torch.ones(N, N).triu(1), K)
    with pytest.raises(sg.NonFiniteError, match="eigsh"):
        sg.eigsh(A * torch.nan, K)
    with pytest.raises(sg.ShapeError, match="expected a square operator"):
        sg.eigsh(A[1:], K)
    with pytest.raises(sg.ArgumentError, match="got SimpleNamespace"):
        sg.eigsh(SimpleNamespace(shape=(N, N)), K)
    monkeypatch.setitem(sys.modules, "scipy.sparse", None)
    with pytest.raises(ImportError, match="needs scipy"):
        sg.eigsh(lambda X: A @ X, K, size=N, dtype=torch.float64)


@pytest.mark.parametrize("place", [-1, 200, 5000])
def test_indices_outside_the_matrix_are_an_error(place):
    indices, values = torch.tensor([[0, place], [0, place]]), torch.tensor([1.0, 2.0])
    with pytest.raises(sg.ArgumentError, match=r"expected indices from 0 to 199, got indices from"):
        sg.eigsh((indices, values), 1, size=200)


def test_indices_may_be_a_transposed_list_of_edges():
    edges, values = torch.tensor([[0, 0], [0, 1], [1, 0], [1, 1]]), torch.tensor([1.0, 2.0, 2.0, 5.0])
    w, _ = sg.eigsh((edges.T, values), 1, size=2)
    torch.testing.assert_close(w, torch.linalg.eigvalsh(torch.tensor([[1.0, 2.0], [2.0, 5.0]]))[1:])
