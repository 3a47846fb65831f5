"""A time at which ONNX Runtime stops: what loads and runs models for a budget keeps to it.

A limit is that of a block of code, whatever it calls: a run that passes it ends between two nodes,
loading a model between two steps of the optimiser.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator
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
    """Stop here if the limit is over; nothing without one.

    Raises:
        OutOfTimeError: It is.
    """
    ends = _ends.get()
    if ends is not None and time.monotonic() >= ends:
        raise OutOfTimeError("the time is over", remedy="give a larger budget")


@contextmanager
def limited_run() -> Generator[Any]:
    """Give the onnxruntime.RunOptions of a run that stops at the limit; None without one.

    Raises:
        OutOfTimeError: The limit is over, or the run was stopped by it.
    """
    if _ends.get() is None:
        yield None
        return
    options = import_runtime().RunOptions()
    with _stopped_by(lambda: setattr(options, "terminate", True)):
        yield options


@contextmanager
def limited_load(options: Any) -> Generator[None]:
    """Stop loading a model with onnxruntime.SessionOptions at the limit, if there is one.

    Raises:
        OutOfTimeError: The limit is over, or loading was stopped by it.
    """
    cancel = getattr(options, "set_load_cancellation_flag", None)  # since ONNX Runtime 1.22
    if _ends.get() is None or cancel is None:
        check_time()
        yield
        return
    with _stopped_by(lambda: cancel(True)):
        yield


@contextmanager
def _stopped_by(stop: Callable[[], object]) -> Generator[None]:
    """Call `stop` from another thread at the limit; what fails behind it is out of time."""
    ends = _ends.get()
    check_time()
    seconds = max(0.0, (ends or 0.0) - time.monotonic())
    timer = Timer(min(seconds, threading.TIMEOUT_MAX), stop)
    timer.daemon = True
    timer.start()
    try:
        yield
    except Exception:
        check_time()
        raise
    finally:
        timer.cancel()
