"""Calls of the kernel in a given way, one matrix per SIMD lane or one after another, whatever the thresholds say."""

from contextlib import contextmanager

import pytest
import torch

from spectralgrad.native import Kernel, build, kernel, thresholds
from spectralgrad.native.calls import UNCHECKED, Singular, Symmetric
from spectralgrad.native.derivative_calls import Derivatives
from spectralgrad.native.functions import in_memory
from spectralgrad.solvers.decompose import choice


def built():
    """Return the instruction sets that the kernel should have, as SPECTRALGRAD_BUILD says; `make test` builds all."""
    return build.sets_of(build.HERE / build.FILE)


class KernelCalls:
    """The functions of a kernel; the names with ``_single`` are those with SIMD inside a matrix."""

    def __init__(self, native: Kernel) -> None:
        self.native, self.isa = native, native.isa

    def _symmetric(self, A, lanes=True):
        return Symmetric.of(self.native, A.shape, A.dtype, lanes)

    def _singular(self, M, lanes=True):
        return Singular.of(self.native, M.shape, M.dtype, lanes)

    def eigh(self, A, asymmetry=UNCHECKED, lanes=True):
        (w, V), failed = self._symmetric(A, lanes).eigh(in_memory(A), asymmetry)
        return w, V, failed

    def eigh_single(self, A, asymmetry=UNCHECKED):
        return self.eigh(A, asymmetry, False)

    def eigvalsh(self, A, lanes=True):
        return self._symmetric(A, lanes).eigvalsh(in_memory(A))

    def eigvalsh_single(self, A):
        return self.eigvalsh(A, False)

    def root_and_eigenpairs(self, A, inverse, rtol, negative, single=False):
        (S, s, V), doubtful = self._symmetric(A, not single).root(in_memory(A), inverse, (rtol, negative, UNCHECKED))
        return S, s, V, doubtful

    def _derivatives(self, V):
        return Derivatives.of(self.native, V.shape, V.dtype)

    def root_derivative(self, V, s, G, inverse):
        return self._derivatives(V).root(*map(in_memory, (V, s, G)), inverse)

    def function_derivative(self, V, gamma, G):
        return self._derivatives(V).function(*map(in_memory, (V, gamma, G)))

    def eigh_gradient(self, eigenpairs, cotangents, gaps, filters, saturates):
        given = [tuple(map(in_memory, pair)) for pair in (eigenpairs, cotangents)]
        return self._derivatives(eigenpairs[1]).eigenpairs(*given, gaps, filters, saturates)

    def svd(self, M, lanes=True):
        factors, failed = self._singular(M, lanes).svd(in_memory(M))
        return *factors, failed

    def svd_single(self, M):
        return self.svd(M, False)

    def svdvals(self, M, lanes=True):
        return self._singular(M, lanes).svdvals(in_memory(M))

    def svdvals_single(self, M):
        return self.svdvals(M, False)


def calls(native: Kernel | None = None) -> KernelCalls | None:
    """The calls of a kernel, by default the one in use; None if there is none."""
    native = native or kernel()
    return None if native is None else KernelCalls(native)


@contextmanager
def using(table: thresholds.Table):
    """Use other thresholds, wherever they are read."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(thresholds, "stored", lambda: table)
        try:
            choice.forget()
            yield
        finally:
            patch.undo()
            choice.forget()


def spoiled(monkeypatch: object, kind: type, method: str, damage: object) -> list[torch.Tensor]:
    """Let ``damage`` change the results of a method of one of the kernel's calls; return the inputs seen."""
    seen, right = [], getattr(kind, method)

    def wrong(self, X, *args):
        seen.append(X)
        return damage(*right(self, X, *args))

    monkeypatch.setattr(kind, method, wrong)
    return seen
