"""N14: tolerances follow the type of the input. Rounding of a half-type matrix is not indefiniteness."""

import math

import pytest
import torch

import spectralgrad as sg
from spectralgrad.native import library
from spectralgrad.nn.functional import whitening_matrix
from spectralgrad.optim import inverse_root, inverse_roots
from spectralgrad.precision import negative_tolerance, rank_tolerance

HALF = [torch.bfloat16, torch.float16]
SAMPLES, FEATURES = 40, 64
FUNCTIONS = {
    "matrix_sqrt": sg.matrix_sqrt,
    "matrix_inv_sqrt": sg.matrix_inv_sqrt,
    "matrix_log": sg.matrix_log,
    "matrix_power": lambda A: sg.matrix_power(A, -0.3),
    "svd-taylor": lambda A: sg.matrix_inv_sqrt(A, method="svd-taylor"),
    "newton-schulz": lambda A: sg.matrix_sqrt(A, method="newton-schulz"),
    "mpa": lambda A: sg.matrix_sqrt(A, method="mpa"),
    "inverse_root": lambda A: inverse_root(A, 4),
    "inverse_root, eps": lambda A: inverse_root(A, 4, eps=1e-6),
    "inverse_roots": lambda A: inverse_roots(list(A), 4)[0],
    "bures_wasserstein": lambda A: sg.bures_wasserstein(A, A),
    "gaussian_transport": lambda A: sg.gaussian_transport(A, A),
    "log_euclidean": lambda A: sg.log_euclidean(A, A),
    "affine_invariant": lambda A: sg.affine_invariant(A, A),
    "whitening_matrix": lambda A: whitening_matrix(A, "zca", sg.Exact()),
}


def gram(dtype, seeds=50, samples=SAMPLES, features=FEATURES):
    """Gram matrices of rank ``samples``, rounded once to ``dtype``."""
    X = [torch.randn(samples, features, generator=torch.Generator().manual_seed(k)).to(dtype) for k in range(seeds)]
    return torch.stack([x.mT @ x for x in X])


def exact_gram(dtype):
    """The same matrices of the rounded features in float64, without rounding of the products."""
    X = [torch.randn(SAMPLES, FEATURES, generator=torch.Generator().manual_seed(k)).to(dtype) for k in range(50)]
    return torch.stack([x.double().mT @ x.double() for x in X])


@pytest.mark.parametrize("dtype", HALF, ids=str)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_n14_singular_gram_matrices_of_half_types_are_accepted(name, dtype):
    A = gram(dtype, seeds=1 if name == "mpa" else 50).requires_grad_()
    S = FUNCTIONS[name](A)
    assert torch.isfinite(S).all()
    if S.requires_grad:
        S.float().sum().backward()
        assert torch.isfinite(A.grad).all()


@pytest.mark.parametrize("kernel", [True, False])
@pytest.mark.parametrize("dtype", HALF, ids=str)
def test_n14_what_rounding_left_of_zero_eigenvalues_is_not_inverted(dtype, kernel, monkeypatch):
    monkeypatch.setattr(library, "switched_off", not kernel)
    Z = sg.matrix_inv_sqrt(gram(dtype)).double()
    expected = sg.matrix_inv_sqrt(exact_gram(dtype))
    error = torch.linalg.matrix_norm(Z - expected) / torch.linalg.matrix_norm(expected)
    # The condition number on the range is about 80; noise that is inverted would be several times as large as Z.
    assert float(error.amax()) < 80 * torch.finfo(dtype).eps
    roots = inverse_root(gram(dtype), 2).double()
    assert (
        float((torch.linalg.matrix_norm(roots - Z) / torch.linalg.matrix_norm(Z)).amax()) < 4 * torch.finfo(dtype).eps
    )


@pytest.mark.parametrize("dtype", HALF, ids=str)
def test_n14_small_eigenvalues_without_sign_of_rounding_are_kept(dtype):
    A = torch.diag(torch.tensor([1.0, 2.0**-12])).to(dtype)
    assert sg.matrix_inv_sqrt(A).diagonal().tolist() == [1, 64]


