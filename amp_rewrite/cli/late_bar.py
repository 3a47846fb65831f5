"""A bar for what rarely takes long; what draws it is loaded where somebody could see it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from threading import Timer
from typing import TYPE_CHECKING, NamedTuple

from amp_rewrite.graph.io.model_files import Progress as SaveProgress

if TYPE_CHECKING:
    from rich.progress import ProgressColumn

PATIENCE = 1.0
"""After how many seconds a bar appears where most work takes less."""


class LateBar(NamedTuple):
    """What a late bar is told.

    Attributes:
        step: Called with what is being done.
        saving: Called with how many bytes are written; what `save` takes as `progress`.
    """

    step: Callable[[str], None]
    saving: SaveProgress


@contextmanager
def late_bar(work: str, *, quiet: bool, saves: bool = False) -> Generator[LateBar]:
    """Show a bar on a terminal once the work inside takes longer than a second.

    As long as no byte is written, it says what is being done, and for how long; from then on, how
    many bytes are written and how much time is left.

    Args:
        work: What is being done at first, such as "rewriting".
        quiet: Show nothing.
        saves: Whether a model is written in the end.

    Yields:
        What the work tells the bar.
    """
    if quiet or not sys.stderr.isatty():
        yield LateBar(lambda _: None, lambda _: None)
        return
    from amp_rewrite.cli.common import error_console
    from amp_rewrite.cli.progress import Bar

    console = error_console()
    bar = Bar(
        *_columns(saves=saves),
        console=console,
        disable=not console.is_interactive,
        transient=True,
    )
    task = bar.add_task(work, total=None)
    timer = Timer(PATIENCE, bar.start)
    timer.start()
    try:
        yield LateBar(
            lambda step: bar.update(task, description=step),
            lambda at: bar.update(task, description="writing", completed=at.done, total=at.total),
        )
    finally:
        timer.cancel()
        timer.join()
        bar.stop()


def _columns(*, saves: bool) -> tuple[ProgressColumn, ...]:
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    what = (TextColumn("{task.description}"), BarColumn(20))
    if saves:
        return (*what, DownloadColumn(binary_units=True), TimeRemainingColumn())
    return (*what, TimeElapsedColumn())
