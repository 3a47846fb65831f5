"""What is known of the numbers that a model's values hold: statistics, bounds and estimates."""

from __future__ import annotations

import math
from collections.abc import Container, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from amp_rewrite.dtypes import DType
from amp_rewrite.graph.constants import constant_tensor
from amp_rewrite.graph.dataflow import TypeGraph
from amp_rewrite.graph.flat import Tensor
from amp_rewrite.rewriting.paint.beyond_range import (
    Beyond,
    beyond_inside,
    beyond_range,
    beyond_sums,
    may_leave_range,
)
from amp_rewrite.values.intervals.interval import Interval
from amp_rewrite.values.intervals.propagate import Intervals, intervals_of
from amp_rewrite.values.magnitudes.estimates import Estimates, estimates_of
from amp_rewrite.values.magnitudes.outliers import Outliers
from amp_rewrite.values.weight_stats import MeasuredConstants, WeightStats


@dataclass(frozen=True)
class ValueFacts:
    """Facts that no painting changes; each is found when it is first asked for.

    Attributes:
        type_graph: The float32 dataflow.
        low: The low-precision type.
        inputs: Graph input -> what the user says of its elements.
        variables: Graph inputs that are training variables: nothing is known of their elements.
        measured: The statistics of the constants looked at.
        low_inputs: Whether graph inputs in 16 bits are taken to be normalised, as float32 ones are.
        fits: Whether all numbers are taken to be in the range of the low type, so that a painting
            tells what would be low if they were.
    """

    type_graph: TypeGraph
    low: DType
    inputs: Mapping[int, Interval] = field(default_factory=dict[int, Interval])
    variables: frozenset[int] = frozenset()
    measured: MeasuredConstants = field(default_factory=MeasuredConstants, repr=False)
    low_inputs: bool = False
    fits: bool = False

    @cached_property
    def intervals(self) -> Intervals:
        """What the elements of every value are bound to be."""
        return intervals_of(self.type_graph, self.measured, self.inputs)

    @cached_property
    def estimates(self) -> Estimates:
        """How large the elements of every value are likely to be."""
        facts = self.type_graph, self.intervals, self.variables
        return estimates_of(*facts, low_inputs=self.low_inputs)

    @cached_property
    def outliers(self) -> Outliers:
        """Which channels of every value are likely to be far larger than its others."""
        return Outliers(self.type_graph, self.intervals, self.estimates, self.low.overflow)

    @cached_property
    def beyond(self) -> Mapping[int, Beyond]:
        """The values that leave the range of the low type, for certain or by an estimate."""
        if self.fits or not may_leave_range(self.low):
            return {}
        return beyond_range(
            self.type_graph, self.intervals, self.estimates, self.outliers, self.low
        )

    @cached_property
    def beyond_inside(self) -> Mapping[int, Beyond]:
        """The nodes with a sum inside that leaves the range, for certain or by an estimate."""
        if self.fits or not may_leave_range(self.low):
            return {}
        return beyond_inside(
            self.type_graph, self.intervals, self.estimates, self.outliers, self.low
        )

    def beyond_sums(self, adds_low: Container[tuple[str, str]]) -> Mapping[int, Beyond]:
        """Return the products of operators whose partial sums are likely to leave the range."""
        if self.fits or not adds_low or not may_leave_range(self.low):
            return {}
        return beyond_sums(self.type_graph, self.outliers, adds_low, self.low)

    def fitting(self) -> ValueFacts:
        """Return the facts of which all numbers are taken to be in the range."""
        found = replace(self, fits=True)
        known = {n: getattr(self, n) for n in ("intervals", "estimates", "outliers")}
        vars(found).update(known)
        return found

    def magnitude(self, value: int) -> float:
        """Return what no element of a value exceeds; a constant is measured, not read again."""
        tensor = constant_tensor(self.type_graph, value)
        if tensor is None:
            return self.intervals[value].magnitude
        stats = self.stats(value, tensor)
        return math.inf if stats.infs else stats.max_abs

    def stats(self, value: int, tensor: Tensor) -> WeightStats:
        """Return the statistics of a constant with these contents."""
        return self.measured.stats(value, lambda: self.type_graph.flat.elements(tensor))

    def measure_all(self, tensors: Mapping[int, Tensor]) -> None:
        """Measure some constants, by value, together: `stats` has nothing to do for short ones."""
        elements = self.type_graph.flat.elements
        self.measured.measure_all({value: elements(t) for value, t in tensors.items()})
