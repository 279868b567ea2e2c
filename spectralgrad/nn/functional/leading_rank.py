"""Features without their leading singular directions (RankFeat)."""

from __future__ import annotations

from torch import Tensor

from ...dispatch.arguments import check_count, checked
from ...errors import ShapeError, check_features
from ...linalg.singular_values import low_rank

__all__ = ["rankfeat"]


@checked
def rankfeat(X: Tensor, k: int = 1) -> Tensor:
    r"""Remove the k leading singular directions of each sample's features, :math:`X-\sum_{i\le k}\sigma_iu_iv_i^\top`.

    RankFeat detects images of unknown classes with it, without training: their features have a much larger
    :math:`\sigma_1` than features of known classes. It removes the first direction from the features of the last two
    stages of a trained network, and compares the log-sum-exp of the logits.

    Args:
        X: features (N, C, *), as matrices of C rows.
        k: number of directions to remove.

    Returns:
        features of the same shape.

    Raises:
        ArgumentError: ``k`` is not an integer from 0 to the smaller side of the matrices.
        ShapeError: ``X`` is not a dense real tensor (N, C, *).
        NonFiniteError: ``X`` contains NaN or infinity.

    Example:
        >>> X = torch.diag(torch.tensor([3.0, 2.0, 1.0])).expand(4, 3, 3)
        >>> rankfeat(X)[0].diagonal()
        tensor([0., 2., 1.])
        >>> logits = torch.nn.Linear(3, 10)(rankfeat(X).mean(-1))
        >>> score = logits.logsumexp(1)                        # large for images of known classes
        >>> score.shape
        torch.Size([4])

    Reference: Song, Sebe and Wang, RankFeat: Rank-1 feature removal for out-of-distribution detection, NeurIPS 2022.
    """
    check_features(X, "rankfeat")
    if X.dim() < 3:
        raise ShapeError(f"rankfeat: expected features (N, C, *), got shape {tuple(X.shape)}")
    matrices = X.flatten(2)
    check_count(k, "k", "rankfeat", 0, min(matrices.shape[1:]))
    return X - low_rank(matrices, k).view(X.shape)
