r"""Whitening and colouring of features: :math:`y=S_c\,S_w(x-\mu)+\mu_c`.

Means and covariances are computed from the features passed in, per sample or over the batch. There are no running
statistics.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from ...autograd.functions.rescaling import homogeneous
from ...dispatch.arguments import check_range, checked
from ...dispatch.finite import check_finite
from ...errors import ArgumentError, ShapeError, broadcast, check_features, raised_by
from ...linalg.covariances import covariance, shifted
from ...linalg.matrix_functions import matrix_sqrt
from ...precision import full_precision, widest
from ...rules import Method, resolve
from .channel_groups import check_groups, grouped, restored
from .normalization import normalize
from .range_whitening import root_on_range, whitened_on_range
from .whitening_matrices import DEFAULT, OPERATION, Whitening, whitening_matrix

__all__ = ["color", "wct", "whiten"]


@checked
def whiten(
    X: Tensor,
    *,
    groups: int = 1,
    eps: float = 1e-5,
    whitening: Whitening = "zca",
    method: str | Method | None = None,
    per_sample: bool = True,
    watch: Callable[[Tensor], Tensor] | None = None,
    where: str = "whiten",
) -> Tensor:
    r"""Features with mean zero and, within each group of channels, covariance :math:`I-\epsilon M^{-1}`.

    .. math:: y=S_w(x-\mu),\qquad S_w=M^{-1/2},\quad M=\tfrac1n\sum(x-\mu)(x-\mu)^\top+\epsilon I .

    Args:
        X: features (N, C, *).
        groups: number of groups G; each group of d = C/G channels is whitened independently.
        eps: ε; if 0, a singular covariance is inverted on its range. The exact ZCA then decomposes the smaller of the
            matrices d×d and n×n, for n positions, in double precision; see
            :func:`~spectralgrad.nn.functional.range_whitening.whitened_on_range`.
        whitening: ``"zca"``, ``"pca"`` or ``"cholesky"``.
        method: method for the gradient, as in :class:`DecorrelatedBatchNorm2d`.
        per_sample: compute the statistics of each sample separately; otherwise over the whole batch.
        watch: if given, called with the matrices to decompose, (N, G, d, d) or (1, G, d, d); its result is decomposed
            instead. A backward pass with ``create_graph`` calls it again.
        where: name used in error messages.

    Returns:
        the whitened features (N, C, *), with the dtype of ``X``.

    Raises:
        ShapeError: ``X`` is not a dense real tensor with at least three dimensions.
        ArgumentError: ``groups`` does not divide the number of channels, or ``whitening`` is unknown.
        NonFiniteError: ``X`` contains NaN or infinity.

    Example:
        >>> Y = whiten(torch.randn(2, 3, 8, 8, dtype=torch.float64), eps=0.0).flatten(2)
        >>> torch.allclose(Y @ Y.mT / 64, torch.eye(3, dtype=torch.float64).expand(2, 3, 3))
        True

    Reference: Wang et al., TPAMI 2021, Eq. 30 and 31.
    """
    rule = resolve(DEFAULT[whitening] if method is None else method, OPERATION[whitening])
    check_groups(X, groups, where)
    check_range(eps, "eps", where, 0)
    if not X.numel():
        return X.clone()
    if whitening == "zca" and eps == 0 and rule.exact:
        with full_precision(X):
            return restored(whitened_on_range(grouped(X, groups, per_sample, where), watch, where), X, per_sample)
    samples = X.shape[0] if per_sample else 1

    def matrix_of(C: Tensor, shift: float | Tensor = eps) -> Tensor:
        M = shifted(C, shift).unflatten(0, (samples, groups))
        return whitening_matrix(M if watch is None else watch(M), whitening, rule, where).flatten(0, 1)

    # Samples with statistics of their own are groups of channels of one sample.
    joined = X.reshape(1, -1, *X.shape[2:]) if per_sample else X
    return normalize(joined, matrix_of, None, None, groups=samples * groups, eps=eps).output.reshape(X.shape)


@checked
def color(
    X: Tensor,
    style: Tensor | None = None,
    *,
    matrix: Tensor | None = None,
    mean: Tensor | None = None,
    groups: int = 1,
    eps: float = 1e-5,
    method: str | Method = "exact",
    per_sample: bool = True,
    watch: Callable[[Tensor], Tensor] | None = None,
    where: str = "color",
) -> Tensor:
    r"""Give white features the mean and covariance of a style: :math:`y=S_cx+\mu_c`.

    :math:`S_c=(C+\epsilon I)^{1/2}` is the square root of the covariance of a style feature map, or is given as
    ``matrix``.

    Args:
        X: white features (N, C, *).
        style: features (N or 1, C, *) whose mean and covariance to apply; any number of positions.
        matrix: :math:`S_c` (N or 1, G, d, d) or (G, d, d), instead of ``style``. It need not be symmetric: it may be
            the output of a network. Each sample may have its own, whatever ``per_sample`` is.
        mean: :math:`\mu_c` (N or 1, C) or (C,); only together with ``matrix`` (default: zero).
        groups, eps, per_sample, watch, where: as in :func:`whiten`. With the same ε as there, whitening a map and
            colouring it with its own statistics returns the map.
        method: method for the gradient of the square root, one of ``methods("sqrt")``.

    Returns:
        the coloured features (N, C, *), with the dtype of ``X``.

    Raises:
        ShapeError: ``X``, ``style``, ``matrix`` or ``mean`` has the wrong shape or type.
        ArgumentError: not exactly one of ``style`` and ``matrix`` is given, ``mean`` is given with ``style``, or
            ``groups`` does not divide the number of channels.
        NonFiniteError: ``style`` contains NaN or infinity.

    Example:
        >>> X = torch.randn(1, 2, 3, 3)
        >>> torch.allclose(color(X, matrix=2 * torch.eye(2).view(1, 2, 2), mean=torch.ones(2)), 2 * X + 1)
        True

    Reference: Wang et al., TPAMI 2021, Eq. 32 and 33; Cho et al., GD-WCT, CVPR 2019 (given matrices).
    """
    if (style is None) == (matrix is None):
        raise ArgumentError(
            f"{where}: expected exactly one of style and matrix, got {'neither' if style is None else 'both'}"
        )
    check_range(eps, "eps", where, 0)
    per_sample = per_sample or matrix is not None  # given statistics differ from the statistics of X
    with full_precision(X):
        features = grouped(X, groups, per_sample, where)
        if style is not None:
            if mean is not None:
                raise ArgumentError(
                    f"{where}: expected mean only together with matrix, got it together with style, "
                    "whose own mean is used; omit mean"
                )
            S, shift = _style(style, X, groups, eps, method, per_sample, watch, where)
        else:
            assert matrix is not None
            S, shift = _given(matrix, mean, features, where)
        return restored(S @ features + shift, X, per_sample)


@checked
def wct(
    content: Tensor,
    style: Tensor | None = None,
    *,
    matrix: Tensor | None = None,
    mean: Tensor | None = None,
    strength: float | Tensor = 1.0,
    groups: int = 1,
    eps: float = 1e-5,
    method: str | Method = "exact",
    per_sample: bool = True,
    watch: Callable[[Tensor], Tensor] | None = None,
    where: str = "wct",
) -> Tensor:
    r"""Whitening and colouring transform: give content features the mean and covariance of a style.

    .. math:: y=\alpha\bigl(S_cS_w(x-\mu)+\mu_c\bigr)+(1-\alpha)\,x .

    Args:
        content: features (N, C, *).
        style, matrix, mean: as in :func:`color`.
        strength: α, from 0 (content unchanged) to 1 (full transform).
        groups, eps, per_sample, watch, where: as in :func:`whiten`.
        method: method for the gradient of both square roots, one of ``methods("sqrt")``.

    Returns:
        the transformed features (N, C, *), with the dtype of ``content``.

    Raises:
        ShapeError, ArgumentError, NonFiniteError: as in :func:`whiten` and :func:`color`.

    Example:
        >>> content, style = torch.randn(2, 1, 3, 8, 8, dtype=torch.float64)
        >>> Y = wct(content, 3 * style + 1, eps=0.0)
        >>> torch.allclose(torch.cov(Y[0].flatten(1)), 9 * torch.cov(style[0].flatten(1)))
        True

    Reference: Li et al., Universal Style Transfer via Feature Transforms, NeurIPS 2017; Wang et al., TPAMI 2021,
    section 5.3.1.
    """
    _check_strength(strength, content, where)
    options = {"groups": groups, "eps": eps, "method": method, "per_sample": per_sample, "watch": watch, "where": where}

    def transformed(content: Tensor, style: Tensor | None = style) -> Tensor:
        white = whiten(content, **options)  # type: ignore[arg-type]
        return color(white, style, matrix=matrix, mean=mean, **options)  # type: ignore[arg-type]

    if style is None or eps or not resolve(method, "sqrt").exact or min(content.dim(), style.dim()) < 3:
        colored = transformed(content)
    else:  # on the range the result has the size of the style, whatever the size of the content
        trailing = tuple(x.dim() - per_sample for x in (content, style))
        colored = homogeneous(transformed, (content, style), ((1, 0), (0,)), ((0, 1), (1,)), trailing=trailing)
    if isinstance(strength, (float, int)) and strength == 1:
        return colored
    return (strength * colored + (1 - strength) * content).to(content.dtype)


def _check_strength(strength: float | Tensor, content: Tensor, where: str) -> None:
    if not isinstance(strength, Tensor):
        check_range(strength, "strength", where)
        return
    check_features(strength, f"{where}, strength")
    if not broadcast(strength.shape, content.shape) or strength.dim() > content.dim():
        raise ShapeError(
            f"{where}: expected strength to broadcast against content {tuple(content.shape)}, "
            f"got shape {tuple(strength.shape)}"
        )
    check_finite(strength, f"{where}, strength", 0)  # nothing is computed of it that would raise


def _style(
    style: Tensor,
    X: Tensor,
    groups: int,
    eps: float,
    method: str | Method,
    per_sample: bool,
    watch: Callable[[Tensor], Tensor] | None,
    where: str,
) -> tuple[Tensor, Tensor]:
    """The square root (B, G, d, d) of the style's covariance, and its mean (B, G, d, 1)."""
    check_features(style, f"{where}, style")
    fits = style.dim() > 2 and (not per_sample or style.shape[0] in (1, X.shape[0]))
    if not fits or style.shape[1] != X.shape[1]:
        raise ShapeError(
            f"{where}: expected style features (N, C, *) with {X.shape[1]} channels and 1 or {X.shape[0]} samples, "
            f"got shape {tuple(style.shape)}"
        )
    features = grouped(style.to(X.dtype), groups, per_sample, where)
    if eps == 0 and resolve(method, "sqrt").exact:
        root, mean = root_on_range(features, watch, where), features.mean(-1, keepdim=True, dtype=widest(features))
        return root.to(features.dtype), mean.to(features.dtype)

    def statistics(features: Tensor, shift: float | Tensor = eps) -> tuple[Tensor, Tensor]:
        M = shifted(covariance(features), shift if isinstance(shift, float) else shift.square()[..., None, None])
        with raised_by(where):
            root = matrix_sqrt(M if watch is None else watch(M), method=method)
        return root, features.mean(-1, keepdim=True)

    if not resolve(method, "sqrt").exact:  # some methods have absolute thresholds
        return statistics(features)
    given = features, features.new_full((), eps**0.5)
    found: tuple[Tensor, Tensor] = homogeneous(statistics, given, ((1, 1), (1, 1)), trailing=(2, 0))
    return found


def _given(matrix: Tensor, mean: Tensor | None, features: Tensor, where: str) -> tuple[Tensor, Tensor]:
    """Check the given matrices and means, and reshape them to fit the grouped features (B, G, d, n)."""
    batch, groups, d, _ = features.shape
    check_features(matrix, f"{where}, matrix")
    if matrix.shape[-3:] != (groups, d, d) or matrix.shape[:-3] not in ((), (1,), (batch,)):
        raise ShapeError(
            f"{where}: expected matrix of shape ({groups}, {d}, {d}) or ({batch}, {groups}, {d}, {d}), "
            f"got {tuple(matrix.shape)}"
        )
    if mean is None:
        return matrix.to(features.dtype), features.new_zeros(1, groups, d, 1)
    check_features(mean, f"{where}, mean")
    if mean.shape[-1:] != (groups * d,) or mean.shape[:-1] not in ((), (1,), (batch,)):
        raise ShapeError(
            f"{where}: expected mean of shape ({groups * d},) or ({batch}, {groups * d}), got {tuple(mean.shape)}"
        )
    return matrix.to(features.dtype), mean.to(features.dtype).reshape(-1, groups, d, 1)
