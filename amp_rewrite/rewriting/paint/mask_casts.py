"""Casts of masks: where elements out of range end at the edge of the low type, not at infinity.

What makes a mask computes in float32 in many spellings: Min of two masks, (keep - 1) times the
largest number, a sum of masks, or the caller gives one. The lowest float32 number becomes minus
infinity in any type of 16 bits, so that a row masked as a whole is NaN behind the Softmax. Whatever
computed it: if all that reads the Cast only asks which scores lie above the others, elements may
end before the Cast where the low type ends, for they count for nothing either way.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from amp_rewrite.dtypes import FLOAT32
from amp_rewrite.graph.constants import constant_tensor, filled_tensor
from amp_rewrite.graph.flat import ABSENT
from amp_rewrite.graph.reach import data_of
from amp_rewrite.graph.traits import Trait, has, having, operator
from amp_rewrite.rewriting.paint.context import PaintContext
from amp_rewrite.rewriting.paint.masks import SHARING, SUMMING, ends_in_ordering, sums_behind
from amp_rewrite.rewriting.paint.painting import Painting
from amp_rewrite.values.counts.find_counts import LOWEST
from amp_rewrite.values.sum_lengths import count_terms

_MOST_NODES = 200
"""How many nodes make a mask at most; what takes more is no mask."""

_SCORES = 1e30
"""A magnitude that scores do not reach."""

# operators: the arithmetic that masks are made of; no layer is among them.
_ARITHMETIC = (
    having(Trait.MOVES, Trait.CASTS, Trait.ADDS, Trait.CHANGES_SIGN, Trait.HOLDS)
    | {"Clip", "CumSum", "Div", "GlobalMaxPool", "Log", "Max", "MaxPool", "Mean", "Min", "Mul"}
    | {"ReduceMax", "ReduceMin", "ReduceSum", "ScatterElements", "ScatterND", "Sub", "TopK"}
) - having(Trait.SEQUENCE, Trait.OPAQUE)

# operators: those whose results may be larger than what they read.
_UNBOUNDED = ("Div", "Log")

# operators: those that add up elements along an axis.
_SUMMING = ("CumSum", "ReduceSum")


@dataclass(frozen=True, slots=True)
class _Mask:
    """What is known of a value that arithmetic makes of inputs and constants.

    Attributes:
        reach: What no element exceeds in magnitude; a factor that is not known counts as 1.
        has_fills: Whether a constant of the model puts in numbers that mask.
    """

    reach: float
    has_fills: bool


@dataclass
class MaskCasts:
    """Tells which Casts of a painting are those of masks that leave the range.

    Attributes:
        context: What the painting knew.
        painting: The painting.
        saturated: Constant -> the magnitude at which its elements end in float32 as well.
    """

    context: PaintContext
    painting: Painting
    saturated: Mapping[int, float] = field(default_factory=dict[int, float])
    _found: dict[int, _Mask | None] = field(default_factory=dict[int, "_Mask | None"])

    def limit(self, value: int, readers: Sequence[int] | None = None) -> float:
        """Return the magnitude at which elements end in front of a Cast to the low type.

        Args:
            value: What is cast.
            readers: The vertices that read the Cast; by default those that are low.

        Returns:
            The magnitude, at which constants that are masks end as well; 0 if no element may be
            replaced, or none is out of range.
        """
        context, graph = self.context, self.context.type_graph
        low = context.low
        if low is FLOAT32 or not graph.is_float32(value):
            return 0.0
        if readers is None:
            allow = self.painting.allow
            readers = [v for v in graph.readers(value) if v != ABSENT and allow[v]]
        if not readers or ABSENT in readers or not self._ends(value, readers):
            return 0.0
        if constant_tensor(graph, value) is not None:
            return 0.0
        mask = self._mask(value)
        if mask is None or mask.reach < low.overflow:
            return 0.0
        sums = {node for v in readers for node in sums_behind(graph, v)}
        if not (mask.has_fills or (sums and self._ends(value, readers, SHARING))):
            return 0.0
        alone = sums == {*readers} and self._is_alone(sums)
        return low.max if not sums or alone else low.max / 2

    def _is_alone(self, sums: set[int]) -> bool:
        """Tell whether what reads a mask adds it, once, to scores that are nothing beside it.

        The sum with another mask has to stay above infinity; without one, where several masks were
        added before the Cast, the elements that more of them mask stay below the others. Constants
        that end at half the range keep what is not constant there.
        """
        low, graph = self.context.low, self.context.type_graph
        if len(sums) > 1 or self.saturated or low.max * low.epsilon < _SCORES:
            return False
        node = graph.nodes[next(iter(sums))]
        stack, seen, masks = [*graph.flat.inputs_of(node)], set[int](), 0
        while stack and len(seen) < _MOST_NODES:
            value = stack.pop()
            if value in seen or value == ABSENT or not graph.is_float32(value):
                continue
            seen.add(value)
            mask, maker = self._mask(value), graph.flat.producer[value]
            if mask is not None:
                masks += mask.reach >= _SCORES
            elif maker != ABSENT and operator(graph.flat.called(maker)) in SUMMING:
                stack += graph.flat.inputs_of(maker)
        return masks <= 1 and not stack

    def is_mask(self, value: int) -> bool:
        """Tell whether arithmetic alone makes a value of inputs and constants, as of masks."""
        return self._mask(value) is not None

    def _ends(
        self,
        value: int,
        readers: Sequence[int],
        ordering: frozenset[str] = having(Trait.ORDERS),
    ) -> bool:
        graph = self.context.type_graph
        return all(ends_in_ordering(graph, v, value, ordering) for v in dict.fromkeys(readers))

    def _mask(self, value: int) -> _Mask | None:
        """Return what is known of a value; None if something else than arithmetic makes it."""
        stack, visited = [value], 0
        while stack:
            current = stack[-1]
            if current in self._found:
                stack.pop()
                continue
            operands = self._operands(current)
            before = [] if operands is None else [v for v in operands if v not in self._found]
            visited += 1
            if before and visited <= _MOST_NODES:
                stack += before
                continue
            is_arithmetic = operands is not None and not before
            self._found[stack.pop()] = (
                self._made(current, operands or []) if is_arithmetic else None
            )
        return self._found[value]

    def _operands(self, value: int) -> list[int] | None:
        """Return the float32 values of which a value is made; None if it is no arithmetic."""
        graph, flat = self.context.type_graph, self.context.type_graph.flat
        node = flat.producer[value]
        if not graph.is_float32(value) or filled_tensor(graph, value) is not None:
            return []
        if node == ABSENT:
            return [] if value in flat.main.inputs else None
        called = flat.called(node)
        if operator(called) not in _ARITHMETIC or flat.is_call(node):
            return None
        return [v for v in data_of(flat, node) if graph.is_float32(v)]

    def _made(self, value: int, operands: Sequence[int]) -> _Mask | None:
        graph, flat = self.context.type_graph, self.context.type_graph.flat
        tensor = filled_tensor(graph, value)
        if tensor is not None:
            return self._constant(value, tensor.numpy())
        bound = self.context.values.intervals[value].magnitude
        if not operands:  # an input, or what is cast from integers and truth values
            return _Mask(bound, has_fills=False)
        parts = [mask for v in operands if (mask := self._found[v]) is not None]
        if len(parts) < len(operands):
            return None
        called = flat.called(flat.producer[value])
        reach = [part.reach for part in parts]
        if called.op_type == "Mul":
            most = _product(reach)
        elif has(called, Trait.ADDS) or called.op_type == "Sub":
            most = sum(reach)
        elif called.op_type in _SUMMING:
            most = sum(reach) * (count_terms(flat, flat.producer[value]) or math.inf)
        else:
            most = math.inf if called.op_type in _UNBOUNDED else max(reach)
        return _Mask(min(most, bound), any(part.has_fills for part in parts))

    def _constant(self, value: int, elements: np.ndarray) -> _Mask:
        """Return what is known of a constant; infinities stay what they are."""
        numbers = np.abs(elements.astype(np.float32))
        reach = float(numbers[np.isfinite(numbers)].max(initial=0.0))
        ends = self.saturated.get(value, math.inf)
        return _Mask(min(reach, ends), has_fills=reach >= -LOWEST)


def _product(reach: Sequence[float]) -> float:
    """Return the product; what is not bounded multiplies a fill by no more than 1."""
    bounded = [r for r in reach if math.isfinite(r)]
    return math.prod(bounded) if bounded and max(bounded) >= -LOWEST else math.prod(reach)
