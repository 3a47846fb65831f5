"""Intervals of all values, in one sweep in execution order.

What has no rule is bounded by its element type alone (docs/painting.md, section 9). Values of which
the same is known (interval, type and shape) share a number, and a rule is asked once for each case:
a kind of node and the numbers of its inputs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain

import numpy as np

from amp_rewrite.graph.dataflow import TypeGraph
from amp_rewrite.graph.flat import ABSENT, Array
from amp_rewrite.graph.streams import Stream
from amp_rewrite.graph.traits import Trait, has
from amp_rewrite.values.intervals import elementwise, moving, normalizing, summing
from amp_rewrite.values.intervals import interval as i
from amp_rewrite.values.intervals.element_types import ElementType
from amp_rewrite.values.intervals.interval import Interval
from amp_rewrite.values.intervals.operation import Known, Operation, Rule
from amp_rewrite.values.sweep import node_kinds, rules_of, table_of
from amp_rewrite.values.weight_stats import MeasuredConstants

_PATIENCE = 2
"""Turns of a loop in which what stays within its interval keeps it, while others leave theirs."""

_MANY_NODES = 2_000
"""Below this number of nodes, inferring shapes takes less time than a second sweep."""

_EXACT = (Trait.EXACT, Trait.MOVES, Trait.HOLDS)
"""The promises of operators that round nothing."""

_SAME_SHAPE = (("", "Identity"), ("", "Cast"))
"""Operators whose result has the shape of the input."""

_SHOWING_INPUT = (*_SAME_SHAPE, ("", "ConstantOfShape"))
"""Operators behind which `Intervals.array` and `Intervals.shape` look at the input."""


_FAMILIES = (elementwise, moving, normalizing, summing)

RULES: Mapping[str, Mapping[str, Rule]] = {
    "": table_of(chain.from_iterable(family.RULES.items() for family in _FAMILIES))
}
"""Domain -> operator -> its rule; of any other nothing but its type is known."""


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
    """
    flat = type_graph.flat
    is_large = flat.n_nodes >= _MANY_NODES and len(flat.bodies) == 1
    intervals = Intervals(type_graph, measured or MeasuredConstants(), inputs or {}, early=is_large)
    intervals.start()
    return intervals


