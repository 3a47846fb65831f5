"""A bar for what takes long: in a notebook or on a terminal, and nothing elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from html import escape
from typing import Any, NamedTuple, Protocol

from amp_rewrite import arguments
from amp_rewrite.graph.io.model_files import Written
from amp_rewrite.numerics.search.tuning import Step
from amp_rewrite.printable import printable
from amp_rewrite.trainer.loop.plan import Progress

_PAUSE = 0.1
"""Seconds between two pictures of a bar: a browser gets no more of them."""


class At(NamedTuple):
    """How far something is.

    Attributes:
        note: What is being done, or how it goes.
        done: How much is done; None if that is not counted.
        total: How much there is; None if that is not known.
    """

    note: str
    done: int | None = None
    total: int | None = None


class Display(Protocol):
    """Where a bar is drawn."""

    def show(self, work: str, at: At) -> None:
        """Draw the bar."""
        ...

    def close(self) -> None:
        """Take it away."""
        ...


def progress_bar(work: str) -> AbstractContextManager[Callable[..., None]]:
    """Show a bar while the block runs; it is gone afterwards.

        with amp.progress_bar("calibrating") as progress:
            found = amp.calibrate(model, data, progress=progress)

    Args:
        work: What is being done.

    Returns:
        A context, which gives what functions of this package take as `progress`, and
        `callbacks.Watch` as its function.

    Raises:
        OptionError: `work` is not a text.
    """
    arguments.text("work", work, what="what is being done")
    return _shown(work, _display())


@contextmanager
def _shown(work: str, display: Display | None) -> Generator[Callable[..., None]]:
    """Show a bar while the block runs, if there is where to."""
    if display is None:
        yield lambda *_: None
        return
    last = 0.0

    def progress(*given: Any) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= _PAUSE:
            last = now
            display.show(work, _at(given))

    display.show(work, At(""))
    try:
        yield progress
    finally:
        display.close()


def _at(given: tuple[Any, ...]) -> At:
    """Return how far it is, from what a function passes to its `progress`."""
    match given:
        case (Written(done, total),):
            return At("", done, total)
        case (Step() as step,):
            best = "none holds yet" if step.best is None else f"best {step.best} nodes"
            return At(f"{step.trials} trials, {best}, {step.seconds_left:.0f} s left")
        case (Progress() as at,):
            return At(f"epoch {at.epoch + 1}, step {at.step}, loss {at.loss:.4g}")
        case (int() as done, total):
            return At("", done, total)
        case _:
            return At(" ".join(map(str, given)))


def _display() -> Display | None:
    """Return where somebody would see a bar; None if nowhere."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    if hasattr(shell, "kernel"):  # a notebook; IPython on a terminal has none
        return _Notebook()
    return _Terminal() if sys.stderr.isatty() else None


class _Notebook:
    """The output of a notebook's cell."""

    def __init__(self) -> None:
        from IPython.display import display  # pyright: ignore[reportMissingImports] a notebook's

        self._handle: Any = display({"text/html": ""}, raw=True, display_id=True)

    def show(self, work: str, at: At) -> None:
        known = at.done is not None and at.total is not None
        value = f' value="{at.done}" max="{at.total}"' if known else ""
        counted = "" if at.done is None else f"{at.done:,}/{at.total or '?'}"
        said = escape(printable(" ".join(filter(None, (counted, at.note)))))
        html = f"<div>{escape(printable(work))} <progress{value}></progress> {said}</div>"
        self._handle.update({"text/html": html}, raw=True)

    def close(self) -> None:
        self._handle.update({"text/html": ""}, raw=True)


class _Terminal:
    """Standard error, where it is a terminal."""

    def __init__(self) -> None:
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        from amp_rewrite.report.plain_console import PlainConsole

        text = TextColumn("{task.description}", markup=False)
        note = TextColumn("{task.fields[note]}", markup=False)
        console = PlainConsole(stderr=True)
        self._bar = Progress(
            text, BarColumn(20), TimeElapsedColumn(), note, console=console, transient=True
        )
        self._task = self._bar.add_task("", total=None, note="")
        self._bar.start()

    def show(self, work: str, at: At) -> None:
        self._bar.update(
            self._task,
            description=printable(work),
            note=printable(at.note),
            completed=at.done,
            total=at.total,
        )

    def close(self) -> None:
        self._bar.stop()
