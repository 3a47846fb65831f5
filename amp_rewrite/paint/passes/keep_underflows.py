"""Constants that round to zero in the low type and thereby change the result.

x / (|x| + 1e-12) is finite for x = 0; in float16 the 1e-12 is zero and the quotient NaN. A constant
counts if every nonzero element of it rounds to zero, so a weight tensor with a few tiny elements
never does. It matters where it is a factor or a divisor, and where it keeps a divisor, a logarithm,
a square root or a power away from zero (Add, Sub, Max, the lower bound of Clip). Then its consumer
stays float32, and so does everything up to and including the operator that zero would upset, for a
cast in between would make the sum zero again.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from amp_rewrite.dtypes import DType
from amp_rewrite.graph.constants import constant_tensor
from amp_rewrite.graph.dataflow import TypeGraph
from amp_rewrite.graph.flat import Operator
from amp_rewrite.graph.streams import Stream
from amp_rewrite.graph.traits import Trait, has, row_of
from amp_rewrite.paint.context import PaintContext
from amp_rewrite.paint.painting import Color, Mark, Painting, Reason

LARGEST = 4096
"""Elements of the largest constant that is looked at: an epsilon per channel, not a weight."""

# operators: the inputs at which a tiny constant is a factor.
_FACTORS: Mapping[str, tuple[int, ...]] = {"Div": (0, 1), "Mul": (0, 1)}
# operators: the inputs at which one keeps the result away from zero.
_GUARDS: Mapping[str, tuple[int, ...]] = {"Add": (0, 1), "Clip": (1,), "Max": (0, 1), "Sub": (1,)}


@dataclass(frozen=True)
class KeepUnderflows:
    """Unpaint what reads a constant that rounds to zero, and what zero would upset."""

    name: ClassVar[str] = "keep-underflows"

    def run(self, context: PaintContext, painting: Painting) -> Painting:
        """Return the painting without such vertices; a reader's mark names its constant."""
        search = _Search(context.type_graph, context.low, painting)
        looked_at = context.type_graph.called(_FACTORS.keys() | _GUARDS.keys())
        for vertex in painting.allowed():
            if not looked_at[vertex]:
                continue
            operator = context.type_graph.operator_of(vertex).op_type
            for index in _FACTORS.get(operator, ()):
                search.factor(vertex, index)
            for index in _GUARDS.get(operator, ()):
                search.guard(vertex, index)
        return painting.with_marks(search.behind | search.readers)


@dataclass
class _Search:
    """One search in one painting.

    Attributes:
        readers: The vertices that read such a constant.
        behind: The vertices up to and including the operators that zero would upset.
    """

    type_graph: TypeGraph
    low: DType
    painting: Painting
    readers: dict[int, Mark] = field(default_factory=dict[int, Mark])
    behind: dict[int, Mark] = field(default_factory=dict[int, Mark])
    _magnitudes: dict[int, float] = field(default_factory=dict[int, float])

    def factor(self, vertex: int, index: int) -> None:
        """Mark a vertex that multiplies with, or divides by, a constant that becomes zero."""
        value = self._read_by(vertex, index)
        if value is not None and self._magnitude(value):
            is_divisor = (self.type_graph.operator_of(vertex).op_type, index) == ("Div", 1)
            role = "divides" if is_divisor else "multiplies"
            self.readers[vertex] = self._mark(value, role)

    def guard(self, vertex: int, index: int) -> None:
        """Mark a vertex whose constant keeps another operator away from zero, and the way there."""
        value = self._read_by(vertex, index)
        if value is None or not self._magnitude(value):
            return
        graph, names = self.type_graph, self.type_graph.flat.node_names
        start = graph.nodes[vertex]
        paths = list(_paths_to_upset(graph, start, self._magnitude(value), self.low))
        if not paths:
            return
        self.readers[vertex] = self._mark(value, f"keeps {names[paths[0][-1]]} away from zero")
        for node in (node for path in paths for node in path):
            for other in graph.vertices_of(node):
                if other != vertex and self.painting.is_allow(other):
                    role = f"{graph.flat.called(node).op_type} needs the sum"
                    self.behind[other] = self._mark(value, role, vertex)

    def _mark(self, value: int, role: str, because: int | None = None) -> Mark:
        name = self.type_graph.flat.value_names[value]
        fact = f"constant {name} = {self._magnitude(value):.3g} rounds to zero"
        detail = f"{fact} in {self.low.name}, and {role}"
        read = value if because is None else None
        return Mark(Color.NONE, Reason.CONSTANT_UNDERFLOW, because, detail, read)

    def _read_by(self, vertex: int, index: int) -> int | None:
        """Return the constant that a vertex reads at an input of its node, or None."""
        graph, flat = self.type_graph, self.type_graph.flat
        slot = flat.input_start[graph.nodes[vertex]] + index
        if slot >= flat.input_start[graph.nodes[vertex] + 1] or graph.reads[slot] != vertex:
            return None
        value = flat.inputs[slot]
        is_constant = value in self._magnitudes or constant_tensor(graph, value) is not None
        return value if is_constant else None

    def _magnitude(self, value: int) -> float:
        """Return a constant's largest magnitude if all of it rounds to zero, else 0."""
        if value not in self._magnitudes:
            tensor = constant_tensor(self.type_graph, value)
            elements = None if tensor is None else self.type_graph.flat.elements(tensor)
            self._magnitudes[value] = _largest_if_zero(elements, self.low)
        return self._magnitudes[value]


def _largest_if_zero(constant: Stream | None, low: DType) -> float:
    if constant is None or constant.count > LARGEST:
        return 0.0
    arrays = [np.abs(chunk) for chunk in constant.blocks()]
    largest = max((float(a.max()) for a in arrays if a.size), default=0.0)
    return largest if largest <= low.smallest_subnormal / 2 else 0.0


def _paths_to_upset(
    type_graph: TypeGraph, node: int, magnitude: float, low: DType
) -> Iterator[list[int]]:
    """Yield the nodes from behind a guard to each operator that zero would upset."""
    flat = type_graph.flat
    stack: list[tuple[int, list[int], float]] = [(node, [], magnitude)]
    seen = {node}
    while stack:
        current, path, size = stack.pop()
        for slot in flat.uses(flat.outputs_of(current)[0]):
            reader = flat.reader(slot)
            called = flat.called(reader)
            if reader in seen or called.domain != "":
                continue
            seen.add(reader)
            if _is_upset(called, flat.index(slot)):
                yield [*path, reader]
            if called.op_type == "Sqrt" and math.sqrt(size) <= low.smallest_subnormal / 2:
                stack.append((reader, [*path, reader], math.sqrt(size)))
            elif has(called, Trait.MOVES, Trait.CHANGES_SIGN):
                stack.append((reader, [*path, reader], size))


def _is_upset(called: Operator, index: int) -> bool:
    """Tell whether zero in the place of a small number upsets an operator at an input."""
    return row_of(called).pole == index or (index == 0 and has(called, Trait.STEEP_AT_ZERO))
