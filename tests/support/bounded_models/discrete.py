"""Operators that jump: they read values that rounding does not change, for bounds to exist."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from onnx import TensorProto

from bounded_models.scope import Row, Scope, Value


def steps(op: str, bound: Callable[[float], float]) -> Row:
    """Return the row of an operator whose results are whole numbers."""

    def row(scope: Scope) -> None:
        x = scope.pick_exact()
        scope.values.append(Value(scope.add(op, [x])[0], bound(x.bound), 0.0))

    return row


def compared(op: str) -> Row:
    """Return the row of a comparison that chooses between two values."""

    def row(scope: Scope) -> None:
        a, b = scope.pick_exact(), scope.pick_exact()
        _choose(scope, scope.add(op, [a, b])[0])

    return row


def joined(op: str) -> Row:
    def row(scope: Scope) -> None:
        a, b = scope.pick_exact(), scope.pick_exact()
        first = scope.add("Greater", [a, b])[0]
        second = scope.add("Less", [a, scope.constant(0.25)])[0]
        _choose(scope, scope.add("Not", scope.add(op, [first, second]))[0])

    return row


def asked(op: str) -> Row:
    def row(scope: Scope) -> None:
        _choose(scope, scope.add(op, [scope.pick()])[0])

    return row


def indexed(op: str) -> Row:
    """Return the row of an operator that finds a place, by which another value is gathered."""

    def row(scope: Scope) -> None:
        a, x = scope.pick_exact(), scope.pick()
        place = scope.add(op, [a], axis=1, keepdims=1)[0]
        found = scope.add("GatherElements", [x, place], axis=1)[0]
        y = scope.add("Expand", [found, scope.constant([2, 4], np.int64)])[0]
        scope.keep(y, x.bound, x.error, moved=True)

    return row


def one_hot(scope: Scope) -> None:
    whole = scope.constant([3, 0], np.int64)
    ends = scope.constant([0, 1])
    y = scope.add("OneHot", [whole, scope.constant(4, np.int64), ends])[0]
    scope.values.append(Value(y, 1.0, 0.0))


def eye(scope: Scope) -> None:
    y = scope.add("EyeLike", [scope.pick()], dtype=TensorProto.FLOAT)[0]
    scope.values.append(Value(y, 1.0, 0.0))


def filled(scope: Scope) -> None:
    shape = scope.add("Shape", [scope.pick()])[0]
    scope.values.append(Value(scope.add("ConstantOfShape", [shape])[0], 0.0, 0.0))


def counted(scope: Scope) -> None:
    whole = scope.add("Cast", [scope.pick_exact()], to=TensorProto.INT32)[0]
    y = scope.add("Cast", [whole], to=TensorProto.FLOAT)[0]
    scope.values.append(Value(y, 8.0, 0.0))


def _choose(scope: Scope, condition: str) -> None:
    a, b = scope.pick(), scope.pick()
    y = scope.add("Where", [condition, a, b])[0]
    scope.keep(y, max(a.bound, b.bound), max(a.error, b.error), moved=True)


COMPARING = ("Greater", "Less", "GreaterOrEqual", "LessOrEqual", "Equal")
ROWS: dict[str, Row] = {
    "Floor": steps("Floor", lambda b: b + 1),
    "Ceil": steps("Ceil", lambda b: b + 1),
    "Round": steps("Round", lambda b: b + 1),
    "Sign": steps("Sign", lambda _: 1.0),
    "Hardmax": steps("Hardmax", lambda _: 1.0),
    **{op: compared(op) for op in COMPARING},
    **{op: joined(op) for op in ("And", "Or", "Xor")},
    **{op: asked(op) for op in ("IsNaN", "IsInf")},
    **{op: indexed(op) for op in ("ArgMax", "ArgMin")},
    "OneHot": one_hot,
    "EyeLike": eye,
    "ConstantOfShape": filled,
    "Cast to integers": counted,
}
