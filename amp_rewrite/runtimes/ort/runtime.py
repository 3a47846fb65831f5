"""ONNX Runtime itself, imported when it is needed, its errors in one line, and its limit of time.

Whatever needs it raises RuntimeMissingError where it is not installed.
"""

from __future__ import annotations

import importlib
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from threading import Timer
from typing import Any

from amp_rewrite.errors import OutOfTimeError, RunError, RuntimeMissingError

_NAME = "onnxruntime"
_LONGEST = 500
"""Characters of a message that an error shows."""

_ends: ContextVar[float | None] = ContextVar("_ends", default=None)


def import_runtime() -> Any:
    """Return the onnxruntime module.

    Raises:
        RuntimeMissingError: It is not installed.
    """
    try:
        # A step asks for it with every feed: import_module takes 1 us, sys.modules has it half
        # done while another thread imports it, and this waits for that.
        return __import__(_NAME)
    except ImportError as error:
        raise RuntimeMissingError(
            "running a model needs ONNX Runtime, which is not installed",
            remedy="pip install 'amp-rewrite[cpu]'",
        ) from error


def import_state() -> Any:
    """Return the compiled part of ONNX Runtime, with its exceptions and registries."""
    import_runtime()
    return importlib.import_module(f"{_NAME}.capi.onnxruntime_pybind11_state")


def operator_schemas() -> tuple[str, list[Any]]:
    """Return the name and version of the runtime, and the schemas of all its operators."""
    return f"{_NAME} {import_runtime().__version__}", import_state().get_all_operator_schema()


@contextmanager
def one_line(what: str) -> Generator[None]:
    """Turn the errors of ONNX Runtime into a RunError."""
    try:
        yield
    except (*_error_types(), RuntimeError, ValueError) as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise RunError(what, found=lines[0][:_LONGEST]) from error


@cache
def _error_types() -> tuple[type[Exception], ...]:
    members: list[Any] = list(vars(import_state()).values())
    return tuple(t for t in members if isinstance(t, type) and issubclass(t, Exception))


@contextmanager
def time_limit(ends: float) -> Generator[None]:
    """Stop what ONNX Runtime does in the block at a time of `time.monotonic`.

    What the block calls keeps to it: a run that passes it ends between two nodes, and no model is
    loaded behind it. In a block inside another one the earlier limit counts.
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
