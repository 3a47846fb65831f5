"""The required fields of an object that was read from JSON, and the kind of each.

A check takes what was found and its key, such as `states[2].shape`, and returns what does not fit,
or None. Checks are made of others: a list of strings is `list_of(TEXT)`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple, TypeAlias

_LARGEST = 2**63 - 1
_SHOWN = 60
"""Characters of a string or a number that a message shows."""
_WORD = 64
_ABSENT = object()


class Misfit(NamedTuple):
    """A field with a wrong value: its key from the outermost object on, or "", and words."""

    key: str
    found: str
    expected: str


Check: TypeAlias = Callable[[Any, str], Misfit | None]


def kind(expected: str, fits: Callable[[Any], bool]) -> Check:
    """Return a check by a function of what JSON can hold; `expected` says in words what fits."""

    def check(found: Any, key: str) -> Misfit | None:
        return None if fits(found) else Misfit(key, _content_text(found), expected)

    return check


TEXT = kind("a string", lambda found: isinstance(found, str))
SWITCH = kind("true or false", lambda found: isinstance(found, bool))
OBJECT = kind("an object", lambda found: isinstance(found, dict))
NUMBER = kind("a number", lambda found: type(found) in (int, float) and not math.isnan(found))


def whole(low: int, high: int = _LARGEST) -> Check:
    """Return a check for integers; JSON's true and false are not among them."""
    bounds = f"of at least {low}" if high == _LARGEST else f"from {low} to {high}"
    return kind(f"an integer {bounds}", lambda found: type(found) is int and low <= found <= high)


def one_of(*words: str) -> Check:
    """Return a check for one of a few strings."""
    expected = " or ".join(map(repr, words))
    return kind(expected, lambda found: isinstance(found, str) and found in words)


def or_null(inner: Check) -> Check:
    """Return a check that lets null pass, too."""

    def check(found: Any, key: str) -> Misfit | None:
        misfit = None if found is None else inner(found, key)
        if misfit is None or misfit.key != key:
            return misfit
        return misfit._replace(expected=f"{misfit.expected}, or null")

    return check


def list_of(inner: Check) -> Check:
    """Return a check for lists whose items all fit."""

    def check(found: Any, key: str) -> Misfit | None:
        if not isinstance(found, list):
            return Misfit(key, _content_text(found), "a list")
        each = (inner(item, f"{key}[{index}]") for index, item in enumerate(found))
        return next(filter(None, each), None)

    return check


def mapping_to(inner: Check) -> Check:
    """Return a check for objects with any keys, whose values all fit."""

    def check(found: Any, key: str) -> Misfit | None:
        if not isinstance(found, dict):
            return Misfit(key, _content_text(found), "an object")
        each = (inner(value, _join_keys(key, name)) for name, value in found.items())
        return next(filter(None, each), None)

    return check


def object_of(
    fields: Mapping[str, Check], *, optional: Collection[str] = (), more: bool = False
) -> Check:
    """Return a check for objects with certain fields; `more` allows others."""

    def check(found: Any, key: str) -> Misfit | None:
        if not isinstance(found, dict):
            return Misfit(key, _content_text(found), "an object")
        for name, inner in fields.items():
            if name not in found and name in optional:
                continue
            misfit = inner(found.get(name, _ABSENT), _join_keys(key, name))
            if misfit is not None:
                return misfit
        name = next((name for name in found if name not in fields), None)
        if more or name is None:
            return None
        expected = f"one of {', '.join(fields)}"
        return Misfit(_join_keys(key, name), _content_text(found[name]), expected)

    return check


def _join_keys(key: str, name: str) -> str:
    return f"{key}.{name}" if key else name


def _content_text(content: Any) -> str:
    """Return a value in words; those that hold others by their length, for they may be deep."""
    if content is _ABSENT:
        return "nothing"
    if content is None:
        return "null"
    if isinstance(content, bool):
        return str(content).lower()
    if isinstance(content, list):
        return f"a list of {len(content)}"
    if isinstance(content, dict):
        return f"an object of {len(content)}"
    if isinstance(content, int) and content.bit_length() > _WORD:  # Python writes no huge ones
        return f"an integer of {content.bit_length()} bits"
    return f"{content!r:.{_SHOWN}}"
