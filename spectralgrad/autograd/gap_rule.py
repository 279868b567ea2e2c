"""What the derivatives of eigenvectors and singular vectors ask of a rule for the gaps."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor


class GapRule(Protocol):
    r"""A bounded matrix :math:`\hat K` in place of :math:`K_{ij}=1/(\lambda_i-\lambda_j)`.

    :class:`spectralgrad.GapMethod` implements it and documents each member.
    """

    @property
    def filters_gauge(self) -> bool: ...
    @property
    def skew(self) -> bool: ...
    @property
    def series_terms(self) -> int: ...
    def gaps(self, w: Tensor) -> Tensor: ...
    def weighed(self, K: Tensor, coupling: Tensor) -> Tensor: ...
    def replaced(self, w: Tensor) -> Tensor | None: ...
    def kept(self, A: Tensor, w: Tensor, V: Tensor) -> Tensor | None: ...
