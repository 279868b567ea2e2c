r"""Batch normalisation by a matrix: :math:`y=\gamma\circ W(C)\,(x-\mu)+\beta`, with μ and C of the batch.

W is any differentiable function of the small covariance C; whitening and denoising differ only in this function.

Derivation. Write :math:`\tilde x=x-\mu`, :math:`C=\frac1n\sum\tilde x\tilde x^\top`, summed over the n positions of
all samples. With :math:`Q=\sum\bar y\,\tilde x^\top`,

.. math:: \bar\beta=\sum\bar y,\qquad \bar\gamma_i=\sum_jW_{ij}Q_{ij},\qquad \bar W=\mathrm{diag}(\gamma)\,Q .

Let :math:`\bar C` be the gradient with respect to C that W's own backward pass computes from :math:`\bar W`. The input
gradient has one term through :math:`\tilde x` and one through C. Subtracting the mean affects only the first, because
:math:`\sum\tilde x=0`:

.. math:: \bar x=W^\top\mathrm{diag}(\gamma)\Bigl(\bar y-\tfrac1n\sum\bar y\Bigr)
                 +\tfrac1n\bigl(\bar C+\bar C^\top\bigr)\tilde x .

One autograd function makes the five passes over the features that this needs; the gradient of W goes through an inner
graph of d×d matrices. For second derivatives, under torch.compile and under function transforms, the same result is
composed of torch's own operations instead.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...autograd import usual
from ...autograd.functions.rescaling import rescaled
from ...dispatch import function, status
from ...dispatch.arguments import check_count, check_range, checked
from ...dispatch.recomputation import recomputed
from ...errors import ArgumentError
from ...precision import exponent_of, exponent_range, full_precision, largest, working_dtype
from ..distributed import Reduce
from . import feature_matrices
from .affine_map import affine, check_affine, with_affine

__all__ = ["normalize"]

MatrixOf = Callable[..., Tensor]


class Normalized(NamedTuple):
    """The output (N, C, *); without gradient the batch's mean (C,), biased covariance and W (G, d, d), and size ()."""

    output: Tensor
    mean: Tensor
    covariance: Tensor
    matrix: Tensor
    size: Tensor


@checked
def normalize(
    X: Tensor,
    matrix_of: MatrixOf,
    weight: Tensor | None,
    bias: Tensor | None,
    *,
    groups: int = 1,
    dtype: torch.dtype | None = None,
    reduce: Reduce | None = None,
    eps: float | None = None,
) -> Normalized:
    """Normalise features by the mean and covariance of the batch.

    Args:
        X: features (N, C, *).
        matrix_of: W, a differentiable function of covariances (G, d, d).
        weight: γ (C,); ones if None.
        bias: β (C,); zeros if None.
        groups: number of groups G; each group of d = C/G channels has its own covariance.
        dtype: the type to compute in; by default the type of X, or float32 for float16 and bfloat16.
        reduce: a function that sums a tensor over processes; None for a single process.
        eps: the ε that ``matrix_of`` adds to C, if it adds one and W is homogeneous: of degree −1/2 in C and ε. Then
            features whose covariance overflows or underflows are divided by a power of two first, in eager mode, and
            ``matrix_of`` is called with a second argument, ε (G, 1, 1) divided by its square.

    Returns:
        The output with the statistics used, as :class:`Normalized`. Statistics that are not representable are ±inf.

    Example:
        >>> X = torch.randn(8, 4, 10, dtype=torch.float64)
        >>> result = normalize(X, lambda C: torch.linalg.cholesky(torch.linalg.inv(C)).mT, None, None)
        >>> flat = result.output.transpose(0, 1).flatten(1)
        >>> torch.allclose(flat @ flat.T / 80, torch.eye(4, dtype=torch.float64))
        True
    """
    check_affine(X, weight, bias, "normalize")
    check_count(groups, "groups", "normalize")
    if X.shape[1] % groups:
        raise ArgumentError(f"normalize: expected groups to be a divisor of the {X.shape[1]} channels, got {groups}")
    check_range(eps, "eps", "normalize", 0)
    dtype = dtype or working_dtype(X.dtype)
    if not function.reverse_only(X) or not (X.is_cpu or status.assumed(X)):
        return Normalized(*_composed(X, matrix_of, weight, bias, groups, dtype, reduce))
    with torch.no_grad():
        statistics = _statistics(feature_matrices.dense(X), groups, dtype, reduce)
    if eps is not None and not _representable(statistics[-1], eps):
        return _of_any_scale(X, matrix_of, weight, bias, groups, dtype, reduce, eps)
    return Normalized(*_Normalize.run(X, weight, bias, matrix_of, groups, dtype, reduce, *statistics))