@pytest.mark.parametrize("dtype", [*HALF, torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name", ["matrix_sqrt", "matrix_log", "newton-schulz", "inverse_root", "bures_wasserstein"])
def test_n14_negative_eigenvalues_are_refused_beyond_the_rounding_of_the_input(name, dtype):
    d = 3
    limit = negative_tolerance(d, dtype)
    Q = torch.linalg.qr(torch.randn(d, d, dtype=torch.float64, generator=torch.Generator().manual_seed(0))).Q

    def matrix(lowest):  # in the wide type for half types, so that only the tolerance is tested, not the rounding
        A = (Q * torch.tensor([lowest, 0.5, 1.0], dtype=torch.float64)) @ Q.mT
        return torch.diag(torch.tensor([lowest, 0.5, 1.0])).to(dtype) if dtype in HALF else A.to(dtype)

    FUNCTIONS[name](matrix(-0.9 * limit))
    kind = str(dtype).removeprefix("torch.")
    with pytest.raises(sg.IndefiniteError, match=f"are treated as {kind} rounding error") as caught:
        FUNCTIONS[name](matrix(-1.1 * limit))
    assert caught.value.dtype == dtype
    assert abs(caught.value.tolerance - limit) < 0.05 * limit


def test_n14_tolerances_of_half_types():
    for d in (1, 8, 1000):
        assert rank_tolerance(d, torch.bfloat16) == rank_tolerance(d, torch.float32)
        assert negative_tolerance(d, torch.float32) == 32 * rank_tolerance(d, torch.float32)
        for dtype in HALF:
            noise = torch.finfo(dtype).eps * min(2 * d**0.5, 32)
            assert negative_tolerance(d, dtype) == max(noise, negative_tolerance(d, torch.float32)) < 0.5


@pytest.mark.parametrize("promoted", [False, True])
@pytest.mark.parametrize("compiled", [False, True])
def test_n14_whitening_written_by_hand_works_under_autocast(promoted, compiled):
    def whitened(X):
        Y = X - X.mean(0)
        C = Y.T @ Y / len(Y)
        if promoted:  # the identity is float32, and so is the sum, but it contains the rounding error of bfloat16
            C = C + 1e-5 * torch.eye(FEATURES)
        return Y @ sg.matrix_inv_sqrt(C)

    torch._dynamo.reset()
    run = torch.compile(whitened, backend="aot_eager", fullgraph=True) if compiled else whitened
    for seed in range(3 if compiled else 20):
        X = torch.randn(SAMPLES, FEATURES, generator=torch.Generator().manual_seed(seed), requires_grad=True)
        with torch.autocast("cpu", torch.bfloat16):
            Z = run(X)
        Z.float().square().sum().backward()
        assert torch.isfinite(X.grad).all()
        covariance = Z.detach().double().T @ Z.detach().double() / SAMPLES
        w = torch.linalg.eigvalsh(covariance)[-(SAMPLES - 1) :]  # centring takes one dimension of the range
        assert float((w - 1).abs().amax()) < 0.5


def test_n14_eps_is_added_before_the_check():
    A = torch.diag(torch.tensor([4.0, -1.0], dtype=torch.float64))
    wanted = torch.tensor([6.0**-0.5, 1.0], dtype=torch.float64)
    for found in (
        inverse_root(A, 2, eps=2.0),
        inverse_root(A, 2, eps=0.5, relative=True),
        inverse_roots([A], 2, eps=2.0)[0],
    ):
        torch.testing.assert_close(found.diagonal(), wanted)
    clamped = inverse_root(A, 2, eps=2.0, clamp=True).diagonal()
    torch.testing.assert_close(clamped, torch.tensor([6.0**-0.5, 0.5**0.5], dtype=torch.float64))
    with pytest.raises(sg.IndefiniteError, match=r"got eigenvalue -0\.5 in"):
        inverse_root(A, 2, eps=0.5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_distances_of_singular_matrices_ignore_rounding_beyond_their_rank(dtype):
    X = torch.randn(SAMPLES, FEATURES, dtype=dtype, generator=torch.Generator().manual_seed(0))
    A = X.mT @ X
    assert float(sg.affine_invariant(A, A)) < 1e-6
    expected = SAMPLES * math.log(2) ** 2
    assert abs(float(sg.affine_invariant(A, 2 * A)) / expected - 1) < 1e4 * torch.finfo(dtype).eps
