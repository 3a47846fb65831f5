"""The callback that writes the page of a run while it trains."""

from __future__ import annotations

import math
import os
import time
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from amp_rewrite.base import arguments
from amp_rewrite.dtypes import LOW
from amp_rewrite.errors import AmpWarning, OptionError, SaveError
from amp_rewrite.graph.io.model_files import check_writable
from amp_rewrite.loop.run import Callback, Run
from amp_rewrite.loop.run_page.history import History, Point
from amp_rewrite.loop.run_page.run_data import Layers, Setting, run_data, settings_of, states_of
from amp_rewrite.loop.run_page.run_document import render
from amp_rewrite.rewriting.report.write_text import write_text
from amp_rewrite.training.session.training_session import TrainingSession
from amp_rewrite.training.step.gradient_underflow import UNDERFLOW, underflow_variables

_NORM, _RATE = "gradient_norm", "learning_rate"

_LONGEST = 3600.0


class RunPage(Callback):
    """Writes a page that shows a run in a browser, and refreshes itself there until the run ends.

    It has the loss in training and evaluation, the loss scale and skipped steps, the learning rate,
    the norm of the gradients before clipping, examples a second, and in low precision the share of
    each variable's gradient that is zero or subnormal (`gradient_underflow`), as far as the step
    can tell. A run that goes on from a checkpoint goes on with its curves.

        trainer.train("train.npz", callbacks=[amp.callbacks.RunPage("runs/first.html")])

    Attributes:
        path: The file.
        title: What the run is called.
        every: How many seconds to wait before the page is written again, at least.
        settings: What the page says that the run was given, besides what plan and step tell.
        patience: How many times as long as writing it took to wait, at least: so it costs 2 % of
            the time at most, however large it is and however slow the disk.
    """

    patience = 50.0

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        title: str | None = None,
        every: float = 2.0,
        settings: Mapping[str, Setting] | None = None,
    ) -> None:
        """Say where the page is to be.

        Args:
            path: The file, which ends in .html; it is replaced as a whole, again and again.
            title: What the run is called; by default the file's name.
            every: How many seconds to wait before it is written again, at least.
            settings: Hyperparameters by name, for tables that compare runs: batch, precision,
                learning rate, loss scale, epochs and seed are known without.

        Raises:
            OptionError: The file does not end in .html, or another argument is impossible.
        """
        if not isinstance(path, str | os.PathLike) or Path(path).suffix != ".html":  # pyright: ignore[reportUnnecessaryIsInstance] users pass anything
            raise OptionError(
                "the page of a run must be an HTML file",
                found=f"{path!r:.80}",
                expected="a path that ends in .html",
            )
        self.path = Path(path)
        what = "what the run is called"
        self.title = self.path.stem if title is None else arguments.text("title", title, what=what)
        self.every = arguments.number(
            "every", every, low=0.0, high=_LONGEST, expected="seconds from 0 to 3600"
        )
        self.settings = _checked_settings({} if settings is None else settings)
        self._given: dict[str, Setting] = {}
        self._history, self._layers = History(), Layers()
        self._before = 0.0  # seconds of the run that this one goes on with
        self._began = self._mark = self._due = 0.0
        self._skipped = 0
        self._rate: str | None = None
        self._silenced = False

    def fetches(self, run: Run) -> Sequence[str]:
        """Return what the step can tell besides."""
        info = run.session.info
        state = info.having(_RATE)
        self._rate = _RATE if _RATE in info.fetches else None if state is None else state.name
        wanted = [_NORM] if _NORM in info.fetches else []
        wanted += [] if self._rate is None else [self._rate]
        return [*wanted, UNDERFLOW] if _underflows(run.session) else wanted

    def on_begin(self, run: Run) -> None:
        """Write the page of a run without steps.

        Raises:
            SaveError: It cannot be written.
        """
        check_writable(self.path)
        self._began = time.perf_counter()
        self._mark = math.nan  # the first step is compiled: it says nothing about the others
        skipped = run.session.info.having("skipped_steps")
        self._skipped = 0 if skipped is None else int(run.session.read_state(skipped.name))
        self._layers.begin(run.session.info)
        self._given = {**settings_of(run), **self.settings}
        self._write(run)

    def on_step(self, run: Run) -> None:
        """Take what the step measured, and write the page if it is time."""
        now = time.perf_counter()
        self._history.add(self._point(run, now))
        self._mark = now
        self._write_if_due(run)

    def on_evaluation(self, run: Run) -> None:
        """Take what the evaluation found."""
        self._history.evaluated(run.at.step, run.at.evaluation or {})
        self._write_if_due(run)
        self._mark = time.perf_counter()  # an evaluation is not a part of the next step

    def on_epoch(self, run: Run) -> None:
        """Leave out of the next step what other callbacks did."""
        self._mark = time.perf_counter()

    def on_end(self, run: Run) -> None:
        """Write the page for the last time: it says how the run ended, and refreshes no more."""
        self._write_or_warn(run, state=states_of(run))

    def state(self) -> dict[str, Any]:
        """Return the curves, for a run that goes on from the checkpoint."""
        return {"history": self._history.state(), "seconds": self._seconds()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take the curves of the run that this one goes on with."""
        found, seconds = state.get("history"), state.get("seconds")
        self._history = History.restored(found if isinstance(found, dict) else {})
        known = isinstance(seconds, int | float) and math.isfinite(seconds)
        self._before = float(seconds) if known and isinstance(seconds, int | float) else 0.0

    def _seconds(self) -> float:
        return self._before + time.perf_counter() - self._began

    def _point(self, run: Run, now: float) -> Point:
        """Return the last step as a point."""
        at = run.at
        point = Point(at.step, self._seconds())
        point.loss.add(at.loss)
        skipped = at.skipped_steps or 0
        point.loss_scale, point.skipped = at.loss_scale, max(0, skipped - self._skipped)
        self._skipped = skipped
        if self._rate is not None:
            point.learning_rate = float(at.fetched[self._rate])
        norm = float(at.fetched.get(_NORM, math.nan))
        if norm or run.session.info.accumulate == 1:  # 0 before the last batch of an update
            point.gradient_norm.add(norm)
        if UNDERFLOW in at.fetched and not point.skipped:  # what is not finite did not underflow
            zero, small = self._layers.note(at.fetched[UNDERFLOW])
            point.zero.add(zero)
            point.small.add(small)
        if not math.isnan(self._mark):
            point.examples, point.busy = at.examples, now - self._mark
        return point

    def _write_if_due(self, run: Run) -> None:
        if time.perf_counter() >= self._due:
            self._write_or_warn(run)
            self._mark = time.perf_counter()

    def _write_or_warn(self, run: Run, state: tuple[str, str] | None = None) -> None:
        """Write the page; a page that cannot be written ends no training."""
        try:
            self._write(run, state)
        except SaveError as error:
            if not self._silenced:
                warnings.warn(f"the page of the run is out of date: {error}", AmpWarning, 2)
            self._silenced = True

    def _write(self, run: Run, state: tuple[str, str] | None = None) -> None:
        begin = time.perf_counter()
        data = run_data(
            run,
            self._history,
            self._layers,
            title=self.title,
            state=state,
            every=self.every,
            settings=self._given,
        )
        try:
            write_text(self.path, render({"runs": [data], "source": None}))
        finally:
            now = time.perf_counter()
            self._due = now + max(self.every, self.patience * (now - begin))


def _underflows(session: TrainingSession) -> bool:
    """Return whether gradients of a step can underflow, and it knows them."""
    return session.info.precision in LOW and bool(underflow_variables(session.info))


def _checked_settings(given: Mapping[str, Setting]) -> dict[str, Setting]:
    """Return settings that a page can show."""
    if not isinstance(given, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance] users pass anything
        raise OptionError(
            "settings of a run's page are no mapping",
            found=f"{given!r:.80}",
            expected="a mapping of names to numbers and texts",
        )
    for name, value in given.items():
        if not isinstance(name, str) or not isinstance(value, str | int | float):  # pyright: ignore[reportUnnecessaryIsInstance] users pass anything
            raise OptionError(
                "impossible setting of a run's page",
                where=f"{name!r:.80}",
                found=f"{value!r:.80}",
                expected="a name with a number, a text, True or False",
            )
    return dict(given)
