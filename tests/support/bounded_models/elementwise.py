"""Operators that compute each element by itself: a Lipschitz constant, and a largest magnitude."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from bounded_models.scope import Row, Scope, Value

Bound = Callable[[float], float]

HEADROOM = 0.1
"""How far beyond its ends a rounded number may lie for the slopes of `of_tanh` to hold."""


def unary(op: str, slope: float, bound: Bound, **attributes: Any) -> Row:
    """Return the row of an operator whose slope is nowhere larger."""

    def row(scope: Scope) -> None:
        x = scope.pick()
        y = scope.add(op, [x], **attributes)[0]
        scope.keep(y, bound(x.bound), slope * x.error)

    return row


def of_tanh(op: str, slope: float, bound: float, scale: float = 1.0) -> Row:
    """Return the row of an operator on numbers from -scale to scale, where its slope is bounded."""

    def row(scope: Scope) -> None:
        x = _between(scope, scale)
        y = scope.add(op, [x])[0]
        scope.keep(y, bound, steep(slope, x))

    return row


def of_positive(op: str, slope: float, bound: Bound, least: float = 1.0) -> Row:
    """Return the row of an operator on numbers from `least` on."""

    def row(scope: Scope) -> None:
        x = positive(scope, least)
        y = scope.add(op, [x])[0]
        scope.keep(y, bound(x.bound), steep(slope, x))

    return row


def steep(slope: float, x: Value) -> float:
    """Return slope times error, or infinity where the slope does not hold so far out."""
    return slope * x.error if x.error <= HEADROOM else math.inf


def positive(scope: Scope, least: float = 1.0) -> Value:
    """Return |x| + least as a node may read it."""
    x = scope.pick()
    magnitude = scope.keep(scope.add("Abs", [x])[0], x.bound, x.error)
    added = scope.add("Add", [magnitude, scope.constant(least)])[0]
    wide = scope.rounded(Value(added, magnitude.bound + least, scope.rounded(magnitude).error))
    return scope.rounded(wide)


def _between(scope: Scope, scale: float) -> Value:
    x = scope.pick()
    bounded = scope.keep(scope.add("Tanh", [x])[0], 1.0, x.error)
    scaled = scope.add("Mul", [bounded, scope.constant(scale)])[0]
    error = scale * scope.rounded(bounded).error
    return scope.rounded(scope.rounded(Value(scaled, scale, error)))


def same(b: float) -> float:
    return b


def one(_: float) -> float:
    return 1.0


UNARY: dict[str, Row] = {
    "Abs": unary("Abs", 1, same),
    "Neg": unary("Neg", 1, same),
    "Relu": unary("Relu", 1, same),
    "LeakyRelu": unary("LeakyRelu", 1, same, alpha=0.1),
    "Sigmoid": unary("Sigmoid", 0.25, one),
    "Tanh": unary("Tanh", 1, one),
    "Erf": unary("Erf", 2 / math.sqrt(math.pi), one),
    "Softsign": unary("Softsign", 1, one),
    "Softplus": unary("Softplus", 1, lambda b: b + math.log(2)),
    "Elu": unary("Elu", 1, lambda b: max(b, 1.0)),
    "Selu": unary("Selu", 1.7581, lambda b: max(1.0508 * b, 1.7581)),
    "Celu": unary("Celu", 1, lambda b: max(b, 1.0)),
    "HardSigmoid": unary("HardSigmoid", 0.2, one),
    "HardSwish": unary("HardSwish", 1.5, same),
    "Gelu": unary("Gelu", 1.13, same),
    "Mish": unary("Mish", 1.09, same),
    "Sin": unary("Sin", 1, one),
    "Cos": unary("Cos", 1, one),
    "Atan": unary("Atan", 1, lambda _: math.pi / 2),
    "Asinh": unary("Asinh", 1, same),
    "Identity": unary("Identity", 1, same),
    "Dropout": unary("Dropout", 1, same),
    "Exp": of_tanh("Exp", math.exp(1.1), math.e),
    "Tan": of_tanh("Tan", 1 / math.cos(1.1) ** 2, math.tan(1.0)),
    "Sinh": of_tanh("Sinh", math.cosh(1.1), math.sinh(1.0)),
    "Cosh": of_tanh("Cosh", math.sinh(1.1), math.cosh(1.0)),
    "Asin": of_tanh("Asin", 1 / math.sqrt(1 - 0.6**2), math.asin(0.5), 0.5),
    "Acos": of_tanh("Acos", 1 / math.sqrt(1 - 0.6**2), math.acos(-0.5), 0.5),
    "Atanh": of_tanh("Atanh", 1 / (1 - 0.6**2), math.atanh(0.5), 0.5),
    "Sqrt": of_positive("Sqrt", 0.6, math.sqrt),
    "Log": of_positive("Log", 1.2, math.log),
    "Reciprocal": of_positive("Reciprocal", 1.3, one),
    "Acosh": of_positive("Acosh", 0.7, math.acosh, 2.0),
}
"""Operator -> its row; slopes hold as far beyond the ends as `HEADROOM` says."""


def added(op: str, *, mean: bool = False) -> Row:
    def row(scope: Scope) -> None:
        a, b = scope.pick(), scope.pick()
        share = 0.5 if mean else 1.0
        y = scope.add(op, [a, b])[0]
        scope.keep(y, share * (a.bound + b.bound), share * (a.error + b.error))

    return row


def chosen(op: str) -> Row:
    def row(scope: Scope) -> None:
        a, b = scope.pick(), scope.pick()
        y = scope.add(op, [a, b])[0]
        scope.keep(y, max(a.bound, b.bound), max(a.error, b.error))

    return row


def product(scope: Scope) -> None:
    a, b = scope.pick(), scope.pick()
    y = scope.add("Mul", [a, b])[0]
    scope.keep(y, a.bound * b.bound, product_error(a, b))


def product_error(a: Value, b: Value) -> float:
    return a.bound * b.error + b.bound * a.error + a.error * b.error


def quotient(scope: Scope) -> None:
    a, b = scope.pick(), positive(scope)
    y = scope.add("Div", [a, b])[0]
    slope = steep(1 / (1 - HEADROOM), b)
    moved = slope * a.bound if a.bound else slope  # not infinity times zero
    scope.keep(y, a.bound, moved + a.error / (1 - HEADROOM))


def power(scope: Scope) -> None:
    a = scope.pick()
    y = scope.add("Pow", [a, scope.constant(2)])[0]
    scope.keep(y, a.bound**2, 2 * a.bound * a.error + a.error**2)


def prelu(scope: Scope) -> None:
    a = scope.pick()
    slope = scope.constant([0.25, 0.5, 0.125, 1])
    y = scope.add("PRelu", [a, slope])[0]
    scope.keep(y, a.bound, a.error)


def clip(scope: Scope) -> None:
    a = scope.pick()
    low = scope.constant(-0.75) if scope.rng.random() < 0.5 else ""
    y = scope.add("Clip", [a, low, scope.constant(0.75)])[0]
    scope.keep(y, a.bound, a.error)


def cast(scope: Scope) -> None:
    a = scope.pick()
    scope.keep(scope.add("Cast", [a], to=1)[0], a.bound, a.error)


def cast_like(scope: Scope) -> None:
    a, b = scope.pick(), scope.pick()
    scope.keep(scope.add("CastLike", [a, b])[0], a.bound, a.error)


BINARY: dict[str, Row] = {
    "Add": added("Add"),
    "Sub": added("Sub"),
    "Sum": added("Sum"),
    "Mean": added("Mean", mean=True),
    "Max": chosen("Max"),
    "Min": chosen("Min"),
    "Mul": product,
    "Div": quotient,
    "Pow": power,
    "PRelu": prelu,
    "Clip": clip,
    "Cast": cast,
    "CastLike": cast_like,
}

ROWS = UNARY | BINARY
