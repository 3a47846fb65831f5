"""The facts about the float32 values of a model, vertex by vertex, from where counts begin.

A worklist in execution order: a vertex is looked at when something that it reads has become known,
so that what holds plain data alone costs nothing. Facts about what a loop carries only grow.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from amp_rewrite.graph.counts.count_rules import rule_of
from amp_rewrite.graph.counts.fact import Fact, Kind, Operand, united
from amp_rewrite.graph.counts.flags import find_flags
from amp_rewrite.graph.counts.integers import Integers
from amp_rewrite.graph.counts.small_constants import constant_elements
from amp_rewrite.graph.counts.terms import terms_added
from amp_rewrite.graph.dataflow import TypeGraph, vertices_in
from amp_rewrite.graph.flat import ABSENT, Array
from amp_rewrite.graph.traits import Trait, has, row_of


@dataclass
class Counts:
    """What is known of the float32 values of a model.

    Attributes:
        facts: Vertex -> the fact about what it computes, of those that compute no plain data.
        because: Vertex -> the vertex from which its kind spread, None where it begins.
    """

    facts: dict[int, Fact] = field(default_factory=dict[int, Fact])
    because: dict[int, int | None] = field(default_factory=dict[int, "int | None"])


def find_counts(type_graph: TypeGraph, with_inputs: bool) -> Counts:
    """Follow counts, flags and places through a model.

    Args:
        type_graph: The model.
        with_inputs: Whether to follow what is computed from inputs alone, too.
    """
    return _Search(type_graph, with_inputs).run()


class _Search:
    def __init__(self, type_graph: TypeGraph, with_inputs: bool) -> None:
        self._graph, self._flat = type_graph, type_graph.flat
        self._found = Counts()
        self._constants: dict[int, Array | None] = {}
        self._flags = frozenset[int]()
        main = self._flat.main
        self._inputs = (
            {v for v in main.inputs if type_graph.is_float32(v) and v not in self._flat.bound}
            if with_inputs
            else set[int]()
        )

    def run(self) -> Counts:
        """Return what was found."""
        begun = dict(self._begin())
        waiting = sorted({*begun, *(v for i in self._inputs for v in self._graph.readers(i))})
        queue = [v for v in waiting if v != ABSENT]
        while queue:
            vertex = heapq.heappop(queue)
            while queue and queue[0] == vertex:
                heapq.heappop(queue)
            fact = begun[vertex] if vertex in begun else self._computed(vertex)
            if self._learn(vertex, fact):
                for node in {self._graph.nodes[v] for v in self._graph.successors(vertex)}:
                    for reached in self._graph.vertices_of(node):
                        heapq.heappush(queue, reached)
        return self._found

    def _begin(self) -> Iterator[tuple[int, Fact]]:
        """Yield the vertices where integers become floats, or where counts are made as floats."""
        graph, flat = self._graph, self._flat
        made = vertices_in(graph.having(Trait.CASTS, Trait.ENUMERATES))
        made = [v for v in made if graph.writes[flat.output_start[graph.nodes[v]]] == v]
        self._flags = find_flags(graph) if made else self._flags
        integers = Integers(graph, self._flags)
        for vertex in made:
            node = graph.nodes[vertex]
            read = flat.inputs_of(node)[0]
            if has(flat.called(node), Trait.ENUMERATES):
                yield vertex, Fact(Kind.COUNT, flat.outputs_of(node)[0])
            elif not graph.is_float32(read):
                fact = integers.fact(read)
                if fact is not None:
                    yield vertex, fact

    def _learn(self, vertex: int, fact: Fact | None) -> bool:
        """Remember a fact; tell whether it says more than what was known."""
        facts, old = self._found.facts, self._found.facts.get(vertex)
        if fact is None:
            return False
        if old is not None:
            fact = united(old, fact)
        facts[vertex] = fact
        return fact != old

    def _computed(self, vertex: int) -> Fact | None:
        """Return the fact about what a vertex computes of what it reads."""
        node = self._graph.nodes[vertex]
        called = self._flat.called(node)
        if self._flat.is_call(node):
            return None
        contracts = has(called, Trait.CONTRACTS)
        rule = rule_of(called, terms_added(self._flat, node) if contracts else None)
        if rule is None:
            return None
        if has(called, Trait.SUBGRAPHS):
            operands = [Operand(f) for f in self._handed(vertex)]
        else:
            operands = self._operands(vertex)
        fact = rule(operands) if operands else None
        if fact is not None and self._flags.intersection(self._flat.outputs_of(node)):
            return Fact(Kind.FLAG, fact.origin, True)
        if fact is not None:
            self._found.because.setdefault(vertex, self._source_of(vertex, fact))
        return fact

    def _operands(self, vertex: int) -> Sequence[Operand]:
        """Return the data that a vertex reads."""
        graph, flat = self._graph, self._flat
        node = graph.nodes[vertex]
        first, data = flat.input_start[node], row_of(flat.called(node)).data
        readers = variables_of(graph, vertex)
        return [
            self._operand(value)
            for index, value in enumerate(flat.inputs_of(node))
            if graph.reads[first + index] in readers and (data is None or index in data)
        ]

    def _operand(self, value: int) -> Operand:
        source = self._graph.source[value]
        fact = self._found.facts.get(source)
        if fact is None and value in self._inputs:
            fact = Fact(Kind.INPUT, value)
        if fact is not None:
            return Operand(fact)
        if value not in self._constants:
            self._constants[value] = constant_elements(self._flat, value)
        return Operand(None, self._constants[value])

    def _handed(self, vertex: int) -> Iterator[Fact]:
        """Yield what is known of what a node with graphs, or a graph inside, hands to a vertex."""
        for source in before(self._graph, vertex):
            if source in self._found.facts:
                yield self._found.facts[source]
        for operand in self._operands(vertex):
            if operand.fact is not None:
                yield operand.fact

    def _source_of(self, vertex: int, fact: Fact) -> int | None:
        known = [v for v in before(self._graph, vertex) if v in self._found.facts]
        same = [v for v in known if self._found.facts[v].origin == fact.origin]
        return next(iter([*same, *known]), None)


def before(type_graph: TypeGraph, vertex: int) -> Iterator[int]:
    """Yield the vertices of whose results a vertex computes its own."""
    for variable in variables_of(type_graph, vertex):
        yield from type_graph.predecessors(variable)


def variables_of(type_graph: TypeGraph, vertex: int) -> Sequence[int]:
    """Return the vertices whose inputs have a part in what a vertex computes.

    Those are all of its node, as the two of a Cast; what a node with graphs hands on are as many
    values as it has vertices.
    """
    node = type_graph.nodes[vertex]
    apart = has(type_graph.flat.called(node), Trait.SUBGRAPHS)
    return (vertex,) if apart else type_graph.vertices_of(node)
