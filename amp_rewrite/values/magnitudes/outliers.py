"""The outliers of all values, in one sweep in execution order; see `Outliers`.

They begin at constants that have a few large columns: in most models none has. One rule an operator
says how outliers go through it; what has none makes none. The result of a norm has the outliers of
its scale.

Evidence: a Llama of 8 layers with a channel times 300,000, float16: its stream is infinite without
them, finite with them (docs/measured.md, Streams beyond float16).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import reduce

import numpy as np

from amp_rewrite.graph.dataflow import TypeGraph
from amp_rewrite.graph.flat import ABSENT, Array
from amp_rewrite.graph.streams import Stream
from amp_rewrite.values.intervals.operation import Operation
from amp_rewrite.values.intervals.propagate import Intervals
from amp_rewrite.values.magnitudes import estimate as e
from amp_rewrite.values.magnitudes.estimate import (
    DOUBT,
    FEWEST,
    PEAK,
    Channel,
    Estimate,
    LargeChannels,
    largest_of,
    outliers_of_rows,
)
from amp_rewrite.values.magnitudes.estimate_rules import RECTIFIED
from amp_rewrite.values.magnitudes.estimates import Estimates, RuledSweep

Given = Sequence[LargeChannels | None]

_SAMPLE, _RUNS = 1 << 16, 8
"""How many elements are read of a long constant, in how many runs of rows."""

_LONGEST = 1 << 14
"""The most channels that are looked at: logits have more, and an argument of Softmax is none."""

_WHOLE = 1 << 22
"""Elements of the longest constant that is read whole."""

_OF_BITS = 0.2
"""The size of numbers of b bits in blocks that are scaled by their largest, in units of 2^b."""


class Outliers(RuledSweep[LargeChannels, "OutlierRule"]):
    """The outliers of a model's values: `outliers[v]` is None where none is known."""

    def __init__(
        self, type_graph: TypeGraph, intervals: Intervals, estimates: Estimates, mask: float
    ) -> None:
        """Know nothing yet; constants that reach `mask` are masks or clamps."""
        super().__init__(type_graph, intervals, _RULES)
        self._estimates, self._mask = estimates, mask

    def peak(self, value: int) -> float:
        """Return the likely largest magnitude of the outliers of a value; 0 if it has none."""
        large = self[value]
        return 0.0 if large is None else large.peak

    def total_peak(self, terms: Iterable[int]) -> float:
        """Return the same of a sum of values."""
        large = self.total(terms)
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

    def apply(self, node: int, rule: OutlierRule, operands: Given) -> None:
        """Learn what a node makes."""
        if self._may_have(self.flat.operator[node], operands) and self.is_complete(node):
            op = Operation(self.intervals, node)
            self.known[op.output] = self._clamped(op.output, rule(op, operands, self))

    def _may_have(self, number: int, operands: Given) -> bool:
        """Tell whether a node of an operator may make outliers of what it is given."""
        # operators: those that look at their weights themselves.
        asks = self.flat.operators[number].op_type in ("Gemm", "MatMulNBits", "Transpose")
        return asks or any(large is not None for large in operands)

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

    def total(self, terms: Iterable[int]) -> LargeChannels | None:
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

    def source(self, value: int) -> LargeChannels | None:
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
    """Return what a channel of a value is like, as all of it is where it is no outlier."""
    if large is not None and number in large.channels:
        return large.channels[number]
    return None if estimate is None else Channel.like(estimate)


OutlierRule = Callable[[Operation, Given, Outliers], LargeChannels | None]
"""The outliers of a node's first result from those of its inputs."""


def _each(
    function: Callable[..., Channel | None], *indices: int, some: bool = False
) -> OutlierRule:
    """Make the rule of an operator that computes each channel of the same channel of its inputs."""

    def rule(op: Operation, operands: Given, facts: Outliers) -> LargeChannels | None:
        chosen = [k for k in indices or range(len(operands)) if op.has(k)]
        held = [large for k in chosen if (large := operands[k]) is not None]
        if not held or len({large.length for large in held}) > 1:
            return None
        channels: dict[int, Channel] = {}
        for number in {n: None for large in held for n in large.channels}:
            parts = [_channel(operands[k], facts.estimate(op.inputs[k]), number) for k in chosen]
            channel = function(op, *parts) if some or None not in parts else None
            if channel is not None:
                channels[number] = channel
        return largest_of(held[0].length, channels)

    return rule


def _sum(op: Operation, *parts: Channel | None) -> Channel | None:
    """Add what is known: estimates are to fall short of the truth."""
    present = [part for part in parts if part is not None]
    return reduce(Channel.plus, present) if present else None


