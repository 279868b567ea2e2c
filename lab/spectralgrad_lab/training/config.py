"""The configuration of a run: a flat, frozen dataclass, set by a TOML file or by flags of ``spectralgrad train``."""

from __future__ import annotations

import dataclasses
import sys
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from spectralgrad.errors import MethodError, SpectralError
from spectralgrad.nn.functional.whitening_matrices import OPERATION
from spectralgrad.rules import Method, resolve, spelling

from ..data.augmentation import AUGMENTATIONS
from ..networks import FORMS, LAYERS, POOLINGS, WEIGHTS, pooling_operation
from .config_values import check, toml_value
from .method_names import HINT, method_text

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

METHOD_FIELDS = ("method", "hybrid")
RECORDS = ("smoothness", "ratios", "conditions", "kept", "gaps")
DATA, NETWORK, TRAINING, CONDITIONING, RUNNING = "data", "network", "training", "conditioning", "running"


class ConfigError(SpectralError, ValueError):
    """A value of a :class:`Config` is invalid, or two values contradict each other."""


def _field(default: Any, group: str, text: str, *choices: str, minimum: float | None = None) -> Any:
    metadata = {"group": group, "help": text, "choices": choices, "minimum": minimum}
    return dataclasses.field(default=default, metadata=metadata)


