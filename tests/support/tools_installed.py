"""Packages that tests of the documentation need, and that few have installed."""

from __future__ import annotations

import os
from importlib.util import find_spec

import pytest

REQUIRED = "AMP_TOOLS"
"""The environment variable that is "required" where a missing package is a failure."""


def has(module: str) -> bool:
    """Return whether a module can be found; its parents are imported."""
    try:
        return find_spec(module) is not None
    except ImportError:
        return False


def installed(module: str) -> None:
    """Skip the test for want of a module, or fail it where that is required."""
    if has(module):
        return
    if os.environ.get(REQUIRED) == "required":
        pytest.fail(f"{module} is missing")
    pytest.skip(f"{module} is not installed")
