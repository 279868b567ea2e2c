"""The training protocols of the papers by name, and small ones for a CPU.

Values come from the papers; ``docs/train.md`` lists what the papers leave open. Method, group size and treatments
are set by flags: ``--preset tpami-cifar10 --method svd-pi --group-size 16``. The papers' presets use the published form
of the methods; ``--form sound`` uses the library's own.
"""

from __future__ import annotations

from .run_config import Config, ConfigError

# NeurIPS 2019, TPAMI 2021 and ECCV 2022 share this: ResNets for 32×32, the layer after the first convolution.
_CIFAR = Config(
    dataset="cifar10",
    network="resnet18-cifar",
    layer="whitening",
    method="svd-taylor",
    eps=1e-2,
    statistics="whitening",  # what the released code averages; Algorithm 2 of TPAMI says the covariance
    epochs=350,
    batch_size=128,
    lr=0.1,
    momentum=0.9,
    weight_decay=5e-4,
    milestones=(100, 200, 300),
    gamma=0.1,
    form="published",
    scale_init="uniform",  # as in the released code
    renew_batches=0,
    workers=2,
)

_ALEXNET = Config(
    dataset="imagenet",
    network="alexnet",
    layer="batchnorm",
    pooling="covariance",
    reduce_to=None,  # its last convolution has 256 channels already
    method="newton-schulz",
    epochs=30,
    batch_size=128,
    lr=10**-1.1,
    momentum=0.9,
    weight_decay=5e-4,
    milestones=(10, 20),
    gamma=0.1,
    warmup_epochs=1,
    spectral_precision="float64",
    form="published",
    renew_batches=0,
    workers=2,
)

# "The same training setup as in" MPN-COV (TPAMI 2021, Section 5.2.1): rates logspace(-1.2, -5.2, 20) and 100 images a
# step in the code of MPN-COV. ε and degree come from the paper's other experiments.
_TPAMI_ALEXNET = _ALEXNET.replaced(
    method="svd-taylor:degree=9",
    eps=1e-2,
    spectral_precision="float32",
    epochs=20,
    batch_size=100,
    lr=10**-1.2,
    milestones=tuple(range(1, 20)),
    gamma=10 ** (-4 / 19),
)

_RESNET50 = _ALEXNET.replaced(
    network="resnet50",
    reduce_to=256,
    epochs=60,
    batch_size=256,
    weight_decay=1e-4,
    milestones=(30, 45),
    warmup_epochs=2,
)

# Fine-tuned from a run of iccv-resnet50 or -resnet101: add --init FOLDER.
_FINE_GRAINED = _RESNET50.replaced(
    epochs=50, batch_size=10, lr=1.2e-3, classifier_lr=6e-3, milestones=(), augmentation="fine-grained",
    method="svd-pade",
)  # fmt: skip

_TINY = _CIFAR.replaced(dataset="tiny-imagenet", epochs=90, milestones=(30, 60), augmentation="rotate-flip")

_ECCV = _CIFAR.replaced(network="resnet50-cifar", method="svd-pade", statistics="covariance")

_SMALL = Config(epochs=4, milestones=(2, 3), batch_size=32, lr=0.05)

PRESETS: dict[str, Config] = {
    "tpami-cifar10": _CIFAR,
    "tpami-cifar100": _CIFAR.replaced(dataset="cifar100"),
    "tpami-cifar100-resnet50": _CIFAR.replaced(dataset="cifar100", network="resnet50-cifar"),
    "tpami-tiny-imagenet": _TINY,
    "tpami-tiny-imagenet-resnet50": _TINY.replaced(network="resnet50-cifar"),
    "tpami-alexnet": _TPAMI_ALEXNET,
    "neurips-cifar10": _CIFAR.replaced(method="svd-pi", eps=1e-4),
    "neurips-cifar100": _CIFAR.replaced(dataset="cifar100", method="svd-pi", eps=1e-4),
    "neurips-cifar10-pca": _CIFAR.replaced(
        layer="denoising", method="svd-pi", eps=1e-4, keep=0.99, statistics="projector"
    ),
    "iccv-alexnet": _ALEXNET,
    "iccv-resnet50": _RESNET50,
    "iccv-resnet101": _RESNET50.replaced(network="resnet101"),
    "iccv-birds": _FINE_GRAINED.replaced(dataset="birds"),
    "iccv-dogs": _FINE_GRAINED.replaced(dataset="dogs"),
    "iccv-cars": _FINE_GRAINED.replaced(dataset="cars"),
    "eccv-cifar10": _ECCV,
    "eccv-cifar100": _ECCV.replaced(dataset="cifar100"),
    "eccv-resnet18": _RESNET50.replaced(network="resnet18", reduce_to=None, lr=0.1, method="svd-pade"),
    "small": _SMALL,
    "small-pca": _SMALL.replaced(layer="denoising", method="svd-pade"),
    "small-cifar10": _CIFAR.replaced(
        network="resnet8", width=16, epochs=10, milestones=(6, 9), train_size=10_000, scale_init="ones", form="sound"
    ),
}


def preset(name: str) -> Config:
    """Return a preset by its name.

    Raises:
        ConfigError: the name is unknown; the message lists the presets.

    Example:
        >>> preset("iccv-resnet50").milestones
        (30, 45)
    """
    if name not in PRESETS:
        raise ConfigError(f"unknown preset {name!r}; the presets are: {', '.join(PRESETS)}")
    return PRESETS[name]
