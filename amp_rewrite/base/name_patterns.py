"""Patterns for names: the one way in which nodes, values and weights are meant by text.

A pattern is a name with * for any text and ? for any character, or several with | or commas
between; `re:` begins a regular expression. Either has to match a whole name, and a name always
means itself, whatever characters it has.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from difflib import get_close_matches
from fnmatch import fnmatchcase

from amp_rewrite.base.printable import shortened
from amp_rewrite.errors import OptionError

EXPRESSION = "re:"
"""The prefix of a regular expression."""

REMEDY = "* is any text in a name, and re: begins a regular expression"

_MOST, _FEW = 3, 5
"""How many names an error has: the nearest, and of those that are not near."""

_MANY = 20_000
"""Comparing with more names than that would take longer than a user waits for an error."""


@dataclass(frozen=True)
class NamePattern:
    """A pattern; `text` is as the user wrote it."""

    text: str
    _expression: re.Pattern[str] | None = field(default=None, repr=False)

    @staticmethod
    def of(text: str, where: str) -> NamePattern:
        """Read a pattern; OptionError if it begins with `re:` and is no regular expression."""
        if not text.startswith(EXPRESSION):
            return NamePattern(text)
        try:
            return NamePattern(text, re.compile(text.removeprefix(EXPRESSION)))
        except re.error as error:
            raise OptionError(
                "not a regular expression",
                where=where,
                found=repr(shortened(text)),
                expected=f"Python's syntax ({error})",
                remedy="omit re: for a pattern in which * is any text",
            ) from error

    def matches(self, name: str) -> bool:
        """Return whether it means a name."""
        if self._expression is not None:
            return self._expression.fullmatch(name) is not None
        return name == self.text or any(fnmatchcase(name, part) for part in parts(self.text))

    def matches_any(self, names: Iterable[str]) -> bool:
        """Return whether it means one of several names."""
        return any(map(self.matches, names))


def parts(text: str) -> list[str]:
    """Return the patterns of a text: one, if it is a regular expression."""
    if text.startswith(EXPRESSION):
        return [text]
    return [part.strip() for part in re.split(r"[|,]", text) if part.strip()]


def hint(text: str) -> str:
    """Return what to do about a pattern that matches nothing, which may be an old expression."""
    if not text.startswith(EXPRESSION) and re.search(r"\.[*+]|\\|\(|\^|\$", text):
        return f"write {EXPRESSION}{shortened(text)} if it is a regular expression"
    return REMEDY


def nearest(wanted: str, names: Iterable[str]) -> list[str]:
    """Return up to three names like one that a user wrote.

    Names in which it occurs, whatever the case, come first; then those with a similar spelling, of
    all of the name or of its last part.
    """
    distinct = list(dict.fromkeys(name for name in names if name))
    sought = wanted.lower()
    close = [name for name in distinct if sought in name.lower()] if sought else []
    close.sort(key=lambda name: not name.lower().startswith(sought))
    if len(close) < _MOST:
        lower = {re.split(r"[./]", name)[-1].lower(): name for name in distinct[:_MANY]}
        lower |= {name.lower(): name for name in distinct[:_MANY]}
        close += [lower[match] for match in get_close_matches(sought, lower, _MOST)]
    return list(dict.fromkeys(close))[:_MOST]


def did_you_mean(wanted: str, names: Iterable[str]) -> str | None:
    """Return a question that has the names like one; None if there are none."""
    meant = nearest(wanted, names)
    return f"did you mean {' or '.join(map(repr, meant))}?" if meant else None


def suggestion(wanted: str, names: Iterable[str], kind: str) -> str:
    """Return what an error says was expected: the nearest names, all of a few, or what kind."""
    distinct = list(dict.fromkeys(name for name in names if name))
    meant = nearest(wanted, distinct) or (distinct if len(distinct) <= _FEW else [])
    return " or ".join(map(repr, meant)) or kind