@dataclass(frozen=True)
class Config:
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
        spectralgrad_lab.training.config.ConfigError: lr: expected a number ≥ 0, got -1.0
    """

    dataset: str = _field(
        "fashion", DATA, "dataset, or your own as module:callable; `fashion` is included in the package"
    )
    data: str | None = _field(None, DATA, "folder of the dataset")
    train_size: int | None = _field(None, DATA, "use this many training images (default: all)", minimum=1)
    test_size: int | None = _field(None, DATA, "use this many test images (default: all)", minimum=1)
    augmentation: str | None = _field(
        None, DATA, "random changes of training images (default: those of the dataset)", *AUGMENTATIONS
    )
    workers: int = _field(0, DATA, "threads that prepare batches in advance", minimum=0)

    network: str = _field("small", NETWORK, "name of the network, or your own as module:callable")
    width: int | None = _field(
        None, NETWORK, "channels of the first stage of small and resnet8 (default: 16)", minimum=1
    )
    layer: str = _field("whitening", NETWORK, "the layer after the first convolution", *LAYERS)
    group_size: int | None = _field(None, NETWORK, "channels whitened together (default: all)", minimum=1)
    method: str | Method = _field(  # noqa: RUF009
        "exact", NETWORK, "gradient method of the spectral layers; `spectralgrad info` lists them"
    )
    form: str = _field(
        "sound", NETWORK, "form of the methods: the library's own (sound), or that of the papers (published)", *FORMS
    )
    eps: float | None = _field(None, NETWORK, "ε of the spectral layer (default: that of the layer)", minimum=0)
    statistics: str = _field("covariance", NETWORK, "matrix averaged for evaluation", "covariance", "whitening")
    whitening: str = _field("zca", NETWORK, "kind of whitening", "zca", "pca", "cholesky")
    scale_init: str = _field("ones", NETWORK, "initial γ of the spectral layer", "ones", "uniform")
    spectral_precision: str = _field("float32", NETWORK, "precision of the spectral layers", "float32", "float64")
    keep: int | float = _field(
        0.99, NETWORK, "denoising: number of eigenvectors kept, or share of the variance, such as 0.99", minimum=0
    )
    pooling: str = _field("average", NETWORK, "the pooling before the classifier", *POOLINGS)
    power: float = _field(0.5, NETWORK, "covariance pooling: exponent of the eigenvalues", minimum=0)
    normalize: bool = _field(False, NETWORK, "covariance pooling: divide by the Frobenius norm (TPAMI, Eq. 29)")
    reduce_to: int | None = _field(256, NETWORK, "second-order pooling: channels after a 1×1 convolution", minimum=1)
    init: str | None = _field(None, NETWORK, "weights to fine-tune: folder of a run, or a .safetensors file")

    epochs: int = _field(5, TRAINING, "passes over the training images", minimum=1)
    batch_size: int = _field(128, TRAINING, "images per step, over all processes together", minimum=1)
    lr: float = _field(0.1, TRAINING, "learning rate", minimum=0)
    classifier_lr: float | None = _field(None, TRAINING, "learning rate of the classifier (default: lr)", minimum=0)
    momentum: float = _field(0.9, TRAINING, "momentum of SGD", minimum=0)
    weight_decay: float = _field(5e-4, TRAINING, "weight decay", minimum=0)
    milestones: tuple[int, ...] = _field((), TRAINING, "multiply learning rates by gamma after these epochs", minimum=1)
    gamma: float = _field(0.1, TRAINING, "factor at a milestone", minimum=0)
    precision: str = _field("float32", TRAINING, "bfloat16 uses autocast; spectral layers stay in float32",
                            "float32", "bfloat16")  # fmt: skip
    clip: float | None = _field(None, TRAINING, "clip the gradient norm to this value (default: off)", minimum=0)
    seed: int = _field(0, TRAINING, "seed of initial weights, order and augmentation, below 2³²", minimum=0)

    weights: str = _field("plain", CONDITIONING, "weights of the layer before the spectral one: spectral norm 1 (sn), "
                          "orthogonality loss (ol), orthogonal (ow)", *WEIGHTS)  # fmt: skip
    ol_weight: float = _field(1.0, CONDITIONING, "weight of the orthogonality loss of `weights ol`", minimum=0)
    nog: bool = _field(False, CONDITIONING, "nearest orthogonal gradient for the layer before the spectral one")
    olr: bool = _field(False, CONDITIONING, "optimal learning rate for the layer before the spectral one")
    hybrid: str | Method | None = _field(  # noqa: RUF009
        None, CONDITIONING, "switch from `method` to this method for the last stage"
    )
    warmup_epochs: int = _field(1, CONDITIONING, "hybrid: epochs from the switch to the last milestone", minimum=0)
    postpone: bool = _field(
        False,
        CONDITIONING,
        "hybrid: switch at the last milestone and move it warmup_epochs later, instead of before it",
    )

    device: str = _field("auto", RUNNING, "auto, cpu, cuda or cuda:1")
    threads: int | None = _field(None, RUNNING, "threads of torch (default: chosen by torch)", minimum=1)
    monitor_every: int = _field(
        50, RUNNING, "record condition numbers every N steps, at least once per epoch; 0: never", minimum=0
    )
    renew_batches: int = _field(
        20, RUNNING, "before testing, recompute running statistics over N training batches; 0: keep them",
        minimum=0,
    )  # fmt: skip
    checkpoint_minutes: float = _field(
        10.0, RUNNING, "minutes between checkpoints; one is always saved at the end of an epoch", minimum=0
    )
    patience: int = _field(
        3, RUNNING, "epochs without a training loss below that of guessing before a run fails; 0: unlimited", minimum=0
    )
    record: str | None = _field(
        None, RUNNING, f"also record, when condition numbers are: any of {','.join(RECORDS)}, separated by commas"
    )
    time_layers: bool = _field(
        False, RUNNING, "time forward and backward passes of the network and the spectral layers"
    )
    tensorboard: bool = _field(True, RUNNING, "write TensorBoard events if TensorBoard is installed")

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if isinstance(value, Method) and field.name in METHOD_FIELDS:
                object.__setattr__(self, field.name, spelling(value) or value)
                continue
            try:
                object.__setattr__(self, field.name, check(field, value))
            except ValueError as problem:
                raise ConfigError(f"{field.name}: {problem}") from None
        self._check_together()

    def _check_together(self) -> None:
        for name in (self.method, *([self.hybrid] if self.hybrid else [])):
            for operation in self.operations:
                self._check_method(name, operation)
        if (self.weights != "plain" or self.nog or self.olr or self.hybrid) and not self.spectral:
            raise ConfigError(
                "weights, nog, olr and hybrid need a spectral layer; "
                "expected layer 'whitening' or 'denoising', or a pooling other than 'average' and 'bcnn'"
            )
        if unknown := [name for name in self.recorded if name not in RECORDS]:
            raise ConfigError(f"record: expected any of {', '.join(RECORDS)}, separated by commas, got {unknown[0]!r}")
        if self.hybrid:
            self._check_hybrid()
        if self.seed >= 1 << 32:
            raise ConfigError(f"seed: expected a whole number below 2³², got {self.seed}")
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
        if self.milestones[-1] - self.warmup_epochs >= self.epochs:
            raise ConfigError(
                f"hybrid: the switch happens {self.warmup_epochs} epochs before the last milestone, "
                f"{self.milestones[-1]}, which is not within {self.epochs} epochs"
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
    def depends_on_folder(self) -> bool:
        """True if results depend on the folder ``data``; a dataset with a name is the same in any folder.

        Example:
            >>> Config(dataset="cifar10", data="here").depends_on_folder
            False
            >>> Config(dataset="folder", data="here").depends_on_folder
            True
        """
        return self.dataset == "folder" or ":" in self.dataset

    def replaced(self, **values: Any) -> Config:
        """A copy with some values replaced.

        Example:
            >>> Config().replaced(seed=3).seed
            3
        """
        unknown = sorted(set(values) - set(FIELDS))
        if unknown:
            likely = [get_close_matches(name, FIELDS, 1, 0.75) for name in unknown]
            hint = f"did you mean {', '.join(name for found in likely for name in found)}?" if any(likely) else ""
            listed = hint or f"the fields are {', '.join(FIELDS)}"
            raise ConfigError(f"unknown field {', '.join(map(repr, unknown))}; {listed}")
        return dataclasses.replace(self, **values)

    def to_toml(self) -> str:
        """The values as TOML. None is omitted where it is the default, and written as ``"none"`` elsewhere.

        Example:
            >>> print(Config(milestones=(2, 4)).to_toml().split("[")[0][:28])
            dataset = "fashion"
            workers
        """
        values = {name: self.text(name) for name in FIELDS}
        said = {name: v for name, v in values.items() if v is not None or FIELDS[name].default is not None}
        return "".join(f"{name} = {toml_value('none' if value is None else value)}\n" for name, value in said.items())

    @classmethod
    def from_toml(cls, path: str | Path, base: Config | None = None) -> Config:
        """Read a TOML file; missing fields have the values of ``base`` (default: the default values).

        Raises:
            ConfigError: the file is not valid TOML, or contains an unknown field.
            OSError: the file cannot be read.
        """
        try:
            values = tomllib.loads(Path(path).read_text("utf-8"))
        except (ValueError, RecursionError) as problem:  # invalid TOML, invalid UTF-8, or nested too deeply
            raise ConfigError(f"{path}: not a TOML file: {problem}") from None
        try:
            return (base or cls()).replaced(**values)
        except ConfigError as problem:
            raise ConfigError(f"{path}: {problem}") from None

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {name: list(v) if isinstance(v := self.text(name), tuple) else v for name in FIELDS}

    def text(self, name: str) -> Any:
        """The value of a field as it is recorded: a method as its name, or as its repr if no name describes it."""
        value = getattr(self, name)
        return method_text(value) if isinstance(value, Method) else value


FIELDS: dict[str, dataclasses.Field[Any]] = {field.name: field for field in dataclasses.fields(Config)}
