"""The sweep: one walk over a model's values in execution order, for every domain of facts.

A domain says what its operators make of what they read; the walk leads it through the graphs inside
nodes, as abstract interpretation does (P. and R. Cousot, 1977). What a Loop or Scan carries is what
it was at first or what a turn makes of it: the body is swept until that is settled.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Generic, NamedTuple, TypeVar

from amp_rewrite.graph.build_type_graph import scan_split
from amp_rewrite.graph.dataflow import TypeGraph
from amp_rewrite.graph.flat import ABSENT, MAIN, FlatGraph

F = TypeVar("F")
"""A domain's fact about one value."""

Rule = TypeVar("Rule")

ShapeOf = Callable[[int], "Sequence[int | None] | None"]
"""Returns the shape of a value, or None."""


class Sweep(ABC, Generic[F]):
    """The facts of one domain about a model's values; a subclass is a domain."""

    def __init__(self, type_graph: TypeGraph) -> None:
        """Know nothing yet."""
        self.type_graph = type_graph
        self.flat: FlatGraph = type_graph.flat
        self.loops = 0
        """Inside how many loops the walk is."""
        self._left, self._swept = iter(self.flat.main.nodes), ABSENT

    @abstractmethod
    def __getitem__(self, value: int) -> F:
        """Return what is known of a value."""

    @abstractmethod
    def sweep(self, nodes: Iterable[int]) -> None:
        """Learn what nodes of one graph make, in order; `control` goes into those with graphs."""

    @abstractmethod
    def learn(self, value: int, fact: F) -> None:
        """Take note of what is known of a value that no rule makes."""

    @abstractmethod
    def joined(self, parts: Sequence[F]) -> F:
        """Return what is known of elements that come from any of several values."""

    def at_first(self, inner: int, outer: int, is_constant: bool) -> F:
        """Return what is known of what a loop carries, before its first turn."""
        return self.joined([self[outer]])

    def is_settled(self, inner: int, end: int) -> bool:
        """Tell whether what a turn makes of what is carried is known of it already."""
        return True

    def widened(self, inner: int, end: int, turns: int) -> F:
        """Return what is known of what is carried, after the turns that left it."""
        return self.joined([self[inner], self[end]])

    def count_turns(self, inner: int, limit: int) -> None:
        """Learn of the number of a Loop's turn, the body's input, from its limit, or ABSENT."""

    def sweep_up_to(self, value: int) -> None:
        """Sweep the main graph as far as the node that makes a value, or holds what makes it."""
        last = self._outermost(value)
        while self._swept < last:
            self._swept = next(self._left)
            self.sweep((self._swept,))

    def _outermost(self, value: int) -> int:
        """Return the node of the main graph that makes or holds a value; ABSENT if none does."""
        flat, node = self.flat, self.flat.producer[value]
        body = flat.home[value]
        while body != MAIN:
            node = flat.bodies[body].owner
            body = flat.body_of[node]
        return node

    def is_complete(self, node: int) -> bool:
        """Tell whether a node has the inputs that its schema asks for, on which rules rely."""
        schema = self.type_graph.ports_of(node).schema
        if schema is None:  # nothing of ai.onnx is without one at its opset
            return self.flat.called(node).domain != "" or self.flat.is_call(node)
        return len(self.flat.inputs_of(node)) >= schema.n_inputs[0]

    def control(self, node: int) -> None:
        """Sweep the graphs inside a node."""
        bodies = self.flat.bodies_in(node)
        domain, op_type, _ = self.flat.called(node)
        # operators: SequenceMap, the third one that loops, carries nothing.
        is_loop = domain == "" and op_type in ("Loop", "Scan") and len(bodies) == 1
        if is_loop and self.is_complete(node):
            self._loop(node, bodies[0])
            return
        for number in bodies:
            self.sweep(self.flat.bodies[number].nodes)
        if domain == "" and op_type == "If":
            ends = zip(*(self.flat.bodies[number].outputs for number in bodies), strict=False)
            self._learn_all(self.flat.outputs_of(node), ends)

    def _loop(self, node: int, number: int) -> None:
        """Sweep the body of a Loop or Scan until what it carries is settled."""
        loop, body = loop_ends(self.flat, node, number), self.flat.bodies[number]
        self.loops += 1
        for inner, outer, end in loop.states:
            self.learn(inner, self.at_first(inner, outer, inner == end))
        for inner, outer in loop.elements:
            self.learn(inner, self.joined([self[outer]]))
        if loop.limit is not None:
            self.count_turns(body.inputs[0], loop.limit)
        self.sweep(body.nodes)
        turns = 0
        while not all(self.is_settled(inner, end) for inner, _, end in loop.states):
            for inner, _, end in loop.states:
                self.learn(inner, self.widened(inner, end, turns))
            self.sweep(body.nodes)
            turns += 1
        self.loops -= 1
        sources_of = [
            *((inner, end) for inner, _, end in loop.states),
            *((v,) for v in loop.stacked),
        ]
        self._learn_all(self.flat.outputs_of(node), sources_of)

    def _learn_all(self, values: Iterable[int], sources_of: Iterable[Sequence[int]]) -> None:
        for value, sources in zip(values, sources_of, strict=False):
            self.learn(value, self.joined([self[source] for source in sources]))


