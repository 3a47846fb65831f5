"""The callback that writes a run as event files, which TensorBoard shows."""

from __future__ import annotations

import logging
import math
import numbers
import os
import time
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

import numpy as np

from amp_rewrite.base import arguments
from amp_rewrite.base.printable import printable
from amp_rewrite.dtypes import LOW
from amp_rewrite.errors import OptionError, SaveError
from amp_rewrite.graph.io.paths import path_text
from amp_rewrite.loop.run_with_callbacks import Callback, Run
from amp_rewrite.training.session.training_session import TrainingSession
from amp_rewrite.training.step.gradient_underflow import UNDERFLOW, underflow_variables

Setting = str | float | bool
"""The value of a hyperparameter."""

_BYTES = 4  # of float32: in fewer the sums of a histogram overflow

_NORM, _RATE, _LOSS = "gradient_norm", "learning_rate", "loss"


class TensorBoard(Callback):
    """Writes event files from which TensorBoard shows a run while it trains, and compares runs.

        trainer.train("train.npz", callbacks=[amp.callbacks.TensorBoard("runs/first")])

    Then `tensorboard --logdir runs` shows, as far as the step computes it:

    - scalars of each step: `training/loss`, `loss_scale`, `skipped_steps`, `learning_rate`,
      `gradient_norm` (before clipping, without the loss scale), `examples_per_second`, and in
      low precision `gradient_zero` and `gradient_subnormal`, the shares of the gradients' elements;
    - scalars of each evaluation: `evaluation/loss` and the metrics;
    - histograms at the end of each epoch: `variables/NAME`, and over the variables the shares
      `gradients/zero` and `gradients/subnormal`;
    - hyperparameters: precision, batch, learning rate, initial loss scale, epochs, seed, and
      `settings`.

    The writer is that of tensorboardX. A run that goes on from a checkpoint goes on in the same
    folder; events of later steps than the checkpoint's are hidden.

    Attributes:
        folder: The folder of the event files.
        settings: The hyperparameters that were given.
        histograms: Epochs from one histogram to the next; 0 writes none.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        settings: Mapping[str, Setting] | None = None,
        histograms: int = 1,
    ) -> None:
        """Say where the event files are to be.

        Args:
            folder: The folder; it is made if it does not exist. Each run has a folder of its own.
            settings: More hyperparameters by name, to compare runs by.
            histograms: Epochs from one histogram of the variables to the next; 0 writes none.

        Raises:
            OptionError: tensorboardX is not installed, or an argument is impossible.
        """
        self.folder = path_text(folder, OptionError)
        self.settings = _checked_settings({} if settings is None else settings)
        self.histograms = arguments.integer("histograms", histograms, low=0)
        self._make = _writer_class()
        self._writer: Any = None
        self._rate: str | None = None
        self._mark = math.nan
        self._skipped = 0
        self._underflow: np.ndarray[Any, Any] | None = None

    def fetches(self, run: Run) -> Sequence[str]:
        """Return what each step is to compute besides; see `Callback`."""
        info = run.session.info
        state = info.having(_RATE)
        self._rate = _RATE if _RATE in info.fetches else None if state is None else state.name
        wanted = [_NORM] if _NORM in info.fetches else []
        wanted += [] if self._rate is None else [self._rate]
        return [*wanted, UNDERFLOW] if _can_underflow(run.session) else wanted

    def on_begin(self, run: Run) -> None:
        """Begin an event file, and write the hyperparameters.

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
        self._mark = math.nan  # the first step is compiled: its time says nothing about the others
        skipped = run.session.info.having("skipped_steps")
        self._skipped = 0 if skipped is None else int(run.session.read_state(skipped.name))
        self._write_settings({**_settings_of(run), **self.settings})

    def on_step(self, run: Run) -> None:
        """Write the scalars of a step."""
        at, now = run.at, time.perf_counter()
        was_skipped = (at.skipped_steps or 0) > self._skipped
        self._skipped = at.skipped_steps or 0
        row: dict[str, Any] = {
            _LOSS: at.loss,
            "loss_scale": at.loss_scale,
            "skipped_steps": at.skipped_steps,
        }
        if self._rate is not None:
            row[_RATE] = float(at.fetched[self._rate])
        norm = at.fetched.get(_NORM)
        if norm is not None and (norm or run.session.info.accumulate == 1):
            row[_NORM] = float(norm)  # it is 0 before the last batch of an update
        if UNDERFLOW in at.fetched and not was_skipped:  # an overflow is no underflow
            shares = at.fetched[UNDERFLOW]  # float32 (variables, 2): zero, subnormal
            row["gradient_zero"], row["gradient_subnormal"] = _shares(run, shares)
            self._underflow = shares
        if now > self._mark:
            row["examples_per_second"] = at.examples / (now - self._mark)
        self._add("training", row, at.step)
        self._mark = time.perf_counter()

    def on_evaluation(self, run: Run) -> None:
        """Write the scalars of an evaluation."""
        scores = run.at.evaluation or {}
        self._add(
            "evaluation", {k.removeprefix("eval_"): v for k, v in scores.items()}, run.at.step
        )
        self._mark = time.perf_counter()  # an evaluation is not a part of the next step

    def on_epoch(self, run: Run) -> None:
        """Write the histograms of an epoch."""
        if self.histograms and (run.at.epoch + 1) % self.histograms == 0:
            self._write_histograms(run)
        self._writer.flush()
        self._mark = time.perf_counter()

    def on_end(self, run: Run) -> None:
        """End the event file."""
        if self._writer is not None:
            self._writer.close()

    def _add(self, group: str, row: Mapping[str, Any], step: int) -> None:
        """Write the numbers of a row; TensorBoard shows NaN and infinities as such."""
        for name, value in row.items():
            if isinstance(value, numbers.Real):
                self._writer.add_scalar(f"{group}/{printable(name)}", float(value), step)

    def _write_settings(self, settings: Mapping[str, Setting]) -> None:
        """Write hyperparameters for the tab HPARAMS, and as a table for the tab TEXT."""
        shown = {
            printable(k): printable(v) if isinstance(v, str) else v for k, v in settings.items()
        }
        # the metrics by which the tab compares runs are named only: their values are the scalars
        hparams = import_module("tensorboardX.summary").hparams
        for summary in hparams(shown, {"training/loss": 0.0}):
            self._writer.file_writer.add_summary(summary)
        lines = ["| setting | value |", "|---|---|", *(f"| {k} | {v} |" for k, v in shown.items())]
        self._writer.add_text("settings", "\n".join(lines), 0)

    def _write_histograms(self, run: Run) -> None:
        session, step = run.session, run.at.step
        for state in session.info.states:
            if state.role == "variable" and math.prod(state.shape):
                values = np.asarray(session.read_state(state.name))
                self._add_histogram(f"variables/{printable(state.name)}", values, step)
        if self._underflow is not None:
            for column, name in enumerate(("zero", "subnormal")):
                self._add_histogram(f"gradients/{name}", self._underflow[:, column], step)

    def _add_histogram(self, tag: str, values: np.ndarray[Any, Any], step: int) -> None:
        """Write the histogram of the finite ones among values, if there are any."""
        values = values if values.dtype.itemsize >= _BYTES else values.astype(np.float32)
        are_finite = np.isfinite(values)
        finite = values if are_finite.all() else values[are_finite]
        if finite.size:
            self._writer.add_histogram(tag, finite, step)


