"""Intervals of all values, in one sweep in execution order.

Each operator's rule maps the intervals of its inputs to that of its output; what has no rule is
bounded by its element type alone. The branches of an If are united. A value that a Loop or Scan
carries keeps its interval where one turn of the body stays within it, and may be anything
otherwise. Constants are looked at when a rule asks for them.

Values of which the same is known (interval, type and shape) share a number, and a rule is asked
once for each case: a kind of node and the numbers of its inputs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from amp_rewrite.graph.dataflow import TypeGraph
from amp_rewrite.graph.flat import ABSENT, MAIN, Array, FlatGraph
from amp_rewrite.graph.identities import behind_identities
from amp_rewrite.graph.intervals import element_types
from amp_rewrite.graph.intervals import interval as i
from amp_rewrite.graph.intervals.constant_intervals import Constants
from amp_rewrite.graph.intervals.element_types import ElementType
from amp_rewrite.graph.intervals.interval import Interval
from amp_rewrite.graph.intervals.loop_ends import loop_ends
from amp_rewrite.graph.intervals.operation import Operation, Rule
from amp_rewrite.graph.intervals.row_sums import Layout, RowSums
from amp_rewrite.graph.intervals.rules import RULES
from amp_rewrite.graph.node_kinds import node_kinds
from amp_rewrite.graph.streams import Stream
from amp_rewrite.graph.traits import Trait, has
from amp_rewrite.graph.weight_stats import MeasuredConstants

_TURNS = 4
"""How often the body of a loop is swept before all that it carries may be anything."""

_EXACT = (Trait.EXACT, Trait.MOVES, Trait.HOLDS)
"""What operators promise that round nothing."""

_SHOWING_INPUT = (("", "Identity"), ("", "ConstantOfShape"))
"""Operators behind which `Intervals.array` and `Intervals.shape` look at the input."""


def intervals_of(
    type_graph: TypeGraph,
    measured: MeasuredConstants | None = None,
    inputs: Mapping[int, Interval] | None = None,
) -> Intervals:
    """Return what the elements of every value are bound to be, by the value's number.

    An interval holds for every input within `inputs`, and for the numbers that the model computes
    as it is, before any rewrite; NaN is outside of all this. `intervals[v].high < 412` proves that
    no element of v exceeds 412, `intervals[v].away` is the smallest magnitude that keeps all of
    them away from zero, `intervals[v].reach` a magnitude that some element reaches.

    Args:
        type_graph: The model and the types of its values.
        measured: The statistics of constants, for who shares them; long ones are measured there.
        inputs: Graph input -> what a user says of it.
    """
    sweep = Intervals(type_graph, measured or MeasuredConstants(), inputs or {})
    sweep.body(MAIN, {})
    return sweep


class Intervals:
    """The intervals of a model's values; `intervals_of` makes them."""

    def __init__(
        self, type_graph: TypeGraph, measured: MeasuredConstants, inputs: Mapping[int, Interval]
    ) -> None:
        """Know nothing yet."""
        self.flat: FlatGraph = type_graph.flat
        self._types = type_graph.types
        self._constants = Constants(self.flat, measured)
        self._inputs = inputs
        self._row_sums: dict[tuple[int, Layout], RowSums | None] = {}
        self._inside_loop = False
        self._rules = _rules(self.flat)
        self._shows_input = [called[:2] in _SHOWING_INPUT for called in self.flat.operators]
        self._rounds = [not has(called, *_EXACT) for called in self.flat.operators]
        n_values = self.flat.n_values
        # A value starts with its own number; ABSENT, the last entry, keeps that of ABSENT.
        self._numbers = [*range(n_values), ABSENT]
        self._known: list[Interval | None] = [None] * n_values  # by number
        self._shared: dict[tuple[object, ...], int] = {}
        self._same = behind_identities(self.flat)
        self._kinds = node_kinds(type_graph, self._rules, self._same)
        self._cases: dict[tuple[int, ...], int] = {}
        self._made: list[list[int]] = []  # by case, the numbers of the outputs
        self._case_of = [ABSENT] * self.flat.n_nodes

    def __getitem__(self, value: int) -> Interval:
        """Return the interval of a value."""
        number = self._numbers[value]
        found = self._known[number]
        if found is None:
            found = self._constants.interval(value) or self.by_type(value)
            self._known[number] = found
        return found

    def case(self, node: int) -> int:
        """Return a number that nodes share for which all is the same that rules may ask."""
        return self._case_of[node]

    def same(self, one: int, other: int) -> bool:
        """Tell whether two values are one, which Identity may hand on."""
        return self._same[one] == self._same[other]

    def may_reach(self, magnitude: float) -> Array:
        """Return a mask of the values that nothing known so far keeps below a magnitude."""
        reach = [known is None or known.magnitude >= magnitude for known in self._known]
        return np.array(reach, np.bool_)[self._numbers[: self.flat.n_values]]

    def array(self, value: int) -> Array | None:
        """Return the elements of a constant that is not too long, in its shape, or None."""
        node = self.flat.producer[value]
        if node != ABSENT and self.flat.called(node)[:2] == ("", "Identity"):
            return self.array(self.flat.inputs_of(node)[0])
        return self._constants.array(value)

    def row_sums(self, value: int, layout: Layout) -> RowSums | None:
        """Return what the rows of a constant sum up to, or None for what is long or no constant."""
        key = value, layout
        if key not in self._row_sums:
            array = self.array(value)
            known = None if array is None or not array.size else RowSums.of(layout(array))
            self._row_sums[key] = known
        return self._row_sums[key]

    def stream(self, value: int) -> Stream | None:
        """Return the elements of a float32 constant of any length, or None."""
        return self._constants.stream(value)

    def shape(self, value: int) -> Sequence[int | None] | None:
        """Return the shape of a value: recorded, or what a ConstantOfShape is asked for."""
        recorded = self.flat.shape(value)
        node = self.flat.producer[value]
        if recorded is None and node != ABSENT:
            if self.flat.called(node)[:2] == ("", "Identity"):
                return self.shape(self.flat.inputs_of(node)[0])
            if self.flat.called(node)[:2] == ("", "ConstantOfShape"):
                asked = self.array(self.flat.inputs_of(node)[0])
                return None if asked is None else [int(length) for length in asked]
            held = self._constants.array(value)
            return None if held is None else held.shape
        return recorded

    def is_integer(self, value: int) -> bool:
        """Tell whether the elements of a value are integers or truth values."""
        return self._type(value).is_integer

    def by_type(self, value: int) -> Interval:
        """Return what the element type of a value says."""
        return self._type(value).range

    def share(self, value: int) -> float:
        """Return the largest relative error of an operation with a result of a value's type."""
        return self._type(value).share

    def body(self, number: int, inputs: Mapping[int, Interval]) -> None:
        """Sweep one of the graphs, whose inputs have the given intervals, or what types say."""
        body = self.flat.bodies[number]
        for value in body.inputs:
            given = inputs.get(value) or self._inputs.get(value)
            if given is not None:
                self._learn(value, given)
        self._nodes(body.nodes)

    def _nodes(self, nodes: Sequence[int]) -> None:
        """Sweep nodes; a rule is asked where a case is new."""
        numbers, cases, made, case_of = self._numbers, self._cases, self._made, self._case_of
        read, first, outputs_of = self.flat.inputs, self.flat.input_start, self.flat.outputs_of
        for node in nodes:
            kind = self._kinds[node]
            if kind == ABSENT:
                self._control(node)
                continue
            key = (kind, *[numbers[v] for v in read[first[node] : first[node + 1]]])
            case = cases.get(key)
            if case is None:
                case = cases[key] = len(made)
                made.append(self._results(node))
            case_of[node] = case
            for value, number in zip(outputs_of(node), made[case], strict=False):
                numbers[value] = number

    def _type(self, value: int) -> ElementType:
        return element_types.of(self._types[value])

    def _results(self, node: int) -> list[int]:
        """Return the numbers of what a node makes, as far as its rule knows."""
        operator = self.flat.operator[node]
        inputs = self.flat.inputs_of(node)
        found = self._rules[operator](Operation(self, node, inputs))
        results = [found] if isinstance(found, Interval) else found
        origin = self._numbers[inputs[0]] if self._shows_input[operator] else ABSENT
        return [
            self._number(value, self._stored(value, interval, operator), origin)
            for value, interval in zip(self.flat.outputs_of(node), results, strict=False)
        ]

    def _stored(self, value: int, found: Interval, operator: int) -> Interval:
        """Return what becomes of a result that is rounded and stored in the type of a value."""
        type_ = self._type(value)
        if found is i.ANY:
            return type_.range
        if self._rounds[operator] and not type_.is_integer:
            found = found.rounded(type_.share, type_.tiny)
        return type_.fitted(found)

    def _number(self, value: int, interval: Interval, origin: int) -> int:
        """Return the number of the values of which the same is known."""
        shape = self.flat.shape(value)
        key = (interval, self._types[value], None if shape is None else tuple(shape), origin)
        number = self._shared.setdefault(key, len(self._known))
        if number == len(self._known):
            self._known.append(interval)
        return number

    def _learn(self, value: int, interval: Interval) -> None:
        """Take note of an interval of a value that shares it with no other one."""
        self._numbers[value] = len(self._known)
        self._known.append(interval)

    def _control(self, node: int) -> None:
        """Sweep the graphs inside a node."""
        bodies = self.flat.bodies_in(node)
        called = self.flat.called(node)
        if not bodies:
            return
        if called[:2] == ("", "If"):
            self._branches(node, bodies)
        elif called[:2] in (("", "Loop"), ("", "Scan")) and len(bodies) == 1:
            self._loop(node, bodies[0])
        else:
            for number in bodies:
                self.body(number, {})

    def _branches(self, node: int, bodies: Sequence[int]) -> None:
        """Sweep the branches of an If; an output holds what either gives."""
        for number in bodies:
            self.body(number, {})
        ends = zip(*(self.flat.bodies[number].outputs for number in bodies), strict=False)
        for value, made in zip(self.flat.outputs_of(node), ends, strict=False):
            self._learn(value, i.union(*(self[v] for v in made)).scattered())

    def _loop(self, node: int, number: int) -> None:
        """Sweep the body of a Loop or Scan until what it carries stays within its interval."""
        loop = loop_ends(self.flat, node, number)
        states = {inner: self[outer].scattered() for inner, outer in loop.states}
        others = {inner: self[outer].scattered() for inner, outer in loop.elements}
        if loop.limit is not None:
            others[self.flat.bodies[number].inputs[0]] = _turns(loop.limit, self)
        ends = dict(zip(states, loop.returned, strict=True))
        if self._inside_loop:  # turns of turns would multiply
            moving = {inner for inner, end in ends.items() if end != inner}
            states |= {inner: self.by_type(inner) for inner in moving}
            self.body(number, others | states)
        else:
            self._settle(number, others, states, ends)
        carried = [states[inner] | self[end] for inner, end in ends.items()]
        stacked = [self[value] for value in loop.stacked]
        for value, found in zip(self.flat.outputs_of(node), carried + stacked, strict=False):
            self._learn(value, found.scattered())

    def _settle(
        self,
        number: int,
        others: Mapping[int, Interval],
        states: dict[int, Interval],
        ends: Mapping[int, int],
    ) -> None:
        """Sweep a body, giving up the intervals of the states that it leaves; all at the end."""
        self._inside_loop = True
        for attempt in range(_TURNS):
            self.body(number, {**others, **states})
            left = {inner for inner, end in ends.items() if not self[end].within(states[inner])}
            if not left:
                break
            widened = left if attempt < _TURNS - 2 else set(states)
            states |= {inner: self.by_type(inner) for inner in widened}
        self._inside_loop = False


def _turns(limit: int, known: Intervals) -> Interval:
    """Return what the number of a turn is within."""
    most = i.NOT_NEGATIVE if limit == ABSENT else known[limit]
    return i.between(0.0, max(most.high - 1, 0.0))


def _rules(flat: FlatGraph) -> dict[int, Rule]:
    """Return the rules by operator; Constants and what holds graphs have none."""
    owners = {flat.operator[body.owner] for body in flat.bodies if body.owner != ABSENT}
    found: dict[int, Rule] = {}
    for operator, called in enumerate(flat.operators):
        known = {} if called in flat.functions else RULES.get(called.domain, {})
        if operator not in owners and called[:2] != ("", "Constant"):
            found[operator] = known.get(called.op_type, _anything)
    return found


def _anything(op: Operation) -> list[Interval]:
    """Return what is known of the results of an operator without a rule."""
    return [i.ANY] * op.n_outputs
