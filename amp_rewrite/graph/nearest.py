"""Names that are close to one that is not there."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

_MOST = 3
_MANY = 20_000
"""Comparing with more names than that would take longer than a user waits for an error."""


def nearest(wanted: str, names: Iterable[str]) -> list[str]:
    """Return up to three names like one that a user wrote.

    Names in which it occurs, whatever the case, come first; then those that are spelled alike.

    Args:
        wanted: What was written.
        names: What there is.
    """
    known = list(dict.fromkeys(name for name in names if name))
    sought = wanted.lower()
    found = [name for name in known if sought in name.lower()] if sought else []
    if len(found) < _MOST:
        lower = {name.lower(): name for name in known[:_MANY]}
        found += [lower[match] for match in get_close_matches(sought, lower, _MOST)]
    return list(dict.fromkeys(found))[:_MOST]


def suggestion(wanted: str, names: Iterable[str], kind: str) -> str:
    """Return what an error says was expected: the nearest names, or what kind of name."""
    found = nearest(wanted, names)
    return " or ".join(map(repr, found)) if found else kind
