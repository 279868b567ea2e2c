"""override_linalg: torch's functions return what torch returns, with finite gradients at ties, and come back."""

import threading
from functools import partial

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils.checkpoint import checkpoint

import spectralgrad as sg
from spectralgrad.dispatch.function import eager
from spectralgrad.rescue import replacements

from .helpers import DOUBLES, in_turn

linalg = torch.linalg


def columns(V):
    """v vᴴ for each column: what a loss may depend on."""
    return V.mT.unsqueeze(-1) * V.mT.conj().unsqueeze(-2)


def eigen(result):
    w, V = result
    return w, columns(V)


def singular(result):
    """The parts of U, S and Vh (or V) that do not depend on phases, for the first min(m, n) triplets."""
    U, S, Vh = result
    k = S.shape[-1]
    return columns(U[..., :k]), S, columns(Vh.mH[..., :k]), (U[..., :k] * S.unsqueeze(-2)) @ Vh[..., :k, :]


def old_singular(result):
    U, S, V = result
    return singular((U, S, V.mH))


SQUARE = {
    "eigh": lambda A: eigen(linalg.eigh(A)),
    "eigh-L": lambda A: eigen(linalg.eigh(A, "l")),
    "eigh-U": lambda A: eigen(linalg.eigh(A, UPLO="U")),
    "eigh-input": lambda A: eigen(linalg.eigh(input=A)),
    "eigvalsh": lambda A: (linalg.eigvalsh(A),),
    "eigvalsh-U": lambda A: (linalg.eigvalsh(A, "U"),),
    "pinv-hermitian": lambda A: (linalg.pinv((A + A.mH) / 2, hermitian=True),),
}
ANY = {
    "svd": lambda M: singular(linalg.svd(M)),
    "svd-reduced": lambda M: singular(linalg.svd(M, full_matrices=False)),
    "svd-positional": lambda M: singular(linalg.svd(M, False, driver=None)),
    "svd-A": lambda M: singular(linalg.svd(A=M, full_matrices=False)),
    "svdvals": lambda M: (linalg.svdvals(M),),
    "torch.svd": lambda M: old_singular(torch.svd(M)),
    "torch.svd-all": lambda M: old_singular(torch.svd(M, some=False)),
    "torch.svd-values": lambda M: torch.svd(M, compute_uv=False),
    "Tensor.svd": lambda M: old_singular(M.svd()),
    "Tensor.svd-values": lambda M: M.svd(True, False),
    "matrix_norm-nuc": lambda M: (linalg.matrix_norm(M, "nuc"),),
    "matrix_norm-2": lambda M: (linalg.matrix_norm(M, 2),),
    "matrix_norm--2": lambda M: (linalg.matrix_norm(M, ord=-2.0),),
    "matrix_norm-dim": lambda M: (linalg.matrix_norm(M, "nuc", (0, -1)),),
    "matrix_norm-keepdim": lambda M: (linalg.matrix_norm(M, 2, (2, 0), True),),
    "matrix_norm-fro": lambda M: (linalg.matrix_norm(M, keepdim=True),),
    "norm-nuc": lambda M: (linalg.norm(M[0], "nuc"),),
    "norm-2": lambda M: (linalg.norm(M, 2, dim=(1, 0), keepdim=True),),
    "norm-vector": lambda M: (linalg.norm(M, 2, dim=1),),
    "norm-all": lambda M: (linalg.norm(M),),
    "torch.norm-nuc": lambda M: (torch.norm(M, "nuc", dim=(1, 2)),),
    "torch.norm-2": lambda M: (torch.norm(M, 2, dim=(1, 2)),),
    "Tensor.norm-nuc": lambda M: (M[1].norm("nuc"),),
    "pinv": lambda M: (linalg.pinv(M),),
    "pinv-rtol": lambda M: (linalg.pinv(M, rtol=1e-3),),
    "pinv-rcond": lambda M: (linalg.pinv(M, 1e-3, False),),
    "pinv-atol": lambda M: (linalg.pinv(M, atol=1e-3),),
    "torch.pinverse": lambda M: (torch.pinverse(M),),
    "Tensor.pinverse": lambda M: (M.pinverse(1e-3),),
    "lstsq": lambda M: linalg.lstsq(M, M[..., :2].cos())[:1],
    "lstsq-gels": lambda M: linalg.lstsq(M, M[..., :2].cos(), driver="gels"),
    "lstsq-gelsd": lambda M: linalg.lstsq(M, b=M[..., :2].cos(), rcond=1e-3, driver="gelsd")[::3],
    "lstsq-gelss": lambda M: linalg.lstsq(input=M, b=M[..., :2].cos(), driver="gelss")[:2],
    "lstsq-vectors": lambda M: linalg.lstsq(M, M[..., 0].cos(), driver="gelsy")[:1],
    "lstsq-broadcast": lambda M: linalg.lstsq(M, M[:1, :, :1].cos())[:1],
    "cond": lambda M: (linalg.cond(M),),
}
CASES = SQUARE | ANY