class Intervals(Known):
    """The intervals of a model's values; `intervals_of` makes them.

    Of many nodes they are found first with the shapes that the file records. Those that other
    shapes could narrow are vague: as soon as somebody asks for one, inference finds these.
    """

    def __init__(
        self,
        type_graph: TypeGraph,
        measured: MeasuredConstants,
        inputs: Mapping[int, Interval],
        *,
        early: bool = False,
        n_cases: int = 0,
    ) -> None:
        """Know nothing yet."""
        super().__init__(type_graph)
        self._types, self._measured, self._inputs = type_graph.types, measured, inputs
        self._early, self._sweeps, self._is_vague = early, False, False
        self._vague = set[int]()  # numbers
        self._recorded = self.flat.recorded_shape if early else self.flat.shape
        rules, holds_graphs = rules_of(self.flat, RULES)
        self._rules = [rule or _anything for rule in rules]  # by operator
        # by operator
        self._shows_input = [called[:2] in _SHOWING_INPUT for called in self.flat.operators]
        self._rounds = [not has(called, *_EXACT) for called in self.flat.operators]  # by operator
        self._casts = [has(called, Trait.CASTS) for called in self.flat.operators]  # by operator
        n_values = self.flat.n_values
        # A value starts with its own number; ABSENT, the last entry, keeps that of ABSENT.
        self._numbers = [*range(n_values), ABSENT]  # by value: a number
        self._known: list[Interval | None] = [None] * n_values  # by number
        # what is known, type, shape, origin -> number
        self._shared: dict[tuple[object, ...], int] = {}
        ruled = {
            operator
            for operator, called in enumerate(self.flat.operators)
            if not holds_graphs[operator] and called[:2] != ("", "Constant")
        }
        # by node: its kind, or ABSENT
        self._kinds = node_kinds(type_graph, ruled, self.same_as, self._recorded)
        self._cases: dict[tuple[int, ...], int] = {}  # kind, numbers of the inputs -> case
        self._made: list[list[int]] = [[]] * n_cases  # by case, the numbers of the outputs
        self._case_of = [ABSENT] * self.flat.n_nodes  # by node: its case

    def start(self) -> None:
        """Learn of all values."""
        for value, interval in self._inputs.items():
            self.learn(value, interval)
        self._sweeps = True
        self.sweep(self.flat.main.nodes)
        self._sweeps = False

    def _settle(self) -> None:
        """Become what is known with the shapes that inference finds."""
        count = len(self._made)
        anew = Intervals(self.type_graph, self._measured, self._inputs, n_cases=count)
        anew.start()
        vars(self).update(vars(anew))

    def __getitem__(self, value: int) -> Interval:
        """Return the interval of a value."""
        number = self._numbers[value]
        if number in self._vague:
            if self._sweeps:
                self._is_vague = True
            else:
                self._settle()
                number = self._numbers[value]
        interval = self._known[number]
        if interval is None:
            interval = self._constant(value) or self.type_of(value).range
            self._known[number] = interval
        return interval

    def _constant(self, value: int) -> Interval | None:
        """Return the interval of a constant; of long ones by their statistics."""
        array = self.constants.array(value)
        if array is not None:
            return moving.numbers(array)
        stream = self.constants.stream(value)
        if stream is None:
            return None
        stats = self._measured.stats(value, lambda: stream)
        if stats.infs:
            return i.ANY
        return i.symmetric(stats.max_abs)._replace(reach=stats.max_abs)

    def case(self, node: int) -> int:
        """Return a number that nodes share for which all is the same that rules may ask."""
        return self._case_of[node]

    def may_reach(self, magnitude: float) -> Array:
        """Return a mask of the values that nothing known so far keeps below a magnitude."""
        # by number
        reach = [interval is None or interval.magnitude >= magnitude for interval in self._known]
        if any(reach[number] for number in self._vague):
            self._settle()
            return self.may_reach(magnitude)
        return np.array(reach, np.bool_)[self._numbers[: self.flat.n_values]]  # (values,)

    def stream(self, value: int) -> Stream | None:
        """Return the elements of a float32 constant of any length, or None."""
        return self.constants.stream(value)

    def shape(self, value: int) -> Sequence[int | None] | None:
        """Return the shape of a value: recorded, or what a ConstantOfShape is asked for."""
        recorded = self._recorded(value)
        if recorded is not None and None not in recorded:
            return recorded
        computed = self._made_shape(value)
        if computed is None and recorded is None and self._early:
            if not self._sweeps:
                self._settle()
                return self.shape(value)
            self._is_vague = True
        return recorded if computed is None else computed

    def _made_shape(self, value: int) -> Sequence[int | None] | None:
        """Return the shape that what makes a value tells: a constant, or its repetition."""
        node = self.flat.producer[value]
        if node != ABSENT:
            if self.flat.called(node)[:2] in _SAME_SHAPE:
                return next((self.shape(v) for v in self.flat.inputs_of(node)), None)
            if self.flat.called(node)[:2] == ("", "ConstantOfShape"):
                asked = next((self.array(v) for v in self.flat.inputs_of(node)), None)
                return None if asked is None else [int(length) for length in asked]
            held = self.constants.array(value)
            return None if held is None else held.shape
        return None

    def sweep(self, nodes: Iterable[int]) -> None:
        """Learn what nodes make; a rule is asked where a case is new."""
        numbers, cases, results_of, case_of = self._numbers, self._cases, self._made, self._case_of
        # by slot: a value; by node: its first slot
        read, first, outputs_of = self.flat.inputs, self.flat.input_start, self.flat.outputs_of
        kinds, number_of = self._kinds, numbers.__getitem__
        for node in nodes:
            kind = kinds[node]
            if kind == ABSENT:
                self.control(node)
                continue
            key = (kind, *map(number_of, read[first[node] : first[node + 1]]))
            case = cases.get(key)
            if case is None:
                case = cases[key] = len(results_of)
                results_of.append(self._results(node))
            case_of[node] = case
            for value, number in zip(outputs_of(node), results_of[case], strict=False):
                numbers[value] = number

    def _results(self, node: int) -> list[int]:
        """Return the numbers of what a node makes, as far as its rule knows."""
        operator = self.flat.operator[node]
        inputs = self.flat.inputs_of(node)
        rule = self._rules[operator] if self.is_complete(node) else _anything
        self._is_vague = False
        outcome = rule(Operation(self, node))
        results = [outcome] if isinstance(outcome, Interval) else outcome
        shows = self._shows_input[operator] and inputs
        origin = self._numbers[inputs[0]] if shows else ABSENT
        return [
            self._number(value, self._stored(value, interval, node), origin)
            for value, interval in zip(self.flat.outputs_of(node), results, strict=False)
        ]

    def _stored(self, value: int, interval: Interval, node: int) -> Interval:
        """Return what becomes of a result that is rounded and stored in the type of a value."""
        type_, operator = self.type_of(value), self.flat.operator[node]
        if interval is i.ANY:
            return type_.range
        rounds = self._rounds[operator] and not type_.is_integer
        if rounds and not (self._casts[operator] and self._holds(node, type_)):
            interval = interval.rounded(type_.share, type_.tiny)
        return type_.fitted(interval)

    def _holds(self, node: int, type_: ElementType) -> bool:
        """Tell whether a type holds every number of the range that a Cast reads from another."""
        source_type = self.type_of(self.flat.inputs_of(node)[0])
        return (
            not source_type.is_integer
            and type_.share <= source_type.share
            and type_.tiny <= source_type.tiny
        )

    def _number(self, value: int, interval: Interval, origin: int) -> int:
        """Return the number of the values of which the same is known."""
        shape = self._recorded(value)
        lengths = None if shape is None else tuple(shape)
        key = (interval, self._types[value], lengths, origin, self._is_vague)
        number = self._shared.setdefault(key, len(self._known))
        if number == len(self._known):
            self._known.append(interval)
            if self._is_vague:
                self._vague.add(number)
        return number

    def learn(self, value: int, fact: Interval) -> None:
        """Take note of an interval of a value that shares it with no other one."""
        self._numbers[value] = len(self._known)
        self._known.append(fact)

    def joined(self, parts: Sequence[Interval]) -> Interval:
        """Return what holds for some elements of several values."""
        return i.union(*parts).scattered()

    def at_first(self, inner: int, outer: int, is_constant: bool) -> Interval:
        """Begin with the interval outside; in a loop inside a loop, turns of turns multiply."""
        if self.loops > 1 and not is_constant:
            return self.type_of(inner).range
        return self.joined([self[outer]])

    def is_settled(self, inner: int, end: int) -> bool:
        """Tell whether a turn stays within the interval of what is carried."""
        return self[end].within(self[inner]) or self[inner] == self.type_of(inner).range

    def widened(self, inner: int, end: int, turns: int) -> Interval:
        """Give up the intervals that a turn leaves; before long, those of all that is carried."""
        keeps = turns < _PATIENCE and self.is_settled(inner, end)
        return self[inner] if keeps else self.type_of(inner).range

    def count_turns(self, inner: int, limit: int) -> None:
        """Bound the number of a turn."""
        most = i.NOT_NEGATIVE if limit == ABSENT else self[limit]
        self.learn(inner, i.between(0.0, max(most.high - 1, 0.0)))


def _anything(op: Operation) -> list[Interval]:
    """Return what is known of the results of an operator without a rule."""
    return [i.ANY] * op.n_outputs