def _settings_of(run: Run) -> dict[str, Setting]:
    """Return what a run was given, as far as its plan and its step tell when it begins."""
    session, plan = run.session, run.plan
    info = session.info
    settings: dict[str, Setting] = {"precision": info.precision, "batch": plan.batch}
    for role, name in ((_RATE, "learning rate"), ("loss_scale", "initial loss scale")):
        state = info.having(role)
        if state is not None and math.prod(state.shape) == 1:
            settings[name] = float(np.ravel(session.read_state(state.name))[0])
    if info.accumulate > 1:
        settings["accumulate"] = info.accumulate
    return {**settings, "epochs": plan.epochs, "seed": plan.seed}


def _can_underflow(session: TrainingSession) -> bool:
    """Return whether gradients of a step can underflow, and the step knows them."""
    return session.info.precision in LOW and bool(underflow_variables(session.info))


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


def _checked_settings(settings: Mapping[str, Setting]) -> dict[str, Setting]:
    """Return hyperparameters that event files can hold."""
    if not isinstance(settings, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance] users pass anything
        raise OptionError(
            "the settings of a run are no mapping",
            found=f"{settings!r:.80}",
            expected="a mapping of names to numbers and texts",
        )
    for name, value in settings.items():
        if not isinstance(name, str) or not isinstance(value, str | int | float):  # pyright: ignore[reportUnnecessaryIsInstance] users pass anything
            raise OptionError(
                "a setting of a run is impossible",
                where=f"{name!r:.80}",
                found=f"{value!r:.80}",
                expected="a name with a number, a text, True or False",
            )
    return dict(settings)


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
