r"""A hook of mkdocs: TeX becomes MathML when the site is built, so that formulas need neither scripts nor a network.

``pymdownx.arithmatex`` marks the formulas of a page, and browsers draw MathML themselves. What they need for good
spacing is a font with a mathematical table; STIX Two Math comes with the package ziamath and is copied to the site.
"""

from __future__ import annotations

import html
import re
import shutil
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert

_FONT = files("ziamath") / "fonts" / "STIXTwoMath-Regular.ttf"
_REPAIRS = {  # what latex2mathml leaves to the browser: the size of bars from \\lVert and \\lvert, the height of \\bar
    "<mo>&#x02016;": '<mo stretchy="false">&#x02016;',
    "<mo>&#x0007C;": '<mo stretchy="false">&#x0007C;',
    "<mover>": '<mover accent="true">',
}
_FORMULA = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.DOTALL)


def on_page_content(content: str, **_: Any) -> str:
    """Called by mkdocs with the HTML of each page."""
    return _FORMULA.sub(_translated, content)


def on_post_build(config: Any) -> None:
    """Called by mkdocs when all pages are written."""
    folder = Path(config.site_dir) / "stylesheets"
    with as_file(_FONT) as font:
        shutil.copy(font, folder)


def _translated(match: re.Match[str]) -> str:
    tag, bracket, tex = match.groups()
    maths = convert(html.unescape(tex).strip(), display="block" if bracket == "[" else "inline")
    for found, wanted in _REPAIRS.items():
        maths = maths.replace(found, wanted)
    return f'<{tag} class="arithmatex">{maths}</{tag}>'
