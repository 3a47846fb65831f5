"""A run: a session, its plan, where it is, what is called on the way, and Ctrl-C."""

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
    """Is called while a run trains; derive from it and define what you need.

    `run.at` says where training is, `run.session` trains, `run.stop(reason)` ends the run after the
    present step, or the present update if gradients of several batches make one.
    """

    def fetches(self, run: Run) -> Sequence[str]:
        """Return what each step is to compute besides, for `run.at.fetched`; asked for once."""
        return ()

    def check(self, run: Run) -> None:
        """Refuse a run that lacks what the callback needs; is called before all else."""

    def on_begin(self, run: Run) -> None:
        """Is called once, before the first step."""

    def on_step(self, run: Run) -> None:
        """Is called after each step."""

    def on_evaluation(self, run: Run) -> None:
        """Is called after each evaluation: `run.at.evaluation` is new."""

    def on_epoch(self, run: Run) -> None:
        """Is called after each epoch, and its evaluation."""

    def on_end(self, run: Run) -> None:
        """Is called once, when training ends or an error ends it, which is `run.failed` then."""

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint keeps of the callback: anything that JSON can hold."""
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take what `state` returned in the run that this one goes on with.

        Raises:
            CheckpointError: A file holds something else; the run adds its name.
        """


class Run:
    """The view of training that callbacks get.

    Attributes:
        session: The session that trains.
        plan: How to go through the data.
        at: Where training is.
        callbacks: What is called.
        measures: The names of what evaluations find; none without held-out data.
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
        """Begin the clock, and give callbacks what a checkpoint kept of them."""
        self.session, self.plan = session, plan
        self.at = progress or Progress()
        self.callbacks, self.measures = tuple(callbacks), tuple(measures)
        self.stopped: str | None = None
        self.failed: BaseException | None = None
        self._ends = False
        self._start = time.perf_counter()
        for name, callback in self._named_callbacks():
            if name in self.at.callbacks:
                self._restore(name, callback, self.at.callbacks[name])

    def stop(self, reason: str) -> None:
        """End the run after the present update or evaluation; a checkpoint is saved if one is kept.

        Of several shards, the one that says so first ends the run of all.

        Args:
            reason: Why, in words.
        """
        self.stopped = reason

    def ends(self) -> bool:
        """Return whether the run is to end here, the same on all shards, which all have to ask."""
        if not self._ends:
            agreed = self.session.agree(self.stopped)
            if agreed is not None:
                self.stopped, self._ends = agreed, True
        return self._ends

    def place(self) -> dict[str, Any]:
        """Return how rows begin: the epoch (from 1), the step, and the seconds since the start."""
        seconds = round(time.perf_counter() - self._start, 4)
        return {"epoch": self.at.epoch + 1, "step": self.at.step, "seconds": seconds}

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a checkpoint from which the run can go on."""
        kept = {
            name: state for name, callback in self._named_callbacks() if (state := callback.state())
        }
        self.session.save(path, stored(self.at, self.plan, kept))

    def fetches(self) -> tuple[str, ...]:
        """Return what callbacks want of each step, every name once."""
        return tuple(dict.fromkeys(name for c in self.callbacks for name in c.fetches(self)))

    def call(self, event: str) -> None:
        """Call one method of all callbacks, in their order."""
        for callback in self.callbacks:
            getattr(callback, event)(self)

    def _restore(self, name: str, callback: Callback, kept: Mapping[str, Any]) -> None:
        """Give a callback what the checkpoint keeps of it."""
        try:
            callback.restore(kept)
        except CheckpointError as error:
            raise placed(error, f"{self.plan.checkpoint}, callback {name!r}") from error

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
"""Why a run has ended that Ctrl-C has stopped."""


class Interrupt(Callback):
    """Ends the run when it is told to."""

    def __init__(self) -> None:
        """Nothing has been told yet."""
        self._run: Run | None = None
        self._told = False

    def on_begin(self, run: Run) -> None:
        """Remember the run."""
        self._run = run
        if self._told:
            run.stop(INTERRUPTED)

    def tell(self) -> None:
        """End the run after the present update, or as soon as it begins; those of all shards."""
        self._told = True
        if self._run is not None:
            self._run.stop(INTERRUPTED)


@contextmanager
def interruptible() -> Generator[Interrupt]:
    """Yield a callback that ends its run at SIGINT; the second SIGINT raises KeyboardInterrupt.

    Outside the main thread, where Python handles no signals, nothing changes.
    """
    interrupt = Interrupt()
    if threading.current_thread() is not threading.main_thread():
        yield interrupt
        return
    before = signal.getsignal(signal.SIGINT)

    def handle(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, before)
        interrupt.tell()

    signal.signal(signal.SIGINT, handle)
    try:
        yield interrupt
    finally:
        signal.signal(signal.SIGINT, before)