def matrices(name, dtype):
    generator = torch.Generator().manual_seed(3)
    shape = (2, 4, 4) if name in SQUARE else (2, 4, 3)
    return torch.randn(shape, generator=generator, dtype=dtype)


def value_and_gradient(function, A, most=None):
    """The differentiable results, or the first of them, and the gradient of a weighted sum."""
    A = A.clone().requires_grad_()
    results = [x for x in function(A) if x.requires_grad][:most]
    generator = torch.Generator().manual_seed(4)
    cotangents = [torch.randn(x.shape, generator=generator, dtype=x.dtype) for x in results]
    (gradient,) = torch.autograd.grad(results, A, cotangents)
    return [x.detach() for x in results], gradient


@in_turn("name", CASES, dtype=DOUBLES)
def test_values_and_gradients_are_torchs_where_nothing_is_tied(name, dtype):
    """The gaps and singular values of these matrices exceed 0.05, so 1e-10 leaves four digits for conditioning."""
    A = matrices(name, dtype)
    expected, expected_gradient = value_and_gradient(CASES[name], A)
    with sg.override_linalg():
        got, gradient = value_and_gradient(CASES[name], A, len(expected))  # residuals have no gradient in torch 2.6
    assert [x.shape for x in got] == [x.shape for x in expected]
    assert all(torch.allclose(x, y, rtol=1e-10, atol=1e-10) for x, y in zip(got, expected, strict=True))
    if (
        "-U" in name or name in SQUARE
    ):  # torch may return the gradient of either triangle; only its Hermitian part counts
        gradient, expected_gradient = gradient + gradient.mH, expected_gradient + expected_gradient.mH
    assert torch.allclose(gradient, expected_gradient, rtol=1e-9, atol=1e-9)


# The condition number of a singular matrix is infinite.
@in_turn("name", [name for name in CASES if name != "cond"], tie=["identity", "rank one", "zero"])
def test_gradients_are_finite_at_ties_and_at_rank_deficiency(name, tie):
    shape = matrices(name, torch.float64).shape
    A = {"identity": torch.eye(*shape[-2:]).expand(shape), "rank one": torch.ones(shape), "zero": torch.zeros(shape)}[
        tie
    ]
    with sg.override_linalg():
        _, gradient = value_and_gradient(CASES[name], A.double())
    assert gradient.isfinite().all()


@pytest.mark.parametrize("order", [2, -2])
def test_equal_singular_values_share_the_gradient_of_a_norm(order):
    """Signed permutations of a diagonal matrix, which are tied exactly."""
    M = torch.zeros(4, 3, dtype=torch.float64)
    M[[3, 0, 1], [1, 2, 0]] = torch.tensor([2.0, -1.0, 1.0] if order < 0 else [-2.0, 2.0, 1.0], dtype=torch.float64)
    tied = M.abs() == (1 if order < 0 else 2)
    M.requires_grad_()
    with sg.override_linalg():
        value = linalg.matrix_norm(M, order)
    assert value.item() == (1 if order < 0 else 2)
    assert torch.equal(torch.autograd.grad(value, M)[0], torch.where(tied, M.detach().sign() / 2, 0))


@pytest.mark.parametrize("function", [linalg.eigh, linalg.svd, torch.svd], ids=lambda f: f.__name__)
def test_torch_alone_fails_at_these_ties(function):
    """Otherwise the test above could not fail."""
    A = torch.eye(4, dtype=torch.float64, requires_grad=True)
    for context, finite in ((torch.enable_grad(), False), (sg.override_linalg(), True)):
        with context:
            factor = function(A)[1 if function is linalg.eigh else 0]
        assert bool(torch.autograd.grad(factor[0].sum(), A)[0].isfinite().all()) is finite


