"""Callbacks that everybody needs: logs, early stopping, the best checkpoint."""

from __future__ import annotations

import csv
import math
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TextIO

from amp_rewrite.base import arguments
from amp_rewrite.base.fields import NUMBER, object_of, or_null, whole
from amp_rewrite.errors import CheckpointError, DataError, OptionError, SaveError
from amp_rewrite.graph.io.paths import path_text
from amp_rewrite.loop.plan_and_progress import SCALE, Progress, check_stored
from amp_rewrite.loop.run_with_callbacks import Callback, Run

_BEST = object_of({"best": or_null(NUMBER), "step": whole(0)}, more=True)
_WAITED = object_of({"waited": whole(0)}, more=True)
"""The state of callbacks in checkpoints; a class that derives from one may add to it."""


class Watch(Callback):
    """Calls a function with the progress after every step, evaluation and epoch."""

    def __init__(self, function: Callable[[Progress], None]) -> None:
        """Keep the function.

        Raises:
            OptionError: It cannot be called.
        """
        if not callable(function):
            raise OptionError("Watch calls a function", found=f"{function!r:.60}")
        self._function = function

    def on_step(self, run: Run) -> None:
        """Call the function."""
        self._function(run.at)

    on_evaluation = on_epoch = on_step


class CSVLogger(Callback):
    """Writes a row to a .csv file after each step and each evaluation.

    Columns are the epoch (from 1), the number of steps done, the seconds since the start, the loss
    of the step, the loss scale that it used, the number of steps skipped so far, and what
    evaluations find. A run that goes on from a checkpoint keeps the rows up to there.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Say where the file is to be, which stays as it is until the run begins.

        Raises:
            OptionError: It is no path of a .csv file.
        """
        self.path = Path(path_text(path, OptionError))
        if self.path.suffix != ".csv":
            raise OptionError(
                "unknown format of metrics", where=path, found=self.path.suffix, expected=".csv"
            )
        self._file: TextIO | None = None
        self._rows: csv.DictWriter[str] | None = None

    def on_begin(self, run: Run) -> None:
        """Begin the file.

        Raises:
            DataError: The file to go on with cannot be read.
            SaveError: It cannot be written.
        """
        columns = [*run.place(), "loss", *SCALE, *run.measures]
        step = run.at.step
        kept = _rows(self.path, step) if step and self.path.exists() else []
        try:
            self._file = self.path.open("w", encoding="utf-8", newline="")
        except OSError as error:
            raise SaveError(
                "the metrics cannot be written", where=self.path, found=error.strerror or error
            ) from error
        self._rows = csv.DictWriter(self._file, columns, extrasaction="ignore", lineterminator="\n")
        self._rows.writeheader()
        self._rows.writerows(kept)

    def on_step(self, run: Run) -> None:
        """Write the loss, and with a loss scale the scale and the number of skipped steps."""
        at = run.at
        self._add(run, loss=at.loss, loss_scale=at.loss_scale, skipped_steps=at.skipped_steps)

    def on_evaluation(self, run: Run) -> None:
        """Write what the evaluation found."""
        self._add(run, **(run.at.evaluation or {}))

    def on_end(self, run: Run) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()

    def _add(self, run: Run, **numbers: float | None) -> None:
        if self._file is not None and self._rows is not None:
            self._rows.writerow({**run.place(), **numbers})
            self._file.flush()