class LoopEnds(NamedTuple):
    """The values at the ends of a loop's body.

    Attributes:
        states: An input of the body, the value outside that it has at first, and the output of the
            body that it has in the next turn.
        elements: Pairs: an input of the body, and the value outside of which it is a slice.
        stacked: The body's outputs that are stacked, turn by turn.
        limit: The value outside that says how many turns there are at most, ABSENT if none does;
            None where no input of the body counts them.
    """

    states: list[tuple[int, int, int]]
    elements: list[tuple[int, int]]
    stacked: list[int]
    limit: int | None


def loop_ends(flat: FlatGraph, node: int, number: int) -> LoopEnds:
    """Return the ends of the body of a Loop or Scan."""
    body, outer = flat.bodies[number], flat.inputs_of(node)
    if flat.called(node).op_type == "Loop":
        returned = body.outputs[1:]
        states = list(zip(body.inputs[2:], outer[2:], returned, strict=False))
        return LoopEnds(states, [], returned[len(states) :], outer[0])
    first, end = scan_split(flat, node)
    n_states = end - first
    states = list(zip(body.inputs, outer[first:end], body.outputs, strict=False))
    elements = list(zip(body.inputs[n_states:], outer[end:], strict=False))
    return LoopEnds(states, elements, body.outputs[n_states:], None)


def rules_of(
    flat: FlatGraph, tables: Mapping[str, Mapping[str, Rule]]
) -> tuple[list[Rule | None], list[bool]]:
    """Return, by operator, its rule in tables by domain, and whether nodes of it hold graphs."""
    owners = {flat.operator[body.owner] for body in flat.bodies if body.owner != ABSENT}
    rules = [
        None if called in flat.functions else tables.get(called.domain, {}).get(called.op_type)
        for called in flat.operators
    ]
    return rules, [k in owners for k in range(len(flat.operators))]


def table_of(rows: Iterable[tuple[str, Rule]]) -> Mapping[str, Rule]:
    """Return a table of rules by operator.

    Raises:
        ValueError: Two rows are about one operator.
    """
    pairs = list(rows)
    twice = [name for name, rows_of in Counter(name for name, _ in pairs).items() if rows_of > 1]
    if twice:
        raise ValueError(f"two rules for one operator: {', '.join(twice)}")
    return MappingProxyType(dict(pairs))


def node_kinds(
    type_graph: TypeGraph,
    operators: Collection[int],
    same: Sequence[int],
    shape_of: ShapeOf | None = None,
) -> list[int]:
    """Return, by node, the number of its kind; ABSENT for a node of another operator.

    Nodes of one kind make equal calls, have outputs of equal shapes, and read one value at two
    places where the others do. `same` is by value the one that it is the same as.
    """
    flat, calls = type_graph.flat, type_graph.call.tolist()
    read, first, behind = flat.inputs, flat.input_start, flat.output_start
    shape_of = flat.shape if shape_of is None else shape_of
    # of what nodes make, in the order of `flat.outputs`
    shapes = [None if (s := shape_of(v)) is None else tuple(s) for v in flat.outputs]
    spelled = flat.spelled_attributes
    seen: dict[tuple[object, ...], int] = {}
    kinds: list[int] = []
    for node, operator in enumerate(flat.operator):
        if operator not in operators:
            kinds.append(ABSENT)
            continue
        inputs = read[first[node] : first[node + 1]]
        key = (
            calls[node],
            spelled(node),
            tuple(shapes[behind[node] : behind[node + 1]]),
            _repetition([same[value] for value in inputs]) if len(inputs) > 1 else None,
        )
        kinds.append(seen.setdefault(key, len(seen)))
    return kinds


def _repetition(values: Sequence[int]) -> tuple[int, ...] | None:
    """Return where each value stands first, or None if none of them is there twice."""
    if len(set(values)) == len(values):
        return None
    return tuple(values.index(value) for value in values)


def behind_identities(flat: FlatGraph) -> Sequence[int]:
    """Return, by value, the value that it is the same as: itself, unless an Identity makes it."""
    same = [*range(flat.n_values), ABSENT]
    hands_on = [called[:2] == ("", "Identity") for called in flat.operators]
    if any(hands_on):
        for node, operator in enumerate(flat.operator):
            if hands_on[operator] and flat.inputs_of(node):
                same[flat.outputs_of(node)[0]] = same[flat.inputs_of(node)[0]]
    return same
