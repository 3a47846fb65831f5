"""Move casts across clear operators where that lowers their number or the bytes that they read.

A clear operator computes the same in either type, so the cast in front of it may as well stand
behind it, and the other way round: three casts behind a Split become one in front, and the cast in
front of a Gather reads fewer bytes behind it. The search is a descent: runs of clear vertices next
to a cast change color as long as (casts, bytes) becomes smaller. A vertex becomes low only if
every consumer is low, so that no float32 consumer ever sees a value rounded for its sake.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

import onnx_ir as ir

from amp_rewrite.graph.constants import constant_tensor
from amp_rewrite.graph.dataflow import TypeGraph, Vertex
from amp_rewrite.graph.traits import Trait, has
from amp_rewrite.oplists import ListName
from amp_rewrite.paint.context import PaintContext
from amp_rewrite.paint.painting import Color, Mark, Painting, Reason

LONGEST_RUN = 16
"""How many vertices in a row may change color together."""

MOST_SWEEPS = 4
"""How often the model is searched; a second sweep rarely finds anything."""


class Cost(NamedTuple):
    """What a set of casts costs, compared in this order."""

    casts: int
    elements: int


@dataclass(frozen=True)
class MoveCasts:
    """Recolor clear vertices where that makes the casts cheaper, if the context says so."""

    name: ClassVar[str] = "move-casts"

    def run(self, context: PaintContext, painting: Painting) -> Painting:
        """Return the painting with such vertices recolored."""
        if not context.moves_casts:
            return painting
        search = _Search(context.type_graph, context, painting)
        for _ in range(MOST_SWEEPS):
            if not search.sweep():
                break
        return painting.with_marks(search.marks())


@dataclass
class _Search:
    type_graph: TypeGraph
    context: PaintContext
    painting: Painting
    low: set[Vertex] = field(default_factory=set)
    changed: dict[Vertex, Vertex | None] = field(default_factory=dict)
    _movable: dict[Vertex, bool] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.low = set(self.painting.allowed())

    def sweep(self) -> bool:
        """Try every vertex next to a cast once; tell whether anything changed."""
        progress = False
        for vertex in self._next_to_casts():
            run = self._best_run(vertex)
            if run:
                self._flip(run)
                self.changed |= dict.fromkeys(run)
                progress = True
        return progress

    def marks(self) -> dict[Vertex, Mark]:
        """Return the marks of the vertices whose color changed."""
        return {
            v: Mark(Color.ALLOW if v in self.low else Color.NONE, Reason.CAST_MOVED)
            for v in self.changed
            if (v in self.low) != self.painting.is_allow(v)
        }

    def _next_to_casts(self) -> list[Vertex]:
        found: dict[Vertex, None] = {}
        for one, other in self.type_graph.graph.edges:
            if (one in self.low) != (other in self.low):
                found |= dict.fromkeys(v for v in (one, other) if self._is_movable(v))
        found |= dict.fromkeys(v for v in self._at_ends() if self._is_movable(v))
        return list(found)

    def _at_ends(self) -> Iterator[Vertex]:
        """Yield the low vertices next to a graph input or output."""
        graph, nodes = self.type_graph.model.graph, self.type_graph.nodes
        readers = [nodes[use.node].inputs[use.idx] for v in graph.inputs for use in v.uses()]
        writers = [self.type_graph.producers.get(value) for value in graph.outputs]
        return (v for v in (*readers, *writers) if v is not None and v in self.low)

    def _best_run(self, start: Vertex) -> list[Vertex]:
        """Return the run from `start` whose change of color saves most; empty if none saves."""
        best: list[Vertex] = []
        saved = Cost(0, 0)
        for forward in (True, False):
            run: list[Vertex] = []
            for vertex in self._run(start, forward):
                run.append(vertex)
                if self._is_neutral(vertex):
                    continue
                change = self._change(run)
                if change is not None and change < saved:
                    saved, best = change, [*run]
        return best

    def _is_neutral(self, vertex: Vertex) -> bool:
        """Tell whether a cast costs the same on either side: one way in, one way out, one size."""
        node = vertex.node
        graph = self.type_graph.graph
        if len(node.inputs) != 1 or graph.in_degree(vertex) != 1 or graph.out_degree(vertex) != 1:
            return False
        source, output = node.inputs[0], node.outputs[0]
        if source is None or output.is_graph_output() or len(source.uses()) != 1:
            return False
        return len(output.uses()) == 1 and _elements(source) == _elements(output)

    def _run(self, start: Vertex, forward: bool) -> Iterator[Vertex]:
        """Yield `start` and its movable neighbours of the same color, while there is one way."""
        graph = self.type_graph.graph
        step = graph.successors if forward else graph.predecessors
        color, seen, current = start in self.low, {start}, start
        for _ in range(LONGEST_RUN):
            yield current
            ways = [v for v in step(current) if (v in self.low) == color and v not in seen]
            if len(ways) != 1 or not self._is_movable(ways[0]):
                return
            current = ways[0]
            seen.add(current)

    def _change(self, run: list[Vertex]) -> Cost | None:
        """Return how the cost changes if a run changes color; None if it may not."""
        values = dict.fromkeys(v for vertex in run for v in self._values(vertex))
        before = self._total(values)
        self._flip(run)
        after = self._total(values) if self._is_allowed(run) else None
        self._flip(run)
        if after is None:
            return None
        known = all(v.shape is not None and v.shape.is_static() for v in values)
        elements = after.elements - before.elements if known else 0
        return Cost(after.casts - before.casts, elements)

    def _is_allowed(self, run: list[Vertex]) -> bool:
        """Tell whether the vertices of a run that are low now feed low consumers only."""
        return not any(
            v in self.low
            and (
                has(v.node, Trait.JUMPS)
                or any(not self._reads_low(value) for value in v.node.outputs)
            )
            for v in run
        )

    def _reads_low(self, value: ir.Value) -> bool:
        return not self.type_graph.is_float32(value) or all(self._consumers(value))

    def _flip(self, run: Iterable[Vertex]) -> None:
        self.low.symmetric_difference_update(run)

    def _total(self, values: Iterable[ir.Value]) -> Cost:
        casts = elements = 0
        for value in values:
            source = self.type_graph.producers.get(value)
            is_low = source in self.low
            if all(wants == is_low for wants in self._consumers(value)):
                continue
            if not is_low and self._is_free(value):
                continue
            casts += 1
            elements += _elements(value)
        return Cost(casts, elements)

    def _is_free(self, value: ir.Value) -> bool:
        """Tell whether casting costs nothing: a constant is converted in the file or folded."""
        return constant_tensor(self.type_graph, value) is not None

    def _consumers(self, value: ir.Value) -> Iterator[bool]:
        """Yield, for each consumer of a float32 value, whether it wants the low type."""
        nodes = self.type_graph.nodes
        for use in value.uses():
            vertex = nodes[use.node].inputs[use.idx]
            if vertex is not None and use.node.op_type != "Cast":
                yield vertex in self.low
        if value.is_graph_output():
            graph = value.graph
            if graph is None or graph is self.type_graph.model.graph:
                yield value in self.context.low_ends
            else:
                sinks = self.type_graph.sinks.get(graph, [])
                for output, sink in zip(graph.outputs, sinks, strict=False):
                    if output is value:
                        yield sink in self.low

    def _values(self, vertex: Vertex) -> Iterator[ir.Value]:
        entry = self.type_graph.nodes[vertex.node]
        for value, port in zip(vertex.node.inputs, entry.inputs, strict=True):
            if port is vertex and value is not None:
                yield value
        for value, port in zip(vertex.node.outputs, entry.outputs, strict=True):
            if port is vertex:
                yield value

    def _is_movable(self, vertex: Vertex) -> bool:
        if vertex not in self._movable:
            context = self.context
            self._movable[vertex] = (
                context.list_of(vertex) is ListName.CLEAR
                and not has(vertex.node, Trait.SUBGRAPHS)
                and vertex.kind.type == "tensor(float)"
                and not context.is_forced(vertex)
                and vertex not in self.type_graph.handles
                and context.process(vertex)
                and context.supports(vertex)
                and not context.is_variable_read(vertex)
            )
        return self._movable[vertex]


def _elements(value: ir.Value) -> int:
    """Return how many elements a value has; 0 if its recorded shape does not say."""
    if value.shape is None:
        return 0
    dims = [d for d in value.shape if isinstance(d, int)]
    return math.prod(dims) if len(dims) == len(value.shape) else 0
