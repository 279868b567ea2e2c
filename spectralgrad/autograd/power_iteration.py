"""Power iteration with deflation, differentiated step by step."""

from __future__ import annotations

from typing import TypeGuard

import numpy as np
import torch
from torch import Tensor

from .. import solvers
from ..precision import magnitude, rank_tolerance, room
from ..rules import PI, SVDPI, Method
from ..rules.base import norm, reciprocal
from ..rules.iterations import stopping_rules


def iterates(rule: Method) -> TypeGuard[PI | SVDPI]:
    """Whether the rule finds eigenpairs by power iteration instead of taking the solver's."""
    return isinstance(rule, PI) or (isinstance(rule, SVDPI) and rule.unrolled)


def power_iteration(A: Tensor, method: PI | SVDPI) -> tuple[Tensor, Tensor, Tensor]:
    r"""NeurIPS 2019 Algorithm 1, step by step, with autograd through iterations and deflation.

    Vector i comes from K power steps :math:`v\leftarrow\tilde Mv/\|\tilde Mv\|` on the deflated matrix
    :math:`\tilde M\leftarrow\tilde M-\tilde Mvv^H`, started from the solver's vector (``svd-pi``) or at
    random (``pi``); its eigenvalue is the Rayleigh quotient. Where deflation has left nothing but its own rounding,
    up to d rank tolerances, the steps go on without a gradient: a derivative of normalised noise is larger noise.

    Returns:
        eigenvalues (*, d) and eigenvectors (*, d, d) in ascending order of the deflation, and the mask of the
        pairs that the stopping rules keep.
    """
    d = A.shape[-1]
    exact, V0 = solvers.eigh(A.detach())
    start = V0.flip(-1) if isinstance(method, SVDPI) else _random_start(d, method.seed).to(A)
    size = magnitude(A)  # a norm squares the entries
    size = size / room(size).clamp_min(1)  # cotangents are multiplied by it
    noise = d * rank_tolerance(d, A.dtype) * norm(exact)[..., None, None] / size
    M, values, vectors = A / size, [], []
    for i in range(d):
        v = start[..., i : i + 1].expand(*A.shape[:-1], 1)
        for _ in range(method.iterations):
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
    w, V = torch.stack(values[::-1], -1) * size[..., 0], torch.cat(vectors[::-1], -1)
    reference = V0 if isinstance(method, SVDPI) else V
    return w, V, stopping_rules(A, exact, reference, method.eps, method.energy, method.tolerance)


@torch.library.custom_op("spectralgrad::random_start", mutates_args=())
def _random_start(d: int, seed: int) -> Tensor:
    """Unit columns (d, d) that depend on the size and the seed only; opaque to torch.compile."""
    start = np.random.default_rng(seed).standard_normal((d, d))
    return torch.from_numpy(start / np.linalg.norm(start, axis=0, keepdims=True))


@_random_start.register_fake
def _(d: int, seed: int) -> Tensor:
    return torch.empty(d, d, dtype=torch.float64)
