"""The facts about the values of a model: which numbers are counts, flags and places, not data.

What no fact is known of is plain data and costs nothing. Integers, truth values and doubles are
looked at where something asks for them. An integer that enters arithmetic as a float is a count
unless something says otherwise: its type (numbers of 8 and 16 bits are pixels, samples and
quantised data), where it comes from, or what the model does with it (`find_flags`). Ids that are
looked up never become floats. Facts about what a loop carries only grow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from itertools import permutations

from amp_rewrite.graph.constants import is_constant, moved_elements
from amp_rewrite.graph.dataflow import TypeGraph
from amp_rewrite.graph.elements import bits, element
from amp_rewrite.graph.flat import ABSENT, Array
from amp_rewrite.graph.reach import data_of, walk
from amp_rewrite.graph.traits import Trait, has
from amp_rewrite.values.counts.constant_places import runs_through_places
from amp_rewrite.values.counts.count_rules import (
    EXACT,
    Fact,
    Kind,
    Operand,
    rule_of,
    strongest,
    united,
)
from amp_rewrite.values.sum_lengths import count_terms
from amp_rewrite.values.sweep import Sweep

LOWEST = -1000.0
"""A constant from here down masks; slopes and steps of positions are far above."""

_WIDE = 32
"""Bits of the narrowest integers that count."""

_DOUBLE, _BOOL = "tensor(double)", "tensor(bool)"


class Counts(Sweep[Fact | None]):
    """The counts, flags and places in a model."""

    def __init__(
        self,
        type_graph: TypeGraph,
        largest: Callable[[int], float],
        inputs: Mapping[int, Fact | None],
    ) -> None:
        """Follow them."""
        super().__init__(type_graph)
        self._largest, self._facts = largest, dict(inputs)
        self._constants: dict[int, Array | None] = {}
        flat = self.flat
        self._begins = [has(called, Trait.CASTS, Trait.ENUMERATES) for called in flat.operators]
        if any(self._begins) or any(fact is not None for fact in self._facts.values()):
            self.sweep(flat.main.nodes)

    @cached_property
    def by_vertex(self) -> Mapping[int, Fact]:
        """Vertex -> the fact about what it computes, of those that compute no plain data."""
        fact_of: dict[int, Fact] = {}
        for value, fact in self._facts.items():
            vertex = self.type_graph.source[value]
            if fact is None or vertex == ABSENT or not self.type_graph.is_retyped(value):
                continue
            if not has(self.type_graph.operator_of(vertex), Trait.HOLDS):
                fact_of.setdefault(vertex, fact)
        return fact_of

    def because(self, vertex: int) -> int | None:
        """Return the vertex from which the kind of a vertex spread, None where it begins."""
        facts, node = self.by_vertex, self.type_graph.nodes[vertex]
        if self._is_made_a_float(node) or has(self.flat.called(node), Trait.ENUMERATES):
            return None
        sources = [v for v in before(self.type_graph, vertex) if v in facts]
        same = [v for v in sources if facts[v].origin == facts[vertex].origin]
        return next(iter([*same, *sources]), None)

    def _is_made_a_float(self, node: int) -> bool:
        """Tell whether a node makes floats of other numbers."""
        read = self.flat.inputs_of(node)[:1]
        is_cast = has(self.flat.called(node), Trait.CASTS)
        return is_cast and read != [] and not self.type_graph.is_retyped(read[0])

    def __getitem__(self, value: int) -> Fact | None:
        """Return what is known of a value; None for data."""
        if value not in self._facts and not self.type_graph.is_retyped(value):
            self._follow_integers(value)
        return self._known(value)

    def _known(self, value: int) -> Fact | None:
        """Return the fact about a value that was swept, or that nothing computes."""
        if value in self._facts:
            return self._facts[value]
        fact = self._by_type(value)
        if fact is not None or not self._is_wide(value):
            return fact
        constant = self._constant(value)
        ramp = constant is not None and runs_through_places(constant)
        return Fact(Kind.COUNT, value, True, ramp)

    def learn(self, value: int, fact: Fact | None) -> None:
        """Take note of a fact about a float32 value."""
        if fact is not None and self.type_graph.is_retyped(value):
            old = self._facts.get(value)
            self._facts[value] = fact if old is None else united(old, fact)

    def joined(self, parts: Sequence[Fact | None]) -> Fact | None:
        """Return what a graph inside a node takes or gives; a loop may make anything of a bound."""
        facts = [part for part in parts if part is not None]
        main = strongest(Operand(fact) for fact in facts)
        if main is None or main.kind is Kind.FLAG:
            return None
        ramp, mixed = any(f.ramp for f in facts), any(f.mixed for f in facts)
        return main.of_kind(main.kind)._replace(ramp=ramp, mixed=mixed)

    def is_settled(self, inner: int, end: int) -> bool:
        """Tell whether what a turn makes adds nothing to what is known."""
        fact, turned = self._facts.get(inner), self.joined([self[end]])
        if turned is None or not self.type_graph.is_retyped(inner):
            return True
        return fact is not None and united(fact, turned) == fact

    def sweep(self, nodes: Iterable[int]) -> None:
        """Learn what nodes make of what is known; most of them read data alone."""
        flat, facts = self.flat, self._facts.keys()
        for node in nodes:
            if flat.bodies_in(node):
                self.control(node)
            elif self._begins[flat.operator[node]] or not facts.isdisjoint(flat.inputs_of(node)):
                outputs = flat.outputs_of(node)
                for value, fact in zip(outputs, self._results(node), strict=True):
                    self.learn(value, fact)

    def _results(self, node: int) -> Sequence[Fact | None]:
        """Return the facts about what a node makes as float32."""
        flat, called, outputs = self.flat, self.flat.called(node), self.flat.outputs_of(node)
        inputs = flat.inputs_of(node)
        if not self.is_complete(node) or flat.is_call(node):
            return [None] * len(outputs)
        if has(called, Trait.ENUMERATES):
            return [Fact(Kind.COUNT, value, ramp=True) for value in outputs]
        if self._is_made_a_float(node):
            return [self[inputs[0]]] * len(outputs)
        rule = rule_of(called, self._terms(node))
        operands = self._operands(node) if rule is not None else ()
        fact = rule(operands) if rule is not None and operands else None
        if fact is not None and self._flags.intersection(outputs):
            fact = Fact(Kind.FLAG, fact.origin, True)
        return [fact] * len(outputs)

    def _terms(self, node: int) -> int | None:
        contracts = has(self.flat.called(node), Trait.CONTRACTS)
        return count_terms(self.flat, node) if contracts else None

    def _operands(self, node: int) -> Sequence[Operand]:
        """Return the float32 data that a node reads; next to data, a small count is data."""
        read = [v for v in data_of(self.flat, node) if self.type_graph.is_retyped(v)]
        facts = [self._known(v) for v in read]
        constants = [self._constant(v) for v in read]
        operands = [
            Operand(
                fact,
                None if fact else constant,
                constant is None and is_constant(self.flat, v),
                fact is not None and fact.ramp and is_constant(self.flat, v),
            )
            for fact, constant, v in zip(facts, constants, read, strict=True)
        ]
        if not any(o.is_plain for o in operands):
            return operands
        pairs = zip(operands, read, strict=True)
        return [Operand(None) if self._is_few(o, value) else o for o, value in pairs]

    def _constant(self, value: int) -> Array | None:
        if value not in self._constants:
            self._constants[value] = moved_elements(self.flat, value)
        return self._constants[value]

    def _is_few(self, operand: Operand, value: int) -> bool:
        """Tell whether a count is so small that every type has it."""
        counts = operand.kind is Kind.COUNT and operand.whole
        return counts and self._largest(value) < EXACT + 1

    # What is not float32: integers, truth values, and doubles made of them.

    def _follow_integers(self, value: int) -> None:
        """Learn of a value, and of what it is computed of, as far as that is not known yet."""
        flat = self.flat
        nodes = {flat.producer[v] for v in walk([value], self._before)} - {ABSENT}
        for node in sorted(nodes):
            for output in flat.outputs_of(node):
                if output not in self._facts and not self.type_graph.is_retyped(output):
                    self._facts[output] = self._made(node, output)

    def _before(self, value: int) -> Iterable[int]:
        """Return of what a value is computed, as far as that is not known yet."""
        node = self.flat.producer[value]
        if node == ABSENT or self._by_type(value) is not None:
            return ()
        return (v for v in self.flat.inputs_of(node) if v != ABSENT and self._is_open(v))

    def _is_open(self, value: int) -> bool:
        return value not in self._facts and _is_followed(self.type_graph.types[value])

    def _by_type(self, value: int) -> Fact | None:
        is_flag = self.type_graph.types[value] == _BOOL or value in self._flags
        return Fact(Kind.FLAG, value, True) if is_flag else None

    def _is_wide(self, value: int) -> bool:
        type_ = self.type_graph.types[value]
        number = element(type_ or "")
        return number is not None and _is_whole(type_) and bits(number) >= _WIDE

    def _made(self, node: int, output: int) -> Fact | None:
        """Return the fact about what a node makes; a new count where its operator has no rule."""
        own, is_integer = self._by_type(output), self._is_wide(output)
        if own is not None or not (is_integer or self.type_graph.types[output] == _DOUBLE):
            return own
        called, read = self.flat.called(node), data_of(self.flat, node)
        if has(called, Trait.QUANTIZED):
            return None
        count = Fact(Kind.COUNT, output, is_integer, has(called, Trait.ENUMERATES))
        rule = rule_of(called, self._terms(node))
        if rule is None or not read or has(called, Trait.SUBGRAPHS) or not self._fits(read, output):
            return count if is_integer or has(called, Trait.ENUMERATES) else None
        fact = rule(self._whole_operands(read))
        if fact is None or fact.kind is Kind.FLAG or not is_integer:
            return fact
        return fact._replace(kind=Kind.COUNT, whole=True)

    def _whole_operands(self, read: Sequence[int]) -> Sequence[Operand]:
        """Return operands: a constant next to others stands for itself, alone it is a count."""
        constants = [self._constant(v) for v in read]
        if all(c is not None for c in constants):
            return [Operand(self._known(v)) for v in read]
        return [
            Operand(None, c) if c is not None else Operand(self._known(v))
            for v, c in zip(read, constants, strict=True)
        ]

    def _fits(self, read: Sequence[int], output: int) -> bool:
        """Tell whether an output is made of the data, rather than of their places or number."""
        types, maker = self.type_graph.types, self.flat.producer[output]
        if has(self.flat.called(maker), Trait.CASTS):
            return all(_is_followed(types[v]) for v in read)
        return all(types[v] == types[output] for v in read)

    @cached_property
    def _flags(self) -> frozenset[int]:
        return find_flags(self.type_graph)


def _is_whole(type_: str | None) -> bool:
    return type_ is not None and "int" in type_


def _is_followed(type_: str | None) -> bool:
    return _is_whole(type_) or type_ in (_DOUBLE, _BOOL)


def find_flags(type_graph: TypeGraph) -> frozenset[int]:
    """Return the values that are 0 or 1 as the model uses them, although their type says more.

    Attention masks come as int64, as positions do. What tells them apart is what is done with them:
    a mask is made a truth value somewhere, or it becomes 0 and "lower than everything" by a product
    with a large negative constant, (1 - mask) * -10000, which no count would survive.
    """
    roots = (*_masking(type_graph), *_made_truth_values(type_graph))
    return frozenset(walk(roots, partial(_flags_behind, type_graph)))


def _masking(type_graph: TypeGraph) -> Iterator[int]:
    """Yield what is multiplied by "lower than everything"."""
    flat = type_graph.flat
    for node in flat.nodes_of("Mul"):
        for value, other in permutations(flat.inputs_of(node), 2):
            constant = moved_elements(flat, other)
            if constant is not None and constant.size and constant.max() <= LOWEST:
                yield value


def _made_truth_values(type_graph: TypeGraph) -> Iterator[int]:
    """Yield the integers that are cast to truth values."""
    flat, types = type_graph.flat, type_graph.types
    for node in flat.nodes_of("Cast"):
        for read, written in zip(flat.inputs_of(node), flat.outputs_of(node), strict=False):
            if types[written] == _BOOL and "int" in (types[read] or ""):
                yield read


def _flags_behind(type_graph: TypeGraph, value: int) -> Iterator[int]:
    """Yield the flags of which a flag is made: moved, multiplied, or taken from 1."""
    flat, node = type_graph.flat, type_graph.flat.producer[value]
    if node == ABSENT:
        return
    called, inputs = flat.called(node), flat.inputs_of(node)
    if has(called, Trait.MOVES, Trait.CASTS) or called[:2] == ("", "Mul"):
        yield from data_of(flat, node)
    elif called[:2] == ("", "Sub") and moved_elements(flat, inputs[0]) is not None:
        yield from inputs[1:2]


def before(type_graph: TypeGraph, vertex: int) -> Iterator[int]:
    """Yield the vertices of whose results a vertex computes its own."""
    node = type_graph.nodes[vertex]
    apart = has(type_graph.flat.called(node), Trait.SUBGRAPHS)
    for variable in (vertex,) if apart else type_graph.vertices_of(node):
        yield from type_graph.predecessors(variable)
