"""Operators that compute one number of many."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from wild_models.pool import FLOAT, INT64, Pool, Row, axes_of

Bound = Callable[[float, int], float]


def reduction(op: str, bound: Bound) -> Row:
    """Return the row of a reduction over one axis, or over all."""

    def row(pool: Pool) -> None:
        x = pool.take(least=1)
        kept = pool.rng.randint(0, 1)
        if pool.rng.random() < 0.2:
            shape, count = [1] * len(x.shape) if kept else [], x.size
            made = pool.add(op, [x], keepdims=kept)[0]
        else:
            axis = pool.rng.randrange(len(x.shape))
            shape = [*x.shape[:axis], *[1] * kept, *x.shape[axis + 1 :]]
            axes, attributes = axes_of(pool, op, [axis])
            made, count = pool.add(op, [x, *axes], keepdims=kept, **attributes)[0], x.shape[axis]
        pool.keep(made, FLOAT, shape, bound(x.bound, count))

    return row


def arg(pool: Pool) -> None:
    x = pool.take(least=1)
    axis = pool.rng.randrange(len(x.shape))
    op = pool.rng.choice(("ArgMax", "ArgMin"))
    shape = [*x.shape[:axis], *x.shape[axis + 1 :]]
    made = pool.add(op, [x], axis=axis, keepdims=0)[0]
    y = pool.keep(made, INT64, shape, x.shape[axis])
    if pool.rng.random() < 0.5:
        pool.keep(pool.add("Cast", [y], to=FLOAT)[0], FLOAT, shape, x.shape[axis])


def softmax(pool: Pool) -> None:
    x = pool.take(least=1)
    op, bound = pool.rng.choice((("Softmax", 1.0), ("LogSoftmax", 2 * x.bound + 6)))
    pool.keep(pool.add(op, [x], axis=-1)[0], FLOAT, x.shape, bound)


def cumulative(pool: Pool) -> None:
    x = pool.take(least=1)
    made = pool.add("CumSum", [x, pool.scalar(0)])[0]
    pool.keep(made, FLOAT, x.shape, x.bound * x.shape[0])


def one_hot(pool: Pool) -> None:
    places = pool.constant(np.array([0, 2, 1], np.int64))
    ends = pool.constant(np.array([0, 1], np.float32))
    pool.keep(pool.add("OneHot", [places, pool.scalar(3), ends])[0], FLOAT, (3, 3), 1.0)


def normal(pool: Pool) -> None:
    x = pool.take(least=1)
    away = pool.add("Add", [pool.add("Abs", [x])[0], pool.scalar(1, np.float32)])[0]
    pool.keep(pool.add("LpNormalization", [away], axis=-1)[0], FLOAT, x.shape, 1.0)


ROWS: dict[str, tuple[int, Row]] = {
    "ReduceMean": (13, reduction("ReduceMean", lambda b, _: b)),
    "ReduceSum": (13, reduction("ReduceSum", lambda b, n: b * n)),
    "ReduceMax": (13, reduction("ReduceMax", lambda b, _: b)),
    "ReduceMin": (13, reduction("ReduceMin", lambda b, _: b)),
    "ReduceL2": (13, reduction("ReduceL2", lambda b, n: b * math.sqrt(n))),
    "ReduceSumSquare": (13, reduction("ReduceSumSquare", lambda b, n: b * b * n)),
    "ReduceProd": (13, reduction("ReduceProd", lambda b, n: max(1.0, b) ** n)),
    "Arg": (13, arg),
    "Softmax": (13, softmax),
    "CumSum": (14, cumulative),
    "OneHot": (13, one_hot),
    "LpNormalization": (13, normal),
}
