"""A matrix function that was composed by hand, and the function of this library to call instead."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ... import linalg

_NAMES = {
    "__add__": "add", "__mul__": "mul", "__pow__": "pow", "__radd__": "add", "__rdiv__": "reciprocal",
    "__rmul__": "mul", "__rtruediv__": "reciprocal", "__setitem__": "where", "__sub__": "sub", "__truediv__": "div",
    "absolute": "abs", "clamp_min": "clamp", "clip": "clamp", "divide": "div", "float_power": "pow",
    "multiply": "mul", "negative": "neg", "subtract": "sub", "true_divide": "div",
}  # fmt: skip
_OPERATORS = {"add": "+", "sub": "-", "mul": "*", "div": "/"}
_BOUNDS = ("clamp", "relu", "abs", "maximum", "where", "threshold")


@dataclass(frozen=True)
class Step:
    """One elementwise operation on eigenvalues, with its number if it has one; ``unknown`` if tensors enter too."""

    name: str
    number: float | None = None
    unknown: bool = False

    @classmethod
    def of(cls, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], tensors: int) -> Step:
        """The step that a call of torch is."""
        plain = name[:-1] if name.endswith("_") and not name.endswith("__") else name
        numbers = [x for x in (*args[1:], *kwargs.values()) if isinstance(x, (int, float)) and not isinstance(x, bool)]
        number = float(numbers[0]) if len(numbers) == 1 else None
        return cls(_NAMES.get(plain, plain), number, unknown=tensors > 1)

    def applied(self, text: str) -> str:
        """The expression after this step."""
        if self.name in _OPERATORS:
            return f"({text} {_OPERATORS[self.name]} {self._operand()})"
        if self.name == "__rsub__":
            return f"({self._operand()} - {text})"
        if self.name == "reciprocal":
            return f"({self._operand() if self.number is not None else 1} / {text})"
        if self.name == "clamp":
            return f"{text}.clamp(min={self._operand()})"
        if self.name in (
            "sqrt",
            "rsqrt",
            "log",
            "exp",
            "square",
            "abs",
            "relu",
            "neg",
            "tanh",
            "sigmoid",
            "log1p",
            "expm1",
        ):
            return f"{text}.{self.name}()"
        return f"{text}.pow({self._operand()})" if self.name == "pow" else f"{self.name}({text}, …)"

    def _operand(self) -> str:
        return "…" if self.number is None else f"{self.number:g}"


@dataclass(frozen=True)
class Composed:
    """A product of the factors of one decomposition: V f(λ) Vᴴ, U f(σ) Vᴴ, U Vᴴ or a projector."""

    source: Any
    sides: str  # "V" for eigenvectors; "U", "V" or "UV" for singular vectors
    scaled: bool
    steps: tuple[Step, ...]
    part: bool  # only some of the vectors are used

    @property
    def text(self) -> str:
        """The product as a formula."""
        left, right = self.sides[0], self.sides[-1]
        middle = f" diag({self.expression}) " if self.scaled else " "
        chosen = ", a part of the vectors" if self.part else ""
        return f"{left}{middle}{right}ᴴ{chosen}"

    @property
    def expression(self) -> str:
        """f(w) as Python code."""
        text = "w"
        for step in self.steps:
            text = step.applied(text)
        outermost = self.steps and self.steps[-1].applied("w")[0] == "("
        return text[1:-1] if outermost else text

    @property
    def harmless(self) -> bool:
        """True if the product is an identity: all vectors of one side, not scaled."""
        return not self.scaled and len(self.sides) == 1 and not self.part

    def instead(self, is_svd: bool) -> str:
        """What to write instead; ``A`` or ``M`` stands for the matrix that was decomposed."""
        if is_svd:
            return self._of_singular_values()
        if not self.scaled:
            return "sg.spectral_projector(A, k)"
        if self.part:
            return f"sg.matrix_function(A, f) with f(w) = {self.expression}, zero for the eigenvalues left out"
        return self._of_eigenvalues()

    def _of_eigenvalues(self) -> str:
        bounds = [step for step in self.steps if step.name in _BOUNDS]
        others = [(step.name, step.number) for step in self.steps if step.name not in _BOUNDS]
        at_zero = all(step.name == "relu" or (step.name == "clamp" and step.number == 0) for step in bounds)
        simple = None if any(step.unknown for step in self.steps) else _named(others)
        if simple is None or not at_zero:
            return "A itself" if not self.steps else f"sg.matrix_function(A, lambda w: {self.expression})"
        name, argument = simple
        clamp = ", clamp=True" if bounds and name != "matrix_exp" else ""
        return f"sg.{name}(A{argument}{clamp})"

    def _of_singular_values(self) -> str:
        if self.sides == "UV" and not self.scaled:
            return "sg.polar(M)" if not self.part else "sg.polar(M), if the vectors left out belong to zeros"
        if self.sides == "UV":
            if hasattr(linalg, "singular_value_function"):
                return f"sg.singular_value_function(M, lambda w: {self.expression})"
            return "sg.polar(M) @ sg.matrix_function(M.mH @ M, g) with g(x) = f(√x)"
        gram = "M @ M.mH" if self.sides == "U" else "M.mH @ M"
        if not self.scaled:
            return f"sg.spectral_projector({gram}, k)"
        return f"sg.matrix_function({gram}, g) with g(x) = f(√x)"


def _named(steps: list[tuple[str, float | None]]) -> tuple[str, str] | None:
    """The matrix function that the steps are, and its second argument."""
    match steps:
        case [("sqrt", _)] | [("pow", 0.5)]:
            return "matrix_sqrt", ""
        case [("rsqrt", _)] | [("pow", -0.5)] | [("sqrt", _), ("reciprocal", 1 | None)]:
            return "matrix_inv_sqrt", ""
        case [("reciprocal", 1 | None), ("sqrt", _)] | [("sqrt", _), ("pow", -1)]:
            return "matrix_inv_sqrt", ""
        case [("log", _)]:
            return "matrix_log", ""
        case [("exp", _)]:
            return "matrix_exp", ""
        case [("reciprocal", 1 | None)]:
            return "matrix_power", ", -1"
        case [("square", _)]:
            return "matrix_power", ", 2"
        case [("pow", float() as exponent)]:
            return "matrix_power", f", {exponent:g}"
    return None
