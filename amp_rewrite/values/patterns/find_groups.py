"""Patterns of nodes that runtimes compute as one operator, and the groups that match them.

    x = Value("x")
    silu = Pattern("SiLU", Op("Mul", x, Op("Sigmoid", x)), anchor="Sigmoid")

A term stands for a value. A name that occurs twice stands for one value; a term that occurs twice
may be one node or two that compute the same, for runtimes merge these first.

The search begins at a pattern's rare operator, walks along the pattern to where its root must be,
once for all patterns with the same way, and compares the expression from there, backward. A model
without that operator costs nothing, any other one a few comparisons for each node that calls it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import NamedTuple

from amp_rewrite.dtypes import DType
from amp_rewrite.graph.dataflow import TypeGraph
from amp_rewrite.graph.flat import ABSENT
from amp_rewrite.graph.traits import Trait, has
from amp_rewrite.values.patterns.plain_view import PlainView

Condition = Callable[[PlainView, int], bool]
"""Conditions on a node, or on a value, beyond its place in the expression."""


@dataclass(frozen=True, slots=True)
class Value:
    """Any value; two with one name are the same one."""

    name: str
    holds: Condition | None = None


@dataclass(frozen=True, slots=True)
class Number:
    """A constant of one element with this value, as exact as types and exporters are."""

    value: float


@dataclass(frozen=True, slots=True, init=False)
class Op:
    """The first result of a node that calls an operator of ai.onnx.

    Attributes:
        operands: Its first operands, in either order if the operator adds or multiplies.
        is_tail: Whether a runtime that fuses the group takes a Cast in front of the node with it.
        holds: What is asked of the node, or None.
    """

    op_type: str
    operands: tuple[Term, ...]
    is_tail: bool
    holds: Condition | None

    def __init__(
        self, op_type: str, *operands: Term, is_tail: bool = False, holds: Condition | None = None
    ) -> None:
        """Make a term; operands come one by one."""
        object.__setattr__(self, "op_type", op_type)
        object.__setattr__(self, "operands", operands)
        object.__setattr__(self, "is_tail", is_tail)
        object.__setattr__(self, "holds", holds)


Term = Value | Number | Op


@dataclass(frozen=True, slots=True)
class Pattern:
    """A form of a group.

    Attributes:
        name: What the group computes; several forms may have one name.
        anchor: The operator at which the search begins: one that is rare in models and occurs once.
    """

    name: str
    root: Op
    anchor: str

    def path(self) -> tuple[str, ...]:
        """Return the operators from behind the anchor to the root.

        Raises:
            ValueError: The expression has no such operator.
        """
        for path in _paths(self.root, self.anchor):
            return path
        raise ValueError(f"pattern {self.name} has no {self.anchor}")


def _paths(term: Term, anchor: str) -> Iterator[tuple[str, ...]]:
    """Yield the operators on each way from an anchor up to and including a term."""
    if not isinstance(term, Op):
        return
    if term.op_type == anchor:
        yield ()
        return
    for operand in term.operands:
        for path in _paths(operand, anchor):
            yield (*path, term.op_type)


MOST_READERS = 8
"""A value inside a group has fewer readers; one that has more is not looked behind."""

NEAR = 1e-4
"""The relative tolerance of numbers: some exporters write sqrt(2) as 1.4142."""


class Group(NamedTuple):
    """Nodes that compute the expression of a pattern, in execution order.

    `values` are what the names of the pattern stand for, seen through nodes that change nothing.
    """

    name: str
    nodes: tuple[int, ...]
    tail: frozenset[int]
    values: Mapping[str, int]

    def words(self, names: Sequence[str]) -> str:
        """Return what reports call it: "LayerNormalization from ReduceMean_3 to Add_9"."""
        if len(self.nodes) == 1:
            return f"{self.name} in {names[self.nodes[0]]}"
        return f"{self.name} from {names[self.nodes[0]]} to {names[self.nodes[-1]]}"


class _Match(NamedTuple):
    """A part of an expression that was found."""

    values: dict[str, int]
    nodes: dict[int, bool]  # node -> whether it is part of the tail


def find_groups(
    type_graph: TypeGraph, patterns: Iterable[Pattern], low: DType | None = None
) -> list[Group]:
    """Return the groups of a model; where two share a node, that of the earlier pattern counts.

    A value inside a group is read inside it only, and is not an output of its graph: the group's
    result is all that it gives. With `low` a number may also be what that type rounds it to: of a
    model that is stored in it nothing better is known, and runtimes compare what they read.
    """
    view = PlainView(type_graph, low)
    groups: list[Group] = []
    taken: set[int] = set()
    places: dict[tuple[str, ...], Mapping[int, Sequence[int]]] = {}
    for pattern in patterns:
        way = (pattern.anchor, *pattern.path())
        if way not in places:
            places[way] = _places(view, way)
        for anchor, roots in places[way].items():
            group = None if anchor in taken else _group_at(view, pattern, anchor, roots)
            if group is not None and taken.isdisjoint(group.nodes):
                taken.update(group.nodes)
                groups.append(group)
    return groups


def _places(view: PlainView, way: tuple[str, ...]) -> dict[int, Sequence[int]]:
    """Return anchor -> the nodes to which a way along these operators leads from it."""
    flat = view.type_graph.flat
    if not {called.op_type for called in flat.operators}.issuperset(way):
        return {}
    roots = {anchor: _roots(view, anchor, way[1:]) for anchor in flat.nodes_of(way[0])}
    return {anchor: places for anchor, places in roots.items() if places}


def _group_at(view: PlainView, pattern: Pattern, anchor: int, roots: Sequence[int]) -> Group | None:
    flat = view.type_graph.flat
    for root in roots:
        for match in _matches(view, pattern.root, flat.outputs_of(root)[0], _Match({}, {})):
            if anchor in match.nodes and _is_closed(view, match.nodes, root):
                tail = frozenset(node for node, is_tail in match.nodes.items() if is_tail)
                return Group(pattern.name, tuple(sorted(match.nodes)), tail, match.values)
    return None


def _roots(view: PlainView, anchor: int, operators: Sequence[str]) -> list[int]:
    """Return the nodes to which a way along some operators leads from an anchor."""
    flat, nodes = view.type_graph.flat, [anchor]
    for op_type in operators:
        read = [r for n in nodes for r in view.readers(flat.outputs_of(n)[0])]
        nodes = list(dict.fromkeys(r.node for r in read if flat.called(r.node).op_type == op_type))
        if len(nodes) > MOST_READERS:
            return []
    return nodes


def _matches(view: PlainView, term: Term, value: int, so_far: _Match) -> Iterator[_Match]:
    """Yield the ways in which a value is what a term says."""
    source = view.source(value)
    if isinstance(term, Op):
        yield from _matches_of_op(view, term, source, so_far)
    elif isinstance(term, Value):
        bound = so_far.values.get(term.name, source)
        if bound == source and (term.holds is None or term.holds(view, source)):
            yield _Match({**so_far.values, term.name: source}, so_far.nodes)
    elif _is_number(view, source, term):
        yield so_far


def _matches_of_op(view: PlainView, term: Op, source: int, so_far: _Match) -> Iterator[_Match]:
    graph, flat = view.type_graph, view.type_graph.flat
    node = flat.producer[source]
    if node == ABSENT or flat.called(node)[:2] != ("", term.op_type) or flat.is_call(node):
        return
    if flat.outputs_of(node)[0] != source or not graph.is_float32(source):
        return
    if term.holds is not None and not term.holds(view, node):
        return
    inputs = flat.inputs_of(node)[: len(term.operands)]
    if len(inputs) < len(term.operands) or ABSENT in inputs:
        return
    match = _Match(so_far.values, {**so_far.nodes, node: term.is_tail})
    called = flat.called(node)
    adds_or_multiplies = has(called, Trait.ADDS, Trait.MULTIPLIES)
    commutes = len(inputs) == 2 and adds_or_multiplies and not has(called, Trait.CONTRACTS)
    orders = permutations(term.operands) if commutes else [term.operands]
    for operands in orders:
        yield from _matches_of_all(view, list(zip(operands, inputs, strict=True)), match)


def _matches_of_all(
    view: PlainView, pairs: list[tuple[Term, int]], so_far: _Match
) -> Iterator[_Match]:
    """Yield the ways in which every value is what its term says, all at once."""
    if not pairs:
        yield so_far
        return
    (term, value), *rest = pairs
    for match in _matches(view, term, value, so_far):
        yield from _matches_of_all(view, rest, match)


def _is_number(view: PlainView, source: int, term: Number) -> bool:
    tensor = view.constant(source)
    if tensor is None or tensor.size != 1:
        return False
    number, low = float(tensor.numpy().reshape(())), view.low
    if math.isclose(number, term.value, rel_tol=NEAR):
        return True
    if low is None or not math.isclose(number, term.value, rel_tol=low.epsilon):
        return False
    return bool(low.numpy.type(number) == low.numpy.type(term.value))


def _is_closed(view: PlainView, nodes: Mapping[int, bool], root: int) -> bool:
    """Tell whether nothing but the root's result leaves a group, and all is in one graph."""
    flat = view.type_graph.flat
    if len({flat.body_of[node] for node in nodes}) > 1:
        return False
    inner = [value for node in nodes if node != root for value in flat.outputs_of(node)]
    return not any(
        view.leaves(value) or any(reader.node not in nodes for reader in view.readers(value))
        for value in inner
    )
