"""Progress bars on standard error, and durations on the command line."""

from __future__ import annotations

import re
from collections.abc import Generator
from contextlib import contextmanager
from threading import Timer

import typer
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Column

from amp_rewrite.cli.common import error_console
from amp_rewrite.graph.io.model_files import Progress as SaveProgress

PATIENCE = 1.0
"""After how many seconds a bar appears where most work takes less."""

_SECONDS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}


def counting_bar(*, quiet: bool) -> Progress:
    """Return a bar that counts steps and estimates the time left."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(20),
        # A note that is too long for the line is cut, not the numbers.
        MofNCompleteColumn(table_column=Column(min_width=9)),
        TimeRemainingColumn(table_column=Column(min_width=7)),
        TextColumn("{task.fields[note]}", table_column=Column(no_wrap=True, overflow="ellipsis")),
        console=error_console(),
        disable=quiet,
        transient=True,
    )


def timed_bar(*, quiet: bool) -> Progress:
    """Return a bar that fills as a budget of seconds is used up."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[note]}"),
        console=error_console(),
        disable=quiet,
        transient=True,
    )


@contextmanager
def late_bar(*, quiet: bool) -> Generator[SaveProgress]:
    """Show a bar on a terminal once the work inside takes longer than a second.

    As long as no byte is written, it says that the model is being rewritten; from then on, how many
    bytes are written and how much time is left.

    Args:
        quiet: Show nothing.

    Yields:
        What `save` takes as `progress`.
    """
    console = error_console()
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(20),
        DownloadColumn(binary_units=True),
        TimeRemainingColumn(),
        console=console,
        disable=quiet or not console.is_interactive,
        transient=True,
    )
    task = bar.add_task("rewriting", total=None)
    timer = Timer(PATIENCE, bar.start)
    timer.start()
    try:
        yield lambda at: bar.update(task, description="writing", completed=at.done, total=at.total)
    finally:
        timer.cancel()
        timer.join()
        bar.stop()


def seconds(text: str) -> float:
    """Return the seconds that "90", "90s", "10m" or "1.5h" stand for.

    Raises:
        typer.BadParameter: It is no duration, or not positive.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smh]?)", text.strip().lower())
    if match is None or float(match[1]) <= 0:
        raise typer.BadParameter(f"{text!r} is no duration; write 90s, 10m or 1h")
    return float(match[1]) * _SECONDS[match[2]]
