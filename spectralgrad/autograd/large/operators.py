r"""The two kinds of operator that ``eigsh`` accepts: a matrix given by its entries, and a callable.

The derivatives in :mod:`.partial_spectrum` need three things of an operator :math:`A(\theta)` besides its eigenpairs
and linear solves: the tensors θ, the change :math:`dA\,X` of a product for a change dθ, and the transposed map, from a
cotangent G of the product :math:`A(\theta)X` to the cotangent of θ. For the entries of a matrix both are written out;
only the Hermitian part counts, so the maps differentiate :math:`(A+A^H)X/2`. For a callable they come from autograd,
which runs the callable once more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.func import vjp

from ...dispatch import function
from ...dispatch.closures import Closure
from ...solvers.large import krylov, matrix_entries, projected_gradients
from ...solvers.symmetry import hermitian
from ..gap_rule import GapRule

Tensors = Sequence[Any]  # tensors, or None for one that is absent


@dataclass(frozen=True)
class Request:
    """What is asked for: k eigenpairs of an operator of n rows, at which end, how accurately, and the gap rule."""

    n: int
    k: int
    largest: bool
    tol: float
    rule: GapRule

    @property
    def sign(self) -> int:
        """1 for the largest eigenvalues, −1 for the smallest."""
        return 1 if self.largest else -1

    def residual(self, dtype: torch.dtype) -> float:
        """Return the relative residual at which the linear solves of the gradient stop."""
        return max(self.tol, 100 * torch.finfo(dtype).eps)


@dataclass(frozen=True)
class Entries:
    """A matrix given by its entries: a dense one, or the values of a sparse one and their places (2, m)."""

    request: Request

    def eigenpairs(self, tensors: Tensors) -> tuple[Tensor, Tensor]:
        """Return the eigenpairs, without gradient."""
        (values, indices), asked = tensors, self.request
        return matrix_entries.extreme_eigenpairs(values, indices, asked.n, asked.k, asked.largest, asked.tol)

    def solve(self, tensors: Tensors, w: Tensor, V: Tensor, R: Tensor) -> Tensor:
        """Return the solutions of :func:`spectralgrad.solvers.large.projected_gradients.solve`, without gradient."""
        (values, indices), asked = tensors, self.request
        return matrix_entries.projected_solve(values, indices, asked.n, w, V, R, asked.sign, asked.residual(V.dtype))

    def following(self, tensors: Tensors, w: Tensor, V: Tensor) -> tuple[Tensor, Tensor] | None:
        """Return the first eigenpair beyond the k that were asked for, or None if there is none."""
        (values, indices), asked = tensors, self.request
        product = matrix_entries.matrix(values.detach(), indices, asked.n).__matmul__
        return krylov.following(product, w, V, asked.largest, asked.tol)

    def pushforward(self, tensors: Tensors, X: Tensor, changes: Tensors) -> Tensor:
        """Return dA X for changes of the tensors; None stands for no change."""
        values, indices = changes[0], tensors[1]
        if values is None:
            return torch.zeros_like(X)
        if indices is None:
            return hermitian(values) @ X
        # Entry by entry, because the gradient of torch's product with a sparse matrix is a dense one.
        row, column = indices.unbind()
        values = values.unsqueeze(-1) / 2
        below = torch.zeros_like(X).index_add(0, row, values * X[column])
        return below.index_add(0, column, values.conj() * X[row])

    def pullback(self, tensors: Tensors, X: Tensor, G: Tensor) -> Tensors:
        """Return the cotangents of the tensors for the cotangent G of the product A X; None for one without."""
        indices = tensors[1]
        if indices is None:
            return hermitian(G @ X.mH), None
        row, column = indices.unbind()
        total = torch.zeros_like(tensors[0])
        for g, x in zip(G.unbind(1), X.unbind(1), strict=True):  # all columns at once would need k times the memory
            total = total + (g[row] * x[column].conj() + g[column].conj() * x[row]) / 2
        return total, None


@dataclass(frozen=True, eq=False)
class Products:
    """A callable that maps (n, m) to (n, m) of a dtype on a device, and the tensors that it uses."""

    request: Request
    closure: Closure
    dtype: torch.dtype
    device: torch.device | str

    def eigenpairs(self, tensors: Tensors) -> tuple[Tensor, Tensor]:
        """Return the eigenpairs, without gradient. All methods have the interface of :class:`Entries`."""
        asked = self.request
        probes = krylov.probes(asked.n, self.dtype, self.device)
        return krylov.eigsh(self._product(tensors), probes, asked.k, asked.largest, asked.tol, None)

    def solve(self, tensors: Tensors, w: Tensor, V: Tensor, R: Tensor) -> Tensor:
        product, asked = self._product(tensors), self.request
        return projected_gradients.solve_any(product, w, V, R, asked.sign, asked.residual(V.dtype))

    def following(self, tensors: Tensors, w: Tensor, V: Tensor) -> tuple[Tensor, Tensor] | None:
        return krylov.following(self._product(tensors), w, V, self.request.largest, self.request.tol)

    def pushforward(self, tensors: Tensors, X: Tensor, changes: Tensors) -> Tensor:
        """The pullback is linear in the cotangent of the product, and this is its transpose."""
        chosen = [i for i, x in enumerate(changes) if x is not None and _is_differentiable(x)]
        if not chosen:
            return torch.zeros_like(X)
        run, given = self._function(tensors, X, chosen)
        found: tuple[Any, ...] = vjp(run, *given)
        push = vjp(found[1], torch.zeros_like(found[0]))[1]
        result: Tensor = push(tuple(changes[i] for i in chosen))[0]
        return result

    def pullback(self, tensors: Tensors, X: Tensor, G: Tensor) -> Tensors:
        transformed = function.transformed()
        chosen = [i for i, x in enumerate(tensors) if _is_differentiable(x) and (transformed or x.requires_grad)]
        if not chosen:
            return [None] * len(tensors)
        run, given = self._function(tensors, X, chosen)
        found = vjp(run, *given)[1](G) if transformed else _gradients(run, given, G)
        results: list[Tensor | None] = [None] * len(tensors)
        for i, gradient in zip(chosen, found, strict=True):
            results[i] = gradient
        return results

    def _product(self, tensors: Tensors) -> krylov.Product:
        return lambda X: self.closure(X, tensors)

    def _function(self, tensors: Tensors, X: Tensor, chosen: list[int]) -> tuple[Callable[..., Tensor], list[Tensor]]:
        """Return the product A X as a function of the chosen tensors, and these."""

        def run(*given: Tensor) -> Tensor:
            those = list(tensors)
            for i, x in zip(chosen, given, strict=True):
                those[i] = x
            return self.closure(X, those)

        return run, [tensors[i] for i in chosen]


def _is_differentiable(x: Tensor) -> bool:
    return x.is_floating_point() or x.is_complex()


def _gradients(run: Callable[..., Tensor], given: list[Tensor], G: Tensor) -> Tensors:
    """Return the cotangents of ``given`` for the cotangent G of the result of ``run``.

    Unlike ``torch.func.vjp``, no graph is kept unless the result may be differentiated again.
    """
    again = torch.is_grad_enabled()
    with torch.enable_grad():
        given = [x.view_as(x) if again else x.detach().requires_grad_() for x in given]
        return torch.autograd.grad(run(*given), given, G, create_graph=again, allow_unused=True)
