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

    Columns: the epoch (from 1), the step, the seconds since the start, the loss, the loss scale,
    the number of skipped steps so far, and the results of evaluations. A resumed run keeps the rows
    up to its checkpoint.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Keep the path; the file is written when the run begins.

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
        """Begin the file, with the rows up to the checkpoint."""
        columns = [*run.place(), "loss", *SCALE, *run.measures]
        step = run.at.step
        kept = _rows(self.path, step) if step and self.path.exists() else []
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self.path.open("w", encoding="utf-8", newline="")
        except OSError as error:
            raise SaveError(
                "the metrics cannot be written", where=self.path, found=error.strerror or error
            ) from error
        self._rows = csv.DictWriter(self._file, columns, extrasaction="ignore", lineterminator="\n")
        self._rows.writeheader()
        self._rows.writerows(kept)

    def on_step(self, run: Run) -> None:
        """Write the loss, the loss scale and the number of skipped steps."""
        at = run.at
        self._add(run, loss=at.loss, loss_scale=at.loss_scale, skipped_steps=at.skipped_steps)

    def on_evaluation(self, run: Run) -> None:
        """Write the results of the evaluation."""
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


_KEPT = object_of(
    {"best": or_null(NUMBER), "step": whole(0), "waited": whole(0)}, optional=("waited",), more=True
)
"""The state of `Best` in checkpoints."""


class Best(Callback):
    """Watches one number of the evaluations, and keeps the best, its step, and the waiting since.

    Attributes:
        monitor: The name of the number.
        best: The best number, or None.
        step: The step of the best evaluation.
        waited: The number of evaluations since.
    """

    def __init__(self, monitor: str, mode: str | None, least: float = 0.0) -> None:
        """Choose the number.

        Args:
            monitor: The number: "eval_loss", "eval_accuracy", ...
            mode: Whether "min" or "max" is better; None is "min" for losses and errors.
            least: The smallest improvement that counts.

        Raises:
            OptionError: There is no such mode, `least` is negative, or `monitor` is not a name.
        """
        if mode is not None:
            arguments.one_of("mode", mode, ("min", "max"))
        self.monitor = arguments.text("monitor", monitor, what="the name of a number")
        self._least = arguments.number("min_delta", least, low=0.0, expected="at least 0")
        smaller = monitor.endswith(("loss", "error"))
        self._sign = -1.0 if (mode or ("min" if smaller else "max")) == "min" else 1.0
        self.best: float | None = None
        self.step = self.waited = 0

    def check(self, run: Run) -> None:
        """Refuse a run without evaluations, or whose evaluations lack the number."""
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
        """Compare with the best."""
        value = (run.at.evaluation or {})[self.monitor]
        is_better = self.best is None or self._sign * (value - self.best) > self._least
        if is_better and not math.isnan(value):
            self.best, self.step, self.waited = value, run.at.step, 0
        else:
            self.waited += 1

    def state(self) -> dict[str, Any]:
        """Return best, step and waited."""
        return {"best": self.best, "step": self.step, "waited": self.waited}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take the result of `state`; a child may have added to it."""
        check_stored(state, _KEPT, None)
        self.best, self.step, self.waited = state["best"], state["step"], state.get("waited", 0)


class EarlyStopping(Best):
    """Ends training when a number of the evaluations has not improved for some time."""

    def __init__(
        self,
        monitor: str = "eval_loss",
        *,
        patience: int = 3,
        min_delta: float = 0.0,
        mode: str | None = None,
    ) -> None:
        """Choose the number.

        Args:
            monitor: See `Best`.
            patience: The number of evaluations in a row without improvement that end training.
            min_delta: The smallest improvement that counts.
            mode: See `Best`.

        Raises:
            OptionError: An argument is impossible.
        """
        super().__init__(monitor, mode, min_delta)
        self.patience = arguments.integer("patience", patience, low=1)

    def on_evaluation(self, run: Run) -> None:
        """Compare with the best, and end the run after too many evaluations."""
        super().on_evaluation(run)
        if self.waited >= self.patience:
            run.stop(f"{self.monitor} was not better than {self.best} in {self.waited} evaluations")


class BestCheckpoint(Best):
    """Keeps a checkpoint of the step with the best evaluation.

    With `restore` the session has that state when training ends, so that the best model is
    exported. A resumed run continues from the run's own checkpoint.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        monitor: str = "eval_loss",
        *,
        mode: str | None = None,
        restore: bool = False,
    ) -> None:
        """Choose the file and the number.

        Args:
            path: The file.
            monitor: See `Best`.
            mode: See `Best`.
            restore: Whether to restore it when training ends.

        Raises:
            OptionError: An argument is impossible.
        """
        super().__init__(monitor, mode)
        self.path = Path(path_text(path, OptionError))
        self.restores = arguments.switch("restore", restore)

    def check(self, run: Run) -> None:
        """Refuse a run without the number, or a resumed one whose best checkpoint is gone."""
        super().check(run)
        if self.restores and self.best is not None and not self.path.exists():
            raise CheckpointError(
                "the checkpoint of the best evaluation is gone",
                where=self.path,
                found=f"no file of step {self.step}, which the run goes on from",
                remedy="put it back, or train without restoring it",
            )

    def on_evaluation(self, run: Run) -> None:
        """Compare with the best, and save if this is the best."""
        super().on_evaluation(run)
        if not self.waited:
            run.save(self.path)

    def on_end(self, run: Run) -> None:
        """Restore the checkpoint, if asked to, unless an error has ended the run."""
        if self.restores and self.best is not None and run.failed is None:
            run.session.restore(self.path)
