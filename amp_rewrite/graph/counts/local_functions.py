"""What model-local functions make of counts, and which of their inputs they demand.

The body of a function is followed as a model is, once for each way of calling it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from amp_rewrite.graph.build_type_graph import build_type_graph
from amp_rewrite.graph.counts.fact import Fact, Kind
from amp_rewrite.graph.counts.find_counts import Given, find_counts
from amp_rewrite.graph.counts.find_demands import find_demands, follow_demands
from amp_rewrite.graph.dataflow import TypeGraph
from amp_rewrite.graph.flat import ABSENT
from amp_rewrite.graph.infer import infer

_Types = tuple[str | None, ...]


class Functions:
    """The functions of a model; each is followed when a call asks for it."""

    def __init__(self) -> None:
        """Know nothing yet."""
        self._bodies: dict[tuple[object, ...], TypeGraph] = {}
        self._results: dict[tuple[object, ...], list[Fact | None]] = {}
        self._demanded: dict[int, list[tuple[int, str, str]]] = {}

    def results(
        self, type_graph: TypeGraph, node: int, given: Sequence[Fact | None]
    ) -> Sequence[Fact | None]:
        """Return the facts about the outputs of a call, from those about its inputs."""
        body = self._body(type_graph, node)
        inside = [
            None if fact is None else fact._replace(origin=_outside(i))
            for i, fact in enumerate(given)
        ]
        key = (id(body), *inside)
        if key not in self._results:
            inputs = dict(zip(body.flat.main.inputs, inside, strict=False))
            self._results[key] = find_counts(body, Given(_unbounded, self, inputs)).outputs
        outputs = type_graph.flat.outputs_of(node)
        facts = self._results[key][: len(outputs)]
        facts += [None] * (len(outputs) - len(facts))
        return [
            None if fact is None else fact._replace(origin=_origin(fact, value, given))
            for fact, value in zip(facts, outputs, strict=True)
        ]

    def demanded(self, type_graph: TypeGraph, node: int) -> Sequence[tuple[int, str, str]]:
        """Return inputs of a call, what each is, and the name of what demands it."""
        body = self._body(type_graph, node)
        key = id(body)
        if key not in self._demanded:
            inputs = body.flat.main.inputs
            places = {v: Fact(Kind.COORDINATE, v) for v in inputs if body.is_float32(v)}
            demands = find_demands(body, self)
            counts = find_counts(body, Given(_unbounded, self, places))
            found = follow_demands(body, demands, counts, lambda vertex, fact, small: False)
            self._demanded[key] = [
                (inputs.index(v), demand.noun, demand.name) for v, demand in found.inputs.items()
            ]
        return self._demanded[key]

    def _body(self, type_graph: TypeGraph, node: int) -> TypeGraph:
        """Return the type graph of the function that a node calls, for the types that it gives."""
        flat = type_graph.flat
        called, function = flat.called(node), flat.functions[flat.called(node)]
        types = [None if v == ABSENT else type_graph.types[v] for v in flat.inputs_of(node)]
        attributes = {**function.defaults, **flat.attributes(node)}
        key = (called, *types, *((n, str(a.value)) for n, a in attributes.items()))
        if key not in self._bodies:
            known = infer(function.graph, types, attributes)
            self._bodies[key] = build_type_graph(function.graph, types=known)
        return self._bodies[key]


def _unbounded(value: int) -> float:
    return math.inf


def _outside(index: int) -> int:
    """Return a number for an input of a call that is no number of a value inside."""
    return -2 - index


def _origin(fact: Fact, output: int, given: Sequence[Fact | None]) -> int:
    """Return where a fact began: before the call, or inside, which counts as the output."""
    before = given[-2 - fact.origin] if fact.origin <= _outside(0) else None
    return output if before is None else before.origin
