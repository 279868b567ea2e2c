"""What the commands of transfer show while they work: warnings in one line, and a progress bar."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from .pictures.errors import PictureWarning


@contextmanager
def printed_warnings(command: str) -> Iterator[None]:
    """Context in which each :class:`PictureWarning` is one line on stderr, whatever the warning filters are.

    Example:
        >>> before, sys.stderr = sys.stderr, sys.stdout
        >>> with printed_warnings("spectralgrad transfer"):
        ...     warnings.warn("a.jpg: 8 bits", PictureWarning)
        spectralgrad transfer: warning: a.jpg: 8 bits
        >>> sys.stderr = before
    """
    with warnings.catch_warnings():
        warnings.simplefilter("always", PictureWarning)
        shown = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *rest: object) -> None:
            if issubclass(category, PictureWarning):
                print(f"{command}: warning: {message}", file=sys.stderr)
            else:
                shown(message, category, *rest)  # type: ignore[arg-type]

        warnings.showwarning = show  # type: ignore[assignment]
        yield


@contextmanager
def pixel_progress(what: str, pixels: int, *, least: int = 2**22) -> Iterator[Callable[[int], object]]:
    """A progress bar on a terminal for images of at least ``least`` pixels; yields the function that moves it.

    Args:
        what: text beside the bar.
        pixels: number of pixels at which the bar is complete.
        least: below this number nothing is shown, because the work takes less than a second.

    Example:
        >>> with pixel_progress("style", 100) as done:
        ...     done(60)
    """
    if pixels < least or not sys.stdout.isatty():
        yield lambda count: None
        return
    from rich.progress import Progress

    with Progress(transient=True) as bar:
        task = bar.add_task(what, total=pixels)
        yield lambda count: bar.advance(task, count)