def test_results_have_torchs_types():
    A = torch.eye(3)
    with sg.override_linalg():
        inside = [linalg.eigh(A), linalg.svd(A), torch.svd(A)]
    assert [type(x) for x in inside] == [type(x) for x in (linalg.eigh(A), linalg.svd(A), torch.svd(A))]


def test_the_nuclear_norm_has_the_subgradient_of_smallest_norm():
    A = torch.ones(3, 2, dtype=torch.float64, requires_grad=True)
    with sg.override_linalg():
        linalg.matrix_norm(A, "nuc").backward()
    assert torch.allclose(A.grad, torch.full_like(A, 6**-0.5), atol=1e-14)


def test_dtype_widens():
    M = torch.randn(3, 2, generator=torch.Generator().manual_seed(0))
    with sg.override_linalg():
        got = linalg.matrix_norm(M, "nuc", dtype=torch.float64)
    assert got.dtype == torch.float64
    assert torch.allclose(got, linalg.svdvals(M.double()).sum(), rtol=1e-14)


PASSED_ON = {
    "eigh": lambda A, out: linalg.eigh(A, out=out),
    "eigvalsh": lambda A, out: linalg.eigvalsh(A, out=out[0]),
    "svdvals": lambda A, out: linalg.svdvals(A, out=out[0]),
    "matrix_norm": lambda A, out: linalg.matrix_norm(A, 2, out=out[0]),
}


@pytest.mark.parametrize("name", PASSED_ON)
def test_out_is_written_by_torch(name):
    A = torch.randn(3, 3, generator=torch.Generator().manual_seed(0))
    outs = [(torch.empty(0), torch.empty(0)) for _ in range(2)]
    PASSED_ON[name](A, outs[0])
    with sg.override_linalg():
        result = PASSED_ON[name](A, outs[1])
    written = result[0] if isinstance(result, tuple) else result
    assert written is outs[1][0]
    assert torch.equal(outs[0][0], outs[1][0])


WRONG = {
    "not a matrix": lambda: linalg.eigh(torch.ones(3)),
    "not square": lambda: linalg.eigvalsh(torch.ones(3, 2)),
    "integers": lambda: linalg.svd(torch.ones(2, 2, dtype=torch.long)),
    "UPLO": lambda: linalg.eigh(torch.ones(2, 2), UPLO="X"),
    "driver": lambda: linalg.svd(torch.ones(2, 2), driver="gesvd"),
    "driver of svdvals": lambda: linalg.svdvals(torch.ones(2, 2), driver="gesvd"),
    "unknown argument": lambda: linalg.eigh(torch.ones(2, 2), lower=True),
    "argument given twice": lambda: linalg.eigh(torch.ones(2, 2), input=torch.ones(2, 2)),
    "too many arguments": lambda: linalg.eigh(torch.ones(2, 2), "L", "L"),
    "no argument": lambda: linalg.svd(),
    "dim": lambda: linalg.matrix_norm(torch.ones(2, 2), 2, dim=(0, 0)),
    "narrower dtype": lambda: linalg.matrix_norm(torch.ones(2, 2).double(), 2, dtype=torch.float32),
    "order": lambda: linalg.matrix_norm(torch.ones(2, 2), 7),
    "NaN": lambda: linalg.svd(torch.full((2, 2), torch.nan)),
}


@pytest.mark.parametrize("name", WRONG)
def test_errors_are_torchs(name):
    with pytest.raises(Exception) as expected:  # noqa: PT011
        WRONG[name]()
    with sg.override_linalg(), pytest.raises(expected.type) as raised:
        WRONG[name]()
    assert str(raised.value) == str(expected.value)


def test_a_matrix_with_nan_gives_what_torch_gives():
    A = torch.eye(3).index_put((torch.tensor(0), torch.tensor(0)), torch.tensor(torch.nan))
    with sg.override_linalg():
        assert linalg.eigh(A).eigenvalues.isnan().equal(torch.linalg.eigh(A).eigenvalues.isnan())


def serves(function=linalg.eigh):
    """True if this library serves a call of torch's function in the current context."""
    result = function(torch.eye(2, requires_grad=True))
    return not result[0].grad_fn.name().startswith("Linalg")


def test_torch_is_restored_after_exceptions_and_in_nested_contexts():
    assert not serves()
    with pytest.raises(ZeroDivisionError), sg.override_linalg():
        _ = 1 / (not serves())
    assert not serves()
    with sg.override_linalg(), sg.override_linalg("svd-taylor"):
        assert linalg.eigh(torch.eye(2, requires_grad=True))[0].grad_fn.rule.name == "svd-taylor"
    assert not serves()