def _add(op: Operation, *parts: Channel | None) -> Channel | None:
    a = parts[0]
    if a is not None and op.reads_one_value:
        return Channel(2 * a.mean, 2 * a.spread, 2 * a.peak)
    return _sum(op, *parts)


def _subtract(op: Operation, a: Channel | None, b: Channel | None) -> Channel | None:
    return _sum(op, a, None if b is None else b._replace(mean=-b.mean))


def _multiply(op: Operation, a: Channel, b: Channel) -> Channel:
    return _squared(a) if op.reads_one_value else a.times(b)


def _squared(a: Channel) -> Channel:
    square = e.squared(a.estimate)
    return Channel(square.mean, square.spread, a.peak**2)


def _divide(op: Operation, a: Channel, b: Channel) -> Channel | None:
    return Channel(a.mean / b.size, a.spread / b.size, a.peak / b.size) if b.size else None


def _power(op: Operation, base: Channel) -> Channel | None:
    exponent = op.of(1)
    if not exponent.is_point or not 0 < exponent.low <= 8:
        return None
    if exponent.low == 2:
        return _squared(base)
    size = base.size**exponent.low
    return Channel(size / 2, size / 2, base.peak**exponent.low)


def _rectify(op: Operation, a: Channel) -> Channel:
    rectified = a.estimate.rectified()
    return Channel(rectified.mean, rectified.spread, a.peak)


def _rectify_sum(op: Operation, *parts: Channel | None) -> Channel | None:
    biased = _sum(op, *parts)
    return None if biased is None else _rectify(op, biased)


def _root(op: Operation, a: Channel) -> Channel:
    size = math.sqrt(a.size)
    return Channel(size, size / 2, math.sqrt(a.peak))


def _larger(op: Operation, *parts: Channel | None) -> Channel | None:
    """Return the largest of the channels of which elements are chosen."""
    return max((p for p in parts if p is not None), key=lambda p: p.peak, default=None)


def _moved(op: Operation, operands: Given, facts: Outliers) -> LargeChannels | None:
    """Hand on the outliers of what is moved, if its last axis stays."""
    large, shape = operands[0], op.known.shape(op.output)
    return large if large is not None and shape and shape[-1] == large.length else None


def _gathered(op: Operation, operands: Given, facts: Outliers) -> LargeChannels | None:
    """Hand on the outliers of a table of which rows are taken."""
    shape = op.shape(0)
    is_last = shape is None or op.attribute("axis", 0) in (-1, len(shape) - 1)
    return None if is_last else operands[0]


def _turned(op: Operation, operands: Given, facts: Outliers) -> LargeChannels | None:
    """Hand on what stays in its place; a constant matrix, as exporters turn it, is looked at."""
    order, shape = op.attribute("perm"), op.shape(0)
    if order and order[-1] == len(order) - 1:
        return operands[0]
    matrix = facts.matrix(op.inputs[0]) if shape is not None and len(shape) == 2 else None
    return None if matrix is None else outliers_of_rows(matrix.T)


def _joined(op: Operation, operands: Given, facts: Outliers) -> LargeChannels | None:
    """Join what is not put side by side along the channels."""
    shape = op.known.shape(op.output)
    is_last = shape is None or op.attribute("axis", 0) in (-1, len(shape) - 1)
    return None if is_last else _each(_larger, some=True)(op, operands, facts)


def _product(
    op: Operation, x: LargeChannels | None, weight: LargeChannels | None, facts: Outliers
) -> LargeChannels | None:
    """Return the outliers of a matrix product: those of its weight, and what those of x become."""
    typical, channels, terms = facts.estimate(op.inputs[0]), dict[int, Channel](), op.terms
    if weight is not None and typical is not None and terms:
        for number, column in weight.channels.items():
            mean = terms * typical.mean * column.mean
            channels[number] = Channel.of(
                mean, math.sqrt(terms) * typical.size * column.size / DOUBT
            )
    length = 0 if weight is None else weight.length
    rows = None if x is None else facts.rows(op.inputs[1], [*x.channels])
    if x is not None and rows is not None:
        length = rows.shape[1]
        for number, channel in _mapped([*x.channels.values()], rows).items():
            before = channels.get(number)
            channels[number] = channel if before is None else before.plus(channel)
    return largest_of(length, channels)


