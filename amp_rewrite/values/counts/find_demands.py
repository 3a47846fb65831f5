"""Which inputs of operators must have a small absolute error, and what computes them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from amp_rewrite.graph.build_type_graph import called_body
from amp_rewrite.graph.dataflow import TypeGraph, VertexKind, vertices_in
from amp_rewrite.graph.flat import ABSENT, Operator
from amp_rewrite.graph.traits import Trait, has, row_of
from amp_rewrite.values.counts.constant_places import constant_places
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
        name: The name of the operator that demands; it may be inside a function.
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


Demanded = Callable[[TypeGraph, int], Sequence[tuple[int, str, str]]]
"""The inputs that a node with a call demands, what each is, and the name of what demands it."""


def find_demands(type_graph: TypeGraph, demanded: Demanded) -> list[Demand]:
    """Return the inputs whose absolute error matters, in execution order of their readers."""
    local = type_graph.flat.functions
    concerned = type_graph.where(lambda k: k.operator in local or _demands(k))
    return [d for v in vertices_in(concerned) for d in _demanded_by(type_graph, v, demanded)]


def _demands(kind: VertexKind) -> bool:
    """Tell whether vertices of a kind may read something whose absolute error matters."""
    called = kind.operator
    if has(called, Trait.CASTS):
        return any("int" in type_ for type_ in kind.known.values())
    return has(called, Trait.PERIODIC, Trait.JUMPS) or bool(row_of(called).coordinates)


def _demanded_by(type_graph: TypeGraph, vertex: int, demanded: Demanded) -> Iterator[Demand]:
    flat = type_graph.flat
    node = type_graph.nodes[vertex]
    first, inputs = flat.input_start[node], flat.inputs_of(node)
    if flat.is_call(node):
        inputs_demanded = demanded(type_graph, node)
    else:
        name, called = flat.node_names[node], flat.called(node)
        nouns = [(i, _noun(called, i)) for i in range(len(inputs))]
        inputs_demanded = [(i, noun, name) for i, noun in nouns if noun is not None]
    for index, noun, name in inputs_demanded:
        if type_graph.reads[first + index] == vertex:
            yield Demand(vertex, inputs[index], noun, name)


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
    """Return the operands of differences of places and what data have moved away from them.

    What remains is how far they were moved, which is small beside where they are.
    """
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
    """Follow demands backward through what is no data.

    Return vertex -> why it is demanded, by the first demand; and input of the graph -> who does.
    """
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


class Functions:
    """The counts that model-local functions make, and which of their inputs they demand.

    The body of a function is followed as a model is, once for each way of calling it.
    """

    def __init__(self) -> None:
        """Know nothing yet."""
        self._results: dict[tuple[object, ...], list[Fact | None]] = {}
        self._demanded: dict[int, list[tuple[int, str, str]]] = {}

    def results(
        self, type_graph: TypeGraph, node: int, operands: Sequence[Fact | None]
    ) -> Sequence[Fact | None]:
        """Return the facts about the outputs of a call, from those about its inputs."""
        body = called_body(type_graph, node)
        inside = [
            None if fact is None else fact._replace(origin=_outside(i))
            for i, fact in enumerate(operands)
        ]
        key = (id(body), *inside)
        if key not in self._results:
            inputs = dict(zip(body.flat.main.inputs, inside, strict=False)) | constant_places(body)
            counts = Counts(body, lambda _: math.inf, self.results, inputs)
            self._results[key] = [counts[value] for value in body.flat.main.outputs]
        outputs = type_graph.flat.outputs_of(node)
        facts = self._results[key][: len(outputs)]
        facts += [None] * (len(outputs) - len(facts))
        return [
            None if fact is None else fact._replace(origin=_origin(fact, value, operands))
            for fact, value in zip(facts, outputs, strict=True)
        ]

    def demanded(self, type_graph: TypeGraph, node: int) -> Sequence[tuple[int, str, str]]:
        """Return inputs of a call, what each is, and the name of what demands it."""
        body = called_body(type_graph, node)
        key = id(body)
        if key not in self._demanded:
            inputs = body.flat.main.inputs
            places = {v: Fact(Kind.COORDINATE, v) for v in inputs if body.is_retyped(v)}
            demands = find_demands(body, self.demanded)
            places_inside = places | constant_places(body)
            counts = Counts(body, lambda _: math.inf, self.results, places_inside)
            _, demanded = follow_demands(body, demands, counts, lambda vertex, fact, small: False)
            self._demanded[key] = [
                (inputs.index(v), demand.noun, demand.name) for v, demand in demanded.items()
            ]
        return self._demanded[key]


def _outside(index: int) -> int:
    """Return a number for an input of a call that is not a number of a value inside."""
    return -2 - index


def _origin(fact: Fact, output: int, operands: Sequence[Fact | None]) -> int:
    """Return where a fact began: before the call, or inside, which counts as the output."""
    before = operands[-2 - fact.origin] if fact.origin <= _outside(0) else None
    return output if before is None else before.origin
