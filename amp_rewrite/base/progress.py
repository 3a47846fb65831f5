"""The progress of long work, on one line of a terminal or below a notebook's cell."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from threading import Lock, Timer
from typing import Any, NamedTuple

from amp_rewrite.base import arguments
from amp_rewrite.base.printable import printable

PATIENCE = 1.0
"""After how many seconds a line appears."""

_PAUSE = 0.1
"""Seconds between two lines: nobody reads more of them."""

_MIB = 1 << 20


def silent(_: str) -> None:
    """Ignore the name of a step."""


class At(NamedTuple):
    """The progress of some work; `total` is None if it is not known."""

    work: str
    note: str = ""
    done: int = 0
    total: int | None = None
    in_bytes: bool = False

    def line(self, seconds: float) -> str:
        """Return it in words, with the time so far."""
        total = "?" if self.total is None else str(self.total)
        amount = f"{self.done}/{total}" if self.done or self.total else ""
        if self.in_bytes and self.total is not None:
            amount = f"{self.done / _MIB:.1f}/{self.total / _MIB:.1f} MiB"
        words = (self.work, amount, f"{seconds:.0f} s", self.note)
        return printable("  ".join(filter(None, words)))


def progress_bar(work: str, *, quiet: bool = False) -> AbstractContextManager[Callable[..., None]]:
    """Show the progress of a block that takes longer than a second; the line is gone afterwards.

        with amp.progress_bar("calibrating") as progress:
            found = amp.calibrate(model, data, progress=progress)

    Args:
        work: The name of the work.
        quiet: Show nothing.

    Returns:
        A context, which gives the `progress` of functions of this package, and the function of
        `callbacks.Watch`. It is called with the name of a step; with how much is done and how much
        there is, or None, and a note; or with an object of the package.

    Raises:
        OptionError: `work` is not a text, or `quiet` not True or False.
    """
    arguments.text("work", work, what="what is being done")
    return _show(work, None if arguments.switch("quiet", quiet) else _place())


@contextmanager
def _show(work: str, write: Callable[[str], None] | None) -> Generator[Callable[..., None]]:
    """Show a line while the block runs, if there is where to."""
    if write is None:
        yield lambda *_: None
        return
    line = _LateLine(At(work), write)
    try:
        yield line
    finally:
        line.close()


class _LateLine:
    """A line that is written after a second, and again at each progress, from any thread."""

    def __init__(self, at: At, write: Callable[[str], None]) -> None:
        self._at, self._since, self._last = at, time.monotonic(), 0.0
        self._write_line = write
        self._begun, self._lock = False, Lock()
        self._timer = Timer(PATIENCE, self._begin)
        self._timer.daemon = True
        self._timer.start()

    def __call__(self, *counts: Any) -> None:
        with self._lock:
            self._at = _advance(self._at, counts)
            if self._begun and time.monotonic() - self._last >= _PAUSE:
                self._write()

    def _begin(self) -> None:
        with self._lock:
            self._begun = True
            self._write()

    def _write(self) -> None:
        self._last = time.monotonic()
        self._write_line(self._at.line(self._last - self._since))

    def close(self) -> None:
        self._timer.cancel()
        self._timer.join()
        if self._begun:
            self._write_line("")


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


def _place() -> Callable[[str], None] | None:
    """Return what writes a line over the last one; None if nobody would see it."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    if hasattr(shell, "kernel"):  # a notebook; IPython on a terminal has none
        return _NotebookLine()
    if sys.stderr.isatty() and os.environ.get("TERM") != "dumb":
        return _write_on_terminal
    return None


def _write_on_terminal(line: str) -> None:
    width = shutil.get_terminal_size().columns - 1
    sys.stderr.write(f"\r{line[:width]:{width}}" if line else f"\r{'':{width}}\r")
    sys.stderr.flush()


class _NotebookLine:
    """A text below a notebook's cell, empty in the end; standard error would stay as a red box."""

    def __init__(self) -> None:
        self._handle: Any = None

    def __call__(self, line: str) -> None:
        from IPython.display import DisplayHandle  # pyright: ignore[reportMissingImports]

        shown = {"text/plain": line}
        if self._handle is None:
            self._handle = DisplayHandle()
            self._handle.display(shown, raw=True)
        else:
            self._handle.update(shown, raw=True)
