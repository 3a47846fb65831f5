"""Counts, angles and places stay float32, for their absolute error matters.

Rounding to the low type keeps the relative precision of a number. That is enough for what layers
compute, and not for a position, whose 12,345 becomes 12,352 in bfloat16: its cosine, the element
that it selects and the bias of an attention score depend on the last digit. So

- counts (graph/counts) keep float32, and whatever computes with them, until they are normalised;
- an operator that asks for the absolute error of an input (a period, a jump, coordinates) demands
  float32 of it, and of what computes it, matrix products included, back to where a layer begins
  or, for angles, to what is so small that rounding does no harm.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from amp_rewrite.graph.counts.fact import Fact, Kind
from amp_rewrite.graph.counts.find_counts import before, find_counts
from amp_rewrite.graph.dataflow import VertexKind, vertices_in
from amp_rewrite.graph.flat import ABSENT, Operator
from amp_rewrite.graph.traits import Trait, has, row_of
from amp_rewrite.paint.context import PaintContext
from amp_rewrite.paint.painting import Color, Mark, Painting, Reason


@dataclass(frozen=True)
class KeepDemands:
    """Mark every vertex that computes a count, an angle, an index or a coordinate."""

    name: ClassVar[str] = "keep-demands"

    def run(self, context: PaintContext, painting: Painting) -> Painting:
        """Return the painting with such vertices marked; nodes that the user allows are not."""
        if context.lists.force_all:
            return painting
        marks = _Search(context).marks()
        names, allowed = context.type_graph.node_name, context.rules.allowed_by
        return painting.with_marks({v: m for v, m in marks.items() if allowed(names(v)) is None})


class _Search:
    """One search in one model."""

    def __init__(self, context: PaintContext) -> None:
        self._context, self._graph, self._low = context, context.type_graph, context.low
        concerned = vertices_in(self._graph.where(_demands))
        self._demanded = [(v, *found) for v in concerned for found in self._demanded_by(v)]
        self._counts = find_counts(self._graph, with_inputs=bool(self._demanded))

    def marks(self) -> dict[int, Mark]:
        """Return the marks; a demand for a count tells both, and leads to who demands."""
        counts, demands = self._of_counts(), self._of_demands()
        both = {
            v: demands[v]._replace(detail=f"{demands[v].detail}, {mark.detail}")
            for v, mark in counts.items()
            if v in demands
        }
        return counts | demands | both

    def _of_counts(self) -> dict[int, Mark]:
        """Mark what makes a count that rounding would change, and what reads one."""
        marks: dict[int, Mark] = {}
        for vertex, fact in self._counts.facts.items():
            if fact.kind is not Kind.COUNT or self._is_harmless(vertex, fact):
                continue
            detail = f"count from {self._name(fact.origin)}"
            because = self._counts.because.get(vertex)
            marks[vertex] = Mark(Color.NONE, Reason.COUNT, because, detail)
            for reader in self._graph.successors(vertex):
                marks.setdefault(reader, Mark(Color.NONE, Reason.COUNT, vertex, detail))
        return marks

    def _of_demands(self) -> dict[int, Mark]:
        """Mark what computes the inputs whose absolute error matters."""
        marks: dict[int, Mark] = {}
        for demanding, source, noun in self._demanded:
            detail = f"{noun} of {self._graph.node_name(demanding)}"
            marks |= self._behind(source, demanding, detail, marks)
        return marks

    def _demanded_by(self, vertex: int) -> Iterator[tuple[int, str]]:
        """Yield the vertices that compute such inputs, and what they are."""
        graph, flat = self._graph, self._graph.flat
        node = graph.nodes[vertex]
        first, called = flat.input_start[node], flat.called(node)
        for index, value in enumerate(flat.inputs_of(node)):
            noun = _noun(called, index)
            if noun and graph.reads[first + index] == vertex and graph.source[value] != ABSENT:
                yield graph.source[value], noun

    def _behind(
        self, source: int, demanding: int, detail: str, marked: Mapping[int, Mark]
    ) -> dict[int, Mark]:
        """Return the marks of what computes an input, back to where rounding does no harm."""
        marks: dict[int, Mark] = {}
        small = detail.startswith(_ANGLE)
        stack = [(source, demanding)]
        while stack:
            vertex, because = stack.pop()
            fact = self._counts.facts.get(vertex)
            if vertex in marks or vertex in marked or fact is None:
                continue
            if fact.kind is Kind.FLAG or self._is_harmless(vertex, fact, small):
                continue
            marks[vertex] = Mark(Color.NONE, Reason.DEMAND, because, detail)
            stack += [(v, vertex) for v in before(self._graph, vertex)]
        return marks

    def _is_harmless(self, vertex: int, fact: Fact, small: bool = True) -> bool:
        """Tell whether rounding what a vertex computes does no harm.

        Whole numbers are exact up to where the type has gaps. A small number moves by no more than
        the type's tolerance; that is up to 8, which is more than one turn. At a threshold even that
        is too much.
        """
        largest = self._largest(vertex)
        exact = fact.whole and largest <= 2 / self._low.epsilon
        return exact or (small and largest * self._low.epsilon / 2 <= self._low.rtol)

    def _largest(self, vertex: int) -> float:
        """Return a magnitude that nothing exceeds that a vertex computes."""
        graph, flat = self._graph, self._graph.flat
        node = graph.nodes[vertex]
        if has(flat.called(node), Trait.SUBGRAPHS):
            return math.inf
        first = flat.output_start[node]
        made = [v for i, v in enumerate(flat.outputs_of(node)) if graph.writes[first + i] == vertex]
        return max((self._context.intervals[value].magnitude for value in made), default=0.0)

    def _name(self, value: int) -> str:
        """Return what to call the origin of a count: its node, or itself if it is an input."""
        flat = self._graph.flat
        node = flat.producer[value]
        return flat.value_names[value] if node == ABSENT else flat.node_names[node]


_ANGLE = "angle"


def _demands(kind: VertexKind) -> bool:
    """Tell whether vertices of a kind may read something whose absolute error matters."""
    called = kind.operator
    if has(called, Trait.CASTS):
        return any("int" in type_ for type_ in kind.known.values())
    return has(called, Trait.PERIODIC, Trait.JUMPS) or bool(row_of(called).coordinates)


def _noun(called: Operator, index: int) -> str | None:
    """Return what an input is whose absolute error matters, or None for another one."""
    row = row_of(called)
    if index in row.coordinates:
        return "coordinates"
    if row.data is not None and index not in row.data:
        return None
    if has(called, Trait.PERIODIC):
        return _ANGLE
    return "jump" if has(called, Trait.JUMPS, Trait.CASTS) else None
