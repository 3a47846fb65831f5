"""Operators that compute each element by itself, and Casts."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from onnx import helper

from wild_models.pool import BFLOAT16, BOOL, DOUBLE, FLOAT, FLOAT16, INT32, INT64, Pool, Row, Value

CAST = (FLOAT16, BFLOAT16, DOUBLE, INT64, INT32, BOOL)


def unary(op: str, bound: Callable[[float], float], **attributes: Any) -> Row:
    def row(pool: Pool) -> None:
        x = pool.take()
        pool.keep(pool.add(op, [x], **attributes)[0], FLOAT, x.shape, bound(x.bound))

    return row


def behind_abs(op: str, bound: Callable[[float], float], least: float = 0.125) -> Row:
    """Return the row of an operator on positive numbers."""

    def row(pool: Pool) -> None:
        x = pool.take()
        positive = pool.add("Abs", [x])[0]
        if least:
            positive = pool.add("Add", [positive, pool.scalar(least, np.float32)])[0]
        pool.keep(pool.add(op, [positive])[0], FLOAT, x.shape, bound(x.bound))

    return row


def pair(pool: Pool) -> tuple[Value, Value, tuple[int, ...]]:
    """Return two float32 values that broadcast, and the shape of what is computed of both."""
    a = pool.take()
    b = pool.find(lambda v: v.dtype == FLOAT and _joined(a, v) is not None)
    if b is None or pool.rng.random() < 0.3:
        b = pool.number(*(pool.rng.choice((1, d)) for d in a.shape[pool.rng.randint(0, 1) :]))
    shape = _joined(a, b)
    assert shape is not None
    return (a, b, shape) if pool.rng.random() < 0.5 else (b, a, shape)


def _joined(a: Value, b: Value) -> tuple[int, ...] | None:
    try:
        shape = np.broadcast_shapes(a.shape, b.shape)
    except ValueError:
        return None
    return shape if math.prod(shape) <= 256 and len(shape) <= 5 else None


def binary(op: str, bound: Callable[[float, float], float]) -> Row:
    def row(pool: Pool) -> None:
        a, b, shape = pair(pool)
        pool.keep(pool.add(op, [a, b])[0], FLOAT, shape, bound(a.bound, b.bound))

    return row


def divided(pool: Pool) -> None:
    x = pool.take()
    by = pool.constant(np.array(pool.rng.choice((0.5, 2, 4, -2)), np.float32))
    pool.keep(pool.add("Div", [x, by])[0], FLOAT, x.shape, 2 * x.bound)


def power(pool: Pool) -> None:
    x = pool.take()
    pool.keep(
        pool.add("Pow", [x, pool.scalar(2, np.float32)])[0], FLOAT, x.shape, x.bound * x.bound
    )


def exponential(pool: Pool) -> None:
    x = pool.take()
    x = x if x.bound <= 2 else pool.one("Tanh", [x], Value("", FLOAT, x.shape, 1.0))
    pool.keep(pool.add("Exp", [x])[0], FLOAT, x.shape, math.exp(x.bound))


def clipped(pool: Pool) -> None:
    """Clip with both bounds, with one, or with none."""
    x = pool.take()
    low, high = pool.scalar(-1, np.float32), pool.scalar(6, np.float32)
    given = pool.rng.choice(([x, low, high], [x, "", high], [x, low], [x]))
    pool.keep(pool.add("Clip", given)[0], FLOAT, x.shape, max(x.bound, 6.0))


def slope(pool: Pool) -> None:
    x = pool.take()
    pool.one("PRelu", [x, pool.number(*x.shape[-1:])], x)


def several(op: str) -> Row:
    def row(pool: Pool) -> None:
        x = pool.take()
        given = [x, *(pool.number(*x.shape) for _ in range(pool.rng.randint(0, 2)))]
        bound = sum(v.bound for v in given)
        pool.keep(pool.add(op, given)[0], FLOAT, x.shape, bound)

    return row


def compared(pool: Pool) -> None:
    a, b, shape = pair(pool)
    op = pool.rng.choice(("Greater", "Less", "Equal", "GreaterOrEqual", "LessOrEqual"))
    pool.keep(pool.add(op, [a, b])[0], BOOL, shape, 1)


def logical(pool: Pool) -> None:
    x = condition(pool)
    if pool.rng.random() < 0.5:
        pool.one("Not", [x], x)
    else:
        pool.one(pool.rng.choice(("And", "Or", "Xor")), [x, x], x)


def condition(pool: Pool) -> Value:
    """Return booleans."""
    found = pool.find(lambda v: v.dtype == BOOL)
    if found is None:
        x = pool.take()
        y = pool.add("Greater", [x, pool.scalar(0.25, np.float32)])[0]
        found = pool.keep(y, BOOL, x.shape, 1)
    return found


def where(pool: Pool) -> None:
    a, b, shape = pair(pool)
    mask = pool.find(lambda v: v.dtype == BOOL and v.shape == shape)
    if mask is None:
        odd = np.array([pool.rng.random() < 0.5 for _ in range(math.prod(shape))], np.bool_)
        mask = pool.constant(odd.reshape(shape))
    pool.keep(pool.add("Where", [mask, a, b])[0], FLOAT, shape, max(a.bound, b.bound))


def cast(pool: Pool) -> None:
    """Cast there, and in most cases back."""
    x = pool.find(lambda v: v.dtype in (FLOAT, DOUBLE, INT32, INT64, BOOL)) or pool.take()
    to = pool.rng.choice(CAST)
    there = pool.keep(pool.add("Cast", [x], to=to)[0], to, x.shape, x.bound)
    if pool.rng.random() < 0.8:
        pool.keep(pool.add("Cast", [there], to=FLOAT)[0], FLOAT, x.shape, x.bound)


def cast_like(pool: Pool) -> None:
    x, like = pool.take(), pool.find(lambda v: v.dtype in (FLOAT, INT64, DOUBLE)) or pool.take()
    pool.keep(pool.add("CastLike", [x, like])[0], like.dtype, x.shape, x.bound)


def low_part(pool: Pool) -> None:
    """Compute a few nodes in a 16-bit type, or in one and then in the other."""
    x = pool.take(rank=2)
    for _ in range(pool.rng.randint(1, 2)):
        low = pool.rng.choice((FLOAT16, BFLOAT16))
        x = Value(pool.add("Cast", [x], to=low)[0], low, x.shape, x.bound)
        for _ in range(pool.rng.randint(1, 3)):
            x = _low_node(pool, x)
        pool.values.append(x)
        pool.own.append(x)
    pool.keep(pool.add("Cast", [x], to=FLOAT)[0], FLOAT, x.shape, x.bound)


def _low_node(pool: Pool, x: Value) -> Value:
    op = pool.rng.choice(("MatMul", "Relu", "Exp", "Add", "Tanh", "Softmax"))
    like = helper.tensor_dtype_to_np_dtype(x.dtype)
    if op == "MatMul":
        n = pool.rng.randint(1, 4)
        w = pool.constant(pool.eighths((x.shape[1], n)).astype(like))
        return Value(pool.add(op, [x, w])[0], x.dtype, (x.shape[0], n), x.bound * x.shape[1])
    if op == "Add":
        b = pool.constant(pool.eighths(x.shape[1:]).astype(like))
        return Value(pool.add(op, [x, b])[0], x.dtype, x.shape, x.bound + 1)
    if op == "Exp":
        x = Value(pool.add("Tanh", [x])[0], x.dtype, x.shape, 1.0)
        return Value(pool.add(op, [x])[0], x.dtype, x.shape, 3.0)
    return Value(pool.add(op, [x])[0], x.dtype, x.shape, max(1.0, x.bound))


def whole_numbers(pool: Pool) -> None:
    """Compute with integers."""
    x = pool.find(lambda v: v.dtype == INT64)
    if x is None:
        x = pool.ints(*(pool.rng.randint(-3, 3) for _ in range(3)))
    op = pool.rng.choice(("Add", "Mul", "Sub", "Max"))
    other = pool.scalar(pool.rng.randint(1, 3))
    if x.bound < 1000:
        y = pool.keep(pool.add(op, [x, other])[0], INT64, x.shape, 3 * x.bound + 3)
        pool.keep(pool.add("Cast", [y], to=FLOAT)[0], FLOAT, y.shape, y.bound)


def _same(b: float) -> float:
    return b


def _one(_: float) -> float:
    return 1.0


def _more(b: float) -> float:
    return b + 1


ROWS: dict[str, tuple[int, Row]] = {
    **{op: (13, unary(op, _same)) for op in ("Relu", "Neg", "Abs", "LeakyRelu", "Elu", "Identity")},
    **{op: (13, unary(op, _one)) for op in ("Sigmoid", "Tanh", "Sin", "Cos", "Erf", "Sign")},
    **{op: (13, unary(op, _more)) for op in ("Floor", "Ceil", "Round", "Softplus", "Selu")},
    **{op: (13, unary(op, _one)) for op in ("HardSigmoid", "Softsign")},
    "ThresholdedRelu": (13, unary("ThresholdedRelu", _same, alpha=0.5)),
    "HardSwish": (14, unary("HardSwish", _same)),
    "Mish": (18, unary("Mish", _same)),
    "Gelu": (20, unary("Gelu", _same)),
    "Sqrt": (13, behind_abs("Sqrt", _more, 0)),
    "Log": (13, behind_abs("Log", lambda b: max(2.1, b))),
    "Reciprocal": (13, behind_abs("Reciprocal", lambda _: 8.0)),
    "Add": (13, binary("Add", lambda a, b: a + b)),
    "Sub": (13, binary("Sub", lambda a, b: a + b)),
    "Mul": (13, binary("Mul", lambda a, b: a * b)),
    "Max": (13, binary("Max", max)),
    "Min": (13, binary("Min", max)),
    "Div": (13, divided),
    "Pow": (13, power),
    "Exp": (13, exponential),
    "Clip": (13, clipped),
    "PRelu": (13, slope),
    "Sum": (13, several("Sum")),
    "Mean": (13, several("Mean")),
    "Compare": (16, compared),
    "Logical": (13, logical),
    "Where": (13, where),
    "Cast": (13, cast),
    "CastLike": (15, cast_like),
    "LowPart": (15, low_part),
    "Integers": (14, whole_numbers),
}
"""Row -> the first opset that has it, and what it adds."""
