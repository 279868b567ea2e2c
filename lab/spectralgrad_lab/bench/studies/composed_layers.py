"""Four layers in plain torch, as one would write them: in training, with their running statistics."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

import spectralgrad as sg

CHANNELS, KEPT, EPS, MOMENTUM = 8, 5, 1e-5, 0.1
Forward = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Layer:
    """A layer of features (4, 8, 5, 3), and the same of features and the state of a layer."""

    name: str
    ours: Callable[[], nn.Module]
    theirs: Callable[[Tensor, dict[str, Tensor]], Tensor]

    def both(self, put: Callable[[nn.Module], nn.Module]) -> tuple[Forward, Forward]:
        """Both as functions; ``put`` moves a layer to a device."""
        layer, other = put(self.ours()), put(self.ours())
        state = {**dict(other.named_parameters()), **dict(other.named_buffers())}
        if self.name == "WhiteningColoring2d":
            return lambda X: layer(*X.chunk(2)), lambda X: self.theirs(X, state)
        return layer, lambda X: self.theirs(X, state)


def features() -> Tensor:
    """An input (4, 8, 5, 3) with correlated channels."""
    generator = torch.Generator().manual_seed(0)
    mix = torch.randn(CHANNELS, CHANNELS, generator=generator) + 2 * torch.eye(CHANNELS)
    return torch.einsum("cd,ndhw->nchw", mix, torch.randn(4, CHANNELS, 5, 3, generator=generator)).contiguous()


def _covariance(rows: Tensor) -> Tensor:
    return rows @ rows.mT / rows.shape[-1]


def _shifted(C: Tensor) -> Tensor:
    return C + EPS * torch.eye(C.shape[-1], dtype=C.dtype, device=C.device)


def _moments(rows: Tensor, state: dict[str, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """Mean, centred rows and their covariance, which are added to the running statistics."""
    mean = rows.mean(1, keepdim=True)
    centered = rows - mean
    C = _covariance(centered)
    with torch.no_grad():
        state["running_mean"].lerp_(mean.flatten(), MOMENTUM)
        state["running_cov"].lerp_(C * (rows.shape[1] / (rows.shape[1] - 1)), MOMENTUM)
        state["num_batches_tracked"].add_(1)
    return mean, centered, C


def _affine(rows: Tensor, X: Tensor, state: dict[str, Tensor]) -> Tensor:
    rows = rows * state["weight"].unsqueeze(1) + state["bias"].unsqueeze(1)
    return rows.view(X.shape[1], X.shape[0], *X.shape[2:]).transpose(0, 1)


def whitened(X: Tensor, state: dict[str, Tensor]) -> Tensor:
    """ZCA whitening."""
    _, centered, C = _moments(X.transpose(0, 1).flatten(1), state)
    w, V = torch.linalg.eigh(_shifted(C))
    return _affine((V * w.rsqrt()) @ V.mT @ centered, X, state)


def denoised(X: Tensor, state: dict[str, Tensor]) -> Tensor:
    """The projection of standardised features onto their leading eigenvectors."""
    _, centered, C = _moments(X.transpose(0, 1).flatten(1), state)
    scale = (C.diagonal() + EPS).rsqrt()
    V = torch.linalg.eigh(scale.unsqueeze(1) * C * scale).eigenvectors[:, -KEPT:]
    return _affine(V @ (V.mT @ (centered * scale.unsqueeze(1))), X, state)


def pooled(X: Tensor, state: dict[str, Tensor]) -> Tensor:
    """The upper triangle of the root of each picture's covariance."""
    rows = X.flatten(2)
    w, V = torch.linalg.eigh(_covariance(rows - rows.mean(-1, keepdim=True)))
    root = (V * w.clamp_min(0).sqrt().unsqueeze(-2)) @ V.mT
    i, j = torch.triu_indices(X.shape[1], X.shape[1], device=X.device)
    return root[:, i, j]


def transferred(X: Tensor, state: dict[str, Tensor]) -> Tensor:
    """Pictures of the first half, whitened, with mean and covariance of pictures of the second half."""
    content, style = (half.flatten(2) for half in X.chunk(2))
    mean = style.mean(-1, keepdim=True)
    near, far = content - content.mean(-1, keepdim=True), style - mean
    w, V = torch.linalg.eigh(_shifted(_covariance(near)))
    s, U = torch.linalg.eigh(_shifted(_covariance(far)))
    white = (V * w.rsqrt().unsqueeze(-2)) @ V.mT @ near
    colored = (U * s.sqrt().unsqueeze(-2)) @ U.mT @ white + mean
    return colored.view(X.shape[0] // 2, *X.shape[1:])


LAYERS = (
    Layer("DecorrelatedBatchNorm2d", lambda: sg.nn.DecorrelatedBatchNorm2d(CHANNELS, eps=EPS), whitened),
    Layer("PCADenoising2d", lambda: sg.nn.PCADenoising2d(CHANNELS, keep=KEPT, eps=EPS), denoised),
    Layer("CovariancePooling", lambda: sg.nn.CovariancePooling(CHANNELS), pooled),
    Layer("WhiteningColoring2d", lambda: sg.nn.WhiteningColoring2d(eps=EPS), transferred),
)
