"""Functions of one variable: monotone ones from their ends, others from their extremes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from amp_rewrite.values.intervals import interval as i
from amp_rewrite.values.intervals.interval import Interval
from amp_rewrite.values.intervals.operation import Operation, Rule, within

LEAST_GELU = -0.17005
"""The least value of x * Phi(x), near x = -0.7518, and of its approximation by Tanh."""
_LEAST_SWISH = -0.27847
"""The least value of x * sigmoid(x), near x = -1.2785."""
_LEAST_MISH = -0.30885
"""The least value of x * tanh(softplus(x)), near x = -1.1924."""
_LEAST_HARD_SWISH = -0.375
"""The least value of x * clip(x / 6 + 1 / 2, 0, 1), at -1.5."""
_SELU = (1.67326319217681884765625, 1.05070102214813232421875)
"""Alpha and gamma of Selu where the node does not say them."""


def _monotone(function: Callable[[float], float]) -> Rule:
    return lambda op: i.increasing(function, op.of(0))


def _bent(x: Interval, slope: Interval) -> Interval:
    """Return x where it is not negative, and slope times x elsewhere."""
    if x.low >= 0:
        return x
    below = i.multiply(i.between(x.low, min(x.high, 0.0)), slope)
    return below if x.high <= 0 else (i.between(0.0, x.high) | below).scattered()


def _celu(op: Operation) -> Interval:
    alpha = op.attribute("alpha", 1.0)
    return _exponential(op, alpha, 1.0) if alpha > 0 else i.ANY


def _exponential(op: Operation, alpha: float, gamma: float) -> Interval:
    """Bound gamma * x above zero and gamma * alpha * (exp(x) - 1) below."""
    x = op.of(0)
    above = i.scale(i.between(max(x.low, 0.0), max(x.high, 0.0)), gamma)
    return above | i.scale(i.between(-1.0 if x.low < 0 else 0.0, 0.0), gamma * alpha)


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


def _shrink(op: Operation) -> Interval:
    """Bound x + bias below -lambd, x - bias above it, and zero in between."""
    x, bias = op.of(0), abs(op.attribute("bias", 0.0))
    return (i.add(x, i.symmetric(bias)) | i.ZERO).scattered()


_HALF_PI = math.pi / 2

RULES: Mapping[str, Rule] = {
    "Acos": within(i.between(0.0, math.pi)),
    "Acosh": within(i.NOT_NEGATIVE),
    "Asin": within(i.symmetric(_HALF_PI)),
    "Asinh": _monotone(math.asinh),
    "Atan": _monotone(math.atan),
    "Celu": _celu,
    "Cos": within(i.SIGNED_UNIT),
    "Cosh": within(i.between(1.0, math.inf)),
    "Elu": lambda op: _exponential(op, op.attribute("alpha", 1.0), 1.0),
    "Erf": _monotone(math.erf),
    "Exp": _monotone(lambda x: math.exp(x) if x > -math.inf else 0.0),
    "Gelu": lambda op: dented(LEAST_GELU, op.of(0)),
    "HardSigmoid": _hard_sigmoid,
    "HardSwish": lambda op: dented(_LEAST_HARD_SWISH, op.of(0)),
    "LeakyRelu": lambda op: _bent(op.of(0), i.point(op.attribute("alpha", 0.01))),
    "Log": _monotone(lambda x: math.log(x) if x > 0 else -math.inf),
    "LogSoftmax": within(i.between(-math.inf, 0.0)),
    "Mish": lambda op: dented(_LEAST_MISH, op.of(0)),
    "PRelu": lambda op: _bent(op.of(0), op.of(1)),
    "Relu": lambda op: i.largest(op.of(0), i.ZERO),
    "Selu": lambda op: _exponential(
        op, op.attribute("alpha", _SELU[0]), op.attribute("gamma", _SELU[1])
    ),
    "Shrink": _shrink,
    "Sigmoid": _monotone(lambda x: 1 / (1 + math.exp(-x)) if x > -700 else 0.0),
    "Sin": within(i.SIGNED_UNIT),
    "Sinh": _monotone(math.sinh),
    "Softmax": within(i.UNIT),
    "Softplus": _monotone(lambda x: max(x, 0.0) + math.log1p(math.exp(-abs(x)))),
    "Softsign": _monotone(lambda x: math.copysign(1.0, x) if math.isinf(x) else x / (1 + abs(x))),
    "Swish": lambda op: swish(op.of(0), op.attribute("alpha", 1.0)),
    "Tanh": _monotone(math.tanh),
    "ThresholdedRelu": lambda op: (op.of(0) | i.ZERO).scattered(),  # alpha may be negative
}
"""Operator -> what its result is bound to be."""
