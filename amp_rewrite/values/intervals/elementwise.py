"""Arithmetic, element by element.

Evidence: without Clip's rule the paintings of oww_melspec, ppocrv4_det and ppocrv4_rec change;
without those of Add, Mul, Pow, Sub, Neg and Sum both sides of a variance become low
(tests/conformance/test_differences.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import reduce

from amp_rewrite.values.intervals import interval as i
from amp_rewrite.values.intervals.interval import Interval
from amp_rewrite.values.intervals.operation import Operation, Rule


def _first(function: Callable[[Interval], Interval]) -> Rule:
    return lambda op: function(op.of(0))


def _folded(function: Callable[[Interval, Interval], Interval]) -> Rule:
    return lambda op: reduce(function, op.of_all())


def _subtract(op: Operation) -> Interval:
    if op.reads_one_value:
        return i.ZERO
    return i.subtract(op.of(0), op.of(1))


def _multiply(op: Operation) -> Interval:
    if op.reads_one_value:
        return _power(op.of(0), 2)
    return i.multiply(op.of(0), op.of(1))


def _divide(op: Operation) -> Interval:
    quotient = i.divide(op.of(0), op.of(1))
    if not op.known.type_of(op.output).is_integer:
        return quotient
    return i.increasing(math.trunc, quotient) if quotient.is_bounded else i.ANY


def _mean(op: Operation) -> Interval:
    operands = op.of_all()
    return i.scale(reduce(i.add, operands), 1 / len(operands))


def _sqrt(a: Interval) -> Interval:
    low, high = (math.sqrt(max(end, 0.0)) for end in a[:2])
    if a.low < 0:
        return i.between(low, high)  # below zero it is NaN
    return Interval(low, high, math.sqrt(a.away), math.sqrt(a.reach))


def _pow(op: Operation) -> Interval:
    exponent = op.of(1)
    if exponent.is_point and exponent.is_bounded:
        return _power(op.of(0), exponent.low)
    return i.NOT_NEGATIVE if op.of(0).low >= 0 else i.ANY


def _power(base: Interval, exponent: float) -> Interval:
    """Return base ** exponent for one number as exponent; a broken one wants a base from 0 up."""
    if exponent < 0:
        return i.invert(_power(base, -exponent))
    if exponent == 0:
        return i.point(1.0)
    whole = exponent == math.floor(exponent)
    if not whole and base.low < 0:
        base = Interval(max(base.low, 0.0), max(base.high, 0.0))  # below it is NaN
    even = whole and exponent % 2 == 0
    ends = i.absolute(base) if even else base
    away, reach = i.raised(base.away, exponent), i.raised(base.reach, exponent)
    return Interval(i.raised(ends.low, exponent), i.raised(ends.high, exponent), away, reach)


def _clip(op: Operation) -> Interval:
    """Bound the input; a bound may be an attribute (before opset 11) or an input."""
    result = op.of(0)
    bounds = (op.attribute("min"), op.attribute("max")) if op.opset < 11 else (None, None)
    low = i.point(bounds[0]) if bounds[0] is not None else op.of(1) if op.has(1) else None
    high = i.point(bounds[1]) if bounds[1] is not None else op.of(2) if op.has(2) else None
    result = result if low is None else i.largest(result, low)
    return result if high is None else i.smallest(result, high)


def _where(op: Operation) -> Interval:
    condition, a, b = op.of(0), op.of(1), op.of(2)
    if condition.is_point:
        return a if condition.low else b
    return (a | b).scattered()


RULES: Mapping[str, Rule] = {
    "Abs": _first(i.absolute),
    "Add": _folded(i.add),
    "Clip": _clip,
    "Div": _divide,
    "Max": _folded(i.largest),
    "Mean": _mean,
    "Min": _folded(i.smallest),
    "Mul": _multiply,
    "Neg": _first(i.negate),
    "Pow": _pow,
    "Reciprocal": _first(i.invert),
    "Sqrt": _first(_sqrt),
    "Sub": _subtract,
    "Sum": _folded(i.add),
    "Where": _where,
}
"""Operator -> what its result is bound to be."""
