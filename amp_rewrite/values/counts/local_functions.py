"""How model-local functions change counts, and which of their inputs they demand.

The body of a function is followed as a model is, once for each way of calling it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from amp_rewrite.graph.build_type_graph import called_body
from amp_rewrite.graph.dataflow import TypeGraph
from amp_rewrite.values.counts.constant_places import constant_places
from amp_rewrite.values.counts.fact import Fact, Kind
from amp_rewrite.values.counts.find_counts import Counts
from amp_rewrite.values.counts.find_demands import find_demands, follow_demands


class Functions:
    """The functions of a model; each is followed when a call asks for it."""

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
            counts = Counts(body, _unbounded, self.results, inputs)
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
            counts = Counts(body, _unbounded, self.results, places_inside)
            _, demanded = follow_demands(body, demands, counts, lambda vertex, fact, small: False)
            self._demanded[key] = [
                (inputs.index(v), demand.noun, demand.name) for v, demand in demanded.items()
            ]
        return self._demanded[key]


def _unbounded(value: int) -> float:
    return math.inf


def _outside(index: int) -> int:
    """Return a number for an input of a call that is not a number of a value inside."""
    return -2 - index


def _origin(fact: Fact, output: int, operands: Sequence[Fact | None]) -> int:
    """Return where a fact began: before the call, or inside, which counts as the output."""
    before = operands[-2 - fact.origin] if fact.origin <= _outside(0) else None
    return output if before is None else before.origin
