"""Arithmetic and functions, element by element: from ends where monotone, else from extremes.

Evidence: without Clip's rule the paintings of oww_melspec, ppocrv4_det and ppocrv4_rec change;
without those of Add, Mul, Pow, Sub, Neg and Sum both sides of a variance become low
(tests/conformance/test_differences.py); without those of Sin, Tanh, Relu and Sigmoid, Snake and
bounded quotients do wrongly, or stay float32 (test_public_formulas.py, test_logarithms.py there).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import reduce

from amp_rewrite.values.intervals import interval as i
from amp_rewrite.values.intervals.interval import Interval
from amp_rewrite.values.intervals.operation import Operation, Rule, within

LEAST_GELU = -0.17005
"""The least value of x * Phi(x), near x = -0.7518, and of its approximation by Tanh."""
_LEAST_SWISH = -0.27847
"""The least value of x * sigmoid(x), near x = -1.2785."""
_LEAST_HARD_SWISH = -0.375
"""The least value of x * clip(x / 6 + 1 / 2, 0, 1), at -1.5."""


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


def _monotone(function: Callable[[float], float]) -> Rule:
    return lambda op: i.increasing(function, op.of(0))


def _bent(x: Interval, slope: Interval) -> Interval:
    """Return x where it is not negative, and slope times x elsewhere."""
    if x.low >= 0:
        return x
    below = i.multiply(i.between(x.low, min(x.high, 0.0)), slope)
    return below if x.high <= 0 else (i.between(0.0, x.high) | below).scattered()


def _elu(op: Operation) -> Interval:
    """Bound x above zero and alpha * (exp(x) - 1) below."""
    x, alpha = op.of(0), op.attribute("alpha", 1.0)
    above = i.between(max(x.low, 0.0), max(x.high, 0.0))
    return above | i.scale(i.between(-1.0 if x.low < 0 else 0.0, 0.0), alpha)


def dented(least: float, x: Interval) -> Interval:
    """Bound x times a share of it that grows with x: at most x, with one dent below."""
    return i.between(least if x.low < 0 else 0.0, max(x.high, 0.0))


def swish(x: Interval, alpha: float) -> Interval:
    """Bound x * sigmoid(alpha * x), which is Swish of alpha * x over alpha."""
    return dented(_LEAST_SWISH / alpha, x) if alpha > 0 else i.symmetric(x.magnitude)


def _hard_sigmoid(op: Operation) -> Interval:
    alpha, beta = op.attribute("alpha", 0.2), op.attribute("beta", 0.5)
    line = i.add(i.scale(op.of(0), alpha), i.point(beta))
    return i.smallest(i.largest(line, i.ZERO), i.point(1.0))


RULES: Mapping[str, Rule] = {
    "Abs": lambda op: i.absolute(op.of(0)),
    "Add": lambda op: reduce(i.add, op.of_all()),
    "Atan": _monotone(math.atan),
    "Clip": _clip,
    "Cos": within(i.SIGNED_UNIT),
    "Div": _divide,
    "Elu": _elu,
    "Erf": _monotone(math.erf),
    "Exp": _monotone(lambda x: math.exp(x) if x > -math.inf else 0.0),
    "Gelu": lambda op: dented(LEAST_GELU, op.of(0)),
    "HardSigmoid": _hard_sigmoid,
    "HardSwish": lambda op: dented(_LEAST_HARD_SWISH, op.of(0)),
    "LeakyRelu": lambda op: _bent(op.of(0), i.point(op.attribute("alpha", 0.01))),
    "Log": _monotone(lambda x: math.log(x) if x > 0 else -math.inf),
    "LogSoftmax": within(i.between(-math.inf, 0.0)),
    "Max": lambda op: reduce(i.largest, op.of_all()),
    "Mean": _mean,
    "Min": lambda op: reduce(i.smallest, op.of_all()),
    "Mul": _multiply,
    "Neg": lambda op: i.negate(op.of(0)),
    "PRelu": lambda op: _bent(op.of(0), op.of(1)),
    "Pow": _pow,
    "Reciprocal": lambda op: i.invert(op.of(0)),
    "Relu": lambda op: i.largest(op.of(0), i.ZERO),
    "Sigmoid": _monotone(lambda x: 1 / (1 + math.exp(-x)) if x > -700 else 0.0),
    "Sin": within(i.SIGNED_UNIT),
    "Softmax": within(i.UNIT),
    "Softplus": _monotone(lambda x: max(x, 0.0) + math.log1p(math.exp(-abs(x)))),
    "Sqrt": lambda op: _sqrt(op.of(0)),
    "Sub": _subtract,
    "Sum": lambda op: reduce(i.add, op.of_all()),
    "Swish": lambda op: swish(op.of(0), op.attribute("alpha", 1.0)),
    "Tanh": _monotone(math.tanh),
    "Where": _where,
}
"""Operator -> what its result is bound to be."""
