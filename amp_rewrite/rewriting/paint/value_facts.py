"""Facts about the numbers of a model's values: statistics, bounds and estimates."""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial, reduce
from typing import NamedTuple

import numpy as np

from amp_rewrite.dtypes import FLOAT32, DType, may_leave_range
from amp_rewrite.graph.constants import constant_tensor
from amp_rewrite.graph.dataflow import TypeGraph
from amp_rewrite.graph.flat import Array
from amp_rewrite.graph.proto.stored import StoredTensor
from amp_rewrite.graph.reach import data_of
from amp_rewrite.graph.traits import Trait, has, having, operator
from amp_rewrite.rewriting.paint.guards import Guards
from amp_rewrite.rewriting.paint.masks import Masks
from amp_rewrite.rewriting.paint.match import Chains
from amp_rewrite.rewriting.paint.painting import PassReason, Reason
from amp_rewrite.values.intervals.interval import Interval, add
from amp_rewrite.values.intervals.propagate import Intervals, intervals_of
from amp_rewrite.values.magnitudes.estimate import DOUBT
from amp_rewrite.values.magnitudes.estimates import Estimates
from amp_rewrite.values.magnitudes.outliers import Outliers
from amp_rewrite.values.sum_lengths import InnerSum, inner_sum, terms_of
from amp_rewrite.values.weight_stats import MeasuredConstants, WeightStats

_HANDING_ON = having(Trait.MOVES, Trait.CHANGES_SIGN, Trait.HOLDS)

_ROOM = DOUBT * DOUBT
"""How much larger the variance of a row may be than an estimate, whose deviations are divided."""


class Beyond(NamedTuple):
    """How a value leaves the range of the low type, in a sentence for the user."""

    reason: PassReason
    detail: str


