"""Power iteration with deflation, differentiated step by step."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from ... import solvers
from ...dispatch import function
from ...dispatch.custom_operators import custom_operator, fake_rule, vmap_rule
from ...precision import exponent, ldexp, rank_tolerance, reciprocal
from ...solvers.products import composed
from ...solvers.symmetry import hermitian, mirrored
from ..eigen.vectors import without_gradient
from ..functions.domain import Spectrum
from ..functions.rescaling import rescaled
from ..functions.scalar_functions import EXP, Function
from ..functions.spectral_scale import at_ordinary_size, scaled
from ..hermitian import from_lower
from ..pairwise import norm


@dataclass(frozen=True)
class PowerIteration:
    """Algorithm 1 of the NeurIPS 2019 paper; see :class:`spectralgrad.SVDPI` for its parameters.

    Attributes:
        iterations: number of power steps for each vector.
        eps: stop at eigenvalues up to this; a tensor (*, 1) for a different one in each matrix.
        energy: stop at this fraction of the trace.
        tolerance: stop at this relative error of the Rayleigh quotient.
        seed: seed of the random start; None starts from the solver's vectors.
    """

    iterations: int
    eps: float | Tensor
    energy: float
    tolerance: float
    seed: int | None = None

    def decompose(self, A: Tensor, operation: str) -> tuple[Tensor, Tensor]:
        """Return the eigenpairs of ``A``; discarded pairs carry no gradient."""
        A = from_lower(A, operation)
        e = self._exponent(A)
        pairs = lambda X: without_gradient(*self._at(e).run(hermitian(X)))  # noqa: E731
        w, V = pairs(A) if e is None else rescaled(pairs, [A], [e], [e, 0 * e])
        return w, V

    def function(self, M: Tensor, f: Function) -> Tensor:
        """Return f(M), for Hermitian M, composed of the kept eigenpairs with positive eigenvalues."""
        e = self._exponent(M)
        if e is not None and f.degree is not None:
            g, up = f.at(e)
            call = lambda X, g: _composed(g, *self._at(e)._kept_pairs(X))  # noqa: E731
            return at_ordinary_size(call, M, g, f.degree, e, up)
        return self._exponential(M) if f is EXP else _composed(f, *self._pairs(M))

    def _exponential(self, M: Tensor) -> Tensor:
        with torch.no_grad():
            w, V = self._pairs(M)
        found = scaled(EXP, Spectrum(w, V, torch.ones_like(w, dtype=torch.bool)))
        if found is None:
            return _composed(EXP, *self._pairs(M))
        shift = (w - found.spectrum.values)[..., -1:]

        def call(X: Tensor) -> Tensor:
            w, V = self._pairs(X)
            return _composed(EXP, w, V, shift)

        value: Tensor = rescaled(call, [M], [found.down], [found.up])
        return value

    def _pairs(self, M: Tensor) -> tuple[Tensor, Tensor]:
        """The pairs of :meth:`_kept_pairs` for matrices of any size."""
        e = self._exponent(M)
        if e is None:
            return self._kept_pairs(M)
        w, V = rescaled(self._at(e)._kept_pairs, [M], [e], [e, 0 * e])
        return w, V

    def _kept_pairs(self, M: Tensor) -> tuple[Tensor, Tensor]:
        """The eigenpairs; discarded eigenvalues are zero."""
        w, V, keep = self.run(hermitian(M))  # so that the gradient is Hermitian before it is scaled
        return torch.where(keep, w, 0), V

    def _exponent(self, A: Tensor) -> Tensor | None:
        """Return exponents (*,) that bring matrices to ordinary size, or None if all of them are."""
        if function.exporting():
            return None
        e = exponent(A)
        return None if function.eager(A) and not bool(e.any()) else e

    def _at(self, e: Tensor | None) -> PowerIteration:
        """The algorithm for matrices divided by 2ᵉ (*,): ``eps`` is divided as well."""
        if e is None:
            return self
        eps = ldexp(self.eps * torch.ones_like(e), -e).unsqueeze(-1)
        return PowerIteration(self.iterations, eps, self.energy, self.tolerance, self.seed)

    def run(self, A: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        r"""Run Algorithm 1 of NeurIPS 2019 step by step, with autograd through iterations and deflation.

        Vector i is the result of K power steps :math:`v\leftarrow\tilde Mv/\|\tilde Mv\|` on the deflated matrix
        :math:`\tilde M\leftarrow\tilde M-\tilde Mvv^H`, started from the solver's vector or, with a :attr:`seed`,
        from a random one; its eigenvalue is the Rayleigh quotient. Where deflation leaves only rounding error, which is
        assumed below d rank tolerances, the steps carry no gradient: differentiating normalised noise amplifies it.

        Returns:
            eigenvalues (*, d) and eigenvectors (*, d, d) in reverse order of deflation, so that eigenvalues ascend,
            and the mask of the pairs that the stopping rules keep.
        """
        d = A.shape[-1]
        exact, V0 = solvers.eigh(A.detach())
        start = V0.flip(-1) if self.seed is None else random_start(A.detach(), self.seed)
        noise = d * rank_tolerance(d, A.dtype) * norm(exact)[..., None, None]
        M, values, vectors = A, [], []
        for i in range(d):
            v = start[..., i : i + 1].expand(*A.shape[:-1], 1)
            for _ in range(self.iterations):
                Mv = M @ v
                live = torch.linalg.vector_norm(Mv.detach(), dim=-2, keepdim=True) > noise
                Mv = torch.where(live, Mv, Mv.detach())
                length = torch.linalg.vector_norm(Mv, dim=-2, keepdim=True)
                v = torch.where(length > 0, Mv * reciprocal(length, length > 0), v)
            Mv = M @ v
            values.append((v.mH @ Mv)[..., 0, 0].real)
            vectors.append(v)
            M = M - Mv @ v.mH
        if d == 0:
            return A.real.sum(-1), A.clone(), torch.ones_like(exact, dtype=torch.bool)
        w, V = torch.stack(values[::-1], -1), torch.cat(vectors[::-1], -1)
        return w, V, self.kept(A, exact, V0 if self.seed is None else V)

    def kept(self, A: Tensor, w: Tensor, V: Tensor) -> Tensor:
        """Return the mask (*, d), for ascending ``w``, of the eigenpairs before the first at which a rule stops.

        The leading pair is kept whatever its fraction of the energy (``rank <- 1`` in the algorithm), provided its
        eigenvalue exceeds :attr:`eps`. Deflation is carried out as in the paper, including its rounding errors.
        """
        w, V, M = w.detach().flip(-1), V.detach().flip(-1), mirrored(A.detach())
        total = w.sum(-1, keepdim=True)
        share = w.cumsum(-1) / torch.where(total == 0, 1, total)
        quotients = []
        for i in range(w.shape[-1]):
            v = V[..., i : i + 1]
            Mv = M @ v
            quotients.append((v.mH @ Mv)[..., 0, 0].real)
            M = M - Mv @ v.mH
        quotient = torch.stack(quotients, -1) if quotients else torch.zeros_like(w)
        positive = w > self.eps
        accurate = (quotient - w).abs() < self.tolerance * w.abs()
        first = torch.arange(w.shape[-1], device=w.device) == 0
        passes = positive & accurate
        if self.energy < 1:
            passes = passes & ((share < self.energy) | first)
        return passes.int().cumprod(-1).bool().flip(-1)


def _composed(f: Function, w: Tensor, V: Tensor, shift: Tensor | float = 0) -> Tensor:
    """V f(w − shift) Vᴴ over the positive eigenvalues."""
    support = ~(w <= 0)  # True for NaN
    values = f.value(torch.where(support, w, 1) - shift)
    return composed(V, torch.where(support, values, 0), V.mH)


@custom_operator
def random_start(A: Tensor, seed: int) -> Tensor:
    """Return random unit columns (d, d), of the type and on the device of ``A``, that depend only on size and seed.

    It is an operator because torch.compile cannot trace numpy's generators.
    """
    return _random_columns(A.shape[-1], seed, A.dtype, A.device).clone()


@lru_cache(maxsize=8)  # an accelerator gets the same numbers only once
def _random_columns(d: int, seed: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    start = np.random.default_rng(seed).standard_normal((d, d))
    return torch.from_numpy(start / np.linalg.norm(start, axis=0, keepdims=True)).to(device, dtype)


@fake_rule(random_start)
def _(A: Tensor, seed: int) -> Tensor:
    return A.new_empty(A.shape[-1], A.shape[-1])


@vmap_rule(random_start)
def _(info, in_dims, A, seed):  # type: ignore[no-untyped-def]
    return random_start(A.movedim(in_dims[0], 0), seed), None
