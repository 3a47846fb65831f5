"""The callback that writes a run as event files, which TensorBoard shows."""

from __future__ import annotations

import logging
import math
import os
import time
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

import numpy as np

from amp_rewrite.base.printable import printable
from amp_rewrite.dtypes import LOW
from amp_rewrite.errors import OptionError, SaveError
from amp_rewrite.graph.io.paths import path_text
from amp_rewrite.loop.plan_and_progress import SCALE
from amp_rewrite.loop.run_with_callbacks import Callback, Run
from amp_rewrite.training.step.gradient_underflow import UNDERFLOW, underflow_variables

_NORM, _RATE = "gradient_norm", "learning_rate"


class TensorBoard(Callback):
    """Writes event files from which TensorBoard shows a run while it trains, and compares runs.

        trainer.train("train.npz", callbacks=[amp.callbacks.TensorBoard("runs/first")])

    Then `tensorboard --logdir runs` shows, as far as the step computes it:

    - scalars of each step: `training/loss`, `loss_scale`, `skipped_steps`, `learning_rate`,
      `gradient_norm` (before clipping, without the loss scale), and in low precision
      `gradient_zero` and `gradient_subnormal`, the shares of the gradients' elements;
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
        self._skipped = 0

    def fetches(self, run: Run) -> Sequence[str]:
        """Return what each step is to compute besides; see `Callback`."""
        info = run.session.info
        state = info.having(_RATE)
        self._rate = _RATE if _RATE in info.fetches else None if state is None else state.name
        wanted = [_NORM] if _NORM in info.fetches else []
        wanted += [] if self._rate is None else [self._rate]
        underflows = info.precision in LOW and underflow_variables(info)
        return [*wanted, UNDERFLOW] if underflows else wanted

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
        skipped = run.session.info.having("skipped_steps")
        self._skipped = 0 if skipped is None else int(run.session.read_state(skipped.name))

    def on_step(self, run: Run) -> None:
        """Write the scalars of a step."""
        at = run.at
        was_skipped = (at.skipped_steps or 0) > self._skipped
        self._skipped = at.skipped_steps or 0
        row: dict[str, Any] = {"loss": at.loss, **{name: getattr(at, name) for name in SCALE}}
        if self._rate is not None:
            row[_RATE] = at.fetched[self._rate]
        norm = at.fetched.get(_NORM)
        if norm is not None and (norm or run.session.info.accumulate == 1):
            row[_NORM] = norm  # it is 0 before the last batch of an update
        if UNDERFLOW in at.fetched and not was_skipped:  # an overflow is no underflow
            row["gradient_zero"], row["gradient_subnormal"] = _shares(run, at.fetched[UNDERFLOW])
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


def _shares(run: Run, shares: np.ndarray[Any, Any]) -> tuple[float, float]:
    """Return the shares of all gradients' elements that are zero and that are subnormal.

    Args:
        run: The run.
        shares: float32 (variables, 2), the shares of each variable's gradient.
    """
    info = run.session.info
    sizes = {state.name: math.prod(state.shape) for state in info.states}
    weights = [sizes.get(name, 0) for name in underflow_variables(info)]
    if not sum(weights):
        return 0.0, 0.0
    zero, small = np.average(shares, axis=0, weights=weights)
    return float(zero), float(small)


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
