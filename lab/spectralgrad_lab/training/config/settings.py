"""A configuration as a flat, frozen dataclass whose values are checked, and its forms as TOML, JSON and text."""

from __future__ import annotations

import dataclasses
import sys
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from spectralgrad.errors import SpectralError
from spectralgrad.rules import Method, spelling

from ...import_by_name import from_file
from .method_names import HINT, RecordedMethod, method_text
from .values import check, toml_value

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

if TYPE_CHECKING:
    from typing_extensions import Self


_LONGEST = 1 << 16  # bytes of a TOML file; about 2000 are used
_PARTS = 16  # of a key; the time to parse one grows with the square of their number


class ConfigError(SpectralError, ValueError):
    """A value of a configuration is invalid, or two values contradict each other."""


def setting(
    default: Any, group: str, text: str, *choices: str, minimum: float | None = None, metavar: str | None = None
) -> Any:
    """A field of :class:`Settings`.

    Args:
        default: its default value.
        group: the heading under which the help text of a command lists it.
        text: its help text.
        choices: its possible values (default: any).
        minimum: its smallest value (default: any).
        metavar: the word for its value in the help text (default: by its type).
    """
    metadata = {"group": group, "help": text, "choices": choices, "minimum": minimum, "metavar": metavar}
    return dataclasses.field(default=default, metadata=metadata)


def _bounded(raw: bytes) -> str:
    """The text of a TOML file that takes no longer than some milliseconds to parse.

    Raises:
        ValueError: it is too long, or has a key of too many parts.
    """
    if len(raw) > _LONGEST:
        raise ValueError(f"longer than {_LONGEST} bytes")
    text = raw.decode("utf-8")
    keys = (key for line in text.split("\n") for key in (line.split("=")[:-1] or [line]))
    if any(key.count(".") >= _PARTS for key in keys):
        raise ValueError(f"a key of more than {_PARTS} parts")
    return text


def check_seed(seed: int) -> None:
    """Raise ConfigError unless all generators accept the seed."""
    if seed >= 1 << 32:
        raise ConfigError(f"seed: expected a whole number below 2³², got {seed}")


@dataclasses.dataclass(frozen=True)
class Settings:
    """Base class of configurations: dataclasses whose fields are made by :func:`setting`.

    Each field is also a flag of a command: ``group_size`` is ``--group-size``. Values are checked on construction. A
    field whose type includes ``Method`` may be an object; it is stored by its name if a name describes it.

    Attributes:
        changeable: names of the fields that may change when a run is resumed.

    Example:
        >>> @dataclasses.dataclass(frozen=True)
        ... class Mine(Settings):
        ...     steps: int = setting(10, "training", "number of steps", minimum=1)
        >>> Mine().replaced(steps=3).to_toml()
        'steps = 3\\n'
        >>> Mine(steps=0)
        Traceback (most recent call last):
        ...
        spectralgrad_lab.training.config.settings.ConfigError: steps: expected a whole number ≥ 1, got 0
    """

    changeable: ClassVar[frozenset[str]] = frozenset()

    def __post_init__(self) -> None:
        for name, field in self.fields().items():
            value = getattr(self, name)
            if isinstance(value, Method) and "Method" in str(field.type):
                object.__setattr__(self, name, spelling(value) or value)
                continue
            try:
                object.__setattr__(self, name, check(field, value))
            except ValueError as problem:
                raise ConfigError(f"{name}: {problem}") from None
        self._check_together()

    def _check_together(self) -> None:
        """Raise ConfigError if values contradict each other."""

    @classmethod
    def fields(cls) -> dict[str, dataclasses.Field[Any]]:
        """The fields by name."""
        return {field.name: field for field in dataclasses.fields(cls)}

    def replaced(self, **values: Any) -> Self:
        """A copy with some values replaced.

        Raises:
            ConfigError: a field is unknown, or a value is invalid.
        """
        known = self.fields()
        unknown = sorted(set(values) - set(known))
        if unknown:
            likely = [get_close_matches(name, known, 1, 0.75) for name in unknown]
            hint = f"did you mean {', '.join(name for found in likely for name in found)}?" if any(likely) else ""
            listed = hint or f"the fields are {', '.join(known)}"
            raise ConfigError(f"unknown field {', '.join(map(repr, unknown))}; {listed}")
        return dataclasses.replace(self, **values)

    def to_toml(self) -> str:
        """The values as TOML. None is omitted where it is the default, and written as ``"none"`` elsewhere."""
        known = self.fields()
        values = {name: self.text(name) for name in known}
        said = {name: v for name, v in values.items() if v is not None or known[name].default is not None}
        return "".join(f"{name} = {toml_value('none' if value is None else value)}\n" for name, value in said.items())

    @classmethod
    def from_toml(cls, path: str | Path, base: Self | None = None) -> Self:
        """Read a TOML file; missing fields have the values of ``base`` (default: the default values).

        A ``module:callable`` in the file is never imported: give it again with :meth:`replaced`.

        Raises:
            ConfigError: the file is not valid TOML, or contains an unknown field.
            OSError: the file cannot be read.
        """
        try:
            with Path(path).open("rb") as file:
                values = tomllib.loads(_bounded(file.read(_LONGEST + 1)))
        except (ValueError, RecursionError) as problem:  # invalid TOML, invalid UTF-8, too long or nested too deeply
            raise ConfigError(f"{path}: not a TOML file: {problem}") from None
        try:
            return (base or cls()).replaced(**from_file(values))
        except ConfigError as problem:
            raise ConfigError(f"{path}: {problem}") from None

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {name: list(v) if isinstance(v := self.text(name), tuple) else v for name in self.fields()}

    def text(self, name: str) -> Any:
        """The value of a field as it is recorded: a method as its name, or as its repr if no name describes it."""
        value = getattr(self, name)
        return method_text(value) if isinstance(value, Method) else value

    def differences(self, new: Self) -> str:
        """Which fields are different in ``new``, apart from those that may change; empty if none is.

        Example:
            >>> from spectralgrad_lab.training.config.run_config import Config
            >>> Config(seed=1, threads=1).differences(Config(seed=2, threads=2))
            'seed was 1, is 2'
        """
        fixed = [name for name in self.fields() if name not in self.changeable_fields]
        differ = [name for name in fixed if self.text(name) != new.text(name)]
        hint = [HINT] if any(isinstance(getattr(self, name), RecordedMethod) for name in differ) else []
        return "; ".join([*(f"{name} was {self.text(name)!r}, is {new.text(name)!r}" for name in differ), *hint])

    @property
    def changeable_fields(self) -> frozenset[str]:
        """The fields of this configuration that may change when its run is resumed."""
        return self.changeable
