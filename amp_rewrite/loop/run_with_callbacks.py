"""A run: a session, its plan and progress, its callbacks, and Ctrl-C."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

from amp_rewrite.errors import CheckpointError, placed
from amp_rewrite.loop.plan_and_progress import Plan, Progress, stored
from amp_rewrite.training.session.training_session import TrainingSession


class Callback:
    """Base of objects that a run calls while it trains.

    `run.at` is the progress, `run.session` trains, `run.stop(reason)` ends the run after the
    present update.
    """

    def fetches(self, run: Run) -> Sequence[str]:
        """Return names of further values of each step, for `run.at.fetched`; called once."""
        return ()

    def check(self, run: Run) -> None:
        """Refuse a run that the callback cannot serve; called first."""

    def on_begin(self, run: Run) -> None:
        """Do something before the first step."""

    def on_step(self, run: Run) -> None:
        """Do something after each step."""

    def on_evaluation(self, run: Run) -> None:
        """Do something after each evaluation, whose results are `run.at.evaluation`."""

    def on_epoch(self, run: Run) -> None:
        """Do something after each epoch and its evaluation."""

    def on_end(self, run: Run) -> None:
        """Do something when training ends; after an error, `run.failed` is the error."""

    def state(self) -> dict[str, Any]:
        """Return the callback's part of a checkpoint: anything that JSON can hold."""
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take the result of `state` in the run that is resumed.

        Raises:
            CheckpointError: The state does not fit.
        """


class Run:
    """A run, as callbacks see it.

    Attributes:
        session: The session that trains.
        plan: The plan.
        at: The progress.
        callbacks: The callbacks.
        measures: The names of the results of evaluations; none without held-out data.
        stopped: Why the run ends before its plan, or None.
        failed: The error that has ended it, or None.
    """

    def __init__(
        self,
        session: TrainingSession,
        plan: Plan,
        callbacks: Sequence[Callback] = (),
        progress: Progress | None = None,
        measures: Sequence[str] = (),
    ) -> None:
        """Begin the clock, and restore the callbacks from the checkpoint."""
        self.session, self.plan = session, plan
        self.at = progress or Progress()
        self.callbacks, self.measures = tuple(callbacks), tuple(measures)
        self.stopped: str | None = None
        self.failed: BaseException | None = None
        self._ends = False
        self._start = time.perf_counter()
        for name, callback in self._named_callbacks():
            if name in self.at.callbacks:
                try:
                    callback.restore(self.at.callbacks[name])
                except CheckpointError as error:
                    raise placed(error, f"{plan.checkpoint}, callback {name!r}") from error

    def stop(self, reason: str) -> None:
        """End the run of all shards after the present update or evaluation; save its checkpoint.

        Args:
            reason: Why, in words.
        """
        self.stopped = reason

    def ends(self) -> bool:
        """Return whether the run ends here; all shards have to ask, and get the same answer."""
        if not self._ends:
            agreed = self.session.agree(self.stopped)
            if agreed is not None:
                self.stopped, self._ends = agreed, True
        return self._ends

    def place(self) -> dict[str, Any]:
        """Return the epoch (from 1), the step, and the seconds since the start."""
        seconds = round(time.perf_counter() - self._start, 4)
        return {"epoch": self.at.epoch + 1, "step": self.at.step, "seconds": seconds}

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a checkpoint from which the run can go on."""
        kept = {
            name: state for name, callback in self._named_callbacks() if (state := callback.state())
        }
        self.session.save(path, stored(self.at, self.plan, kept))

    def fetches(self) -> tuple[str, ...]:
        """Return the names that callbacks fetch, each once."""
        return tuple(dict.fromkeys(name for c in self.callbacks for name in c.fetches(self)))

    def call(self, event: str) -> None:
        """Call one method of all callbacks, in their order."""
        for callback in self.callbacks:
            getattr(callback, event)(self)

    def _named_callbacks(self) -> list[tuple[str, Callback]]:
        """Return the callbacks by class and number, for their states."""
        counts: dict[str, int] = {}
        named: list[tuple[str, Callback]] = []
        for callback in self.callbacks:
            kind = type(callback).__name__
            counts[kind] = counts.get(kind, 0) + 1
            named.append((f"{kind} {counts[kind]}", callback))
        return named


INTERRUPTED = "interrupted"
"""The reason of a run that Ctrl-C has ended."""


class Interrupt(Callback):
    """Ends the run after a signal has come."""

    has_come = False

    def on_begin(self, run: Run) -> None:
        """Stop if the signal has come."""
        if self.has_come:
            run.stop(INTERRUPTED)

    on_step = on_evaluation = on_epoch = on_begin


@contextmanager
def interruptible() -> Generator[Interrupt]:
    """Yield a callback that ends its run at SIGINT; the second SIGINT raises KeyboardInterrupt.

    Python handles no signals outside the main thread.
    """
    interrupt = Interrupt()
    if threading.current_thread() is not threading.main_thread():
        yield interrupt
        return
    before = signal.getsignal(signal.SIGINT)

    def handle(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, before)
        interrupt.has_come = True

    signal.signal(signal.SIGINT, handle)
    try:
        yield interrupt
    finally:
        signal.signal(signal.SIGINT, before)