def test_it_is_a_decorator():
    @sg.override_linalg()
    def decorated(fail=False):
        if fail:
            raise ZeroDivisionError
        return serves()

    assert decorated()
    with pytest.raises(ZeroDivisionError):
        decorated(fail=True)
    assert not serves()


class Counting(TorchFunctionMode):
    calls = 0

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.calls += 1
        return func(*args, **(kwargs or {}))


def test_the_switch_can_be_turned_off_below_another_mode():
    rescue = sg.override_linalg().enable()
    with Counting() as counting:
        assert serves()
        rescue.disable()
        before = counting.calls
        assert not serves()
        assert counting.calls > before
    rescue.disable()
    assert not serves()


def test_it_applies_to_the_thread_that_switched_it_on():
    seen = []
    rescue = sg.override_linalg()
    with rescue:
        for target in (serves, rescue(serves)):
            thread = threading.Thread(target=lambda target=target: seen.append(target()))
            thread.start()
            thread.join()
    assert seen == [False, True]


def test_other_modes_see_the_call_and_our_functions_run_without_the_mode(monkeypatch):
    seen = []
    real = replacements.eigh
    monkeypatch.setattr(replacements, "eigh", lambda A, **k: seen.append(eager(A)) or real(A, **k))
    with sg.override_linalg():
        linalg.eigh(torch.eye(2))
    assert seen == [True]
    with Counting() as counting, sg.override_linalg():
        linalg.eigh(torch.eye(2))
    assert counting.calls


class Plain(torch.Tensor):
    """A subclass that keeps torch's default behaviour."""


class Wrapper:
    """Not a tensor; its handler unwraps."""

    def __init__(self, data):
        self.data, self.seen = data, []

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        args[0].seen.append(func)
        return func(args[0].data, *args[1:], **(kwargs or {}))


