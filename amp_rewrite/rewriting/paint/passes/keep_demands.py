"""Counts, angles and places stay float32, for their absolute error matters.

Rounding to the low type keeps the relative precision of a number. That is enough for what layers
compute, and not for a position, whose 12,345 becomes 12,352 in bfloat16: its cosine, the element
that it selects and the bias of an attention score depend on the last digit. So

- counts (values/counts) keep float32, and whatever computes with them, until they are normalised;
- an operator that asks for the absolute error of an input (a period, a jump, coordinates) demands
  float32 of it, and of what computes it, matrix products included, back to where a layer begins
  or, for angles, to what is so small that rounding does no harm;
- what makes a frequency of what a layer gives is float32 where time makes an angle of it.

Evidence: a grid of pixels in front of GridSample in float16: error 70 % of the output's size
without the pass, 0.14 % with it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from amp_rewrite.graph.constants import moved_from, stored_tensor
from amp_rewrite.graph.elements import tensor
from amp_rewrite.graph.flat import ABSENT, FlatGraph
from amp_rewrite.graph.traits import Trait, has
from amp_rewrite.oplists import ListName
from amp_rewrite.rewriting.paint.context import PaintContext
from amp_rewrite.rewriting.paint.frequencies import Frequencies
from amp_rewrite.rewriting.paint.paint_pass import PaintPass, Place, Stage
from amp_rewrite.rewriting.paint.painting import Color, Mark, Painting, Reason
from amp_rewrite.values.counts.constant_places import SHORTEST, constant_places
from amp_rewrite.values.counts.fact import Fact, Kind
from amp_rewrite.values.counts.find_counts import Counts
from amp_rewrite.values.counts.find_demands import (
    ANGLE,
    COORDINATES,
    Demand,
    Step,
    find_demands,
    find_differences,
    follow_demands,
)
from amp_rewrite.values.counts.local_functions import Functions


class KeepDemands(PaintPass):
    """Mark every vertex that computes a count, an angle, an index or a coordinate."""

    name = "keep-demands"
    places = (
        Place(
            Stage.GIVEN,
            40,
            "counts, angles, indices and coordinates, before the first round ([below](#counts-"
            "and-demands))",
        ),
        Place(Stage.HARMED, 50),
    )

    def run(self, context: PaintContext, painting: Painting) -> Painting:
        """Return the painting with such vertices marked; nodes that the user allows are not."""
        if context.lists.is_unsafe:
            return painting
        marks = _Search(context).marks()
        return painting.with_marks(context.unless_allowed(marks))


class _Search:
    """One search in one model."""

    def __init__(self, context: PaintContext) -> None:
        self._context, self._graph, self._low = context, context.type_graph, context.low
        functions = Functions()
        self._demands = find_demands(self._graph, functions.demanded)
        inputs = _float_inputs(context) if self._demands else {}
        looks = bool(self._demands) or _subtracts_constants(self._graph.flat)
        places = constant_places(self._graph) if looks else {}
        values = {**inputs, **places}
        self._counts = Counts(self._graph, self._magnitude, functions.results, values)
        self._places = places
        self._differences = find_differences(self._graph, self._counts)

    def marks(self) -> dict[int, Mark]:
        """Return the marks; a demand for a count tells both, and leads to who demands."""
        counts, demands = self._of_counts(), self._of_demands()
        both = {
            v: demands[v]._replace(detail=f"{demands[v].detail}, {mark.detail}")
            for v, mark in counts.items()
            if v in demands
        }
        return self._of_frequencies() | counts | demands | both

    def _of_frequencies(self) -> dict[int, Mark]:
        """Mark what makes the frequencies of angles that small errors change."""
        search, marks = Frequencies(self._context), dict[int, Mark]()
        for demand in (d for d in self._demands if d.noun == ANGLE):
            mark = Mark(Color.NONE, Reason.DEMAND, None, f"frequency of {demand.name}")
            nodes = search.behind_angle(demand.value, self._is_place, self._is_small)
            marks |= {v: mark for n in nodes for v in self._graph.vertices_of(n)}
        return marks

    def _is_place(self, value: int) -> bool:
        """Tell whether a value runs through places and no data have a part in it."""
        fact = self._counts[value]
        return fact is not None and fact.is_place

    def _of_counts(self) -> dict[int, Mark]:
        """Mark what makes a count that rounding would change, and what reads one."""
        marks: dict[int, Mark] = {}
        for vertex, fact in self._counts.by_vertex.items():
            if fact.kind is not Kind.COUNT or self._is_harmless(vertex, fact):
                continue
            detail = f"count from {_name(self._graph.flat, fact.origin)}"
            because = self._counts.because(vertex)
            marks[vertex] = Mark(Color.NONE, Reason.COUNT, because, detail)
            for reader in self._graph.successors(vertex):
                marks.setdefault(reader, Mark(Color.NONE, Reason.COUNT, vertex, detail))
        return marks

    def _of_demands(self) -> dict[int, Mark]:
        """Mark what computes the inputs whose absolute error matters.

        Lists keep most of those who demand in float32, and not comparisons or Floor. Where these
        read what is kept, or places, they are marked as well: a Cast in front of them would round
        it. So is everyone whom somebody else made low.
        """
        demands = [*self._demands, *self._differences]
        followed, _ = follow_demands(self._graph, demands, self._counts, self._is_harmless)
        steps = {d.vertex: Step(d, None) for d in self._differences} | followed
        kept = followed.keys()  # of two who demand one value, only the first is told there
        last = [s.demand for s in steps.values() if s.because == s.demand.vertex]
        last += [d for d in demands if self._graph.source[d.value] in kept]
        last += [demand for demand in demands if self._reads_places(demand)]
        if self._context.given is None:
            painted = (ListName.ALLOW, ListName.CLEAR, ListName.INFER)
            last = [d for d in last if self._context.list_of(d.vertex) in painted]
        steps = {demand.vertex: Step(demand, None) for demand in last} | steps
        return {
            vertex: Mark(
                Color.NONE, Reason.DEMAND, step.because, f"{step.demand.noun} of {step.demand.name}"
            )
            for vertex, step in steps.items()
        }

    def _reads_places(self, demand: Demand) -> bool:
        """Tell whether one who demands reads a constant that the low type would move."""
        fact = self._places.get(demand.value)
        if fact is None or demand.noun == COORDINATES:
            return False
        largest = self._magnitude(demand.value)
        return not (fact.whole and largest < 2 / self._low.epsilon + 1)

    def _is_harmless(self, vertex: int, fact: Fact, small: bool = True) -> bool:
        """Tell whether rounding what a vertex computes does no harm.

        Whole numbers are exact up to where the type has gaps. A small number moves by no more than
        the type's tolerance; that is up to 8, which is more than one turn. At a threshold even that
        is too much.
        """
        largest = self._largest(vertex)
        exact = fact.whole and largest < 2 / self._low.epsilon + 1  # intervals have some slack
        return exact or (small and self._is_tolerable(largest))

    def _is_small(self, value: int) -> bool:
        return self._is_tolerable(self._magnitude(value))

    def _is_tolerable(self, largest: float) -> bool:
        """Tell whether rounding moves such a number by no more than the type's tolerance."""
        return largest * self._low.epsilon / 2 <= self._low.rtol

    def _largest(self, vertex: int) -> float:
        """Return a magnitude that nothing exceeds that a vertex computes."""
        graph, flat = self._graph, self._graph.flat
        node = graph.nodes[vertex]
        if has(flat.called(node), Trait.SUBGRAPHS):
            return math.inf
        first = flat.output_start[node]
        results = [
            v for i, v in enumerate(flat.outputs_of(node)) if graph.writes[first + i] == vertex
        ]
        return max((self._magnitude(value) for value in results), default=0.0)

    def _magnitude(self, value: int) -> float:
        return self._context.values.intervals[value].magnitude


def _float_inputs(context: PaintContext) -> Mapping[int, Fact]:
    """Return what is known of the inputs that hold numbers of which no layer is known.

    They may be low already, where an earlier rewrite did not keep the types of inputs.
    """
    graph, low = context.type_graph, tensor(context.low.number)
    inputs = [v for v in graph.flat.main.inputs if graph.is_retyped(v) or graph.types[v] == low]
    return {v: Fact(Kind.INPUT, v) for v in inputs if v not in context.variables}


def _subtracts_constants(flat: FlatGraph) -> bool:
    """Tell whether some Sub reads a constant of which a run of places may consist."""
    read = {moved_from(flat, v) for n in flat.nodes_of("Sub") for v in flat.inputs_of(n)[:2]}
    held = (stored_tensor(flat, v) for v in read - {ABSENT})
    return any(tensor is not None and tensor.size >= SHORTEST for tensor in held)


def _name(flat: FlatGraph, value: int) -> str:
    """Return what to call the origin of a count: its node, or itself if it is an input."""
    node = flat.producer[value]
    return flat.value_names[value] if node == ABSENT else flat.node_names[node]
