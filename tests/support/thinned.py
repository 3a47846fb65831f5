"""Parameters of tests of which the fast suite takes a share; the rest is slow."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest


def thinned(values: Iterable[Any], slow: Callable[[Any], bool]) -> list[Any]:
    """Return values as parameters, those of which `slow` is true marked so.

    A value is what a test takes; a tuple, what it takes of several names.
    """
    return [
        pytest.param(*_several(value), marks=[pytest.mark.slow] if slow(value) else [])
        for value in values
    ]


def every(values: Iterable[Any], step: int) -> list[Any]:
    """Return values as parameters, of which all but the first of each `step` are slow."""
    known = list(values)
    fast = {id(value) for value in known[::step]}
    return thinned(known, lambda value: id(value) not in fast)


def _several(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)