class Refusing(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return NotImplemented


def test_subclasses():
    A = torch.eye(3, requires_grad=True)
    wrapped = Wrapper(A)
    with sg.override_linalg():
        result = linalg.eigh(A.as_subclass(Plain))
        unwrapped = linalg.eigh(wrapped)
        parameter = linalg.eigh(torch.nn.Parameter(torch.eye(3)))
    assert type(result) is torch.return_types.linalg_eigh
    assert type(result.eigenvectors) is Plain
    assert torch.autograd.grad(result.eigenvectors[0, 0], A)[0].isfinite().all()
    assert wrapped.seen == [linalg.eigh]
    assert torch.autograd.grad(unwrapped.eigenvectors[0, 0], A)[0].isfinite().all()
    assert parameter.eigenvectors.grad_fn.name() == unwrapped.eigenvectors.grad_fn.name()
    with sg.override_linalg(), pytest.raises(TypeError):
        linalg.eigh(torch.eye(2).as_subclass(Refusing))


def projector(A):
    V = linalg.eigh(A).eigenvectors[..., 1:]
    return V @ V.mT


def test_transforms():
    A = torch.diag(torch.tensor([1.0, 2.0, 2.0], dtype=torch.float64))
    direction = torch.ones_like(A)
    with sg.override_linalg():
        batched = torch.vmap(projector)(A.expand(2, 3, 3))
        value, tangent = torch.func.jvp(projector, (A,), (direction,))
        reverse, forward = torch.func.jacrev(projector)(A), torch.func.jacfwd(projector)(A)
        twice = torch.func.jacfwd(torch.func.jacfwd(lambda A: linalg.eigvalsh(A)[0]))(A + torch.diag(A[1]))
    eps = torch.finfo(A.dtype).eps
    assert torch.allclose(batched[1], value, atol=8 * eps)
    assert torch.allclose(tangent, torch.einsum("ijkl,kl->ij", forward, direction), atol=32 * eps)
    assert torch.allclose(reverse + reverse.mT, forward + forward.mT, atol=32 * eps)
    assert torch.allclose(tangent[0, 1:], torch.ones(2, dtype=A.dtype), atol=32 * eps)  # 1/(2 − 1)
    assert twice.isfinite().all()  # forward over forward mode, which torch serves


def test_compiled_functions():
    def loss(A):
        return projector(A)[0, 1] + linalg.svdvals(A).sum() + torch.norm(A, "nuc")

    def inside(A):
        with sg.override_linalg():
            return loss(A)

    expected = torch.autograd.grad(inside(A := torch.eye(3, requires_grad=True)), A)[0]
    for function, context in ((inside, torch.enable_grad()), (loss, sg.override_linalg())):
        compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
        with context:
            value = compiled(A)
        assert torch.allclose(torch.autograd.grad(value, A)[0], expected, atol=1e-6)
    assert torch.autograd.grad(torch.compile(loss, backend="aot_eager")(A), A)[0].isnan().any()


def test_a_decorated_function_can_be_checkpointed():
    A = torch.eye(3, requires_grad=True)
    rescued = sg.override_linalg()(lambda A: linalg.eigh(A).eigenvectors[0])
    checkpoint(rescued, A, use_reentrant=False).sum().backward()
    assert A.grad.isfinite().all()


@pytest.mark.parametrize("dtype", DOUBLES, ids=str)
def test_functions_of_torch_2_15(dtype):
    """Called as the mode would call them, since older versions of torch do not have them."""
    M = matrices("svd", dtype).requires_grad_()
    method = sg.override_linalg().method
    U, H = replacements.call(replacements._polar, method, (M,), {})
    assert torch.allclose(U @ H, M, atol=1e-13)
    assert torch.allclose(U.mH @ U, torch.eye(3, dtype=dtype).expand_as(H), atol=1e-13)
    assert torch.equal(H, H.mH)
    root = replacements.call(replacements._matrix_sqrth, method, (), {"A": M.mH @ M})
    assert torch.allclose(root, H, atol=1e-13)
    for function in (replacements._polar, replacements._matrix_sqrth):
        assert replacements.call(function, method, (torch.ones(2, 3),), {}) is NotImplemented
    for name in ("polar", "matrix_sqrth"):
        assert hasattr(linalg, name) == (getattr(linalg, name, None) in replacements.REPLACEMENTS)


@pytest.mark.skipif(not hasattr(linalg, "polar"), reason="new in torch 2.15")
@pytest.mark.parametrize("dtype", DOUBLES, ids=str)
def test_torchs_own_square_root_and_polar_decomposition(dtype):
    """The singular values of these matrices exceed 0.5, so 1e-10 leaves four digits for conditioning."""
    M = matrices("svd", dtype)
    for function, X in ((lambda A: (linalg.matrix_sqrth(A),), M.mH @ M), (linalg.polar, M)):
        expected, expected_gradient = value_and_gradient(function, X)
        kind = type(function(X))
        with sg.override_linalg():
            got, gradient = value_and_gradient(function, X)
            assert type(function(X)) is kind
        if len(got) == 1:
            gradient, expected_gradient = gradient + gradient.mH, expected_gradient + expected_gradient.mH
        for x, y in zip([*got, gradient], [*expected, expected_gradient], strict=True):
            assert torch.allclose(x, y, rtol=1e-10, atol=1e-10)
    with sg.override_linalg():
        U, H = torch.empty(0, dtype=dtype), torch.empty(0, dtype=dtype)
        assert linalg.polar(M, out=(U, H))[0] is U
        with pytest.raises(RuntimeError):
            linalg.polar(M.mH)
        for A in (torch.eye(3, dtype=dtype), torch.ones(3, 3, dtype=dtype), torch.zeros(3, 3, dtype=dtype)):
            for function in (lambda A: (linalg.matrix_sqrth(A),), linalg.polar):
                assert value_and_gradient(function, A)[1].isfinite().all()


def test_the_method_must_serve_both_decompositions():
    with pytest.raises(sg.MethodError, match="not available for svd"):
        sg.override_linalg("svd-newton")
    with pytest.raises(sg.MethodError, match="unknown method"):
        sg.override_linalg("nope")


def test_a_decorator_without_parentheses_is_refused():
    with pytest.raises(sg.ArgumentError, match=r"write @sg.override_linalg\(\)"):
        sg.override_linalg(projector)


def test_a_decomposition_inside_a_python_function_of_torch_is_replaced():
    A = torch.eye(6, requires_grad=True)
    for function in (torch.svd_lowrank, torch.pca_lowrank):
        with sg.override_linalg():
            S = function(A, 2)[1]
        assert S.grad_fn.name() == "_TripletsBackward"


def test_partial_and_aliases_are_covered():
    """A name bound before the switch is on is covered too, because the mode acts when torch is called."""
    from torch.linalg import eigh

    with sg.override_linalg():
        assert serves(eigh)
        assert serves(partial(eigh, UPLO="U"))
