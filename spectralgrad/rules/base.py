"""What a method is: a small frozen object that says how a gradient is to be formed."""

from __future__ import annotations

from dataclasses import Field, dataclass, fields
from typing import Any, ClassVar

import torch
from torch import Tensor

from ..errors import MethodError

DECOMPOSITIONS = frozenset({"eigh", "svd"})
FUNCTIONS = frozenset({"sqrt", "inv_sqrt", "power", "log", "exp", "function"})
ROOTS = frozenset({"sqrt", "inv_sqrt"})


@dataclass(frozen=True)
class Method:
    """Base of all methods: a name, where it comes from, and the operations it serves."""

    name: ClassVar[str]
    summary: ClassVar[str]
    reference: ClassVar[str]
    operations: ClassVar[frozenset[str]]

    def __str__(self) -> str:
        """The name, and after colons what is not the default: ``svd-taylor:degree=19``."""
        values = [(field, getattr(self, field.name)) for field in parameters(type(self)).values()]
        return ":".join([self.name, *(f"{field.name}={value}" for field, value in values if value != field.default)])


def parameters(kind: type[Method]) -> dict[str, Field[Any]]:
    """The fields of a method by name, without hooks."""
    return {field.name: field for field in fields(kind) if field.compare}


@dataclass(frozen=True)
class GapMethod(Method):
    r"""A rule that replaces the gap matrix :math:`K_{ij} = 1/(\lambda_i-\lambda_j)` by a bounded one.

    Row :math:`i` of :math:`\hat K` weighs the other eigenvectors in the gradient of :math:`v_i`:

    .. math:: \partial L/\partial A
              = V\,\mathrm{sym}\bigl(\hat K^\top\circ V^H\bar V + \mathrm{diag}\,\bar\lambda\bigr)V^H .

    A rule of your own is a frozen dataclass with :meth:`gaps`; :func:`spectralgrad.register_method` gives it a name.

    Example:
        >>> @dataclass(frozen=True)
        ... class Halved(GapMethod):
        ...     name, summary, reference = "halved", "half the textbook gradient", "this example"
        ...     def gaps(self, w):
        ...         gap = differences(w)
        ...         return reciprocal(2 * gap, gap != 0)
        >>> Halved().bias(torch.tensor([1.0, 3.0]))
        tensor([[0.0000, 0.5000],
                [0.5000, 0.0000]])
    """

    operations: ClassVar[frozenset[str]] = DECOMPOSITIONS | FUNCTIONS
    filters_gauge: ClassVar[bool] = True  # whether cotangents below rounding level are dropped between tied vectors
    saturates: ClassVar[bool] = True  # whether what leaves the type comes back as its largest number

    def gaps(self, w: Tensor) -> Tensor:
        r"""The matrix :math:`\hat K` (*, d, d) for ascending eigenvalues ``w`` (*, d); zero on the diagonal."""
        raise NotImplementedError

    @property
    def skew(self) -> bool:
        r"""Whether :math:`\hat K` is skew-symmetric, as every rule should be; some of the papers' own are not."""
        return True

    def kept(self, A: Tensor, w: Tensor, V: Tensor) -> Tensor | None:
        """Boolean mask (*, d) of the eigenpairs the method does not discard; None if it keeps all."""
        return None

    def bound(self, w: Tensor) -> Tensor:
        r"""An upper bound of :math:`\max|\hat K_{ij}|` for each matrix (*,); infinite where the rule has none.

        A finite bound that leaves the type is the type's largest number, as is the entry that it bounds.
        """
        return torch.full(w.shape[:-1], torch.inf, dtype=w.dtype, device=w.device)

    def weighed(self, K: Tensor, coupling: Tensor) -> Tensor:
        r"""The entries :math:`\hat K_{ij}C_{ij}`; a rule that saturates leaves room for sums of them."""
        inner = K * coupling
        return saturated(inner, 0.25 / max(1, K.shape[-1])) if self.saturates else inner

    def bias(self, w: Tensor) -> Tensor:
        r"""Relative entrywise bias :math:`1-\hat K_{ij}(\lambda_i-\lambda_j)` (*, d, d), zero on the diagonal.

        It is the share of a spectral function's true gradient that the rule deletes (claim G2).
        """
        share = 1 - self.gaps(w) * differences(w)
        return share.masked_fill(identity_mask(w), 0)


def require(condition: bool, method: Method, field: str, wanted: str) -> None:
    """Refuse a method whose field makes no sense, saying what came and what is wanted."""
    if not condition:
        raise MethodError(f"{type(method).__name__}: expected {field} {wanted}, got {getattr(method, field)!r}")


def differences(w: Tensor) -> Tensor:
    """The matrix of differences ``w_i - w_j`` (*, d, d)."""
    return w.unsqueeze(-1) - w.unsqueeze(-2)


def leading(w: Tensor) -> Tensor:
    r"""The larger modulus of each pair, :math:`\max(|\lambda_i|,|\lambda_j|)` (*, d, d)."""
    size = w.abs()
    return torch.maximum(size.unsqueeze(-1), size.unsqueeze(-2))


def norm(w: Tensor) -> Tensor:
    r"""The spectral norm :math:`\max_i|\lambda_i|` (*,) without gradient; zero for empty matrices."""
    if w.shape[-1] == 0:
        return w.new_zeros(w.shape[:-1])
    return w.detach().abs().amax(-1)


def floored(w: Tensor) -> Tensor:
    """The leading modulus of each pair, no smaller than the eigensolver's resolution of the whole matrix."""
    return torch.maximum(leading(w), resolution(w.dtype) * norm(w)[..., None, None])


def identity_mask(w: Tensor) -> Tensor:
    """Boolean identity (d, d) on the device of ``w``."""
    return torch.eye(w.shape[-1], dtype=torch.bool, device=w.device)


def reciprocal(x: Tensor, where: Tensor) -> Tensor:
    """``1/x`` where ``where`` holds and 0 elsewhere, without a gradient there; saturated for denormal x."""
    return saturated(quotient(1, x, where))


def quotient(x: Tensor | float, y: Tensor, where: Tensor) -> Tensor:
    """``x/y`` where ``where`` holds and 0 elsewhere, without a gradient there.

    Unlike x times 1/y it is finite for denormal y if the result is.
    """
    return torch.where(where, x / torch.where(where, y, 1), 0)


def saturated(x: Tensor, share: float = 1.0) -> Tensor:
    """``x`` with its real and imaginary part kept within the largest finite numbers, or a share of them."""
    if x.dtype.is_complex:
        return torch.complex(saturated(x.real, share), saturated(x.imag, share))
    limit = torch.finfo(x.dtype).max * share
    return x.clamp(-limit, limit)


def resolution(dtype: torch.dtype) -> float:
    """Machine epsilon of the real type that goes with ``dtype``."""
    return torch.finfo(dtype).eps
