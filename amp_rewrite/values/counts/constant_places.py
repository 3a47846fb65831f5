"""Constants that run through places: a grid of pixels, a ramp of time, a range of frequencies.

An exporter that knows all lengths folds Range, meshgrid and linspace into constants. What tells
such a constant from a bias or a learned table is that it is smooth: along some axis most steps are
about as long as those beside them. Steps between learned numbers are as different as these numbers.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from amp_rewrite.graph.constants import constant_tensor, read_constants
from amp_rewrite.graph.dataflow import TypeGraph
from amp_rewrite.graph.flat import Array, FlatGraph
from amp_rewrite.graph.traits import Trait, has
from amp_rewrite.values.counts.count_rules import HOMOGENEOUS, Fact, Kind

SHORTEST = 4
"""Elements of the shortest run of places: three numbers have two steps, which may be equal."""

LONGEST_LINE = 4096
"""Elements of a line that are looked at."""

_BENT = 0.25
"""The share of a step the next one may differ by."""

_SMOOTH = 0.75
"""The share of the steps that have a next one like them; at the ends of rows a ramp restarts."""

# operators: arithmetic that keeps places what they are, besides what moves or multiplies them.
_ARITHMETIC = ("Add", "Sub", "Mul", "Div", "Sum", "Mod", "Pow", "Neg", "Max", "Min", "Clip")


def constant_places(type_graph: TypeGraph) -> dict[int, Fact]:
    """Return, by constant, what is known of those that run through places."""
    flat, facts = type_graph.flat, dict[int, Fact]()
    for value in read_constants(type_graph):
        tensor = constant_tensor(type_graph, value)
        if tensor is None or tensor.size < SHORTEST or not _is_computed_with(flat, value):
            continue
        array = tensor.numpy()
        if runs_through_places(array):
            facts[value] = Fact(
                Kind.COORDINATE, value, bool(np.all(array == np.floor(array))), ramp=True
            )
    return facts


def _is_computed_with(flat: FlatGraph, value: int) -> bool:
    """Tell whether something adds, multiplies or moves a constant, or sums up a few products."""
    for node in set(flat.readers(value)):
        called = flat.called(node)
        if has(called, Trait.CONTRACTS):
            shape = flat.shape(value)
            if shape is None or any(d is not None and d <= HOMOGENEOUS for d in shape):
                return True
        elif called.domain == "" and (
            called.op_type in _ARITHMETIC or has(called, Trait.MOVES, Trait.ADDS, Trait.JUMPS)
        ):
            return True
    return False


def runs_through_places(array: Array) -> bool:
    """Tell whether a constant is smooth along an axis, as places are."""
    if array.size < SHORTEST or array.dtype.kind not in "iuf":
        return False
    return any(_is_smooth(line) for line in _lines(array))


def _lines(array: Array) -> Iterator[Array]:
    """Yield the first and the last line along each axis."""
    for axis, length in enumerate(array.shape):
        if length >= SHORTEST:
            for end in (0, -1):
                at = tuple(
                    slice(None, LONGEST_LINE) if k == axis else end for k in range(array.ndim)
                )
                line = array[at].astype(np.float64)
                yield line
                if axis == array.ndim - 1:  # x and y may take turns
                    yield line[::2]


def _is_smooth(line: Array) -> bool:
    """Tell whether most steps of a line are like their neighbours; what repeats is no step."""
    with np.errstate(invalid="ignore", over="ignore"):
        steps = np.diff(line)
    steps = steps[steps != 0]
    if len(steps) < SHORTEST - 1 or not np.isfinite(steps).all():
        return False
    longer = np.maximum(np.abs(steps[1:]), np.abs(steps[:-1]))
    even = np.abs(np.diff(steps)) <= _BENT * longer
    return bool(even.mean() >= _SMOOTH)
