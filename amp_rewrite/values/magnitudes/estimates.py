"""Estimates of all values, in one sweep in execution order; see `Estimates`.

The sweep goes as far as the values that are asked for, and asks a rule once for each case: what
intervals tell of a node (`Intervals.case`), and the estimates of its inputs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import reduce

import numpy as np

from amp_rewrite.graph.dataflow import TypeGraph
from amp_rewrite.graph.elements import FLOAT32_TYPES, FLOAT_TYPES
from amp_rewrite.graph.flat import ABSENT, MAIN, Array
from amp_rewrite.graph.streams import Stream
from amp_rewrite.values.inner_sums import inner_sum, terms_of
from amp_rewrite.values.intervals.interval import Interval, between
from amp_rewrite.values.intervals.operation import Operation
from amp_rewrite.values.intervals.propagate import Intervals
from amp_rewrite.values.intervals.row_sums import Layout
from amp_rewrite.values.magnitudes import contributed_rules, estimate_rules
from amp_rewrite.values.magnitudes import estimate as e
from amp_rewrite.values.magnitudes.byte_inputs import holds_bytes
from amp_rewrite.values.magnitudes.estimate import Estimate, WeightRows, mixed, of_bounds
from amp_rewrite.values.sweep import Sweep, rules_of

_RULES = {"": estimate_rules.RULES, "com.microsoft": contributed_rules.RULES}
"""Domain -> operator -> its rule."""

_NORMALISED = Estimate(0.0, 1.0, 1.0)
"""The assumed distribution of inputs of which nothing is known."""

_BYTES = between(0.0, 255.0)
"""The assumed distribution of inputs that a model normalises as images of bytes."""

_MASK = 4096.0
"""Constants from here on are masks or clamps: they say nothing of the size of data."""

_SMALL = 256.0
"""Up to this bound, what has no rule is taken to be spread evenly: bytes, results of Sigmoid."""

_SAMPLES, _SAMPLE = 16, 4096
"""How many runs of how many elements are read of a long constant."""


class Estimates(Sweep[Estimate | None]):
    """How large the elements of every value are likely to be, by the value's number.

    One is computed when it, or one behind it, is asked for. `estimates[v]` is None where nothing is
    known. Inputs are taken to be normalised (mean 0, deviation 1) unless their interval says more.
    """

    def __init__(
        self,
        type_graph: TypeGraph,
        intervals: Intervals,
        variables: frozenset[int] = frozenset(),
        *,
        low_inputs: bool = False,
    ) -> None:
        """Know nothing yet.

        `variables` are graph inputs that are training variables: weights, of which nothing is
        known. `low_inputs` tells whether inputs in 16 bits are normalised, too, or nothing is known
        of them.
        """
        super().__init__(type_graph)
        self.intervals = intervals
        self._variables = variables
        self._normalised = FLOAT_TYPES if low_inputs else FLOAT32_TYPES
        self._known: dict[int, Estimate | None] = {ABSENT: None}
        self._found: dict[tuple[int, tuple[Estimate | None, ...]], Estimate | None] = {}
        self._rows: dict[tuple[int, Layout], WeightRows | None] = {}
        self._alike = [called.op_type == "Split" for called in self.flat.operators]
        self._rules, self._holds_graphs = rules_of(self.flat, _RULES)
        self._sums = [inner_sum(called) for called in self.flat.operators]

    def __getitem__(self, value: int) -> Estimate | None:
        """Return the estimate of a value, or None."""
        if value not in self._known:
            self.sweep_up_to(value)
        return self._of(value)

    def _of(self, value: int) -> Estimate | None:
        """Return the estimate of a value that was swept, or that no node makes."""
        if value not in self._known:
            self._known[value] = self._source(value)
        return self._known[value]

    def sample(self, value: int) -> Array | None:
        """Return elements of a constant, all of them if it is short; None for what is none."""
        array = self.intervals.array(value)
        if array is not None:
            return array.reshape(-1)
        stream = self.intervals.stream(value)
        if stream is None:
            return None
        stream = stream.at_hand()
        starts = np.linspace(0, max(stream.count - _SAMPLE, 0), _SAMPLES, dtype=np.int64)
        runs = [b for s in starts for b in stream.blocks(int(s), min(_SAMPLE, stream.count))]
        return np.concatenate(runs) if runs else None

    def stream(self, value: int) -> Stream | None:
        """Return the elements of a float32 constant of any length; None for what is none."""
        return self.intervals.stream(value)

    def rows(
        self, value: int, layout: Layout, make: Callable[[], WeightRows | None]
    ) -> WeightRows | None:
        """Return what the rows of a constant are like, made when first asked for."""
        key = value, layout
        if key not in self._rows:
            self._rows[key] = make()
        return self._rows[key]

    def sweep(self, nodes: Iterable[int]) -> None:
        """Learn what nodes make; a rule is asked where a case is new."""
        estimate_of = self._known
        for node in nodes:
            operator = self.flat.operator[node]
            rule = self._rules[operator]
            if rule is None:
                if self._holds_graphs[operator]:
                    self.control(node)
                continue
            outputs, inputs = self.flat.outputs_of(node), self.flat.inputs_of(node)
            operands = tuple([estimate_of[v] if v in estimate_of else self._of(v) for v in inputs])
            case = self.intervals.case(node), operands
            if case not in self._found:
                op, is_complete = Operation(self.intervals, node, inputs), self.is_complete(node)
                result = rule(op, operands, self) if is_complete else None
                self._found[case] = self._clamped(outputs[0], result)
            for value in outputs if self._alike[operator] else outputs[:1]:
                estimate_of[value] = self._found[case]
            inside = self._sums[operator]
            if inside is not None and len(outputs) > inside.output:
                total = self.total(terms_of(self.flat, node, inside))
                estimate_of[outputs[inside.output]] = self._clamped(outputs[inside.output], total)

    def total(self, terms: Iterable[int]) -> Estimate | None:
        """Return the estimate of a sum of those terms of which something is known."""
        present = [estimate for estimate in (self[term] for term in terms) if estimate is not None]
        return reduce(e.add, present) if present else None

    def learn(self, value: int, fact: Estimate | None) -> None:
        """Take note of an estimate that no rule makes."""
        self._known[value] = fact

    def joined(self, parts: Sequence[Estimate | None]) -> Estimate | None:
        """Return the estimate of elements that come from several values; loops turn once."""
        present = [part for part in parts if part is not None]
        return mixed(*present) if len(present) > 1 else next(iter(present), None)

    def _clamped(self, value: int, estimate: Estimate | None) -> Estimate | None:
        """Return an estimate that leaves no room beyond what is certain."""
        low, high, *_ = bounds = self.intervals[value]
        if estimate is None or not estimate.size < math.inf:
            return self._of_bounds(bounds)
        if low == -math.inf or high == math.inf:
            return estimate
        mean, spread = min(max(estimate.mean, low), high), min(estimate.spread, (high - low) / 2)
        most = bounds.magnitude
        row, column = min(estimate.row, most), min(estimate.column, most)
        return Estimate(mean, spread, estimate.degree, row, column)

    def _of_bounds(self, bounds: Interval) -> Estimate | None:
        return of_bounds(bounds) if bounds.magnitude <= _SMALL else None

    def _source(self, value: int) -> Estimate | None:
        """Return the estimate of an input or a constant, or of what no rule gave any."""
        if value in self._variables:
            return None
        sample, bounds = self.sample(value), self.intervals[value]
        if sample is not None:
            return _of_sample(sample)
        is_input = self.flat.is_input(value) and self.flat.home[value] == MAIN
        if is_input and self.type_graph.types[value] in self._normalised:
            if not bounds.is_bounded and holds_bytes(self.flat, value):
                return of_bounds(_BYTES)
            return of_bounds(bounds) if bounds.is_bounded else _NORMALISED
        return self._of_bounds(bounds)


def _of_sample(sample: Array) -> Estimate | None:
    """Return mean and deviation of a constant; None for one that is a mask."""
    if sample.dtype.kind in "cOUS" or not sample.size:
        return None
    elements = sample.astype(np.float64)
    if not np.isfinite(elements).all() or np.abs(elements).max() >= _MASK:
        return None
    return Estimate(float(elements.mean()), float(elements.std()))
