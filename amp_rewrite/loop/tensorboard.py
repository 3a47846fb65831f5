"""The callback that writes a run as event files, which TensorBoard shows."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

from amp_rewrite.base.printable import printable
from amp_rewrite.errors import OptionError, SaveError
from amp_rewrite.graph.io.paths import path_text
from amp_rewrite.loop.plan_and_progress import SCALE
from amp_rewrite.loop.run_with_callbacks import Callback, Run

_NORM, _RATE = "gradient_norm", "learning_rate"


class TensorBoard(Callback):
    """Writes event files from which TensorBoard shows a run while it trains, and compares runs.

        trainer.train("train.npz", callbacks=[amp.callbacks.TensorBoard("runs/first")])

    Then `tensorboard --logdir runs` shows, as far as the step computes it:

    - scalars of each step: `training/loss`, `loss_scale`, `skipped_steps`, `learning_rate`,
      `gradient_norm` (before clipping, without the loss scale);
    - scalars of each evaluation: `evaluation/loss` and the metrics.

    The writer is that of tensorboardX. A run that goes on from a checkpoint goes on in the same
    folder; events of later steps than the checkpoint's are hidden.

    Attributes:
        folder: The folder of the event files.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        """Say where the event files are to be.

        Args:
            folder: The folder; it is made if it does not exist. Each run has a folder of its own.

        Raises:
            OptionError: tensorboardX is not installed, or it is no path.
        """
        self.folder = path_text(folder, OptionError)
        self._make = _writer_class()
        self._writer: Any = None
        self._rate: str | None = None

    def fetches(self, run: Run) -> Sequence[str]:
        """Return what each step is to compute besides; see `Callback`."""
        info = run.session.info
        state = info.having(_RATE)
        self._rate = _RATE if _RATE in info.fetches else None if state is None else state.name
        wanted = [_NORM] if _NORM in info.fetches else []
        return [*wanted, *([] if self._rate is None else [self._rate])]

    def on_begin(self, run: Run) -> None:
        """Begin an event file.

        Raises:
            SaveError: The folder cannot be written.
        """
        first = run.at.step + 1
        try:
            self._writer = self._make(
                self.folder,
                purge_step=first if first > 1 else None,
                filename_suffix=f".{time.time_ns()}",  # names have seconds, in which two runs begin
            )
        except OSError as error:
            raise SaveError(
                "the event file cannot be written",
                where=self.folder,
                found=error.strerror or str(error),
            ) from error

    def on_step(self, run: Run) -> None:
        """Write the scalars of a step."""
        at = run.at
        row: dict[str, Any] = {"loss": at.loss, **{name: getattr(at, name) for name in SCALE}}
        if self._rate is not None:
            row[_RATE] = at.fetched[self._rate]
        norm = at.fetched.get(_NORM)
        if norm is not None and (norm or run.session.info.accumulate == 1):
            row[_NORM] = norm  # it is 0 before the last batch of an update
        self._add("training", row, at.step)

    def on_evaluation(self, run: Run) -> None:
        """Write the scalars of an evaluation."""
        scores = run.at.evaluation or {}
        row = {name.removeprefix("eval_"): score for name, score in scores.items()}
        self._add("evaluation", row, run.at.step)

    def on_epoch(self, run: Run) -> None:
        """Let TensorBoard see what was written."""
        self._writer.flush()

    def on_end(self, run: Run) -> None:
        """End the event file."""
        if self._writer is not None:
            self._writer.close()

    def _add(self, group: str, row: Mapping[str, Any], step: int) -> None:
        """Write the numbers of a row; TensorBoard shows NaN and infinities as such."""
        for name, value in row.items():
            if value is not None:
                self._writer.add_scalar(f"{group}/{printable(name)}", float(value), step)


def _writer_class() -> Any:
    """Return the class of tensorboardX that writes event files."""
    try:
        writer = import_module("tensorboardX").SummaryWriter
    except ImportError:
        raise OptionError(
            "event files of TensorBoard need tensorboardX, which is not installed",
            remedy="pip install tensorboardX",
        ) from None
    logging.getLogger("tensorboardX.x2num").setLevel(logging.ERROR)  # it tells of each NaN
    return writer