def _mapped(channels: Sequence[Channel], rows: Array) -> dict[int, Channel]:
    """Return the largest of the results of channels times the rows of a matrix."""
    means = np.array([c.mean for c in channels]) @ rows
    spreads = np.sqrt(np.array([c.spread**2 for c in channels]) @ np.square(rows))
    top = np.argsort(-(np.abs(means) + PEAK * spreads), kind="stable")[: len(channels)]
    return {int(n): Channel.of(float(means[n]), float(spreads[n])) for n in top}


def _gemm(op: Operation, operands: Given, facts: Outliers) -> LargeChannels | None:
    if op.attribute("transA", 0):
        return None
    x, weight = operands[:2]
    if op.attribute("transB", 0):
        matrix, x = facts.matrix(op.inputs[1]), None
        weight = None if matrix is None else outliers_of_rows(matrix.T)
    product = _product(op, x, weight, facts)
    bias = operands[2] if op.has(2) else None
    if product is None or bias is None:
        return product if bias is None else bias
    if product.length != bias.length:
        return product
    both = {**product.channels, **bias.channels}
    for number in product.channels.keys() & bias.channels.keys():
        both[number] = product.channels[number].plus(bias.channels[number])
    return largest_of(product.length, both)


def _in_blocks(op: Operation, operands: Given, facts: Outliers) -> LargeChannels | None:
    """Multiply by numbers of a few bits in blocks, each with a scale: (outputs x blocks)."""
    outputs, scales = op.attribute("N", 0), op.array(2)
    if scales is None or not outputs or scales.size % outputs:
        return None
    factor = _OF_BITS * 2.0 ** op.attribute("bits", 4)
    weight = outliers_of_rows(scales.reshape(outputs, -1).T, factor=factor)
    return _product(op, None, weight, facts)


def _dequantize(op: Operation, operands: Given, facts: Outliers) -> LargeChannels | None:
    shape = op.shape(0)
    is_last = shape is not None and op.attribute("axis", 1) in (-1, len(shape) - 1)
    return _each(_multiply, 0, 1)(op, operands, facts) if is_last else None


def _norm(scale: int = 1, bias: int | None = 2) -> OutlierRule:
    """Make the rule of a norm: numbers of size 1 times a scale, and a bias."""

    def scaled(op: Operation, factor: Channel | None, *added: Channel | None) -> Channel | None:
        return _sum(op, None if factor is None else Channel.of(0.0, factor.size), *added)

    return _each(scaled, scale, *(() if bias is None else (bias,)), some=True)


def _table(*rows: tuple[str, OutlierRule]) -> Mapping[str, OutlierRule]:
    return {name: rule for names, rule in rows for name in names.split()}


# operators: those through which outliers go.
RULES: Mapping[str, OutlierRule] = _table(
    ("Cast CastLike Clip Dropout Identity", _each(lambda _, a: a, 0)),
    (RECTIFIED, _each(_rectify, 0)),
    ("Expand Flatten Reshape Slice Squeeze Unsqueeze", _moved),
    ("Max Min Mean", _each(_larger, some=True)),
    ("Where", _each(_larger, 1, 2, some=True)),
    ("InstanceNormalization LayerNormalization SimplifiedLayerNormalization", _norm()),
    ("RMSNormalization", _norm(bias=None)),
    ("Abs", _each(lambda _, a: Channel(a.size, a.spread, a.peak))),
    ("Add", _each(_add, some=True)),
    ("Concat", _joined),
    ("DequantizeLinear", _dequantize),
    ("Div", _each(_divide)),
    ("Gather", _gathered),
    ("Gemm", _gemm),
    ("MatMul", lambda op, operands, facts: _product(op, operands[0], operands[1], facts)),
    ("Mul", _each(_multiply)),
    ("Neg", _each(lambda _, a: a._replace(mean=-a.mean))),
    ("Pow", _each(_power, 0)),
    ("Sqrt", _each(_root)),
    ("Sub", _each(_subtract, some=True)),
    ("Sum", _each(_sum, some=True)),
    ("Transpose", _turned),
)
"""Operator of ai.onnx -> its rule."""

# operators: the same of com.microsoft.
CONTRIBUTED: Mapping[str, OutlierRule] = _table(
    ("BiasAdd", _each(_sum, some=True)),
    ("BiasGelu FastGelu", _each(_rectify_sum, some=True)),
    ("DequantizeLinear", _dequantize),
    ("Gelu QuickGelu", _each(_rectify, 0)),
    ("MatMulNBits", _in_blocks),
    ("SkipLayerNormalization", _norm(2, 3)),
    ("SkipSimplifiedLayerNormalization", _norm(2, None)),
)
"""Operator of com.microsoft -> its rule."""

_RULES = {"": RULES, "com.microsoft": CONTRIBUTED}
"""Domain -> operator -> its rule."""
