"""Fill the templates of the lab's pages. jinja2 is imported on first use."""

from __future__ import annotations

from importlib.resources import files
from importlib.util import find_spec
from typing import Any

from spectralgrad.errors import SpectralError

_PACKAGE = __package__.partition(".")[0]
_STYLE = "report/report.css"


def require() -> None:
    """Raise an error that says what to install if pages cannot be written."""
    if find_spec("jinja2") is None:
        raise SpectralError("the report needs jinja2: pip install jinja2")


def fill(name: str, **context: Any) -> str:
    """A page as text; values are escaped.

    Args:
        name: the template, as a path in the package such as ``report/report.html.j2``.
        context: its variables; ``style``, the style sheet of all pages, is added.
    """
    from jinja2 import Environment, FunctionLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=FunctionLoader(_source), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return environment.get_template(name).render(style=Markup(_source(_STYLE)), **context)


def _source(name: str) -> str:
    return files(_PACKAGE).joinpath(*name.split("/")).read_text("utf-8")
