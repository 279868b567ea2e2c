"""The protocol of gap rules that the derivatives of eigenvectors and singular vectors use."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor


class GapRule(Protocol):
    r"""A rule for the matrix :math:`\hat K` that replaces :math:`K_{ij}=1/(\lambda_i-\lambda_j)`.

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
