"""Parameters of tests of which the fast suite takes a share; the rest is slow."""

from __future__ import annotations

from collections import defaultdict
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


def mark_rest(items: Iterable[pytest.Item]) -> None:
    """Mark slow what the mark `share` leaves out of the fast suite.

    Of a test with `share(step)` the first of each `step` of its parameter sets is fast, in order of
    collection: a step that has no divisor in common with the numbers of values of its parameters
    meets all of them. With `share(step, each="name")`, the first with each value of a parameter is
    fast too, or with each value of a field of it (`each="row.op"`).
    """
    numbers: defaultdict[str, int] = defaultdict(int)
    known: set[tuple[str, str]] = set()
    for item in items:
        mark = item.get_closest_marker("share")
        if mark is None or item.get_closest_marker("slow") is not None:
            continue
        test = item.nodeid.partition("[")[0]
        number, numbers[test] = numbers[test], numbers[test] + 1
        is_fast = number % mark.args[0] == 0
        if (each := mark.kwargs.get("each")) is not None:
            name, _, field = each.partition(".")
            value = getattr(item, "callspec").params[name]  # noqa: B009 of functions
            key = (test, str(getattr(value, field) if field else value))
            is_fast |= key not in known
            known.add(key)
        if not is_fast:
            item.add_marker(pytest.mark.slow)


def _several(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)
