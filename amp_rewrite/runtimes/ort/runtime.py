"""ONNX Runtime itself, imported when it is needed, and its errors in one line.

Whatever needs it raises RuntimeMissingError where it is not installed.
"""

from __future__ import annotations

import importlib
from collections.abc import Generator
from contextlib import contextmanager
from functools import cache
from typing import Any

from amp_rewrite.errors import RunError, RuntimeMissingError

_NAME = "onnxruntime"
_LONGEST = 500
"""Characters of a message that an error shows."""


def import_runtime() -> Any:
    """Return the onnxruntime module; RuntimeMissingError if it is not installed."""
    try:
        # A step asks for it with every feed: import_module takes 1 us, sys.modules has it half
        # done while another thread imports it, and this waits for that.
        return __import__(_NAME)
    except ImportError as error:
        raise RuntimeMissingError(
            "running a model needs ONNX Runtime, which is not installed",
            remedy="pip install onnxruntime",
        ) from error


def import_state() -> Any:
    """Return the compiled part of ONNX Runtime, with its exceptions and registries."""
    import_runtime()
    return importlib.import_module(f"{_NAME}.capi.onnxruntime_pybind11_state")


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
