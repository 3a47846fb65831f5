"""Estimates of all values, in one sweep in execution order; see `Estimates`.

The sweep goes as far as the values that are asked for, and asks a rule once for each case: what
intervals tell of a node (`Intervals.case`), and the estimates of its inputs.

Evidence for `_holds_bytes`: behind x / 58.5 a 3 x 3 convolution with weights of 900 reaches 70,000
on images of three channels. It stays float32 with it, and is float16 without a word without.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from typing import Generic, TypeVar

import numpy as np

from amp_rewrite.graph.constants import is_constant, moved_elements
from amp_rewrite.graph.dataflow import TypeGraph
from amp_rewrite.graph.elements import FLOAT32_TYPES, FLOAT_TYPES
from amp_rewrite.graph.flat import ABSENT, MAIN, Array, FlatGraph
from amp_rewrite.graph.traits import Trait, has, is_one, operator
from amp_rewrite.values.intervals.interval import Interval, between
from amp_rewrite.values.intervals.operation import Operation
from amp_rewrite.values.intervals.propagate import Intervals
from amp_rewrite.values.intervals.row_sums import Layout
from amp_rewrite.values.magnitudes import estimate as e
from amp_rewrite.values.magnitudes.estimate import Estimate, WeightRows, long_rows, mixed, of_bounds
from amp_rewrite.values.magnitudes.estimate_rules import (
    CONTRIBUTED,
    FREE,
    RULES,
    EstimateRule,
    Given,
)
from amp_rewrite.values.sum_lengths import inner_sum, terms_of
from amp_rewrite.values.sweep import Sweep, rules_of

_RULES = {"": RULES, "com.microsoft": CONTRIBUTED}
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

_ONE_NUMBER = 2.0**-6
"""How wide an interval is, of its middle, in which every element is one number that was rounded."""

_MOST_EXACT = 1 << 18
"""Elements of the largest weight whose rows are measured; of longer ones a sample, or blocks."""

_TOPS = (255.0, 256.0, 127.5, 128.0, 65025.0, 65536.0)
_MEANS = (100.0, 130.0)
_DEVIATIONS = (55.0, 75.0)
"""The divisor of bytes, and where the means and the deviations of images lie."""

_STEPS, _MOST = 6, 16
"""How many nodes behind an input are looked at, and how many numbers a constant has at most."""

# operators: those that normalise with a constant.
_NORMALISING = frozenset({"Add", "Div", "Mul", "Sub"})

F = TypeVar("F")
Rule = TypeVar("Rule")


class RuledSweep(Sweep[F | None], Generic[F, Rule]):
    """A rule for each operator, by what is known of its operands."""

    def __init__(
        self, type_graph: TypeGraph, intervals: Intervals, tables: Mapping[str, Mapping[str, Rule]]
    ) -> None:
        """Know nothing yet; `tables` are domain -> operator -> rule."""
        super().__init__(type_graph)
        self.intervals = intervals
        self.known: dict[int, F | None] = {ABSENT: None}
        self._rules, self._holds_graphs = rules_of(self.flat, tables)
        self._sums = [inner_sum(called) for called in self.flat.operators]

    @abstractmethod
    def source(self, value: int) -> F | None:
        """Return what is known of an input or a constant, or of what no rule gave anything."""

    @abstractmethod
    def apply(self, node: int, rule: Rule, operands: Sequence[F | None]) -> None:
        """Learn what a node makes by its rule."""

    @abstractmethod
    def total(self, terms: Iterable[int]) -> F | None:
        """Return what is known of the sum of some values."""

    def __getitem__(self, value: int) -> F | None:
        """Return what is known of a value, or None."""
        if value not in self.known:
            self.sweep_up_to(value)
        return self._of(value)

    def _of(self, value: int) -> F | None:
        """Return what is known of a value that was swept, or that no node makes."""
        if value not in self.known:
            self.known[value] = self.source(value)
        return self.known[value]

    def learn(self, value: int, fact: F | None) -> None:
        """Take note of what no rule makes."""
        self.known[value] = fact

    def sweep(self, nodes: Iterable[int]) -> None:
        """Learn what nodes make."""
        known, flat = self.known, self.flat
        for node in nodes:
            number = flat.operator[node]
            rule = self._rules[number]
            if rule is None:
                if self._holds_graphs[number]:
                    self.control(node)
                continue
            read = flat.inputs_of(node)
            self.apply(node, rule, [known[v] if v in known else self._of(v) for v in read])
            inside = self._sums[number]
            if inside is not None and len(outputs := flat.outputs_of(node)) > inside.output:
                known[outputs[inside.output]] = self.total(terms_of(flat, node, inside))


class Estimates(RuledSweep[Estimate, EstimateRule]):
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
        """Know nothing yet."""
        super().__init__(type_graph, intervals, _RULES)
        self._variables = variables
        self._normalised = FLOAT_TYPES if low_inputs else FLOAT32_TYPES
        self._found: dict[tuple[int, tuple[Estimate | None, ...]], Estimate | None] = {}
        self._rows: dict[tuple[int, Layout], WeightRows | None] = {}
        self._alike = [called.op_type == "Split" for called in self.flat.operators]

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

    def rows(
        self, op: Operation, index: int, layout: Layout, terms: int | None = None
    ) -> WeightRows | None:
        """Return the rows of a constant operand: exact ones of a short one, else like a sample."""
        if not op.has(index):
            return None
        key = op.inputs[index], layout
        if key not in self._rows:
            self._rows[key] = self._measured(op, index, layout, terms)
        return self._rows[key]

    def _measured(
        self, op: Operation, index: int, layout: Layout, length: int | None
    ) -> WeightRows | None:
        array, value = op.array(index), op.inputs[index]
        if array is not None and 0 < array.size <= _MOST_EXACT:
            return WeightRows.of(layout(array))
        sample, shape = self.sample(value), op.shape(index)
        if shape is None:
            return None
        terms = float(length or op.terms or FREE)
        if sample is not None and sample.size:
            rows = WeightRows.sampled(sample.astype(np.float64), terms)
            return long_rows(rows, self.intervals.stream(value), shape, layout)
        held = op.of(index)
        middle = held.low / 2 + held.high / 2
        if not held.high - held.low <= _ONE_NUMBER * abs(middle):
            return None
        return WeightRows(terms * middle, 0.0, terms * middle**2)

    def apply(self, node: int, rule: EstimateRule, operands: Given) -> None:
        """Learn what a node makes; the rule is asked where a case is new."""
        outputs, given = self.flat.outputs_of(node), tuple(operands)
        case = self.intervals.case(node), given
        if case not in self._found:
            op = Operation(self.intervals, node)
            result = rule(op, given, self) if self.is_complete(node) else None
            self._found[case] = self._clamped(outputs[0], result)
        for value in outputs if self._alike[self.flat.operator[node]] else outputs[:1]:
            self.known[value] = self._found[case]

    def total(self, terms: Iterable[int]) -> Estimate | None:
        """Return the estimate of a sum of those terms of which something is known."""
        present = [estimate for estimate in (self[term] for term in terms) if estimate is not None]
        return reduce(e.add, present) if present else None

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

    def source(self, value: int) -> Estimate | None:
        """Return the estimate of an input or a constant, or of what no rule gave any."""
        if value in self._variables:
            return None
        sample, bounds = self.sample(value), self.intervals[value]
        if sample is not None:
            return _of_sample(sample)
        is_input = self.flat.is_input(value) and self.flat.home[value] == MAIN
        if is_input and self.type_graph.types[value] in self._normalised:
            if not bounds.is_bounded and _holds_bytes(self.flat, value):
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


def _holds_bytes(flat: FlatGraph, value: int) -> bool:
    """Tell whether constants say that an input holds images of bytes: the first arithmetic does.

    x / 255, (x - 123.675) / 58.395 or x^2 / 65025 say that x goes up to 255, and estimates may
    start from that. Nothing is proved: bounds do not know of it.
    """
    waiting = [value]
    for _ in range(_STEPS):
        if not waiting:
            return False
        nodes = [n for v in waiting for n in dict.fromkeys(flat.readers(v))]
        waiting = []
        for node in nodes:
            called = flat.called(node)
            if operator(called) in _NORMALISING and _normalises_bytes(flat, node):
                return True
            squares = is_one(called, "Mul") and len({*flat.inputs_of(node)}) == 1
            if squares or is_one(called, "Pow") or has(called, Trait.MOVES, Trait.CASTS):
                waiting += flat.outputs_of(node)
    return False


def _normalises_bytes(flat: FlatGraph, node: int) -> bool:
    first, second = flat.inputs_of(node)[:2]
    numbers = moved_elements(flat, second if is_constant(flat, second) else first)
    if numbers is None or not 0 < numbers.size <= _MOST or not numbers.all():
        return False
    held, op = numbers.astype(np.float64).reshape(-1), flat.called(node).op_type
    if op in ("Sub", "Add"):  # operators: what takes a mean away
        return _between(held if op == "Sub" else -held, _MEANS)
    divisors = held if op == "Div" else 1 / held
    is_top = bool(np.isclose(divisors[:, None], _TOPS, rtol=1e-4).any(1).all())
    return is_top or _between(divisors, _DEVIATIONS)


def _between(size: Array, ends: tuple[float, float]) -> bool:
    return bool((size >= ends[0]).all() and (size <= ends[1]).all())
