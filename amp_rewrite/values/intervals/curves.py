"""Functions of one variable: monotone ones from their ends, others from their extremes.

Evidence: without the rules of Sin, Tanh, Relu and Sigmoid, Snake activations and bounded quotients
stay float32 or become low wrongly (tests/conformance/test_snake.py, test_logarithms.py).
"""

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
_LEAST_HARD_SWISH = -0.375
"""The least value of x * clip(x / 6 + 1 / 2, 0, 1), at -1.5."""


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
    "Atan": _monotone(math.atan),
    "Cos": within(i.SIGNED_UNIT),
    "Elu": _elu,
    "Erf": _monotone(math.erf),
    "Exp": _monotone(lambda x: math.exp(x) if x > -math.inf else 0.0),
    "Gelu": lambda op: dented(LEAST_GELU, op.of(0)),
    "HardSigmoid": _hard_sigmoid,
    "HardSwish": lambda op: dented(_LEAST_HARD_SWISH, op.of(0)),
    "LeakyRelu": lambda op: _bent(op.of(0), i.point(op.attribute("alpha", 0.01))),
    "Log": _monotone(lambda x: math.log(x) if x > 0 else -math.inf),
    "LogSoftmax": within(i.between(-math.inf, 0.0)),
    "PRelu": lambda op: _bent(op.of(0), op.of(1)),
    "Relu": lambda op: i.largest(op.of(0), i.ZERO),
    "Sigmoid": _monotone(lambda x: 1 / (1 + math.exp(-x)) if x > -700 else 0.0),
    "Sin": within(i.SIGNED_UNIT),
    "Softmax": within(i.UNIT),
    "Softplus": _monotone(lambda x: max(x, 0.0) + math.log1p(math.exp(-abs(x)))),
    "Swish": lambda op: swish(op.of(0), op.attribute("alpha", 1.0)),
    "Tanh": _monotone(math.tanh),
}
"""Operator -> what its result is bound to be."""
