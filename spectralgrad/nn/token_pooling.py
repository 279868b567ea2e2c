"""Second-order pooling of tokens as a layer."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..dispatch.arguments import check_count, check_range, checked
from ..dispatch.overrides import refuse_script
from ..errors import ShapeError, check_features
from .functional.cross_covariance import Center, cross_covariance_pooling

__all__ = ["TokenPooling"]


class TokenPooling(nn.Module):
    r"""Multi-headed cross-covariance pooling: replaces tokens by normalised second moments of two projections.

    A linear map gives each of h heads two projections :math:`Q_h,K_h` of the tokens, of dimension d. Head h returns

    .. math:: U\Sigma^\alpha V^\top,\qquad \tfrac1n\tilde Q_h^\top\tilde K_h=U\Sigma V^\top

    with centred projections :math:`\tilde Q_h,\tilde K_h`. The defaults match SoT-Small; ``leading=1`` is the
    approximation that the paper trains with, in which power iteration starts from a learned vector.

    For the covariance of the tokens themselves, call ``CovariancePooling(embed_dim, reduce_to=d)`` with
    ``tokens.mT``, which is (B, C, n).

    Args:
        embed_dim: dimension C of the tokens.
        num_heads: h.
        head_dim: d.
        bias: whether the projections have a bias. With ``center="tokens"`` it has no effect.
        power: α, positive.
        center: ``"tokens"`` to subtract the mean over tokens, ``"entries"`` for the mean of all entries of a projection
            (one number per head, as in the released code and its checkpoints), ``"none"`` for nothing.
        leading: None for all singular values, exactly, or the number of leading ones to find by power iteration.
        iterations: steps of power iteration.
        device: device of the parameters.
        dtype: type of the parameters.

    Shape:
        (B, n, C) → (B, h·d²).

    Raises:
        ArgumentError: a setting is out of range.
        ShapeError: the input is not (B, n, C) with at least one token.
        NonFiniteError: the input contains NaN or infinity.

    Example:
        >>> pool = TokenPooling(48, num_heads=2, head_dim=5)
        >>> tokens = torch.randn(4, 1 + 49, 48)                # the first one is the class token
        >>> pool(tokens[:, 1:]).shape, pool.out_features
        (torch.Size([4, 50]), 50)
        >>> logits = torch.nn.Linear(50, 10)(pool(tokens[:, 1:])) + torch.nn.Linear(48, 10)(tokens[:, 0])
        >>> logits.shape
        torch.Size([4, 10])

    Reference: Xie et al., SoT: Delving deeper into classification head for transformer (So-ViT), arXiv 2104.10935.
    """

    embed_dim: int
    num_heads: int
    head_dim: int
    power: float
    leading: int | None
    iterations: int
    projection: nn.Linear

    start: nn.Parameter | None

    @checked
    def __init__(
        self,
        embed_dim: int,
        num_heads: int = 6,
        head_dim: int = 24,
        *,
        bias: bool = False,
        power: float = 0.5,
        center: Center = "tokens",
        leading: int | None = None,
        iterations: int = 1,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        where = type(self).__name__
        check_count(embed_dim, "embed_dim", where)
        check_count(num_heads, "num_heads", where)
        check_count(head_dim, "head_dim", where)
        check_range(power, "power", where, 0, ends="()")
        check_count(leading, "leading", where, 1, head_dim)
        check_count(iterations, "iterations", where)
        self.embed_dim, self.num_heads, self.head_dim = embed_dim, num_heads, head_dim
        self.power, self.center, self.leading, self.iterations = power, center, leading, iterations
        self.projection = nn.Linear(embed_dim, 2 * num_heads * head_dim, bias=bias, device=device, dtype=dtype)
        start = None if leading is None else nn.Parameter(torch.randn(head_dim, device=device, dtype=dtype))
        self.register_parameter("start", start)

    def __prepare_scriptable__(self) -> None:
        refuse_script(type(self).__name__)

    @property
    def out_features(self) -> int:
        """Number of values in the output for each sample."""
        return self.num_heads * self.head_dim**2

    def forward(self, X: Tensor) -> Tensor:
        where = type(self).__name__
        check_features(X, where)
        if X.dim() != 3 or X.shape[-1] != self.embed_dim or X.shape[1] == 0:
            raise ShapeError(
                f"{where}: expected tokens (B, n, {self.embed_dim}) with n ≥ 1, got shape {tuple(X.shape)}"
            )
        parts = self.projection(X).unflatten(-1, (2, self.num_heads, self.head_dim))  # (B, n, 2, h, d)
        Q, K = parts.permute(2, 0, 3, 1, 4).unbind()
        pooled = cross_covariance_pooling(
            Q,
            K,
            power=self.power,
            center=self.center,
            leading=self.leading,
            iterations=self.iterations,
            start=self.start,
            where=where,
        )
        return pooled.flatten(1)

    def extra_repr(self) -> str:
        """The settings shown by ``repr``."""
        return (
            f"{self.embed_dim}, num_heads={self.num_heads}, head_dim={self.head_dim}, power={self.power}, "
            f"leading={self.leading}"
        )
