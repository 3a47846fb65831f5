"""Fills: what a mask puts where nothing is to be seen, such as -1e9, and which values have any.

A mask is 0 or a fill. Most are added to scores in front of a Softmax; some are added to each other
before. What can be told of one is how large its fills are, and whether every row (along the last
axis) has an element without one: a causal mask in the file has, a padding mask that the model
computes may have none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from amp_rewrite.dtypes import FLOAT32
from amp_rewrite.graph.constants import filled_tensor, moved_elements
from amp_rewrite.graph.dataflow import TypeGraph
from amp_rewrite.graph.flat import ABSENT, Array
from amp_rewrite.graph.reach import data_of
from amp_rewrite.graph.traits import Trait, having, is_one, operator
from amp_rewrite.rewriting.paint.context import PaintContext
from amp_rewrite.rewriting.paint.mask_casts import MaskCasts
from amp_rewrite.rewriting.paint.masks import ends_in_ordering
from amp_rewrite.rewriting.paint.painting import Painting
from amp_rewrite.values.counts.find_counts import LOWEST
from amp_rewrite.values.intervals.interval import Interval

# operators: those that leave each row of a mask what it is, or cut it; zeros times data are zeros.
_KEEPING_ROWS = (
    *("Add", "Cast", "CastLike", "Expand", "Gather", "Identity", "Mul", "Reshape", "Slice"),
    *("Squeeze", "Tile", "Unsqueeze"),
)

# operators: those whose results have the fills of their operands.
_HANDING_ON = having(Trait.MOVES, Trait.CASTS, Trait.CHANGES_SIGN, Trait.ADDS) | {
    *("Clip", "CumSum", "Div", "GlobalMaxPool", "Max", "MaxPool", "Mean", "Min", "Mul"),
    *("ReduceMax", "ReduceMin", "ReduceSum", "ScatterElements", "ScatterND", "Sub", "TopK"),
}

# operators: those behind which what the caller gives is no mask any more.
_SCALING = frozenset({"Clip", "CumSum", "Div", "Mean", "Mul", "ReduceSum", "Sub"})

# operators: those that add up masks along an axis.
_SUMMING = ("CumSum", "ReduceSum")


class Fills(NamedTuple):
    """The fills of a value.

    Attributes:
        least: The smallest magnitude of one.
        is_open: Whether every row has an element without one.
        is_given: Whether the caller gives them all, if there are any: an input may be a mask.
        has_given: Whether the caller gives some of them.
        adds_given: Whether masks were added to each other, and the caller gives some of them.
    """

    least: float
    is_open: bool
    is_given: bool = False
    has_given: bool = False
    adds_given: bool = False


@dataclass
class FillSearch:
    """Finds the fills of values, each value's once.

    Attributes:
        type_graph: The model.
        ranges: Graph input -> what the user says of its elements.
    """

    type_graph: TypeGraph
    ranges: Mapping[int, Interval] = field(default_factory=dict[int, Interval])
    _found: dict[int, Fills | None] = field(default_factory=dict[int, "Fills | None"])
    _read: dict[int, list[int]] = field(default_factory=dict[int, list[int]])

    def of(self, value: int) -> Fills | None:
        """Return the fills of a float32 value; None for one without, as far as is known."""
        stack = [value]
        while stack:
            current = stack[-1]
            if current in self._found:
                stack.pop()
                continue
            before = [v for v in self._operands(current) if v not in self._found]
            if before:
                stack += before
                continue
            self._found[stack.pop()] = self._made(current)
        return self._found[value]

    def nodes_behind(self, value: int) -> Iterator[int]:
        """Yield the nodes that compute a value and have fills in their results, from it on back."""
        flat, stack, seen = self.type_graph.flat, [value], {value}
        while stack:
            current = stack.pop()
            node = flat.producer[current]
            if node == ABSENT or self.of(current) is None:
                continue
            yield node
            new = [v for v in self._operands(current) if v not in seen]
            seen.update(new)
            stack += new

    def _operands(self, value: int) -> list[int]:
        """Return the values whose fills become those of a value."""
        operands = self._read.get(value)
        if operands is None:
            operands = self._read[value] = self._looked_up(value)
        return operands

    def _looked_up(self, value: int) -> list[int]:
        flat = self.type_graph.flat
        node = flat.producer[value]
        if node == ABSENT:
            return []
        if operator(flat.called(node)) not in _HANDING_ON:
            return []
        return [v for v in data_of(flat, node) if self.type_graph.is_float32(v)]

    def _made(self, value: int) -> Fills | None:
        """Return the fills of a value whose operands are known."""
        operands = self._operands(value)
        if not operands:  # a constant hands nothing on
            tensor = filled_tensor(self.type_graph, value)
            return self._given(value) if tensor is None else _of_elements(tensor.numpy())
        node = self.type_graph.flat.producer[value]
        called = self.type_graph.flat.called(node)
        scales = operator(called) in _SCALING
        fills = [f for v in operands if (f := self._found[v]) is not None]
        parts = [f for f in fills if not (scales and f.is_given)]
        if not parts:
            return None
        stays_open = len(parts) == 1 and parts[0].is_open and is_one(called, *_KEEPING_ROWS)
        has_given = any(f.has_given for f in parts)
        adds = len(parts) > 1 and is_one(called, "Add", "Sub", "Sum")
        return Fills(
            min(f.least for f in parts),
            stays_open or self._is_triangle(node),
            all(f.is_given for f in parts),
            has_given,
            (has_given and (adds or is_one(called, *_SUMMING))) or any(f.adds_given for f in parts),
        )

    def _given(self, value: int) -> Fills | None:
        """Return the fills of an input of the model that is added, and nothing else.

        A caller's mask has the lowest number of float32, as a rule.
        """
        flat, input_range = self.type_graph.flat, self.ranges.get(value)
        if value not in flat.main.inputs or not self.type_graph.is_float32(value):
            return None
        if input_range is not None and input_range.magnitude < -LOWEST:
            return None
        readers = {operator(flat.called(node)) for node in flat.readers(value)}
        is_mask = readers <= _HANDING_ON - _SCALING
        return Fills(FLOAT32.max, False, is_given=True, has_given=True) if is_mask else None

    def _is_triangle(self, node: int) -> bool:
        """Tell whether a node leaves fills above the diagonal alone."""
        flat = self.type_graph.flat
        if not is_one(flat.called(node), "Trilu") or len(flat.inputs_of(node)) < 2:
            return False
        upper = flat.attributes(node).get("upper")
        shift = moved_elements(flat, flat.inputs_of(node)[1])
        return (upper is None or upper.value != 0) and shift is not None and shift.min() >= 1


def _of_elements(elements: Array) -> Fills | None:
    """Return the fills among the elements of a constant."""
    if elements.dtype.kind != "f" or not elements.size:
        return None
    magnitudes = np.abs(elements.astype(np.float32))
    masked = magnitudes >= -LOWEST
    counted = magnitudes[masked & np.isfinite(magnitudes)]
    if not counted.size:
        return None
    is_open = elements.ndim > 0 and not bool(masked.all(axis=-1).any())
    return Fills(float(counted.min()), is_open)


class Absorbed(NamedTuple):
    """Which elements of a value count for nothing.

    Attributes:
        beyond: Those from this magnitude on; half of the smallest fill, for scores are added.
        either_sign: Whether positive ones count for nothing as well: a mask that is subtracted.
    """

    beyond: float
    either_sign: bool


def absorbed_fills(
    context: PaintContext, painting: Painting, values: Iterable[int]
) -> dict[int, Absorbed]:
    """Return, for values with fills out of range that nothing but orderings reads, which these are.

    Such fills do no harm: a painting lets them end where the low type does, as constants
    (plan/saturation.py) or in front of a Cast (mask_casts.py). Who measures a model in float32
    still sees 3.4e38, and has to count it out. Scores and a mask have both signs, so that positive
    elements of them are no fills. A mask alone may be positive, before it is subtracted.
    """
    graph, search = context.type_graph, FillSearch(context.type_graph, context.values.inputs)
    casts, fills_of = MaskCasts(context, painting), dict[int, Absorbed]()
    for value in values:
        fills = search.of(value)
        if fills is None or fills.least < context.low.overflow or graph.flat.is_output(value):
            continue
        readers = dict.fromkeys(graph.readers(value))
        if readers and all(v != ABSENT and ends_in_ordering(graph, v, value) for v in readers):
            fills_of[value] = Absorbed(fills.least / 2, casts.is_mask(value))
    return fills_of
