"""Which integers and truth values are counts and which are flags.

An integer that enters arithmetic as a float is a count unless something says otherwise: its type
(truth values, and numbers of 8 and 16 bits, which are pixels, samples and quantised data), where it
comes from, or what the model does with it (flags.py). Ids that are looked up never become floats.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from amp_rewrite.graph.counts.count_rules import rule_of
from amp_rewrite.graph.counts.fact import Fact, Kind, Operand
from amp_rewrite.graph.counts.small_constants import constant_elements
from amp_rewrite.graph.counts.terms import terms_added
from amp_rewrite.graph.dataflow import TypeGraph
from amp_rewrite.graph.elements import bits, element
from amp_rewrite.graph.flat import ABSENT
from amp_rewrite.graph.traits import Trait, has, row_of

_WIDE = 32
"""Bits of the narrowest integers that count."""


class Integers:
    """The facts about what is no float32: integers, truth values, and doubles made of them.

    Attributes:
        type_graph: The model.
        flags: Integers that are 0 or 1, as the model uses them.
    """

    def __init__(
        self, type_graph: TypeGraph, flags: Collection[int], inputs: Mapping[int, Fact | None]
    ) -> None:
        """Begin with what is known of inputs."""
        self.type_graph, self.flags = type_graph, flags
        self._facts: dict[int, Fact | None] = dict(inputs)

    def fact(self, value: int) -> Fact | None:
        """Return what is known of a value that is not float32; None for data."""
        flat = self.type_graph.flat
        nodes = {flat.producer[v] for v in self._ancestors(value)} - {ABSENT}
        for node in sorted(nodes):
            for output in flat.outputs_of(node):
                if output not in self._facts:
                    self._facts[output] = self._made(node, output)
        return self._read(value)

    def _ancestors(self, value: int) -> Iterable[int]:
        """Return a value and what it is computed of, as far as that is not known yet."""
        flat, seen, stack = self.type_graph.flat, {value}, [value]
        while stack:
            current = stack.pop()
            node = flat.producer[current]
            if node == ABSENT or self._by_type(current) is not None:
                continue
            new = {v for v in flat.inputs_of(node) if v != ABSENT and self._is_open(v)} - seen
            seen |= new
            stack += new
        return seen

    def _is_open(self, value: int) -> bool:
        return value not in self._facts and _is_followed(self.type_graph.types[value])

    def _read(self, value: int) -> Fact | None:
        """Return the fact about a value that has been computed, or that nothing computes."""
        if value in self._facts:
            return self._facts[value]
        known = self._by_type(value)
        if known is not None:
            return known
        return Fact(Kind.COUNT, value, True) if self._is_wide(value) else None

    def _by_type(self, value: int) -> Fact | None:
        is_flag = self.type_graph.types[value] == _BOOL or value in self.flags
        return Fact(Kind.FLAG, value, True) if is_flag else None

    def _is_wide(self, value: int) -> bool:
        type_ = self.type_graph.types[value]
        number = element(type_ or "")
        return number is not None and _is_whole(type_) and bits(number) >= _WIDE

    def _made(self, node: int, output: int) -> Fact | None:
        """Return the fact about what a node makes; a new count where its operator has no rule."""
        known, is_integer = self._by_type(output), self._is_wide(output)
        if known is not None or not (is_integer or self.type_graph.types[output] == _DOUBLE):
            return known
        flat, called = self.type_graph.flat, self.type_graph.flat.called(node)
        if has(called, Trait.QUANTIZED):
            return None
        count = Fact(Kind.COUNT, output, is_integer)
        read, rule = self._data(node), rule_of(called, terms_added(flat, node))
        if rule is None or not read or has(called, Trait.SUBGRAPHS) or not self._fits(node, output):
            return count if is_integer or has(called, Trait.ENUMERATES) else None
        fact = rule(self._operands(read))
        if fact is None or fact.kind is Kind.FLAG or not is_integer:
            return fact
        return fact._replace(kind=Kind.COUNT, whole=True)

    def _operands(self, read: Sequence[int]) -> Sequence[Operand]:
        """Return operands: a constant next to others stands for itself, alone it is a count."""
        constants = [constant_elements(self.type_graph.flat, v) for v in read]
        if all(c is not None for c in constants):
            return [Operand(self._read(v)) for v in read]
        return [
            Operand(None, c) if c is not None else Operand(self._read(v))
            for v, c in zip(read, constants, strict=True)
        ]

    def _data(self, node: int) -> Sequence[int]:
        flat = self.type_graph.flat
        inputs, data = flat.inputs_of(node), row_of(flat.called(node)).data
        return [v for i, v in enumerate(inputs) if v != ABSENT and (data is None or i in data)]

    def _fits(self, node: int, output: int) -> bool:
        """Tell whether an output is made of the data, rather than of their places or number."""
        types, read = self.type_graph.types, self._data(node)
        if has(self.type_graph.flat.called(node), Trait.CASTS):
            return all(_is_followed(types[v]) for v in read)
        return all(types[v] == types[output] for v in read)


_DOUBLE, _BOOL = "tensor(double)", "tensor(bool)"


def _is_whole(type_: str | None) -> bool:
    return type_ is not None and "int" in type_


def _is_followed(type_: str | None) -> bool:
    return _is_whole(type_) or type_ in (_DOUBLE, _BOOL)
