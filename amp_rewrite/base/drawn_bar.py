"""What a bar looks like: rich's columns, on one line however narrow the terminal is."""

from __future__ import annotations

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Column, Table
from rich.text import Text

from amp_rewrite.base.printable import printable


class DrawnBar(Progress):
    """A bar for one task on standard error."""

    def __init__(self, since: float) -> None:
        """Begin; `since` is when the work began, by the monotonic clock."""
        super().__init__(
            TextColumn("{task.description}", markup=False, table_column=_column()),
            BarColumn(20),
            _Amount(_column(9)),
            _Duration(_column(7)),
            TextColumn("{task.fields[note]}", markup=False, table_column=_column()),
            console=Console(stderr=True),
            transient=True,
        )
        self.add_task("", total=None, note="", in_bytes=False)
        (self._task,) = self.tasks
        self._task.start_time = since

    def show(self, work: str, note: str, done: int, total: int | None, in_bytes: bool) -> None:
        """Say how far it is, as `At` does."""
        self._task.total = total
        self.update(
            self._task.id,
            description=printable(work),
            completed=done,
            note=printable(note),
            in_bytes=in_bytes,
        )

    def picture(self) -> Table:
        """Return the bar as what notebooks display."""
        return self.make_tasks_table(self.tasks)


def _column(least: int = 0) -> Column:
    """Return a column whose text is cut where the line is too short."""
    return Column(no_wrap=True, overflow="ellipsis", min_width=least)


class _Amount(ProgressColumn):
    """How much is done, where that is counted."""

    _COUNTS, _SIZES = MofNCompleteColumn(), DownloadColumn(binary_units=True)

    def render(self, task: Task) -> Text:
        if task.fields["in_bytes"]:
            return self._SIZES.render(task)
        return self._COUNTS.render(task) if task.completed or task.total else Text()


class _Duration(ProgressColumn):
    """How much time is left, where that can be told; else how long it takes already."""

    max_refresh = 0.5

    _LEFT, _SINCE = TimeRemainingColumn(), TimeElapsedColumn()

    def render(self, task: Task) -> Text:
        return (self._SINCE if task.total is None else self._LEFT).render(task)
