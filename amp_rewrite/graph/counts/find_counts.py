"""The facts about the float32 values of a model, vertex by vertex, from where counts begin.

A worklist in execution order: a vertex is looked at when something that it reads has become known,
so that what holds plain data alone costs nothing. Facts about what a loop carries only grow.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from amp_rewrite.graph.counts.count_rules import EXACT, rule_of
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
        outputs: The facts about the outputs of the graph.
    """

    facts: dict[int, Fact] = field(default_factory=dict[int, Fact])
    because: dict[int, int | None] = field(default_factory=dict[int, "int | None"])
    outputs: list[Fact | None] = field(default_factory=list["Fact | None"])


class Functions(Protocol):
    """What model-local functions make of what they are given."""

    def results(
        self, type_graph: TypeGraph, node: int, given: Sequence[Fact | None]
    ) -> Sequence[Fact | None]:
        """Return the facts about the outputs of a call, from those about its inputs."""
        ...


@dataclass(frozen=True)
class Given:
    """What a search is given.

    Attributes:
        largest: Value -> a magnitude that no element of it exceeds.
        functions: What calls make.
        inputs: What is known of inputs of the graph; None stands for data.
    """

    largest: Callable[[int], float]
    functions: Functions
    inputs: Mapping[int, Fact | None]


def find_counts(type_graph: TypeGraph, given: Given) -> Counts:
    """Follow counts, flags and places through a model or the body of a function."""
    return _Search(type_graph, given).run()


class _Search:
    def __init__(self, type_graph: TypeGraph, given: Given) -> None:
        self._graph, self._flat, self._given = type_graph, type_graph.flat, given
        self._found = Counts()
        self._constants: dict[int, Array | None] = {}
        self._flags = frozenset[int]()
        self._integers: Integers | None = None
        self._inputs = {v for v, fact in given.inputs.items() if fact is not None}
        self._handed_to: dict[int, list[int]] = {}
        for maker, reader in type_graph.handles:
            self._handed_to.setdefault(maker, []).append(reader)

    def run(self) -> Counts:
        """Return what was found."""
        begun = dict(self._begin())
        waiting = {*begun, *(v for i in self._inputs for v in self._graph.readers(i))}
        queue = sorted({*waiting, *self._calls()} - {ABSENT})
        while queue:
            vertex = heapq.heappop(queue)
            while queue and queue[0] == vertex:
                heapq.heappop(queue)
            fact = begun[vertex] if vertex in begun else self._computed(vertex)
            if self._learn(vertex, fact):
                for node in {self._graph.nodes[v] for v in self._behind(vertex)}:
                    for reached in self._graph.vertices_of(node):
                        heapq.heappush(queue, reached)
        self._found.outputs = [self._known(value) for value in self._flat.main.outputs]
        return self._found

    def _behind(self, vertex: int) -> Sequence[int]:
        """Return the vertices that read what a vertex makes, sequences included."""
        return (*self._graph.successors(vertex), *self._handed_to.get(vertex, ()))

    def _begin(self) -> Iterator[tuple[int, Fact]]:
        """Yield the vertices where integers become floats, or where counts are made as floats."""
        graph, flat = self._graph, self._flat
        made = vertices_in(graph.having(Trait.CASTS, Trait.ENUMERATES))
        made = [v for v in made if graph.writes[flat.output_start[graph.nodes[v]]] == v]
        self._flags = find_flags(graph) if made else self._flags
        for vertex in made:
            node = graph.nodes[vertex]
            read = flat.inputs_of(node)[0]
            if has(flat.called(node), Trait.ENUMERATES):
                yield vertex, Fact(Kind.COUNT, flat.outputs_of(node)[0])
            elif not graph.is_float32(read):
                fact = self._integer(read)
                if fact is not None:
                    yield vertex, fact

    def _integer(self, value: int) -> Fact | None:
        """Return what is known of a value that is not float32."""
        if self._integers is None:
            self._integers = Integers(self._graph, self._flags, self._given.inputs)
        return self._integers.fact(value)

    def _calls(self) -> Iterator[int]:
        """Yield the vertices of calls of functions, which may begin to count inside."""
        if self._flat.functions:
            calls = self._graph.where(lambda kind: kind.operator in self._flat.functions)
            yield from vertices_in(calls)

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
            return self._returned(vertex)
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
        read = [
            value
            for index, value in enumerate(flat.inputs_of(node))
            if graph.reads[first + index] in readers and (data is None or index in data)
        ]
        operands = [self._operand(value) for value in read]
        if not any(o.is_plain for o in operands):
            return operands
        return [
            Operand(None) if self._is_few(o, value) else o
            for o, value in zip(operands, read, strict=True)
        ]

    def _is_few(self, operand: Operand, value: int) -> bool:
        """Tell whether a count is so small that every type has it: next to data, it is data."""
        counts = operand.kind is Kind.COUNT and operand.whole
        return counts and self._given.largest(value) < EXACT + 1

    def _operand(self, value: int) -> Operand:
        source = self._graph.source[value]
        fact = self._found.facts.get(source)
        if fact is None and value in self._inputs:
            fact = self._given.inputs[value]
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

    def _returned(self, vertex: int) -> Fact | None:
        """Return what is known of what a call returns."""
        graph, flat = self._graph, self._flat
        node = graph.nodes[vertex]
        first, outputs = flat.output_start[node], flat.outputs_of(node)
        made = [i for i in range(len(outputs)) if graph.writes[first + i] == vertex]
        if not made:
            return None
        given = [None if v == ABSENT else self._known(v) for v in flat.inputs_of(node)]
        fact = self._given.functions.results(graph, node, given)[made[0]]
        if fact is not None:
            self._found.because.setdefault(vertex, self._source_of(vertex, fact))
        return fact

    def _known(self, value: int) -> Fact | None:
        is_float = self._graph.is_float32(value)
        return self._operand(value).fact if is_float else self._integer(value)

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
