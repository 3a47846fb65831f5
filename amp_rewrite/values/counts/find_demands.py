"""Which inputs of operators must have a small absolute error, and what computes them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from amp_rewrite.graph.dataflow import TypeGraph, VertexKind, vertices_in
from amp_rewrite.graph.flat import ABSENT, Operator
from amp_rewrite.graph.traits import Trait, has, row_of
from amp_rewrite.values.counts.count_rules import Fact, Kind
from amp_rewrite.values.counts.find_counts import Counts, before

ANGLE, JUMP, COORDINATES, PLACE = "angle", "jump", "coordinates", "place"
"""The meaning of such an input."""


class Demand(NamedTuple):
    """An input whose absolute error matters.

    Attributes:
        vertex: The vertex that reads it.
        value: The value.
        noun: What it is.
        name: The name of the node that demands.
    """

    vertex: int
    value: int
    noun: str
    name: str


class Step(NamedTuple):
    """Why a vertex is demanded.

    Attributes:
        demand: Who demands.
        because: The next vertex on the way to it, or None for the one who demands.
    """

    demand: Demand
    because: int | None


def find_demands(type_graph: TypeGraph) -> list[Demand]:
    """Return the inputs whose absolute error matters, in execution order of their readers."""
    flat, demands = type_graph.flat, list[Demand]()
    for vertex in vertices_in(type_graph.where(_demands)):
        node = type_graph.nodes[vertex]
        name, called, first = flat.node_names[node], flat.called(node), flat.input_start[node]
        for index, value in enumerate(flat.inputs_of(node)):
            noun = _noun(called, index) if type_graph.reads[first + index] == vertex else None
            if noun is not None:
                demands.append(Demand(vertex, value, noun, name))
    return demands


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
        return COORDINATES
    if row.data is not None and index not in row.data:
        return None
    if has(called, Trait.PERIODIC):
        return ANGLE
    return JUMP if has(called, Trait.JUMPS, Trait.CASTS) else None


def find_differences(type_graph: TypeGraph, counts: Counts) -> list[Demand]:
    """Return the operands of differences of places and what data have moved away from them."""
    flat, demands = type_graph.flat, list[Demand]()
    for node in flat.nodes_of("Sub"):
        read = flat.inputs_of(node)[:2]
        facts = [fact for v in read if (fact := counts[v]) is not None and fact.ramp]
        if len(facts) == len(read) and len({fact.mixed for fact in facts}) == 2:
            vertices = type_graph.vertices_of(node)
            demands += [
                Demand(v, value, PLACE, flat.node_names[node]) for v in vertices for value in read
            ]
    return demands


def follow_demands(
    type_graph: TypeGraph,
    demands: Sequence[Demand],
    counts: Counts,
    is_harmless: Callable[[int, Fact, bool], bool],
) -> tuple[dict[int, Step], dict[int, Demand]]:
    """Return vertex -> why it is demanded, first; and input of the graph -> who demands it."""
    flat, steps, demanded = type_graph.flat, dict[int, Step](), dict[int, Demand]()
    inputs = set(flat.main.inputs)
    for demand in demands:
        stack = [(demand.value, type_graph.source[demand.value], demand.vertex)]
        while stack:
            value, vertex, because = stack.pop()
            if vertex == ABSENT and value in inputs:
                demanded.setdefault(value, demand)
            fact = counts.by_vertex.get(vertex)
            if vertex in steps or fact is None or fact.kind is Kind.FLAG:
                continue
            if is_harmless(vertex, fact, demand.noun == ANGLE):
                continue
            steps[vertex] = Step(demand, because)
            node = type_graph.nodes[vertex]
            stack += [(v, ABSENT, vertex) for v in flat.inputs_of(node) if v in inputs]
            stack += [(ABSENT, v, vertex) for v in before(type_graph, vertex)]
    return steps, demanded
