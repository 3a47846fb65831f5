"""The outliers of all values, in one sweep in execution order; see `Outliers`.

They begin at constants that have a few large columns. In most models none has, and then a sweep
only looks at constants: a sample of the rows of a long one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import reduce

import numpy as np

from amp_rewrite.graph.dataflow import TypeGraph
from amp_rewrite.graph.flat import ABSENT, Array
from amp_rewrite.graph.streams import Stream
from amp_rewrite.values.inner_sums import inner_sum, terms_of
from amp_rewrite.values.intervals.operation import Operation
from amp_rewrite.values.intervals.propagate import Intervals
from amp_rewrite.values.magnitudes.channel import (
    FEWEST,
    Channel,
    LargeChannels,
    largest_of,
    outliers_of_rows,
)
from amp_rewrite.values.magnitudes.estimate import Estimate
from amp_rewrite.values.magnitudes.estimates import Estimates
from amp_rewrite.values.magnitudes.outlier_rules import CONTRIBUTED, RULES
from amp_rewrite.values.sweep import Sweep, rules_of

_RULES = {"": RULES, "com.microsoft": CONTRIBUTED}
"""Domain -> operator -> its rule."""

_SAMPLE, _RUNS = 1 << 16, 8
"""How many elements are read of a long constant, in how many runs of rows."""

_LONGEST = 1 << 14
"""The most channels that are looked at: logits have more, and an argument of Softmax is none."""

_WHOLE = 1 << 22
"""Elements of the longest constant that is read whole."""


class Outliers(Sweep[LargeChannels | None]):
    """The outliers of a model's values: `outliers[v]` is None where none is known."""

    def __init__(
        self, type_graph: TypeGraph, intervals: Intervals, estimates: Estimates, mask: float
    ) -> None:
        """Know nothing yet; constants that reach `mask` are masks or clamps."""
        super().__init__(type_graph)
        self.intervals, self._estimates, self._mask = intervals, estimates, mask
        self._known: dict[int, LargeChannels | None] = {ABSENT: None}
        self._rules, self._holds_graphs = rules_of(self.flat, _RULES)
        self._sums = [inner_sum(called) for called in self.flat.operators]

    def __getitem__(self, value: int) -> LargeChannels | None:
        """Return the outliers of a value."""
        if value not in self._known:
            self.sweep_up_to(value)
        return self._of(value)

    def peak(self, value: int) -> float:
        """Return the likely largest magnitude of the outliers of a value; 0 if it has none."""
        large = self[value]
        return 0.0 if large is None else large.peak

    def total_peak(self, terms: Iterable[int]) -> float:
        """Return the same of a sum of values."""
        large = self._total(terms)
        return 0.0 if large is None else large.peak

    def partial_sum(self, x: int, weight: int) -> float:
        """Return what partial sums of outliers times a constant matrix reach; 0 if none does."""
        large = self[x]
        rows = None if large is None else self.rows(weight, [*large.channels])
        if large is None or rows is None:
            return 0.0
        peaks = np.array([channel.peak for channel in large.channels.values()])
        return float((peaks @ np.abs(rows)).max(initial=0.0))

    def estimate(self, value: int) -> Estimate | None:
        """Return what all elements of a value are like."""
        return self._estimates[value]

    def matrix(self, value: int) -> Array | None:
        """Return a constant matrix that is not too long; None for anything else."""
        length = self._row_length(value)
        stream = None if length is None else self.intervals.stream(value)
        if stream is None or length is None or not 0 < stream.count <= _WHOLE:
            return None
        return np.concatenate([*stream.at_hand().blocks()]).reshape(-1, length)

    def rows(self, value: int, numbers: Sequence[int]) -> Array | None:
        """Return some rows of a constant matrix; None for anything else."""
        length, stream = self._row_length(value), self.intervals.stream(value)
        shape = self.intervals.shape(value)
        if length is None or stream is None or shape is None or len(shape) != 2:
            return None
        if (max(numbers) + 1) * length > stream.count:
            return None
        held = stream.at_hand()
        return np.stack([np.concatenate([*held.blocks(n * length, length)]) for n in numbers])

    def sweep(self, nodes: Iterable[int]) -> None:
        """Learn what nodes make."""
        large_of, flat = self._known, self.flat
        for node in nodes:
            number = flat.operator[node]
            rule = self._rules[number]
            if rule is None:
                if self._holds_graphs[number]:
                    self.control(node)
                continue
            inputs = flat.inputs_of(node)
            operands = [large_of[v] if v in large_of else self._of(v) for v in inputs]
            outputs = flat.outputs_of(node)
            if self._may_have(number, operands) and self.is_complete(node):
                large = rule(Operation(self.intervals, node, inputs), operands, self)
                large_of[outputs[0]] = self._clamped(outputs[0], large)
            inside = self._sums[number]
            if inside is not None and len(outputs) > inside.output:
                large_of[outputs[inside.output]] = self._total(terms_of(flat, node, inside))

    def _may_have(self, number: int, operands: Sequence[LargeChannels | None]) -> bool:
        """Tell whether a node of an operator may make outliers of what it is given."""
        # operators: those that look at their weights themselves.
        asks = self.flat.operators[number].op_type in ("Gemm", "MatMulNBits", "Transpose")
        return asks or any(large is not None for large in operands)

    def learn(self, value: int, fact: LargeChannels | None) -> None:
        """Take note of outliers that no rule makes."""
        self._known[value] = fact

    def joined(self, parts: Sequence[LargeChannels | None]) -> LargeChannels | None:
        """Return the outliers of elements that come from several values; loops turn once."""
        present = [part for part in parts if part is not None]
        if not present or len({part.length for part in present}) > 1:
            return None
        channels: dict[int, Channel] = {}
        for number, channel in (item for part in present for item in part.channels.items()):
            if number not in channels or channel.peak > channels[number].peak:
                channels[number] = channel
        return largest_of(present[0].length, channels)

    def _total(self, terms: Iterable[int]) -> LargeChannels | None:
        """Return the outliers of a sum."""
        pairs = [(self[term], self._estimates[term]) for term in terms]
        present = [large for large, _ in pairs if large is not None]
        if not present or len({large.length for large in present}) > 1:
            return None
        channels: dict[int, Channel] = {}
        for number in {n for large in present for n in large.channels}:
            parts = (_channel(large, estimate, number) for large, estimate in pairs)
            channels[number] = reduce(Channel.plus, [part for part in parts if part is not None])
        return largest_of(present[0].length, channels)

    def _clamped(self, value: int, large: LargeChannels | None) -> LargeChannels | None:
        """Return outliers that are not beyond what is certain."""
        bound = self.intervals[value].magnitude
        if large is None or large.peak <= bound:
            return large
        return LargeChannels(large.length, {k: c.below(bound) for k, c in large.channels.items()})

    def _of(self, value: int) -> LargeChannels | None:
        """Return the outliers of a value that was swept, or that no node makes."""
        if value not in self._known:
            self._known[value] = self._constant(value)
        return self._known[value]

    def _constant(self, value: int) -> LargeChannels | None:
        """Return the outliers of a constant; None for anything else, and for a mask."""
        length, stream = self._row_length(value), self.intervals.stream(value)
        if length is None or stream is None or not FEWEST <= length <= _LONGEST:
            return None
        count = stream.count // length
        if not count or count * length != stream.count:
            return None
        rows = _sampled(stream.at_hand(), count, length)
        if not np.isfinite(rows).all() or np.abs(rows).max(initial=0.0) >= self._mask:
            return None
        return outliers_of_rows(rows)

    def _row_length(self, value: int) -> int | None:
        """Return the length of a constant's last axis, if it is known."""
        if self.flat.producer[value] != ABSENT and self.intervals.stream(value) is None:
            return None
        shape = self.intervals.shape(value)
        return shape[-1] if shape else None


def _sampled(stream: Stream, count: int, length: int) -> Array:
    """Return rows of a constant, all of them if it is short: (rows, length)."""
    if stream.count <= _SAMPLE:
        return np.concatenate([*stream.blocks()]).reshape(-1, length)
    run = max(1, math.ceil(_SAMPLE / length / _RUNS))
    starts = np.linspace(0, max(count - run, 0), min(_RUNS, count), dtype=np.int64)
    taken = min(run, count) * length
    blocks = [b for s in starts.tolist() for b in stream.blocks(s * length, taken)]
    return np.concatenate(blocks).reshape(-1, length)


def _channel(large: LargeChannels | None, estimate: Estimate | None, number: int) -> Channel | None:
    if large is not None and number in large.channels:
        return large.channels[number]
    return None if estimate is None else Channel.like(estimate)
