"""Ctrl-C ends training after the present step or update, with a checkpoint."""

from __future__ import annotations

import signal
import threading
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType

from amp_rewrite.loop.run_with_callbacks import Callback, Run

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