def _representable(C: Tensor, eps: float) -> bool:
    """True if covariances (G, d, d) to the power −3/2 use at most half of the range; small ones only if ε is small."""
    if not C.numel():
        return True
    limit = 2.0 ** (exponent_range(C.dtype) // 3)
    least = 1 / limit if eps * limit < 1 else -math.inf
    sizes = C.diagonal(dim1=-2, dim2=-1).amax(-1)
    return all(least < size < limit for size in sizes.tolist()) if C.is_cpu else usual.between(sizes, least, limit)


def _of_any_scale(
    X: Tensor,
    matrix_of: Callable[..., Tensor],
    weight: Tensor | None,
    bias: Tensor | None,
    groups: int,
    dtype: torch.dtype,
    reduce: Reduce | None,
    eps: float,
) -> Normalized:
    """Call :func:`normalize` on features divided by a power of two, and scale the results back.

    Each group has its own power, which is the same in all processes.
    """
    features = X.to(dtype).unflatten(1, (groups, -1)).movedim(1, 0)  # (G, N, d, *)
    affine = [None if x is None else x.view(groups, -1) for x in (weight, bias)]
    e = exponent_of(largest(features, features.dim() - 1))
    if reduce is not None:
        e = torch.floor(reduce(torch.exp2(e / 8)).log2() * 4) * 2  # the largest, and less than 8 for each doubling
    e = e.clamp_min(math.frexp(eps)[1] // 4 * 2) if eps else e
    shift = e.new_tensor([math.ldexp(eps, -2 * int(k)) for k in e.tolist()])[..., None, None]

    def call(features: Tensor, *given: Tensor) -> tuple[Tensor, ...]:
        one = iter(given)
        parts = [None if x is None else next(one).flatten() for x in affine]
        joined = features.movedim(0, 1).flatten(1, 2)
        found = normalize(joined, lambda C: matrix_of(C, shift), *parts, groups=groups, dtype=dtype, reduce=reduce)
        output = found.output.unflatten(1, (groups, -1)).movedim(1, 0)
        return output, found.mean.view(groups, -1), found.covariance, found.matrix, found.size.expand(groups)

    given = [x for x in affine if x is not None]
    results = rescaled(call, (features, *given), (e, *[0 * e] * len(given)), (0 * e, e, 2 * e, -e, 0 * e))
    output, mean, C, W, count = results
    return Normalized(output.movedim(0, 1).flatten(1, 2).to(X.dtype), mean.flatten(), C, W, count[0])


def _composed(
    X: Tensor,
    matrix_of: MatrixOf,
    weight: Tensor | None,
    bias: Tensor | None,
    groups: int,
    dtype: torch.dtype,
    reduce: Reduce | None,
) -> tuple[Tensor, ...]:
    """Return the results of :func:`normalize` from torch's own operations, differentiable as many times as W is."""
    n, channels = X.shape[:2]
    with full_precision(X):
        features = X.to(dtype).reshape(n, groups, channels // groups, math.prod(X.shape[2:]))
        local = torch.cat([features.sum((0, 3)).flatten(), features.new_full((1,), n * features.shape[-1])])
        summed = local if reduce is None else reduce(local)
        count, mean = summed[-1], (summed[:-1] / summed[-1]).view(groups, -1)
        features = features - mean.unsqueeze(-1)
        long = features.permute(1, 2, 0, 3).flatten(2)  # (G, d, n)
        scatter = long @ long.mT
        C = (scatter if reduce is None else reduce(scatter)) / count
        W = matrix_of(C)
        out = affine(features, *with_affine(W, weight, bias)).view(X.shape).to(X.dtype)
    return out, mean.detach().flatten(), C.detach(), W.detach(), count.detach()


class _Normalize(function.ReverseRule):
    @staticmethod
    def forward(ctx, X, weight, bias, matrix_of, groups, dtype, reduce, mean, count, C):  # type: ignore[no-untyped-def]
        features = feature_matrices.dense(X)
        leaf = C.clone().requires_grad_(ctx.needs_input_grad[0])
        with torch.set_grad_enabled(ctx.needs_input_grad[0]), full_precision(X):
            W = matrix_of(leaf)
        matrix = W.detach().clone()
        out = feature_matrices.affine(features, mean, *with_affine(matrix, weight, bias))
        ctx.save_for_backward(X, weight, bias, mean, count)
        ctx.inner, ctx.options = (leaf, W), (matrix_of, groups, dtype, reduce)
        flat = mean.flatten().clone()
        C, count = C.clone(), count.clone()
        ctx.mark_non_differentiable(flat, C, matrix, count)
        ctx.set_materialize_grads(False)
        return out, flat, C, matrix, count

    @staticmethod
    def backward(ctx, G, *_):  # type: ignore[no-untyped-def]
        if G is None:
            return (None,) * 10
        gradients = _differentiable_gradients if function.differentiating() else _gradients
        return *gradients(ctx, G), *[None] * 7


def _statistics(X: Tensor, groups: int, dtype: torch.dtype, reduce: Reduce | None) -> tuple[Tensor, Tensor, Tensor]:
    """The mean (G, d), the count () and the covariance (G, d, d) over all samples, positions and processes."""
    mean, count = _mean(X, groups, dtype, reduce)
    scatter = feature_matrices.outer(X, mean)
    return mean, count, (scatter if reduce is None else reduce(scatter)) / count


def _mean(X: Tensor, groups: int, dtype: torch.dtype, reduce: Reduce | None) -> tuple[Tensor, Tensor]:
    """The mean (G, d) and the count () over all samples, positions and processes."""
    size = X.numel() // max(X.shape[1], 1)
    local = torch.cat([feature_matrices.total(X, groups, dtype).flatten(), X.new_full((1,), size, dtype=dtype)])
    summed = local if reduce is None else reduce(local)
    return (summed[:-1] / summed[-1]).view(groups, -1), summed[-1].clone()


def _gradients(ctx: Any, G: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """The input, weight and bias gradients of the derivation at the top of this module."""
    X, weight, bias, mean, count = ctx.saved_tensors
    for_x, for_weight, for_bias, *_ = ctx.needs_input_grad
    X = feature_matrices.dense(X)
    G = feature_matrices.dense(G, like=X)
    gX = gweight = None
    if not (for_x or for_weight):
        summed = feature_matrices.total(G, len(mean), mean.dtype)
    else:
        Q, summed = feature_matrices.moments(X, mean, G)
        if for_weight:
            gweight = (ctx.inner[1].detach() * Q).sum(-1).flatten().to(weight.dtype)
        if for_x:
            small = _small_gradients(Q, summed, weight, count, ctx.inner, ctx.options[-1])
            gX = feature_matrices.merged(G, X, mean, *small)
    return gX, gweight, summed.flatten().to(bias.dtype) if for_bias else None


def _small_gradients(
    Q: Tensor, summed: Tensor, weight: Tensor | None, count: Tensor, inner: tuple[Tensor, Tensor], reduce: Reduce | None
) -> tuple[Tensor, Tensor, Tensor]:
    """The mean of ȳ, and the two matrices of the input gradient: Wᵀ diag(γ), and (C̄ + C̄ᵀ)/n."""
    leaf, W = inner
    if reduce is not None:
        both = reduce(torch.cat([Q, summed.unsqueeze(-1)], -1))
        Q, summed = both[..., :-1], both[..., -1]
    (gC,) = torch.autograd.grad(W, leaf, with_affine(Q, weight, None)[0], retain_graph=True)
    return summed / count, with_affine(W.detach(), weight, None)[0].mT, (gC + gC.mT) / count


def _differentiable_gradients(ctx: Any, G: Tensor) -> list[Tensor | None]:
    """The same as functions that autograd can differentiate again."""
    matrix_of, *options = ctx.options
    call = lambda X, weight, bias: _composed(X, matrix_of, weight, bias, *options)[:1]  # noqa: E731
    return recomputed(call, ctx.saved_tensors[:3], ctx.needs_input_grad[:3], [G])
