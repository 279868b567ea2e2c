"""What a method is: a small frozen object that says how a gradient is to be formed."""

from __future__ import annotations

from dataclasses import Field, dataclass, fields
from typing import Any, ClassVar

import torch
from torch import Tensor

from ..autograd import eigenvectors, singular_vectors, spectral_function
from ..autograd.pairwise import differences, identity_mask
from ..autograd.scalar_functions import INV_SQRT, SQRT, Function
from ..autograd.spectra import Domain, Spectrum
from ..errors import MethodError
from ..precision import saturated

DECOMPOSITIONS = frozenset({"eigh", "svd"})
FUNCTIONS = frozenset({"sqrt", "inv_sqrt", "power", "log", "exp", "function"})
ROOTS = frozenset({"sqrt", "inv_sqrt"})


@dataclass(frozen=True)
class Method:
    """Base of all methods: a name, where it comes from, the operations it serves, and what it does for each.

    A method implements :meth:`decompose` if it serves ``eigh``, :meth:`decompose_svd` for ``svd``, :meth:`root` for
    ``sqrt`` and ``inv_sqrt``, :meth:`function` for every other function of a matrix and, unless it has a root, for
    those too. Each is called with matrices in working precision, and returns what autograd can differentiate. A rule
    for the gaps has all of them from :class:`GapMethod`.

    Attributes:
        name: the word that means the method.
        summary: one line for :func:`methods`.
        reference: where it comes from.
        operations: what it serves, words of ``methods(operation)``.
        exact: whether its gradient is the true one for every matrix. Such a method may be given a scaled matrix, or
            that of the smaller side, which have the same gradient.

    Example:
        >>> import spectralgrad as sg
        >>> @dataclass(frozen=True)
        ... class Cubic(Method):
        ...     name, summary, reference = "cubic", "Newton-Schulz, differentiated by steps", "this example"
        ...     operations = frozenset({"sqrt", "inv_sqrt"})
        ...     steps: int = 20
        ...     def root(self, A, inverse, domain):
        ...         M = domain.matrix(A)                        # checked: Hermitian, finite, positive semi-definite
        ...         size = torch.linalg.matrix_norm(M)[..., None, None]
        ...         Y, Z = M / size, torch.eye(M.shape[-1], dtype=M.dtype).expand_as(M)
        ...         for _ in range(self.steps):
        ...             T = (3 * torch.eye(M.shape[-1], dtype=M.dtype) - Z @ Y) / 2
        ...             Y, Z = Y @ T, T @ Z
        ...         return Z / size.sqrt() if inverse else Y * size.sqrt()
        >>> sg.matrix_sqrt(torch.diag(torch.tensor([4.0, 9.0])), method=Cubic()).diagonal()
        tensor([2., 3.])
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    reference: ClassVar[str]
    operations: ClassVar[frozenset[str]]
    exact: ClassVar[bool] = False

    def decompose(self, A: Tensor, operation: str) -> tuple[Tensor, Tensor]:
        """Ascending eigenvalues (*, d) and eigenvectors (*, d, d) of Hermitian ``A``, whose lower triangle is read."""
        raise NotImplementedError

    def decompose_svd(self, M: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """U (*, m, k), descending singular values (*, k) and Vh (*, k, n) of matrices (*, m, n)."""
        raise NotImplementedError

    def root(self, A: Tensor, inverse: bool, domain: Domain) -> Tensor:
        """The square root of positive semi-definite ``A`` or its inverse on the range; by default by :meth:`function`.

        Args:
            A: matrices (*, d, d), not yet checked: take ``domain.spectrum(A)`` or ``domain.matrix(A)``.
            inverse: the inverse root.
            domain: which matrices to refuse, and the rank tolerance.
        """
        return self.function(A, INV_SQRT if inverse else SQRT, domain)

    def function(self, A: Tensor, f: Function, domain: Domain) -> Tensor:
        """f(A); by default :meth:`compose` of the solver's eigenpairs.

        Args:
            A: as in :meth:`root`.
            f: a function of eigenvalues with its derivative and its divided differences.
            domain: as in :meth:`root`.
        """
        return self.compose(A, f, domain.spectrum(A))

    def compose(self, A: Tensor, f: Function, spectrum: Spectrum) -> Tensor:
        """f(A) = V f(λ) Vᴴ on the range, from eigenpairs of ``A`` that are known and carry no gradient."""
        raise NotImplementedError

    def bias(self, w: Tensor) -> Tensor | None:
        """Relative entrywise bias (*, d, d) of the gradient at eigenvalues ``w``; None if there is no formula."""
        return None

    def bound(self, w: Tensor) -> Tensor | None:
        """An upper bound (*,) of what stands for 1/gap at eigenvalues ``w``; None if there is no formula."""
        return None

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
        ...         gap = w.unsqueeze(-1) - w.unsqueeze(-2)
        ...         return torch.where(gap == 0, 0, 0.5 / gap)
        >>> Halved().bias(torch.tensor([1.0, 3.0]))
        tensor([[0.0000, 0.5000],
                [0.5000, 0.0000]])
    """

    operations: ClassVar[frozenset[str]] = DECOMPOSITIONS | FUNCTIONS
    filters_gauge: ClassVar[bool] = True  # whether cotangents below rounding level are dropped between tied vectors
    saturates: ClassVar[bool] = True  # whether what leaves the type comes back as its largest number

    def decompose(self, A: Tensor, operation: str) -> tuple[Tensor, Tensor]:
        return eigenvectors.decompose(A, self, operation)

    def decompose_svd(self, M: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return singular_vectors.decompose(M, self)

    def compose(self, A: Tensor, f: Function, spectrum: Spectrum) -> Tensor:
        return spectral_function.by_gap_rule(A, self, f, spectrum)

    def gaps(self, w: Tensor) -> Tensor:
        r"""The matrix :math:`\hat K` (*, d, d) for ascending eigenvalues ``w`` (*, d); zero on the diagonal."""
        raise NotImplementedError

    @property
    def skew(self) -> bool:
        r"""Whether :math:`\hat K` is skew-symmetric, as every rule should be; some of the papers' own are not."""
        return True

    @property
    def series_terms(self) -> int:
        r"""n if :math:`\hat K_{ij}=(1-x^n)/(\lambda_i-\lambda_j)`, for which the kernel has code of its own; else 0."""
        return 0

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
