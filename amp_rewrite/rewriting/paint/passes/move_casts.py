"""Move casts across clear operators where that lowers their number or the bytes that they read.

Runs of clear vertices next to a cast change color as long as (casts, elements) becomes smaller. A
vertex becomes low only if every consumer is low: none sees a value rounded for its sake.

Evidence: a Split whose three results are cast: three casts without the pass, one with it
(docs/painting.md, section 3).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np

from amp_rewrite.graph.constants import constant_tensor
from amp_rewrite.graph.dataflow import TypeGraph, vertices_in
from amp_rewrite.graph.flat import ABSENT, MAIN, Array
from amp_rewrite.graph.sizes import product_of
from amp_rewrite.graph.traits import Trait, has
from amp_rewrite.oplists import ListName
from amp_rewrite.rewriting.paint.context import PaintContext
from amp_rewrite.rewriting.paint.paint_pass import Place, Stage, paints
from amp_rewrite.rewriting.paint.painting import Color, Mark, Marks, Painting, PassReason, Reason

LONGEST_RUN = 16
"""How many vertices in a row may change color together."""

MOST_SWEEPS = 4
"""How often the model is searched; a second sweep rarely finds anything."""


class Cost(NamedTuple):
    """The costs of a set of casts, compared in this order."""

    casts: int
    elements: int


@paints("move-casts", Place(Stage.SAVING, 10))
def move_casts(context: PaintContext, painting: Painting) -> Marks:
    """Recolor clear vertices where that makes the casts cheaper, if the context says so."""
    if not context.moves_casts:
        return {}
    search = CastSearch(context.type_graph, context, painting)
    for _ in range(MOST_SWEEPS):
        if not search.sweep():
            break
    return search.marks(Reason.CAST_MOVED)


@dataclass
class CastSearch:
    """A painting in which vertices change color, and what its casts cost."""

    type_graph: TypeGraph
    context: PaintContext
    painting: Painting
    low: set[int] = field(default_factory=set[int])
    changed: dict[int, None] = field(default_factory=dict[int, None])
    _neutral: dict[int, bool] = field(default_factory=dict[int, bool])

    def __post_init__(self) -> None:
        """Begin with the colors of the painting."""
        self.low = set(vertices_in(self.painting.allow))
        self.flat = self.type_graph.flat

    def sweep(self) -> bool:
        """Try every vertex next to a cast once; tell whether anything changed."""
        progress = False
        for vertex in self._next_to_casts():
            run = self._best_run(vertex)
            if run:
                self.change(run)
                progress = True
        return progress

    def change(self, run: Iterable[int]) -> None:
        """Change the color of a run."""
        self._flip(run)
        self.changed |= dict.fromkeys(run)

    def marks(self, reason: PassReason) -> dict[int, Mark]:
        """Return the marks of the vertices whose color changed."""
        return {
            v: Mark(Color.ALLOW if v in self.low else Color.NONE, reason)
            for v in self.changed
            if (v in self.low) != self.painting.is_allow(v)
        }

    def _next_to_casts(self) -> list[int]:
        is_low, edges = self.type_graph.mask(self.low), self._edges
        crossing = edges[is_low[edges[:, 0]] != is_low[edges[:, 1]]]
        movable = dict.fromkeys(v for v in crossing.ravel().tolist() if self._movable[v])
        movable |= dict.fromkeys(v for v in self._at_ends() if self._movable[v])
        return list(movable)

    @cached_property
    def _edges(self) -> Array:
        """The edges, those of one vertex together."""
        edges = self.type_graph.edges
        return edges[np.argsort(edges[:, 0], kind="stable")]

    def _at_ends(self) -> Iterator[int]:
        """Yield the low vertices next to a graph input or output."""
        graph, main = self.type_graph, self.flat.main
        readers = [vertex for value in main.inputs for vertex in graph.readers(value)]
        writers = [graph.source[value] for value in main.outputs]
        return (v for v in (*readers, *writers) if v in self.low)

    def _best_run(self, start: int) -> list[int]:
        """Return the run from `start` whose change of color saves most; empty if none saves."""
        best: list[int] = []
        saved = Cost(0, 0)
        for forward in (True, False):
            run: list[int] = []
            for vertex in self._run(start, forward):
                run.append(vertex)
                if vertex not in self._neutral:
                    self._neutral[vertex] = self._is_neutral(vertex)
                if self._neutral[vertex]:
                    continue
                change = self.cost_of(run)
                if change is not None and change < saved:
                    saved, best = change, [*run]
        return best

    def _is_neutral(self, vertex: int) -> bool:
        """Tell whether a cast costs the same on either side: one way in, one way out, one size."""
        graph, flat = self.type_graph, self.flat
        inputs = flat.inputs_of(graph.nodes[vertex])
        if len(inputs) != 1:
            return False
        if (len(graph.predecessors(vertex)), len(graph.successors(vertex))) != (1, 1):
            return False
        source, output = inputs[0], flat.outputs_of(graph.nodes[vertex])[0]
        if source == ABSENT or flat.is_output(output) or len(flat.uses(source)) != 1:
            return False
        return len(flat.uses(output)) == 1 and self._elements(source) == self._elements(output)

    def _run(self, start: int, forward: bool) -> Iterator[int]:
        """Yield `start` and its movable neighbours of the same color, while there is one way."""
        graph = self.type_graph
        step = graph.successors if forward else graph.predecessors
        color, seen, current = start in self.low, {start}, start
        for _ in range(LONGEST_RUN):
            yield current
            ways = [v for v in step(current) if (v in self.low) == color and v not in seen]
            if len(ways) != 1 or not self._movable[ways[0]]:
                return
            current = ways[0]
            seen.add(current)

    def cost_of(self, run: list[int]) -> Cost | None:
        """Return how the cost changes if a run changes color; None if it may not."""
        values = dict.fromkeys(v for vertex in run for v in self.type_graph.values_of(vertex))
        before = self._total(values)
        self._flip(run)
        after = self._total(values) if self._is_allowed(run) else None
        self._flip(run)
        if after is None:
            return None
        is_static = all(self._elements(v) is not None for v in values)
        elements = after.elements - before.elements if is_static else 0
        return Cost(after.casts - before.casts, elements)

    def _is_allowed(self, run: list[int]) -> bool:
        """Tell whether the vertices of a run that are low now feed low consumers only."""
        graph = self.type_graph
        low = self.low.intersection(run)
        values = (w for v in low for w in self.flat.outputs_of(graph.nodes[v]))
        return not any(has(graph.operator_of(v), Trait.JUMPS) for v in low) and all(
            not graph.is_float32(value) or all(self._consumers(value)) for value in values
        )

    def _flip(self, run: Iterable[int]) -> None:
        self.low.symmetric_difference_update(run)

    def _total(self, values: Iterable[int]) -> Cost:
        casts = elements = 0
        for value in values:
            is_low = self.type_graph.source[value] in self.low
            if all(wants == is_low for wants in self._consumers(value)):
                continue
            if is_low or constant_tensor(self.type_graph, value) is None:
                casts += 1  # a constant is converted in the file or folded
                elements += self._elements(value) or 0
        return Cost(casts, elements)

    def _consumers(self, value: int) -> Iterator[bool]:
        """Yield, for each consumer of a float32 value, whether it wants the low type."""
        flat, reads = self.flat, self.type_graph.reads
        for slot in flat.uses(value):
            if reads[slot] != ABSENT and flat.called(flat.reader(slot)).op_type != "Cast":
                yield reads[slot] in self.low
        if flat.is_output(value):
            home = flat.home[value]
            if home == MAIN:
                yield value in self.context.low_ends
            else:
                sinks = self.type_graph.sinks[home]
                for output, sink in zip(flat.bodies[home].outputs, sinks, strict=True):
                    if output == value:
                        yield sink in self.low

    @cached_property
    def _movable(self) -> Array:
        """A mask of the vertices whose color may change."""
        context, graph = self.context, self.type_graph
        moves = graph.where(
            lambda k: k.type == "tensor(float)" and not has(k.operator, Trait.SUBGRAPHS)
        )
        moves &= context.on(ListName.CLEAR) & context.processable & context.supported
        sequences = graph.mask(vertex for edge in graph.handles for vertex in edge)
        groups = (f for f in context.groups if f.tail)
        bound = graph.mask(v for fused in groups for v in fused.surroundings)
        return moves & ~context.forced & ~sequences & ~context.variable_reads & ~bound

    def _elements(self, value: int) -> int | None:
        """Return how many elements a value has; None if its recorded shape does not say."""
        return product_of(self.flat.recorded_shape(value))
