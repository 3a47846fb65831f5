"""The lengths of free dimensions that a user gives: `N=8`, checked and read once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from amp_rewrite.base import arguments
from amp_rewrite.errors import OptionError
from amp_rewrite.graph.flat import FlatGraph

FreeLengths = Mapping[str, int]
"""Name of a free dimension -> its length."""


def free_lengths(entries: Mapping[str, Any] | Iterable[str]) -> FreeLengths:
    """Return the lengths that an option holds."""
    if isinstance(entries, Mapping):
        pairs = list(entries.items())
    else:
        pairs = [_parsed(text) for text in arguments.texts("dims", entries)]
    for name, length in pairs:
        arguments.integer(f"length of {name!r}", length)
    return MappingProxyType(dict(pairs))


def _parsed(text: str) -> tuple[str, int]:
    name, _, length = text.rpartition("=")
    if not (name and length.isdecimal()):
        raise OptionError("--dim is not a length", found=text, expected="NAME=LENGTH")
    return name, int(length)


def check_dimensions(lengths: FreeLengths, model: FlatGraph) -> None:
    """Reject lengths of what no input of the model has."""
    free = model.free_dimensions
    for name in lengths:
        if name not in free:
            raise OptionError(
                "no input has a free dimension of this name",
                found=repr(name),
                expected=" or ".join(map(repr, sorted(free))) or "no name: there is none",
            )
