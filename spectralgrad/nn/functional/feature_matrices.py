"""Passes over features (N, C, *), one piece at a time, so that each piece fits into the processor's cache.

The kernel makes these passes where it can (:mod:`spectralgrad.solvers.kernel.feature_passes`); most of this file is for
other devices, types and layouts. A piece is a view (b, d, l): b is a number of samples times a number of groups, d the
channels of a group, l a number of positions. A piece is converted and centred when it is used; no centred or transposed
copy of all features is made. These functions are not differentiable: callers use them inside autograd functions, or
where no gradient is needed.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from ...dispatch.host import has_double
from ...native.thresholds import table
from ...precision import full_precision
from ...solvers.kernel import feature_passes

_ALL = slice(None)
_MANY = 16  # positions per sample: with fewer, more accurate sums, in float64 over the samples, would not be cheap


def dense(X: Tensor, like: Tensor | None = None) -> Tensor:
    """``X`` without gaps in memory, in its own memory format (channels last or not) or the format of ``like``."""
    return X.contiguous(memory_format=_format(X if like is None else like))


def pieces(X: Tensor, groups: int) -> Iterator[tuple[Tensor, slice]]:
    """Views (b, d, l) of a dense tensor (N, C, *), and which of the groups they have.

    Sizes and order depend only on shape and memory format, so the pieces of two tensors that share both correspond.
    """
    n, channels = X.shape[:2]
    d = channels // groups
    limit = table().piece if X.device.type == "cpu" else max(X.numel(), 1)  # one piece on an accelerator
    if _rows(X):
        rows = X.movedim(1, -1).view(-1, groups, d)
        return ((part.permute(1, 2, 0), _ALL) for part in rows.split(max(1, limit // max(channels, 1))))
    columns = X.view(n, groups, d, X.shape[2:].numel())
    samples = limit // max(channels * columns.shape[-1], 1)
    if samples:
        return ((block.flatten(0, 1), _ALL) for block in columns.split(samples))
    return (piece for sample in columns for piece in _pieces_of_sample(sample, limit))


def _pieces_of_sample(sample: Tensor, limit: int) -> Iterator[tuple[Tensor, slice]]:
    """Pieces of a large sample (G, d, n): several groups, or some positions of one group."""
    groups, d, n = sample.shape
    together, positions = max(1, limit // (d * n)), max(1, limit // d)
    for first in range(0, groups, together):
        which = slice(first, first + together)
        yield from ((part, which) for part in sample[which].split(min(n, positions), -1))


def total(X: Tensor, groups: int, dtype: torch.dtype) -> Tensor:
    """The sum over samples and positions (G, d).

    The sums over positions are added over samples in float64. This is cheap, because few numbers remain, and makes a
    mean exact to rounding.
    """
    if X.shape[2:].numel() < _MANY or not has_double(X.device):
        return X.sum([0, *range(2, X.dim())], dtype=dtype).view(groups, -1)
    return X.sum([*range(2, X.dim())], dtype=dtype).sum(0, dtype=torch.float64).to(dtype).view(groups, -1)


def moments(X: Tensor, mean: Tensor, Y: Tensor) -> tuple[Tensor, Tensor]:
    """Σ y (x − mean)ᵀ (G, d, d) and Σ y (G, d) over samples and positions."""
    found = feature_passes.moments(X, mean, Y)
    return (_outer(X, mean, Y), total(Y, len(mean), mean.dtype)) if found is None else found


def outer(X: Tensor, mean: Tensor, Y: Tensor | None = None) -> Tensor:
    """Σ y (x − mean)ᵀ over samples and positions (G, d, d); without ``Y``, y is x − mean."""
    found = feature_passes.moments(X, mean, Y)
    return _outer(X, mean, Y) if found is None else found[0]


def _outer(X: Tensor, mean: Tensor, Y: Tensor | None) -> Tensor:
    groups, d = mean.shape
    result = mean.new_zeros(groups, d, d)
    others = pieces(X if Y is None else Y, groups)
    with full_precision(mean):
        for (x, which), (y, _) in zip(pieces(X, groups), others, strict=True):
            x = centered(x, mean[which])
            y = x if Y is None else y.to(mean.dtype)
            if x.shape[-1] < d and x.shape[0] > groups:
                result.baddbmm_(_joined(y, groups), _joined(x, groups).mT)
            else:
                part = result[which]
                part += torch.bmm(y, x.mT).view(-1, *part.shape).sum(0)
    return result


def affine(X: Tensor, mean: Tensor, matrix: Tensor, shift: Tensor) -> Tensor:
    """``matrix`` (x − mean) + ``shift`` at every position, in the type and layout of ``X``."""
    found = feature_passes.affine(X, mean, matrix, shift)
    if found is not None:
        return found
    result = torch.empty_like(X)
    groups = len(mean)
    with full_precision(mean):
        for (x, which), (out, _) in zip(pieces(X, groups), pieces(result, groups), strict=True):
            b = len(x)
            start = spread(shift[which].unsqueeze(-1), b)
            _into(out, start, spread(matrix[which], b), centered(x, mean[which]))
    return result


def merged(G: Tensor, X: Tensor, mean: Tensor, g_mean: Tensor, A: Tensor, B: Tensor) -> Tensor:
    """A (g − g_mean) + B (x − mean) at every position: the two terms of an input gradient, in one pass."""
    found = feature_passes.affine(G, g_mean, A, second=(X, mean, B))
    if found is not None:
        return found
    result = torch.empty_like(X)
    groups = len(mean)
    every = (pieces(T, groups) for T in (X, G, result))
    with full_precision(mean):
        for (x, which), (g, _), (out, _) in zip(*every, strict=True):
            b = len(x)
            first = torch.bmm(spread(A[which], b), centered(g, g_mean[which]))
            _into(out, first, spread(B[which], b), centered(x, mean[which]))
    return result


def centered(x: Tensor, mean: Tensor) -> Tensor:
    """A piece, converted to the type of ``mean``, minus that mean."""
    return x.to(mean.dtype) - spread(mean.unsqueeze(-1), len(x))


def spread(M: Tensor, b: int) -> Tensor:
    """One matrix per group (G, p, q), repeated for the samples of a piece (b, p, q)."""
    return M.expand(b // len(M), *M.shape).flatten(0, 1) if len(M) > 1 else M.expand(b, *M.shape[1:])


def _into(out: Tensor, start: Tensor, matrix: Tensor, x: Tensor) -> None:
    """Write ``start`` + ``matrix`` x into ``out``; baddbmm can do so directly only if the types agree."""
    if out.dtype == x.dtype:
        torch.baddbmm(start, matrix, x, out=out)
    else:
        out.copy_(torch.baddbmm(start, matrix, x))


def _joined(x: Tensor, groups: int) -> Tensor:
    """(samples · G, d, l) → (G, d, samples · l).

    If there are few positions, one product over all samples is cheaper than adding up one small product per sample.
    """
    return x.view(-1, groups, *x.shape[1:]).permute(1, 2, 0, 3).reshape(groups, x.shape[1], -1)


def _rows(X: Tensor) -> bool:
    """True if the channels of a position are adjacent in memory."""
    return X.dim() == 2 or X.shape[2:].numel() == 1 or not X.is_contiguous()


def _format(X: Tensor) -> torch.memory_format:
    kinds = {4: torch.channels_last, 5: torch.channels_last_3d}
    kind = kinds.get(X.dim())
    if kind is None or X.is_contiguous() or not X.is_contiguous(memory_format=kind):
        return torch.contiguous_format
    return kind
