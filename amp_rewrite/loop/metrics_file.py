"""Metrics of a training run, one row a step or evaluation, as CSV or JSON lines."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self, TextIO

import numpy as np

from amp_rewrite.base import arguments
from amp_rewrite.errors import DataError, OptionError, SaveError
from amp_rewrite.graph.io.paths import path_text

COLUMNS = (
    "epoch",
    "step",
    "seconds",
    "loss",
    "loss_scale",
    "skipped_steps",
    "eval_loss",
    "eval_accuracy",
)
"""What a row holds if nobody says otherwise: the epoch (from 1), the number of steps done, the
seconds since the start, the loss of the step, the loss scale that it used and the number of steps
skipped so far, and what evaluation found."""


class MetricsFile:
    """A file that grows by a row at a time: .csv with a header, or .jsonl."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        after: int | None = None,
        columns: Sequence[str] = COLUMNS,
    ) -> None:
        """Open a file, which stays as it is until the first row is added.

        Args:
            path: The file; its suffix says which format.
            columns: What the rows of a .csv file hold.
            after: None begins a new file; a number N keeps the rows of N steps, for training
                that goes on from there.

        Raises:
            OptionError: The suffix is neither .csv nor .jsonl, or an argument is of another kind.
            SaveError: The file cannot be written.
            DataError: The file to go on with cannot be read.
        """
        path = Path(path_text(path, OptionError))
        if after is not None:
            after = arguments.integer("after", after)
        if path.suffix not in (".csv", ".jsonl"):
            raise OptionError(
                "unknown format of metrics",
                where=path,
                found=repr(path.suffix),
                expected=".csv or .jsonl",
                remedy="name the file so",
            )
        self._csv, self._columns = path.suffix == ".csv", arguments.texts("columns", columns)
        kept = [] if after is None or not path.exists() else _rows(path, self._csv, after)
        self._path, self._new = path, not path.exists()
        try:
            self._file: TextIO = path.open("a", encoding="utf-8", newline="")
        except OSError as error:
            raise SaveError(
                "the metrics cannot be written", where=path, found=error.strerror or error
            ) from error
        self._kept: list[dict[str, Any]] | None = kept

    def add(self, **row: Any) -> None:
        """Write one row; None is left out. What the file held before goes with the first one.

        Raises:
            OptionError: A number is none, so that JSON cannot hold it.
        """
        if self._kept is not None:
            kept, self._kept = self._kept, None
            self._file.truncate(0)
            if self._csv:
                self._line(",".join(self._columns))
            for old in kept:
                self.add(**old)
        if self._csv:
            text = io.StringIO()
            csv.writer(text, lineterminator="").writerow([row.get(name) for name in self._columns])
            self._line(text.getvalue())
        else:
            self._line(_as_json(row, self._path))

    def close(self) -> None:
        """Close the file; a new one without a row is removed."""
        self._file.close()
        if self._new and self._kept is not None:
            self._path.unlink(missing_ok=True)

    def _line(self, text: str) -> None:
        self._file.write(text + "\n")
        self._file.flush()

    def __enter__(self) -> Self:
        """Return the file."""
        return self

    def __exit__(self, *exception: object) -> None:
        """Close the file."""
        self.close()


def _as_json(row: Mapping[str, Any], path: Path) -> str:
    """Return a row as one line; numbers of numpy are numbers."""
    plain = {k: v.item() if isinstance(v, np.generic) else v for k, v in row.items()}
    try:
        return json.dumps(
            {k: v for k, v in plain.items() if v is not None and not (isinstance(v, str) and not v)}
        )
    except (TypeError, ValueError) as error:
        raise OptionError(
            "a row of metrics holds what JSON cannot", where=path, found=error
        ) from error


def _rows(path: Path, is_csv: bool, after: int) -> list[dict[str, Any]]:
    """Return the rows of at most `after` steps."""
    try:
        text = path.read_text(encoding="utf-8")
        if is_csv:
            rows = [dict(row) for row in csv.DictReader(io.StringIO(text))]
        else:
            rows = [json.loads(line) for line in text.splitlines() if line.strip()]
        return [row for row in rows if int(row["step"]) <= after]
    except (OSError, ValueError, KeyError, TypeError, csv.Error) as error:
        raise DataError(
            "the metrics to go on with cannot be read",
            where=path,
            found=error,
            remedy="name another file",
        ) from error
