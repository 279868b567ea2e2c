"""Names of methods: the list, and the one place that turns a name into an object."""

from __future__ import annotations

from ..errors import MethodError
from .base import DECOMPOSITIONS, FUNCTIONS, Method
from .gaps import Analytic, Clip, Lorentzian, Masked, Taylor, TopN, Trunc
from .iterations import PI, SVDPI, Exact, NewtonSchulz, SVDNewton
from .pade import Pade
from .spelling import parse

METHODS: dict[str, type[Method]] = {
    cls.name: cls
    for cls in (
        Exact, Analytic, Clip, Trunc, TopN, Taylor, Pade, SVDPI, PI, SVDNewton, NewtonSchulz, Lorentzian, Masked,
    )
}  # fmt: skip


class MethodList(dict[str, str]):
    """Name → one line; prints as a table."""

    def __repr__(self) -> str:
        width = max(map(len, self))
        return "\n".join(f"{name:<{width}}  {line}" for name, line in self.items())


def methods(operation: str | None = None) -> MethodList:
    """All methods by name with a line each, or those that serve one operation.

    Args:
        operation: ``"eigh"``, ``"svd"``, ``"sqrt"``, ``"inv_sqrt"``, ``"power"``, ``"log"``, ``"exp"`` or
            ``"function"``.

    Raises:
        MethodError: there is no such operation.

    Example:
        >>> methods("svd")
        svd         the textbook gradient 1/(λi − λj); NaN at ties
        svd-clip    1/(λi − λj) clipped at ±100
        svd-trunc   1/(λi − λj) truncated at ±1e10
        svd-topn    only the 200 leading eigenvalues take part
        svd-taylor  geometric series of degree 9 in closed form; bound (K+1)/λ
        svd-pade    1/(λi − λj) exact above a floor on 1 − λj/λi, zero at ties
        lorentzian  g/(g² + δ²): smooth broadening, used in tensor networks
        masked      exact gaps, zero between vectors that are numerically tied
    """
    if operation not in (None, *DECOMPOSITIONS, *FUNCTIONS):
        known = ", ".join(sorted(DECOMPOSITIONS | FUNCTIONS))
        raise MethodError(f"methods: expected an operation from {known}, got {operation!r}")
    return MethodList({n: c.summary for n, c in METHODS.items() if operation is None or operation in c.operations})


def resolve(method: str | Method, operation: str) -> Method:
    """The method object for a name or an object, checked against the operation.

    A name stands for the paper's parameters; others follow it: ``"svd-taylor:degree=19"``.

    Raises:
        MethodError: there is no such method, or it does not serve the operation.

    Example:
        >>> resolve("svd-taylor:degree=19", "eigh")
        Taylor(degree=19, faithful=False)
        >>> str(resolve("svd-clip", "eigh"))
        'svd-clip'
    """
    if isinstance(method, str):
        method = METHODS[method]() if method in METHODS else parse(method, METHODS)
    if not isinstance(method, Method):
        raise MethodError(f"method: expected a name or a Method object, got {type(method).__name__}")
    if operation not in method.operations:
        raise MethodError(
            f"method {method.name!r} does not serve {operation}; those that do: {', '.join(methods(operation))}"
        )
    return method
