"""Shapes, indices and counts: bounded by what they are.

Evidence: a quotient by a length that Shape gives, as exporters write it in attention, stays
float32 without the rule of Shape, and is 16-bit with it
(tests/rewriting/paint/passes/test_keep_demands.py).
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from amp_rewrite.graph.sizes import product_of
from amp_rewrite.values.intervals import interval as i
from amp_rewrite.values.intervals.interval import Interval
from amp_rewrite.values.intervals.operation import Operation, Rule, within


def _shape(op: Operation) -> Interval:
    """Bound the lengths of axes; free ones are any number."""
    shape = op.shape(0)
    if shape is None:
        return i.NOT_NEGATIVE
    lengths = shape[slice(op.attribute("start", 0), op.attribute("end"))]
    return i.union(*map(_number, lengths)) if lengths else i.ZERO


def _number(length: int | None) -> Interval:
    return i.NOT_NEGATIVE if length is None else i.point(float(length))


def _range(op: Operation) -> Interval:
    """Bound start + k x delta, which stays between start and limit."""
    start, limit, delta = op.of(0), op.of(1), op.of(2)
    span = i.between(min(start.low, limit.low), max(start.high, limit.high))
    if not (start.is_point and limit.is_point and delta.is_point and delta.low):
        return span
    steps = (limit.low - start.low) / delta.low
    if not math.isfinite(steps):
        return span
    count = math.ceil(steps)
    if count <= 0:
        return i.ZERO
    last = start.low + (count - 1) * delta.low
    ends = i.between(min(start.low, last), max(start.low, last))
    return ends._replace(reach=ends.magnitude)


def _index(op: Operation) -> Interval:
    """Bound an index along an axis."""
    shape, axis = op.shape(0), op.attribute("axis", 0)
    length = shape[axis] if shape and -len(shape) <= axis < len(shape) else None
    return i.NOT_NEGATIVE if length is None else i.between(0.0, float(max(length - 1, 0)))


RULES: Mapping[str, Rule] = {
    "ArgMax": _index,
    "ArgMin": _index,
    "NonZero": within(i.NOT_NEGATIVE),
    "Range": _range,
    "Shape": _shape,
    "Size": lambda op: _number(product_of(op.shape(0))),
}
"""Operator -> what its result is bound to be."""
