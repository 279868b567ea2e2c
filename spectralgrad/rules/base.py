"""Base classes of methods. A method is a small frozen object that determines how a gradient is formed."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import Field, dataclass, fields
from typing import Any, ClassVar

import torch
from torch import Tensor

from ..autograd import decompositions
from ..autograd.functions import spectral_function
from ..autograd.functions.domain import Domain, Spectrum
from ..autograd.functions.rescaling import overflowed
from ..autograd.functions.scalar_functions import INV_SQRT, SQRT, Function
from ..autograd.functions.spectral_scale import at_ordinary_size
from ..autograd.pairwise import differences, identity_mask
from ..dispatch.arguments import Kind, kinds_of, refuse
from ..errors import MethodError, SpectralError
from ..precision import saturated

__all__ = ["GapMethod", "Method"]

DECOMPOSITIONS = frozenset({"eigh", "svd"})
FUNCTIONS = frozenset({"sqrt", "inv_sqrt", "power", "log", "exp", "function"})
ROOTS = frozenset({"sqrt", "inv_sqrt"})
POLAR = frozenset({"polar"})
OPERATIONS = DECOMPOSITIONS | FUNCTIONS | POLAR


@dataclass(frozen=True)
class Method:
    """Base class of all methods: name, source, supported operations, and an implementation of each.

    A method implements :meth:`decompose` to support ``eigh``, :meth:`decompose_svd` for ``svd``, :meth:`root` for
    ``sqrt`` and ``inv_sqrt``, :meth:`orthogonal` for ``polar``, and :meth:`function` for all other matrix functions
    (and for the two roots if it does not implement :meth:`root`). They are called with matrices in working precision
    and must return tensors that autograd can differentiate. A gap rule inherits all but :meth:`orthogonal` from
    :class:`GapMethod`.

    Attributes:
        name: the name by which functions and layers accept the method.
        summary: one-line description, shown by :func:`methods`.
        reference: the source, usually a paper.
        operations: supported operations, as in ``methods(operation)``.
        exact: True if the gradient is the true one for every matrix. Callers may then rescale the matrix or decompose
            the smaller of two equivalent matrices, because the gradient is the same.

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
    set_by_layers: ClassVar[frozenset[str]] = frozenset()  # parameters for which a layer has its own default
    argument_error: ClassVar[type[SpectralError]] = MethodError  # raised for arguments that are no method

    _kinds: ClassVar[dict[str, Kind]] = {}  # what the parameters may be

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        with suppress(NameError):  # names that a user's module does not import when it runs
            cls._kinds = {name: kind._replace(error=MethodError) for name, kind in kinds_of(cls).items()}

    def __post_init__(self) -> None:
        """Check the parameters against their annotations; subclasses extend it with what else they require."""
        for name, kind in self._kinds.items():
            value = getattr(self, name)
            if (kind.types is None or type(value) not in kind.types) and not kind.accepts(value):
                if isinstance(value, torch.fx.Proxy):  # Dynamo before torch 2.13 tries if a method can be in a graph
                    raise NotImplementedError(f"{type(self).__name__} cannot be in a graph; its numbers are")
                refuse(value, name, type(self).__name__, kind)

    @property
    def unscaled(self) -> bool:
        """True if layers must not divide large features by a power of two first, so that products overflow to NaN."""
        return False

    def decompose(self, A: Tensor, operation: str) -> tuple[Tensor, Tensor]:
        """Return ascending eigenvalues (*, d) and eigenvectors (*, d, d) of Hermitian ``A`` (lower triangle read)."""
        raise NotImplementedError

    def decompose_at_once(self, A: Tensor) -> tuple[Tensor, Tensor] | None:
        """Return the result of :meth:`decompose` if it takes one call of the kernel, otherwise None.

        Skips all checks, which dominate for small matrices; ``A`` is unvalidated.
        """
        return None

    def decompose_svd(self, M: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return U (*, m, k), descending singular values (*, k) and Vh (*, k, n) of matrices (*, m, n)."""
        raise NotImplementedError

    def root(self, A: Tensor, inverse: bool, domain: Domain) -> Tensor:
        """Return the square root of positive semi-definite ``A``, or its inverse on the range.

        The default implementation calls :meth:`function`.

        Args:
            A: matrices (*, d, d), not yet checked; ``domain.spectrum(A)`` and ``domain.matrix(A)`` check them.
            inverse: compute the inverse root.
            domain: which matrices to reject, and the rank tolerance.
        """
        return self.function(A, INV_SQRT if inverse else SQRT, domain)

    def function(self, A: Tensor, f: Function, domain: Domain) -> Tensor:
        """Return f(A). The default implementation calls :meth:`compose` with the solver's eigenpairs.

        Args:
            A: as in :meth:`root`.
            f: a function of eigenvalues with its derivative and divided differences.
            domain: as in :meth:`root`.
        """
        spectrum = domain.spectrum(A)
        e = None if f.degree is None else overflowed(A, spectrum.values)
        if e is None or f.degree is None:
            return self.compose(A, f, spectrum)
        g, up = f.at(e)
        return at_ordinary_size(lambda A, g: self.function(A, g, domain), A, g, f.degree, e, up)

    def compose(self, A: Tensor, f: Function, spectrum: Spectrum) -> Tensor:
        """Return f(A) = V f(λ) Vᴴ on the range, given eigenpairs of ``A`` without gradient."""
        raise NotImplementedError

    def orthogonal(self, M: Tensor, rtol: float | None, special: bool) -> Tensor:
        """Return the polar factor of matrices (*, m, n).

        Args:
            M: the matrices, not yet checked for NaN.
            rtol: relative rank tolerance, or None for the default.
            special: return the nearest rotation; M is square.
        """
        raise NotImplementedError

    def bias(self, w: Tensor) -> Tensor | None:
        """Return the relative entrywise bias (*, d, d) of the gradient at eigenvalues ``w``; None if not known."""
        return None

    def bound(self, w: Tensor) -> Tensor | None:
        """Return an upper bound (*,) on the method's replacement of 1/gap at eigenvalues ``w``; None if not known."""
        return None

    def __str__(self) -> str:
        """The name, followed by the parameters that are not the default: ``svd-taylor:degree=19``."""
        return self.spelled()

    def spelled(self, defaults: Mapping[str, Any] | None = None, always: Collection[str] = ()) -> str:
        """The method as a string that :func:`resolve` reads.

        Args:
            defaults: values of parameters that need not be written, instead of the method's own defaults.
            always: parameters that are written in any case.

        Example:
            >>> from spectralgrad import Taylor
            >>> Taylor().spelled(), Taylor().spelled({"degree": 100}), Taylor().spelled(always=["degree"])
            ('svd-taylor', 'svd-taylor:degree=9', 'svd-taylor:degree=9')
        """
        known = {**{name: field.default for name, field in parameters(type(self)).items()}, **(defaults or {})}
        values = {name: getattr(self, name) for name in parameters(type(self))}
        said = [f"{name}={value}" for name, value in values.items() if name in always or value != known[name]]
        return ":".join([self.name, *said])


def parameters(kind: type[Method]) -> dict[str, Field[Any]]:
    """Return the fields of a method by name, without callbacks (fields that are excluded from comparison)."""
    return {field.name: field for field in fields(kind) if field.compare}


@dataclass(frozen=True)
class GapMethod(Method):
    r"""Base class of gap rules, which replace :math:`K_{ij} = 1/(\lambda_i-\lambda_j)` by a matrix :math:`\hat K`.

    Row :math:`i` of :math:`\hat K` weights the other eigenvectors in the gradient of :math:`v_i`:

    .. math:: \partial L/\partial A
              = V\,\mathrm{sym}\bigl(\hat K^\top\circ V^H\bar V + \mathrm{diag}\,\bar\lambda\bigr)V^H .

    To write your own rule, derive a frozen dataclass that implements :meth:`gaps`; register it with
    :func:`spectralgrad.register_method` to use it by name.

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
    filters_gauge: ClassVar[bool] = True  # drop cotangents below rounding level between tied eigenvectors
    saturates: ClassVar[bool] = True  # clamp values that would overflow to the largest finite number

    def decompose(self, A: Tensor, operation: str) -> tuple[Tensor, Tensor]:
        return decompositions.eigenpairs(A, self, operation)

    def decompose_at_once(self, A: Tensor) -> tuple[Tensor, Tensor] | None:
        return decompositions.eigenpairs_at_once(A, self) if type(self).decompose is GapMethod.decompose else None

    def decompose_svd(self, M: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return decompositions.triplets(M, self)

    def compose(self, A: Tensor, f: Function, spectrum: Spectrum) -> Tensor:
        return spectral_function.by_gap_rule(A, self, f, spectrum)

    def gaps(self, w: Tensor) -> Tensor:
        r"""Return :math:`\hat K` (*, d, d) for ascending eigenvalues ``w`` (*, d); zero on the diagonal."""
        raise NotImplementedError

    @property
    def skew(self) -> bool:
        r"""True if :math:`\hat K` is skew-symmetric, as it should be; some of the papers' released rules are not."""
        return True

    @property
    def series_terms(self) -> int:
        r"""n if :math:`\hat K_{ij}=(1-x^n)/(\lambda_i-\lambda_j)`, which the kernel implements; otherwise 0."""
        return 0

    def fused_gaps(self, w: Tensor) -> Tensor | float | None:
        r"""Return what the kernel needs to form :math:`\hat K`, or None if it cannot apply the rule.

        This is :math:`\hat K` itself, or for :class:`Pade` its floor.
        """
        return self.gaps(w) if type(self).weighed is GapMethod.weighed else None

    def replaced(self, w: Tensor) -> Tensor | None:
        """Eigenvalues (*, d) to use instead of the solver's, on the whole space; None to use those, on the range."""
        return None

    @property
    def keeps_all(self) -> bool:
        """True if the method cannot discard eigenpairs, so that :meth:`kept` need not be called."""
        return type(self).kept is GapMethod.kept

    @property
    def exact_apart(self) -> bool:
        """True if the rule is exact for eigenvalues that are distinct beyond rounding, and replaces none.

        Second derivatives of a loss of the eigenvalues alone are then exact, also at ties; otherwise the rule is used.
        """
        return False

    def kept(self, A: Tensor, w: Tensor, V: Tensor) -> Tensor | None:
        """Return a boolean mask (*, d) of the eigenpairs that the method keeps; None if it keeps all."""
        return None

    def bound(self, w: Tensor) -> Tensor:
        r"""Return an upper bound on :math:`\max|\hat K_{ij}|` for each matrix (*,); infinite if the rule has none.

        A finite bound that would overflow is clamped to the largest finite number, like the entries it bounds.
        """
        return torch.full(w.shape[:-1], torch.inf, dtype=w.dtype, device=w.device)

    def weighed(self, K: Tensor, coupling: Tensor) -> Tensor:
        r"""Return :math:`\hat K\circ C`, clamped, if the rule saturates, so that sums of d entries cannot overflow."""
        inner = K * coupling
        return saturated(inner, 0.25 / max(1, K.shape[-1])) if self.saturates else inner

    def bias(self, w: Tensor) -> Tensor:
        r"""Return the relative bias :math:`1-\hat K_{ij}(\lambda_i-\lambda_j)` of each entry (*, d, d), 0 for i = j.

        It is the fraction of the true gradient of a matrix function that the rule discards (claim G2).
        """
        replaced = self.replaced(w)
        w = w if replaced is None else replaced
        share = 1 - self.gaps(w) * differences(w)
        return share.masked_fill(identity_mask(w), 0)


def require(condition: bool, method: Method, field: str, wanted: str) -> None:
    """Raise :class:`MethodError` with the value given and the value expected unless ``condition`` holds."""
    if not condition:
        raise MethodError(f"{type(method).__name__}: expected {field} {wanted}, got {getattr(method, field)!r}")
