"""What several op lists allow: each operator on the most careful of the lists that they give it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import reduce

from amp_rewrite.oplists.entries import Condition, Entry, ListName

_CAREFUL = (ListName.DENY, ListName.UNLISTED, ListName.INFER, ListName.CLEAR, ListName.ALLOW)
"""The lists, the most careful first: what is denied stays float32 and so does what follows."""


def common_entries(lists: Sequence[Sequence[Entry]]) -> list[Entry]:
    """Return what all of the lists allow.

    An operator that one of them does not know is on none, a boundary.
    """
    return list(reduce(_both, lists))


def _both(one: Sequence[Entry], other: Sequence[Entry]) -> list[Entry]:
    theirs: dict[tuple[str, str], list[Entry]] = {}
    for entry in other:
        theirs.setdefault(entry.key, []).append(entry)
    return [
        _stricter(entry, match)
        for entry in one
        for match in theirs.get(entry.key, ())
        if entry.overlaps(match)
    ]


def _stricter(one: Entry, other: Entry) -> Entry:
    """Return the more careful of two entries, about the nodes that both are about."""
    ends = [entry.until for entry in (one, other) if entry.until is not None]
    return replace(
        min(one, other, key=lambda entry: _CAREFUL.index(entry.list)),
        since=max(one.since or 0, other.since or 0) or None,
        until=min(ends, default=None),
        when=tuple(_conditions(one, other)),
        no_kernel=one.no_kernel or other.no_kernel,
    )


def _conditions(one: Entry, other: Entry) -> Iterator[Condition]:
    theirs = {condition.attribute: condition for condition in other.when}
    for condition in one.when:
        match = theirs.pop(condition.attribute, condition)
        values = tuple(value for value in condition.values if value in match.values)
        yield Condition(condition.attribute, values)
    yield from theirs.values()
