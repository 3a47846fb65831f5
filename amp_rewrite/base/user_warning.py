"""Warnings that point at the line of the user's code that led to them."""

from __future__ import annotations

import inspect
import warnings
from pathlib import Path

from amp_rewrite.errors import AmpWarning

_PACKAGE = str(Path(__file__).resolve().parents[1])


def warn(text: str) -> None:
    """Warn, with the category AmpWarning, at the innermost line that is outside this package."""
    frame, level = inspect.currentframe(), 1
    while frame is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame, level = frame.f_back, level + 1
    warnings.warn(text, AmpWarning, stacklevel=level - 1 if frame is None else level)
