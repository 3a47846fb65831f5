"""A bar for what takes long: on a terminal or in a notebook, and nothing elsewhere.

What draws it, rich, is loaded when a bar is drawn: most work is done before.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from threading import Lock, Timer
from typing import TYPE_CHECKING, Any, NamedTuple

from amp_rewrite.base import arguments

if TYPE_CHECKING:
    from amp_rewrite.base.drawn_bar import DrawnBar

PATIENCE = 1.0
"""After how many seconds a bar appears."""

_PAUSE = 0.1
"""Seconds between two pictures in a notebook: a browser gets no more of them."""


def silent(_: str) -> None:
    """Take what begins, and tell nobody."""


class At(NamedTuple):
    """How far something is.

    Attributes:
        work: What is being done.
        note: How it goes.
        done: How much is done.
        total: How much there is; None if that is not known.
        in_bytes: Whether both count bytes.
    """

    work: str
    note: str = ""
    done: int = 0
    total: int | None = None
    in_bytes: bool = False


def progress_bar(work: str, *, quiet: bool = False) -> AbstractContextManager[Callable[..., None]]:
    """Show a bar once the block takes longer than a second; it is gone afterwards.

        with amp.progress_bar("calibrating") as progress:
            found = amp.calibrate(model, data, progress=progress)

    Args:
        work: What is being done.
        quiet: Show nothing.

    Returns:
        A context, which gives what functions of this package take as `progress`, and
        `callbacks.Watch` as its function. It is called with what is being done; with how much is
        done and how much there is, if that is known, and how it goes; or with an object of the
        package.

    Raises:
        OptionError: `work` is not a text, or `quiet` not True or False.
    """
    arguments.text("work", work, what="what is being done")
    return _show_bar(work, None if arguments.switch("quiet", quiet) else _drawing())


@contextmanager
def _show_bar(work: str, drawing: _Drawing | None) -> Generator[Callable[..., None]]:
    """Show a bar while the block runs, if there is where to."""
    if drawing is None:
        yield lambda *_: None
        return
    bar = _LateBar(At(work), drawing)
    try:
        yield bar
    finally:
        bar.close()


class _LateBar:
    """A bar that is drawn once there was time enough; it is told of progress from any thread."""

    def __init__(self, at: At, drawing: _Drawing) -> None:
        self._at, self._drawing = at, drawing
        self._begun, self._lock = False, Lock()
        self._timer = Timer(PATIENCE, self._begin)
        self._timer.daemon = True
        self._timer.start()

    def __call__(self, *counts: Any) -> None:
        with self._lock:
            self._at = _advance(self._at, counts)
            if self._begun:
                self._drawing.show(self._at)

    def _begin(self) -> None:
        self._drawing.begin()
        with self._lock:
            self._begun = True
            self._drawing.show(self._at)

    def close(self) -> None:
        self._timer.cancel()
        self._timer.join()
        self._drawing.end()


def _advance(at: At, counts: tuple[Any, ...]) -> At:
    """Return how far it is, from what a function passes to its `progress`."""
    match counts:
        case (str() as work,):
            return At(work)
        case (int() as done, total, *note):
            return at._replace(done=done, total=total, note=" ".join(map(str, note)))
        case (object(done=int() as done, total=int() as total),):  # what saving passes
            return At("writing", "", done, total, in_bytes=True)
        case _:
            return at._replace(note=" ".join(map(str, counts)))


def _drawing() -> _Drawing | None:
    """Return where somebody would see a bar; None if nowhere."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    if hasattr(shell, "kernel"):  # a notebook; IPython on a terminal has none
        return _Notebook()
    return _Drawing() if sys.stderr.isatty() else None


class _Drawing:
    """A bar on standard error, which is a terminal."""

    def __init__(self) -> None:
        self._since = time.monotonic()
        self._bar: DrawnBar | None = None

    def begin(self) -> None:
        """Load what draws, and draw where a line can be drawn again."""
        bar = self._make_bar()
        if bar.console.is_interactive:
            bar.start()
            self._bar = bar

    def show(self, at: At) -> None:
        """Draw how far it is."""
        if self._bar is not None:
            self._bar.show(*at)

    def end(self) -> None:
        """Take the bar away."""
        if self._bar is not None:
            self._bar.stop()

    def _make_bar(self) -> DrawnBar:
        from amp_rewrite.base.drawn_bar import DrawnBar

        return DrawnBar(self._since)


class _Notebook(_Drawing):
    """A bar below a notebook's cell. rich's own needs ipywidgets there; its tables do not."""

    def __init__(self) -> None:
        super().__init__()
        from IPython.display import display  # pyright: ignore[reportMissingImports] a notebook's

        self._handle: Any = display({"text/html": ""}, raw=True, display_id=True)
        self._last = 0.0

    def begin(self) -> None:
        self._bar = self._make_bar()

    def show(self, at: At) -> None:
        now = time.monotonic()
        if self._bar is not None and now - self._last >= _PAUSE:
            self._last = now
            self._bar.show(*at)
            self._handle.update(self._bar.picture())

    def end(self) -> None:
        self._handle.update({"text/html": ""}, raw=True)
