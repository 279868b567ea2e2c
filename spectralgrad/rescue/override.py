"""The switch that makes torch's spectral functions use this library: a context, a decorator, or for good."""

from __future__ import annotations

from contextlib import ContextDecorator
from typing import Any

from torch.overrides import TorchFunctionMode

from ..errors import ArgumentError
from ..rules import Method, resolve
from . import process
from .serving import serve


class override_linalg(TorchFunctionMode, ContextDecorator):  # noqa: N801
    r"""Let torch's spectral functions use this library's forward pass and gradient, in code that you cannot edit.

    Inside the context, ``torch.linalg.eigh``, ``eigvalsh``, ``svd``, ``svdvals``, ``pinv``, ``lstsq``, ``torch.svd``,
    ``Tensor.svd``, the norms ``'nuc'``, 2 and -2 of ``torch.linalg.norm`` and ``matrix_norm``, ``'nuc'`` of
    ``torch.norm``, and in torch 2.15 ``torch.linalg.matrix_sqrth`` and ``polar`` return what torch documents, with a
    gradient that is finite at ties and at rank deficiency. All their arguments are supported. Calls with ``out=`` and
    calls that this library does not support are left to torch, as are matrices that it refuses (NaN, Inf).

    This is a rescue, not the best gradient: a matrix function composed from the factors, :math:`Vf(\lambda)V^H`, still
    loses the entries between tied eigenvectors (see :func:`eigh`). :func:`spectralgrad.diagnostics.doctor` finds
    such places and names the function to use instead.

    Like ``torch.no_grad``, context and decorator apply to the calling thread; :meth:`enable` switches it on in the
    whole process. It has to be active when the forward pass runs; the backward pass follows what the forward pass
    recorded. In eager mode the results are the same as under :class:`spectralgrad.solvers.batch_invariant`: the same
    bits for a matrix alone and in a batch.

    Args:
        method: a name from ``methods("eigh")`` that is also in ``methods("svd")``, or a method object.

    Raises:
        MethodError: the method is unknown or not available for ``eigh`` and ``svd``.
        ArgumentError: it is used as a decorator without parentheses.

    Example:
        >>> def library(A):                                  # code of somebody else
        ...     w, V = torch.linalg.eigh(A)
        ...     return (V[:, 1:] @ V[:, 1:].mT).diagonal().sum()
        >>> A = torch.eye(3, requires_grad=True)
        >>> torch.autograd.grad(library(A), A)[0].isnan().any()
        tensor(True)
        >>> with override_linalg():
        ...     loss = library(A)
        >>> torch.autograd.grad(loss, A)[0].isfinite().all()
        tensor(True)
        >>> rescued = override_linalg(method="svd-taylor")(library)      # as a decorator
        >>> torch.autograd.grad(rescued(A), A)[0].isfinite().all()
        tensor(True)

    Reference: :class:`torch.overrides.TorchFunctionMode`; :func:`eigh` and :func:`svd` compute the gradients.
    """

    def __init__(self, method: str | Method = "svd-pade") -> None:
        super().__init__()
        if callable(method):  # a function or a class
            raise ArgumentError("override_linalg: as a decorator it needs parentheses; write @sg.override_linalg()")
        resolve(method, "svd")
        self.method: Method = resolve(method, "eigh")

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return serve(self, self.method, func, types, args, kwargs)

    def enable(self) -> override_linalg:
        """Switch it on in the whole process until :meth:`disable`; returns the object.

        It acts in all threads and in processes that are started by ``multiprocessing`` meanwhile. In threads that were
        running before, it replaces the functions of ``torch`` and ``torch.linalg`` under these names; elsewhere also
        under names that were imported before, and methods such as ``A.svd()``. If several are on, the last one applies.
        Contexts take precedence. To switch on what is on already has no further effect.

        Example:
            >>> rescue = override_linalg().enable()
            >>> A = torch.eye(2, requires_grad=True)
            >>> w, V = torch.linalg.eigh(A)
            >>> V.grad_fn.name()
            '_EigenpairsBackward'
            >>> rescue.disable()
            >>> w, V = torch.linalg.eigh(A)
            >>> V.grad_fn.name()
            'LinalgEighBackward0'
        """
        process.enable(self)
        return self

    def disable(self) -> None:
        """Switch it off, from any thread; no effect if it is off.

        Other threads in which it was on call torch again at once. They keep a mode that passes all calls on, until they
        end or call this method themselves.
        """
        process.disable(self)
