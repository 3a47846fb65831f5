"""A time at which ONNX Runtime stops: what loads and runs models for a budget keeps to it.

A limit is that of a block of code, whatever it calls: a run that passes it ends between two nodes,
and no model is loaded behind it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Lock, Timer
from typing import Any

from amp_rewrite.errors import OutOfTimeError
from amp_rewrite.runtimes.ort.runtime import import_runtime


class _Limit:
    """The end of a block; one timer stops all that runs in it, whatever the thread."""

    def __init__(self, ends: float) -> None:
        self.ends, self._lock = ends, Lock()
        self._options: Any = None
        self._timer: Timer | None = None

    def options(self) -> Any:
        """Return the onnxruntime.RunOptions of all runs; the timer starts with the first one."""
        with self._lock:
            if self._options is None:
                self._options = options = import_runtime().RunOptions()
                seconds = min(max(0.0, self.ends - time.monotonic()), threading.TIMEOUT_MAX)
                self._timer = Timer(seconds, lambda: setattr(options, "terminate", True))
                self._timer.daemon = True
                self._timer.start()
        return self._options

    def close(self) -> None:
        """Stop the timer."""
        if self._timer is not None:
            self._timer.cancel()


_limit: ContextVar[_Limit | None] = ContextVar("_limit", default=None)


@contextmanager
def time_limit(ends: float) -> Generator[None]:
    """Stop what ONNX Runtime does in the block at a time of `time.monotonic`.

    In a block inside another one the earlier limit counts.
    """
    outer = _limit.get()
    if outer is not None and outer.ends <= ends:
        yield
        return
    limit = _Limit(ends)
    token = _limit.set(limit)
    try:
        yield
    finally:
        _limit.reset(token)
        limit.close()


def check_time() -> None:
    """Raise OutOfTimeError if the limit is over; nothing without one."""
    limit = _limit.get()
    if limit is not None and time.monotonic() >= limit.ends:
        raise OutOfTimeError("the time is over", remedy="give a larger budget")


@contextmanager
def limited_run() -> Generator[Any]:
    """Give the onnxruntime.RunOptions of a run that OutOfTimeError ends; None without a limit."""
    limit = _limit.get()
    if limit is None:
        yield None
        return
    check_time()
    try:
        yield limit.options()
    except Exception:  # what fails behind the limit is out of time
        check_time()
        raise
