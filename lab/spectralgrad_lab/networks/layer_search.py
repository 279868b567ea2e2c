"""Find the layers that feed the spectral layers of a network."""

from __future__ import annotations

from torch import Tensor, nn

from spectralgrad.optim import pre_spectral_layers

from .errors import NetworkError


class Network(nn.Module):
    """Base class of the networks of this package.

    Attributes:
        before_spectral: name of the convolution before the spectral layer.
        added: names of other convolutions whose outputs are added to it. Treatments apply to them too.
    """

    before_spectral: str
    added: tuple[str, ...] = ()


def pre_spectral(net: nn.Module) -> nn.Module:
    """The convolution before the spectral layer of a network of this package.

    NOG, OLR and the weight treatments act on it. It is the first convolution where the layer after it is spectral, and
    the last convolution before the pooling where only the pooling is.

    Raises:
        NetworkError: the network is not from this package.

    Example:
        >>> pre_spectral(torch.nn.Linear(2, 2))
        Traceback (most recent call last):
        spectralgrad_lab.networks.errors.NetworkError: Linear is not a network of spectralgrad_lab; find the layer with
        spectralgrad.optim.pre_spectral_layers(net, batch)
    """
    if not isinstance(net, Network):
        raise NetworkError(
            f"{type(net).__name__} is not a network of spectralgrad_lab; find the layer with "
            "spectralgrad.optim.pre_spectral_layers(net, batch)"
        )
    return net.get_submodule(net.before_spectral)


def layers_before_spectral(net: nn.Module, example: Tensor) -> dict[str, nn.Module]:
    """The layers that feed the spectral layers, by name.

    Args:
        net: any network. One with an attribute ``before_spectral`` names the layer itself, and in ``added`` those that
            are added to it; others are traced.
        example: a batch (B, C, H, W) to trace with; its values do not matter.
    """
    named = getattr(net, "before_spectral", None)
    if isinstance(named, str):
        return {name: net.get_submodule(name) for name in (named, *getattr(net, "added", ()))}
    return {found.name: found.module for found in pre_spectral_layers(net, example).values()}
