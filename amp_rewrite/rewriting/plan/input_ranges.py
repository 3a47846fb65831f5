"""Ranges of inputs, `x=0:255`, and lengths of free dimensions, `N=8`, as a user gives them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any

from amp_rewrite.base import arguments
from amp_rewrite.errors import OptionError
from amp_rewrite.graph.dataflow import TypeGraph
from amp_rewrite.graph.elements import element
from amp_rewrite.values.intervals import element_types
from amp_rewrite.values.intervals.interval import Interval, between

Range = tuple[float, float]
"""The least and the greatest number that an input may hold."""

InputRanges = Mapping[str, Range]
"""Name of a graph input -> its range."""

FreeLengths = Mapping[str, int]
"""Name of a free dimension -> its length."""

_SPELLING = "NAME=LOW:HIGH, for example x=0:255"


def input_ranges(entries: Mapping[str, Any] | Iterable[str]) -> InputRanges:
    """Return the ranges that an option holds: name -> (low, high), or texts such as "x=0:255".

    Raises:
        OptionError: One is not a range, has its ends in the wrong order, or is there twice.
    """
    range_of: dict[str, Range] = {}
    for name, ends in _pairs("input_ranges", entries, _parsed):
        if name in range_of:
            raise OptionError("input_ranges has two ranges for one input", found=repr(name))
        range_of[name] = _range(name, ends)
    return MappingProxyType(range_of)


def _pairs(option: str, entries: Any, parsed: Callable[[str], Any]) -> list[tuple[str, Any]]:
    if isinstance(entries, Mapping):
        return list(entries.items())
    return [parsed(text) for text in arguments.texts(option, entries)]


def _parsed(text: str) -> tuple[str, tuple[str, ...]]:
    """Return name and ends of "NAME=LOW:HIGH"; a name may have colons and equals signs."""
    name, equals, ends = text.rpartition("=")
    if not (name and equals):
        raise OptionError("input_ranges holds no range", found=repr(text), expected=_SPELLING)
    return name, tuple(ends.split(":"))


def _range(name: str, ends: Any) -> Range:
    try:
        low, high = (float(end) for end in ends)
    except (TypeError, ValueError):
        is_text = isinstance(ends, tuple) and all(isinstance(end, str) for end in ends)
        raise OptionError(
            f"input_ranges has no two numbers for input {name!r}",
            found=repr(":".join(ends) if is_text else ends),
            expected=_SPELLING,
        ) from None
    if not low <= high:
        raise OptionError(
            f"input_ranges has no range for input {name!r}",
            found=f"{low:g}:{high:g}",
            expected="two numbers, the smaller one first",
        )
    return low, high


def input_intervals(ranges: InputRanges, type_graph: TypeGraph) -> dict[int, Interval]:
    """Return what ranges say of graph inputs.

    Raises:
        OptionError: An input holds no numbers, or none of its type is in the range.
    """
    flat, interval_of = type_graph.flat, dict[int, Interval]()
    for value in type_graph.flat.main.inputs:
        input_range = ranges.get(flat.value_names[value])
        if input_range is not None:
            _check_type(flat.value_names[value], type_graph.types[value], input_range)
            interval_of[value] = between(*input_range)
    return interval_of


def _check_type(name: str, type_string: str | None, input_range: Range) -> None:
    element_type = element_types.of(type_string)
    is_known = type_string is not None and element(type_string) is not None
    if is_known and not element_type.is_numeric:
        raise OptionError(f"input {name!r} holds no numbers", found=type_string)
    if input_range[1] < element_type.range.low or input_range[0] > element_type.range.high:
        raise OptionError(
            f"input_ranges has a range for input {name!r} that its type does not meet",
            found=f"{input_range[0]:g}:{input_range[1]:g}",
            expected=f"numbers from {element_type.range.low:g} to {element_type.range.high:g}",
        )


def free_lengths(entries: Mapping[str, Any] | Iterable[str]) -> FreeLengths:
    """Return the lengths that an option holds: name -> length, or texts such as "N=8"."""
    pairs = _pairs("dims", entries, _parsed_length)
    for name, length in pairs:
        arguments.integer(f"length of {name!r}", length)
    return MappingProxyType(dict(pairs))


def _parsed_length(text: str) -> tuple[str, int]:
    name, _, length = text.rpartition("=")
    if not (name and length.isdecimal()):
        raise OptionError("--dim is not a length", found=text, expected="NAME=LENGTH")
    return name, int(length)
