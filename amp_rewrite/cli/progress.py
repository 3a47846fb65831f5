"""Progress bars on standard error, and durations on the command line."""

from __future__ import annotations

import re
from typing import TypedDict

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Column

from amp_rewrite.cli.common import error_console


class _Drawing(TypedDict):
    """Arguments of rich's Progress."""

    console: Console
    disable: bool
    transient: bool


class Bar(Progress):
    """A bar that leaves nothing behind where it is not drawn: rich's before 14.3 ends a line."""

    def stop(self) -> None:
        """Take the bar away."""
        if not self.disable:
            super().stop()


_SECONDS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}


def counting_bar(*, quiet: bool) -> Progress:
    """Return a bar that counts steps and estimates the time left."""
    return Bar(
        TextColumn("{task.description}"),
        BarColumn(20),
        # A note that is too long for the line is cut, not the numbers.
        MofNCompleteColumn(table_column=Column(min_width=9)),
        TimeRemainingColumn(table_column=Column(min_width=7)),
        TextColumn("{task.fields[note]}", table_column=Column(no_wrap=True, overflow="ellipsis")),
        **_drawing(quiet=quiet),
    )


def timed_bar(*, quiet: bool) -> Progress:
    """Return a bar that fills as a budget of seconds is used up."""
    return Bar(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[note]}"),
        **_drawing(quiet=quiet),
    )


def _drawing(*, quiet: bool) -> _Drawing:
    """Return where a bar is drawn: on a terminal, from which it vanishes in the end."""
    console = error_console()
    return _Drawing(console=console, disable=quiet or not console.is_interactive, transient=True)


def seconds(text: str) -> float:
    """Return the seconds that "90", "90s", "10m" or "1.5h" stand for.

    Raises:
        typer.BadParameter: It is not a duration, or not positive.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smh]?)", text.strip().lower())
    if match is None or float(match[1]) <= 0:
        raise typer.BadParameter(f"{text!r} is not a duration; write 90s, 10m or 1h")
    return float(match[1]) * _SECONDS[match[2]]
