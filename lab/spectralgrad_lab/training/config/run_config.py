"""The configuration of a run: a flat, frozen dataclass, set by a TOML file or by flags of ``spectralgrad train``."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, ClassVar

from spectralgrad.errors import MethodError
from spectralgrad.nn.functional.whitening_matrices import OPERATION
from spectralgrad.rules import Method, resolve

from ...data.augmentation import AUGMENTATIONS
from ...networks import FORMS, LAYERS, POOLINGS, UNDECOMPOSED, WEIGHTS, pooling_operation
from .method_names import HINT
from .settings import ConfigError as ConfigError
from .settings import Settings, check_seed, setting

METHOD_FIELDS = ("method", "hybrid")
RECORDS = ("smoothness", "ratios", "conditions", "kept", "gaps")
DATA, NETWORK, TRAINING, CONDITIONING, RUNNING = "data", "network", "training", "conditioning", "running"


@dataclass(frozen=True)
class Config(Settings):
    """Everything that a training run depends on. Each field is also a flag: ``group_size`` is ``--group-size``.

    Values are checked on construction. The help text of a field says what ``None`` means. A method may be an object. It
    is stored by its name, such as ``"svd-taylor:degree=19"``, if a name describes it; otherwise the object itself is
    kept and recorded by its repr.

    Raises:
        ConfigError: a value is out of range, has the wrong type, or contradicts another value.

    Example:
        >>> config = Config(method="svd-taylor", group_size=16, milestones=(3, 5))
        >>> config.replaced(epochs=6).milestones
        (3, 5)
        >>> Config(lr=-1)
        Traceback (most recent call last):
        ...
        spectralgrad_lab.training.config.settings.ConfigError: lr: expected a number ≥ 0, got -1.0
    """

    # Results of the remaining epochs do not depend on these.
    changeable: ClassVar[frozenset[str]] = frozenset({
        "epochs", "data", "workers", "device", "threads", "monitor_every", "checkpoint_minutes", "patience",
        "tensorboard", "record", "time_layers",
    })  # fmt: skip

    dataset: str = setting(
        "fashion", DATA, "dataset, or your own as module:callable; `fashion` is included in the package"
    )
    data: str | None = setting(None, DATA, "folder of the dataset", metavar="DIR")
    train_size: int | None = setting(None, DATA, "use this many training images (default: all)", minimum=1)
    test_size: int | None = setting(None, DATA, "use this many test images (default: all)", minimum=1)
    augmentation: str | None = setting(
        None, DATA, "random changes of training images (default: the dataset's)", *AUGMENTATIONS
    )
    workers: int = setting(0, DATA, "threads that prepare batches in advance", minimum=0)

    network: str = setting("small", NETWORK, "name of the network, or your own as module:callable")
    width: int | None = setting(
        None, NETWORK, "channels of the first stage of small and resnet8 (default: 16)", minimum=1
    )
    layer: str = setting("whitening", NETWORK, "the layer after the first convolution", *LAYERS)
    group_size: int | None = setting(None, NETWORK, "channels whitened together (default: all)", minimum=1)
    method: str | Method = setting(  # noqa: RUF009
        "exact", NETWORK, "gradient method of the spectral layers; `spectralgrad info` lists them"
    )
    form: str = setting(
        "sound", NETWORK, "form of the methods: the library's own (sound), or the papers' (published)", *FORMS
    )
    eps: float | None = setting(None, NETWORK, "ε of the spectral layer (default: the layer's own)", minimum=0)
    statistics: str = setting(
        "covariance", NETWORK, "matrix averaged for evaluation; `projector` is for denoising",
        "covariance", "whitening", "projector",
    )  # fmt: skip
    whitening: str = setting("zca", NETWORK, "kind of whitening", "zca", "pca", "cholesky")
    scale_init: str = setting("ones", NETWORK, "initial γ of the spectral layer", "ones", "uniform")
    spectral_precision: str = setting("float32", NETWORK, "precision of the spectral layers", "float32", "float64")
    keep: int | float = setting(
        0.99, NETWORK, "denoising: number of eigenvectors kept, or share of the variance, such as 0.99", minimum=0
    )
    pooling: str = setting("average", NETWORK, "the pooling before the classifier", *POOLINGS)
    power: float = setting(0.5, NETWORK, "covariance pooling: exponent of the eigenvalues", minimum=0)
    normalize: bool = setting(False, NETWORK, "covariance pooling: divide by the Frobenius norm (TPAMI, Eq. 29)")
    reduce_to: int | None = setting(256, NETWORK, "second-order pooling: channels after a 1×1 convolution", minimum=1)
    init: str | None = setting(
        None, NETWORK, "weights to fine-tune: folder of a run, or a .safetensors file", metavar="PATH"
    )

    epochs: int = setting(5, TRAINING, "passes over the training images", minimum=1)
    batch_size: int = setting(128, TRAINING, "images per step, over all processes together", minimum=1)
    lr: float = setting(0.1, TRAINING, "learning rate", minimum=0)
    classifier_lr: float | None = setting(None, TRAINING, "learning rate of the classifier (default: lr)", minimum=0)
    momentum: float = setting(0.9, TRAINING, "momentum of SGD", minimum=0)
    weight_decay: float = setting(5e-4, TRAINING, "weight decay", minimum=0)
    milestones: tuple[int, ...] = setting(
        (), TRAINING, "multiply learning rates by gamma after these epochs", minimum=1
    )
    gamma: float = setting(0.1, TRAINING, "factor at a milestone", minimum=0)
    precision: str = setting("float32", TRAINING, "bfloat16 uses autocast; spectral layers stay in float32",
                            "float32", "bfloat16")  # fmt: skip
    clip: float | None = setting(None, TRAINING, "clip the gradient norm to this value (default: off)", minimum=0)
    seed: int = setting(0, TRAINING, "seed of initial weights, order and augmentation, below 2³²", minimum=0)

    weights: str = setting("plain", CONDITIONING, "weights of the layer before the spectral one: spectral norm 1 (sn), "
                          "orthogonality loss (ol), orthogonal (ow)", *WEIGHTS)  # fmt: skip
    ol_weight: float = setting(1.0, CONDITIONING, "weight of the orthogonality loss of `weights ol`", minimum=0)
    nog: bool = setting(False, CONDITIONING, "nearest orthogonal gradient for the layer before the spectral one")
    olr: bool = setting(False, CONDITIONING, "optimal learning rate for the layer before the spectral one")
    hybrid: str | Method | None = setting(  # noqa: RUF009
        None, CONDITIONING, "switch from `method` to this method for the last stage"
    )
    warmup_epochs: int = setting(1, CONDITIONING, "hybrid: epochs from the switch to the last milestone", minimum=0)
    postpone: bool = setting(
        False,
        CONDITIONING,
        "hybrid: switch at the last milestone and move it warmup_epochs later, instead of before it",
    )

    device: str = setting("auto", RUNNING, "auto, cpu, cuda or cuda:1")
    threads: int | None = setting(None, RUNNING, "threads of torch (default: chosen by torch)", minimum=1)
    monitor_every: int = setting(
        50, RUNNING, "record condition numbers every N steps, at least once per epoch; 0: never", minimum=0
    )
    renew_batches: int = setting(
        20, RUNNING, "before testing, recompute running statistics over N training batches; 0: keep them",
        minimum=0,
    )  # fmt: skip
    checkpoint_minutes: float = setting(
        10.0, RUNNING, "minutes between checkpoints; one is always saved at the end of an epoch", minimum=0
    )
    patience: int = setting(
        3, RUNNING, "epochs without a training loss better than guessing before a run fails; 0: unlimited", minimum=0
    )
    record: str | None = setting(
        None, RUNNING, f"also record, when condition numbers are: any of {','.join(RECORDS)}, separated by commas"
    )
    time_layers: bool = setting(
        False, RUNNING, "time forward and backward passes of the network and the spectral layers"
    )
    tensorboard: bool = setting(True, RUNNING, "write TensorBoard events if TensorBoard is installed")

    def _check_together(self) -> None:
        for name in (self.method, *([self.hybrid] if self.hybrid else [])):
            for operation in self.operations:
                self._check_method(name, operation)
        if (self.weights != "plain" or self.nog or self.olr or self.hybrid) and not self.spectral:
            raise ConfigError(
                "weights, nog, olr and hybrid need a spectral layer; "
                f"expected layer 'whitening' or 'denoising', or a pooling other than {', '.join(UNDECOMPOSED)}"
            )
        if self.statistics == "projector" and self.layer != "denoising":
            raise ConfigError(f"statistics: 'projector' needs layer 'denoising', got {self.layer!r}")
        if unknown := [name for name in self.recorded if name not in RECORDS]:
            raise ConfigError(f"record: expected any of {', '.join(RECORDS)}, separated by commas, got {unknown[0]!r}")
        if self.hybrid:
            self._check_hybrid()
        check_seed(self.seed)
        if tuple(sorted(set(self.milestones))) != self.milestones:
            raise ConfigError(f"milestones: expected increasing epochs, got {self.milestones}")

    def _check_method(self, method: str | Method, operation: str) -> None:
        try:
            resolve(method, operation)
        except MethodError as problem:
            why = "denoising needs eigenvectors: " if operation == "eigh" else ""
            hint = f"; {HINT}" if isinstance(method, str) and "(" in method else ""
            raise ConfigError(f"{why}{problem}{hint}") from None

    def _check_hybrid(self) -> None:
        if not self.milestones:
            raise ConfigError("hybrid: expected milestones; the switch happens before the last one")
        if self.text("hybrid") == self.text("method"):
            raise ConfigError(f"hybrid: expected a method other than the first stage's, got {self.method!r} for both")
        if self.postpone and self.milestones[-1] >= self.epochs:
            raise ConfigError(
                f"hybrid: with postpone the switch happens at the last milestone, {self.milestones[-1]}, which is not "
                f"within {_epochs(self.epochs)}"
            )
        if self.milestones[-1] - self.warmup_epochs >= self.epochs:
            raise ConfigError(
                f"hybrid: the switch happens {_epochs(self.warmup_epochs)} before the last milestone, "
                f"{self.milestones[-1]}, which is not within {_epochs(self.epochs)}"
            )
        if self.warmup_epochs > self.milestones[-1]:
            raise ConfigError(
                f"warmup_epochs: {self.warmup_epochs} do not fit before the last milestone, {self.milestones[-1]}"
            )

    @property
    def operations(self) -> tuple[str, ...]:
        """The operations that the method must support, as named by ``methods(operation)``.

        Example:
            >>> Config(pooling="covariance").operations
            ('inv_sqrt', 'sqrt')
        """
        of_layer = {"batchnorm": (), "denoising": ("eigh",), "whitening": (OPERATION[self.whitening],)}
        pooled = pooling_operation(self.pooling, self.power)
        return of_layer[self.layer] + ((pooled,) if pooled else ())

    @property
    def recorded(self) -> tuple[str, ...]:
        """The names in ``record``.

        Example:
            >>> Config(record="ratios, kept").recorded
            ('ratios', 'kept')
        """
        return tuple(name.strip() for name in self.record.split(",")) if self.record else ()

    @property
    def spectral(self) -> bool:
        """True if the network has a spectral layer, or may have one because it is a user's own."""
        return bool(self.operations) or ":" in self.network

    @property
    def own_names(self) -> dict[str, str]:
        """The fields that name a user's own code as ``module:callable``.

        Example:
            >>> Config(network="mine:net").own_names
            {'network': 'mine:net'}
        """
        return {name: value for name in ("dataset", "network") if ":" in (value := getattr(self, name))}

    @property
    def depends_on_folder(self) -> bool:
        """True if results depend on the folder ``data``; a dataset with a name is the same in any folder.

        Example:
            >>> Config(dataset="cifar10", data="here").depends_on_folder
            False
            >>> Config(dataset="folder", data="here").depends_on_folder
            True
        """
        return self.dataset == "folder" or ":" in self.dataset

    @property
    def changeable_fields(self) -> frozenset[str]:
        return self.changeable - ({"data"} if self.depends_on_folder else set())


def _epochs(count: int) -> str:
    return f"{count} epoch{'' if count == 1 else 's'}"


FIELDS: dict[str, dataclasses.Field[Any]] = Config.fields()