def _rows(path: Path, after: int) -> list[dict[str, Any]]:
    """Return the rows of at most `after` steps."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            return [row for row in csv.DictReader(file) if int(row["step"]) <= after]
    except (OSError, ValueError, KeyError, TypeError, csv.Error) as error:
        raise DataError(
            "the metrics to go on with cannot be read",
            where=path,
            found=error,
            remedy="name another file",
        ) from error


class Best(Callback):
    """Watches one number of the evaluations, and knows the best so far."""

    def __init__(self, monitor: str, mode: str | None, least: float = 0.0) -> None:
        """Say what to watch.

        Args:
            monitor: The number: "eval_loss", "eval_accuracy", ...
            mode: "min" or "max", what is better; None is "min" for losses and errors,
                "max" for all else.
            least: What counts as better must be better by more than this.

        Raises:
            OptionError: There is no such mode, `least` is negative, or `monitor` is not a name.
        """
        if mode is not None:
            arguments.one_of("mode", mode, ("min", "max"))
        self.monitor = arguments.text("monitor", monitor, what="the name of what to watch")
        self._least = arguments.number("min_delta", least, low=0.0, expected="at least 0")
        smaller = monitor.endswith(("loss", "error"))
        self._sign = -1.0 if (mode or ("min" if smaller else "max")) == "min" else 1.0
        self.best: float | None = None
        self.step = 0

    def check(self, run: Run) -> None:
        """Refuse a run whose evaluations do not find the number.

        Raises:
            OptionError: There are none, or they find no such number.
        """
        if not run.measures:
            raise OptionError(
                f"{type(self).__name__} watches evaluations, and there are none",
                remedy="name held-out data",
            )
        if self.monitor not in run.measures:
            raise OptionError(
                "the evaluation finds no number of this name",
                where=type(self).__name__,
                found=self.monitor,
                expected=" or ".join(run.measures),
            )

    def on_evaluation(self, run: Run) -> None:
        """Compare with the best so far."""
        value = (run.at.evaluation or {})[self.monitor]
        is_better = self.best is None or self._sign * (value - self.best) > self._least
        if is_better and not math.isnan(value):
            self.best, self.step = value, run.at.step
            self.improved(run)
        else:
            self.stayed(run)

    def improved(self, run: Run) -> None:
        """Is called when the number is the best so far."""

    def stayed(self, run: Run) -> None:
        """Is called when it is not."""

    def state(self) -> dict[str, Any]:
        """Return the best so far; see `Callback`."""
        return {"best": self.best, "step": self.step}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take the best so far; see `Callback`."""
        check_stored(state, _BEST, None)
        self.best, self.step = state["best"], state["step"]


class EarlyStopping(Best):
    """Ends training when a number of the evaluations has not become better for some time."""

    def __init__(
        self,
        monitor: str = "eval_loss",
        *,
        patience: int = 3,
        min_delta: float = 0.0,
        mode: str | None = None,
    ) -> None:
        """Say what to watch.

        Args:
            monitor: As for `Best`.
            patience: After how many evaluations in a row without a better number to end.
            min_delta: What counts as better must be better by more than this.
            mode: As for `Best`.

        Raises:
            OptionError: A number is impossible.
        """
        super().__init__(monitor, mode, min_delta)
        self.patience, self.waited = arguments.integer("patience", patience, low=1), 0

    def improved(self, run: Run) -> None:
        """Begin to wait anew."""
        self.waited = 0

    def stayed(self, run: Run) -> None:
        """Wait, or end the run."""
        self.waited += 1
        if self.waited >= self.patience:
            run.stop(f"{self.monitor} was not better than {self.best} in {self.waited} evaluations")

    def state(self) -> dict[str, Any]:
        """Return the best so far and how long has been waited."""
        return super().state() | {"waited": self.waited}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take what `state` returned."""
        super().restore(state)
        check_stored(state, _WAITED, None)
        self.waited = state["waited"]


class BestCheckpoint(Best):
    """Keeps a checkpoint of the step with the best evaluation so far.

    With `restore` the session is as it was then when training has ended, early or not: what is
    exported is the best model. Training goes on from the checkpoint of the run, not from there.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        monitor: str = "eval_loss",
        *,
        mode: str | None = None,
        restore: bool = False,
    ) -> None:
        """Say where to write it, and what to watch.

        Args:
            path: The file.
            monitor: As for `Best`.
            mode: As for `Best`.
            restore: Put it back when training ends.

        Raises:
            OptionError: An argument is of another kind, or there is no such mode.
        """
        super().__init__(monitor, mode)
        self.path = Path(path_text(path, OptionError))
        self.restores = arguments.switch("restore", restore)

    def check(self, run: Run) -> None:
        """Refuse a run that cannot find the number, or has lost what it is to put back.

        Raises:
            OptionError: See `Best`.
            CheckpointError: The best evaluation was before the run, and its file is gone.
        """
        super().check(run)
        if self.restores and self.best is not None and not self.path.exists():
            raise CheckpointError(
                "the checkpoint of the best evaluation is gone",
                where=self.path,
                found=f"no file of step {self.step}, which the run goes on from",
                remedy="put it back, or train without restoring it",
            )

    def improved(self, run: Run) -> None:
        """Write the checkpoint."""
        run.save(self.path)

    def on_end(self, run: Run) -> None:
        """Put it back if that is asked for, unless an error has ended the run.

        Raises:
            CheckpointError: It cannot be read.
        """
        if self.restores and self.best is not None and run.failed is None:
            run.session.restore(self.path)
