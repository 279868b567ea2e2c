"""A matrix function that was composed by hand, and the function of this library to call instead."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

_NAMES = {
    "__add__": "add", "__mul__": "mul", "__pow__": "pow", "__radd__": "add", "__rdiv__": "reciprocal",
    "__rmul__": "mul", "__rtruediv__": "reciprocal", "__setitem__": "where", "__sub__": "sub", "__truediv__": "div",
    "absolute": "abs", "clamp_min": "clamp", "clip": "clamp", "divide": "div", "float_power": "pow",
    "multiply": "mul", "negative": "neg", "subtract": "sub", "true_divide": "div",
}  # fmt: skip
_OPERATORS = {"add": "+", "sub": "-", "mul": "*", "div": "/"}
_BOUNDS = ("clamp", "clamp_max", "relu", "abs", "maximum", "where", "threshold")


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
        plain = _NAMES.get(plain, plain)
        above = plain == "clamp" and number is not None and kwargs.get("max") is not None
        return cls("clamp_max" if above else plain, number, unknown=tensors > 1)

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
        if self.name == "clamp_max":
            return f"{text}.clamp(max={self._operand()})"
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
    first: int = 0  # how many, if they are the first ones
    signed: bool = False  # the last vector is multiplied by ±1
    symbol: str = "w"  # of the values in expressions

    @property
    def text(self) -> str:
        """The product as a formula."""
        left, right = self.sides[0], self.sides[-1]
        middle = f" diag({self.expression}) " if self.scaled else " diag(1, …, 1, ±1) " if self.signed else " "
        chosen = ", a part of the vectors" if self.part else ""
        return f"{left}{middle}{right}ᴴ{chosen}"

    @property
    def expression(self) -> str:
        """f(w), or f(s) of singular values, as Python code."""
        text = self.symbol
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
        if self.symbol != "w":
            return replace(self, symbol="w").instead(is_svd=False)
        if not self.scaled:
            return "sg.spectral_projector(A, k)"
        if self.part:
            return f"sg.matrix_function(A, f) with f(w) = {self.expression}, zero for the eigenvalues left out"
        return self._of_eigenvalues()

    def caution(self, is_svd: bool) -> str:
        """What to know about a bound in f, which makes a kink; empty if there is none or the function handles it."""
        if not self._bounds or self._is_threshold:
            return ""
        if is_svd or self.part or self._simple is None or not (self._bounds_at_zero or self._floor is not None):
            return "f has a kink: a value that lies on it has no derivative."
        if self._bounds_at_zero:
            return ""
        return (
            f"Unlike clamp(min={self._floor:g}), the function has no kink; "
            "if eigenvalues may be smaller, add a multiple of I to A before."
        )

    @property
    def is_function_of_positive(self) -> bool:
        """True if the product, from the SVD of a positive semi-definite matrix, is a function of its eigenvalues."""
        return len(self.sides) == 1 or (bool(self.steps) and not self.part and not self._is_threshold)

    @property
    def _bounds(self) -> list[Step]:
        return [step for step in self.steps if step.name in _BOUNDS]

    @property
    def _bounds_at_zero(self) -> bool:
        return all(step.name == "relu" or (step.name == "clamp" and step.number == 0) for step in self._bounds)

    @property
    def _floor(self) -> float | None:
        """The number of the only bound, if it is a lower bound."""
        match self._bounds:
            case [Step("clamp", float() as number)]:
                return number
        return None

    @property
    def _simple(self) -> tuple[str, str] | None:
        """The matrix function without its bounds, and its second argument."""
        found = _named([(step.name, step.number) for step in self.steps if step.name not in _BOUNDS])
        if found is None or any(step.unknown for step in self.steps):
            return None
        late = bool(self._bounds) and self.steps[-1].name in _BOUNDS
        shaped = found[0] == "matrix_exp" and not self._bounds_at_zero
        return None if late or shaped else found

    @property
    def _is_threshold(self) -> bool:
        match self.steps:
            case (Step("sub"), Step("relu") | Step("clamp", 0)) | (Step("softshrink"),):
                return self.sides == "UV" and not self.part
        return False

    def _of_eigenvalues(self) -> str:
        if self._simple is None or not (self._bounds_at_zero or self._floor is not None):
            return "A itself" if not self.steps else f"sg.matrix_function(A, lambda w: {self.expression})"
        name, argument = self._simple
        clamp = ", clamp=True" if self._bounds and self._bounds_at_zero and name != "matrix_exp" else ""
        return f"sg.{name}(A{argument}{clamp})"

    def _of_singular_values(self) -> str:
        if self.sides == "UV":
            return self._of_both_sides()
        gram = "M @ M.mH" if self.sides == "U" else "M.mH @ M"
        if not self.scaled:
            return f"sg.spectral_projector({gram}, {self.first or 'k'})"
        return f"sg.matrix_function({gram}, g) with g(x) = f(√x)"

    def _of_both_sides(self) -> str:
        if self.signed:
            return "sg.polar(M, special=True)"
        if not self.scaled:
            return "sg.polar(M)" if not self.part else "sg.polar(M), if the vectors left out belong to zeros"
        if self.part and self.first and not self.steps:
            return f"sg.low_rank(M, {self.first})"
        if self.part:
            return f"sg.singular_value_function(M, f) with f(s) = {self.expression}, zero for the values left out"
        if self._is_threshold:
            number = self.steps[0].number
            return f"sg.singular_value_threshold(M, {'tau' if number is None else f'{number:g}'})"
        return f"sg.singular_value_function(M, lambda s: {self.expression})" if self.steps else "M itself"


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
