"""A bar for what rarely takes long; what draws it is loaded where somebody could see it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from threading import Timer
from typing import NamedTuple

from amp_rewrite.graph.io.model_files import Progress as SaveProgress

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
def late_bar(*, quiet: bool) -> Generator[LateBar]:
    """Show a bar on a terminal once the work inside takes longer than a second.

    As long as no byte is written, it says that the model is being rewritten; from then on, how many
    bytes are written and how much time is left.

    Args:
        quiet: Show nothing.

    Yields:
        What the work tells the bar.
    """
    if quiet or not sys.stderr.isatty():
        yield LateBar(lambda _: None, lambda _: None)
        return
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    from amp_rewrite.cli.common import error_console

    console = error_console()
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(20),
        DownloadColumn(binary_units=True),
        TimeRemainingColumn(),
        console=console,
        disable=not console.is_interactive,
        transient=True,
    )
    task = bar.add_task("rewriting", total=None)
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