@dataclass(frozen=True)
class ValueFacts:
    """Facts that no painting changes; each is found when it is first asked for.

    Attributes:
        inputs: Graph input -> what the user says of its elements.
        variables: Graph inputs that are training variables: nothing is known of their elements.
        low_inputs: Whether graph inputs in 16 bits are taken to be normalised, as float32 ones are.
        likely: Value -> what it is likely to reach, as far as that was asked for.
        fits: Whether all numbers are taken to be in the range of the low type.
    """

    type_graph: TypeGraph
    low: DType
    inputs: Mapping[int, Interval] = field(default_factory=dict[int, Interval])
    variables: frozenset[int] = frozenset()
    measured: MeasuredConstants = field(default_factory=MeasuredConstants, repr=False)
    low_inputs: bool = False
    fits: bool = False
    likely: dict[int, float] = field(default_factory=dict[int, float], repr=False, compare=False)

    @cached_property
    def match(self) -> Match:
        """How the values are computed."""
        return Match(self)

    @cached_property
    def guards(self) -> Guards:
        """The guards that keep values away from zero."""
        return Guards(self.match, self.intervals)

    @cached_property
    def masks(self) -> Masks:
        """Which values are masks, and what they reach."""
        return Masks(self.match, self.intervals, self.inputs)

    @cached_property
    def intervals(self) -> Intervals:
        """The bounds of the elements of every value."""
        return intervals_of(self.type_graph, self.measured, self.inputs)

    @cached_property
    def estimates(self) -> Estimates:
        """How large the elements of every value are likely to be."""
        return Estimates(
            self.type_graph, self.intervals, self.variables, low_inputs=self.low_inputs
        )

    @cached_property
    def outliers(self) -> Outliers:
        """Which channels of every value are likely to be far larger than its others."""
        return Outliers(self.type_graph, self.intervals, self.estimates, self.low.overflow)

    @property
    def _leaves_range(self) -> bool:
        return not self.fits and may_leave_range(self.low)

    @cached_property
    def beyond(self) -> Mapping[int, Beyond]:
        """The computed values that leave the range of the low type, in order."""
        names, beyond_of = self.type_graph.flat.value_names, dict[int, Beyond]()
        if not self._leaves_range:
            return beyond_of
        for value in _computed(self.type_graph, self.intervals.may_reach(self.low.overflow)):
            likely = partial(self._likely, value)
            if beyond := self._beyond(names[value], self.intervals[value], likely):
                beyond_of[value] = beyond
        return beyond_of

    def beyond_inside(
        self, adds_low: Container[tuple[str, str]], squares_low: Container[tuple[str, str]]
    ) -> dict[int, Beyond]:
        """Return the nodes inside which something leaves the range that no output gives.

        It is a partial sum of an operator whose kernels add in the low type (`adds_low`), a
        variance where kernels keep that in it (`squares_low`), or the sum in front of a norm.
        """
        flat, beyond_of = self.type_graph.flat, dict[int, Beyond]()
        for number, called in enumerate(flat.operators) if self._leaves_range else ():
            inside = None if called in flat.functions else inner_sum(called)
            adds = called[:2] in adds_low and has(called, Trait.CONTRACTS)
            squares = called[:2] in squares_low
            for node in flat.nodes_calling((number,)) if inside or adds or squares else ():
                found = self._partial_sum(node) if adds else None
                found = self._variance(node, inside) or found if squares else found
                found = self._inner_sum(node, inside) or found if inside else found
                if found is not None:
                    beyond_of[node] = found
        return beyond_of

    def _partial_sum(self, node: int) -> Beyond | None:
        inputs, name = self.type_graph.flat.inputs_of(node), self.type_graph.flat.node_names[node]
        reached = self.outliers.partial_sum(*inputs[:2]) if len(inputs) > 1 else 0.0
        return self._likely_beyond(f"a partial sum of {name}", reached)

    def _variance(self, node: int, inside: InnerSum | None) -> Beyond | None:
        flat = self.type_graph.flat
        terms = terms_of(flat, node, inside) if inside else flat.inputs_of(node)[:1]
        estimate = self.estimates.total(terms)
        bound = sum(self.intervals[v].magnitude for v in terms)
        square = 0.0 if estimate is None else _ROOM * estimate.square
        name = f"the variance inside {flat.node_names[node]}"
        return self._likely_beyond(name, min(square, bound * bound))

    def _inner_sum(self, node: int, inside: InnerSum) -> Beyond | None:
        flat = self.type_graph.flat
        terms = terms_of(flat, node, inside)
        is_given = len(flat.outputs_of(node)) > inside.output
        if is_given or not terms or not self.type_graph.is_float32(terms[0]):
            return None

        def likely() -> float:
            estimate = self.estimates.total(terms)
            largest = 0.0 if estimate is None else estimate.largest
            return max(largest, self.outliers.total_peak(terms))

        interval = reduce(add, [self.intervals[v] for v in terms])
        return self._beyond(f"the sum inside {flat.node_names[node]}", interval, likely)

    def _beyond(self, name: str, interval: Interval, likely: Callable[[], float]) -> Beyond | None:
        """Return how a value leaves the range of the low type, for certain or by an estimate."""
        low = self.low
        if interval.magnitude < low.overflow:
            return None
        if low.overflow <= interval.reach <= FLOAT32.max:
            end = f"{low.name} ends at {low.max:.6g}"
            detail = f"{name} reaches at least {interval.reach:.4g}, {end}"
            return Beyond(Reason.CERTAIN_OVERFLOW, detail)
        return self._likely_beyond(name, min(likely(), interval.magnitude))

    def _likely_beyond(self, name: str, reached: float) -> Beyond | None:
        low = self.low
        detail = f"{name} is likely to reach {reached:.2g}, {low.name} ends at {low.max:.6g}"
        return Beyond(Reason.LIKELY_OVERFLOW, detail) if reached >= low.overflow else None

    def _likely(self, value: int) -> float:
        """Return the likely largest magnitude of a value; 0 if nothing is known."""
        if value not in self.likely:
            estimate = self.estimates[value]
            largest = 0.0 if estimate is None else estimate.largest
            self.likely[value] = max(largest, self.outliers.peak(value))
        return self.likely[value]

    def fitting(self) -> ValueFacts:
        """Return the facts of which all numbers are taken to be in the range."""
        facts = replace(self, fits=True)
        fields = {n: getattr(self, n) for n in ("intervals", "estimates", "outliers")}
        vars(facts).update(fields)
        return facts

    def magnitude(self, value: int) -> float:
        """Return what no element of a value exceeds; a constant is measured, not read again."""
        tensor = constant_tensor(self.type_graph, value)
        if tensor is None:
            return self.intervals[value].magnitude
        stats = self.stats(value, tensor)
        return math.inf if stats.infs else stats.max_abs

    def stats(self, value: int, tensor: StoredTensor) -> WeightStats:
        """Return the statistics of a constant with these contents."""
        return self.measured.stats(value, lambda: tensor.stream)


class Match(Chains):
    """Questions about one model, and what is known of the numbers in it."""

    def __init__(self, facts: ValueFacts) -> None:
        """Find nothing yet."""
        super().__init__(facts.type_graph, facts.low)
        self.facts = facts


def _computed(type_graph: TypeGraph, concerned: Array) -> Iterator[int]:
    """Yield float32 inputs and results of `concerned` computation: no constants, moved or not."""
    flat, held = type_graph.flat, _moved_constants(type_graph)
    entries = [v for body in flat.bodies for v in body.inputs if not flat.is_initializer(v)]
    values = np.array([*entries, *flat.outputs], np.int64)
    for value in values[concerned[values]].tolist():
        if type_graph.is_float32(value) and value not in held:
            yield value


def _moved_constants(type_graph: TypeGraph) -> set[int]:
    """Return the float32 results of operators that do nothing but move constants."""
    graph, flat = type_graph, type_graph.flat
    moves = [operator(called) in _HANDING_ON for called in flat.operators]
    held: set[int] = set()
    for node in flat.nodes_calling(k for k, handing_on in enumerate(moves) if handing_on):
        data = data_of(flat, node)
        if all(v in held or constant_tensor(graph, v) is not None for v in data):
            held.update(v for v in flat.outputs_of(node) if graph.is_float32(v))
    return held
