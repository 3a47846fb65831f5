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
from threading import Timer
from typing import Any

from amp_rewrite.errors import OutOfTimeError
from amp_rewrite.runtimes.ort.runtime import import_runtime

_ends: ContextVar[float | None] = ContextVar("_ends", default=None)


@contextmanager
def time_limit(ends: float) -> Generator[None]:
    """Stop what ONNX Runtime does in the block at a time of `time.monotonic`.

    In a block inside another one the earlier limit counts.
    """
    outer = _ends.get()
    token = _ends.set(ends if outer is None else min(ends, outer))
    try:
        yield
    finally:
        _ends.reset(token)


def check_time() -> None:
    """Raise OutOfTimeError if the limit is over; nothing without one."""
    ends = _ends.get()
    if ends is not None and time.monotonic() >= ends:
        raise OutOfTimeError("the time is over", remedy="give a larger budget")


@contextmanager
def limited_run() -> Generator[Any]:
    """Give the onnxruntime.RunOptions of a run that OutOfTimeError ends; None without a limit."""
    ends = _ends.get()
    if ends is None:
        yield None
        return
    check_time()
    options = import_runtime().RunOptions()
    seconds = max(0.0, ends - time.monotonic())
    timer = Timer(min(seconds, threading.TIMEOUT_MAX), lambda: setattr(options, "terminate", True))
    timer.daemon = True
    timer.start()
    try:
        yield options
    except Exception:  # what fails behind the limit is out of time
        check_time()
        raise
    finally:
        timer.cancel()
