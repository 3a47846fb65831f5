"""Reductions, softmaxes, normalizations and pools: rows of four numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from bounded_models.elementwise import positive
from bounded_models.scope import Row, Scope, Value

LENGTH = 4
Carry = Callable[[float, float], tuple[float, float]]


def reduction(op: str, carry: Carry, *, of_positive: bool = False) -> Row:
    """Return the row of a reduction of each row to one number, spread over the row again.

    Args:
        op: The operator.
        carry: (bound, error) of the input -> those of the result.
        of_positive: Whether it needs numbers of at least 1.
    """

    def row(scope: Scope) -> None:
        x = positive(scope) if of_positive else scope.pick()
        last = [1] if scope.rng.random() < 0.5 else [-1]
        made = scope.add(op, [x, scope.constant(last, np.int64)], keepdims=1)[0]
        bound, error = carry(x.bound, x.error)
        one = scope.rounded(scope.rounded(Value(made, bound, error)))
        y = scope.add("Expand", [made, scope.constant([2, 4], np.int64)])[0]
        scope.keep(y, one.bound, one.error)

    return row


def in_rows(op: str, slope: float, bound: Callable[[float], float], **attributes: Any) -> Row:
    """Return the row of an operator on rows whose slope is bounded in the maximum norm."""

    def row(scope: Scope) -> None:
        x = scope.pick()
        y = scope.add(op, [x], **attributes)[0]
        scope.keep(y, bound(x.bound), slope * x.error)

    return row


def layer_normalization(scope: Scope) -> None:
    """Divide by a deviation of at least 1, so that the slope is at most 6.

    The centered row moves by 2 e, the deviation by as much, and the row is at most twice as large
    as the deviation.
    """
    x = scope.pick()
    inputs = [x, scope.constant([1, 1, 1, 1])]
    if scope.rng.random() < 0.5:
        inputs.append(scope.constant([0, 0, 0, 0]))
    y = scope.add("LayerNormalization", inputs, epsilon=1.0)[0]
    scope.keep(y, 2.0, 6 * x.error + 4 * scope.rounding(x))


def channels(op: str, **attributes: Any) -> Row:
    """Return the row of a normalization of the channels of an image (1, 2, 4), epsilon 1."""

    def row(scope: Scope) -> None:
        x = scope.pick()
        image = scope.add("Unsqueeze", [x, scope.constant([0], np.int64)])[0]
        scale, bias = scope.constant([1, 1]), scope.constant([0, 0])
        made = scope.add(op, [image, scale, bias], epsilon=1.0, **attributes)[0]
        y = scope.add("Squeeze", [made, scope.constant([0], np.int64)])[0]
        scope.keep(y, 2.0, 6 * x.error + 4 * scope.rounding(x))

    return row


def pool(op: str, slope: float, **attributes: Any) -> Row:
    """Return the row of a pool of three neighbours."""

    def row(scope: Scope) -> None:
        x = scope.pick()
        image = scope.add("Unsqueeze", [x, scope.constant([0], np.int64)])[0]
        made = scope.add(op, [image], kernel_shape=[3], pads=[1, 1], **attributes)[0]
        y = scope.add("Squeeze", [made, scope.constant([0], np.int64)])[0]
        scope.keep(y, slope * x.bound, slope * x.error)

    return row


def global_pool(op: str) -> Row:
    def row(scope: Scope) -> None:
        x = scope.pick()
        image = scope.add("Unsqueeze", [x, scope.constant([0], np.int64)])[0]
        made = scope.add(op, [image])[0]
        flat = scope.add("Squeeze", [made, scope.constant([0], np.int64)])[0]
        y = scope.add("Expand", [flat, scope.constant([2, 4], np.int64)])[0]
        scope.keep(y, x.bound, x.error + scope.rounding(x))

    return row


def cumulated(scope: Scope) -> None:
    x = scope.pick()
    y = scope.add("CumSum", [x, scope.constant(1, np.int64)])[0]
    scope.keep(y, LENGTH * x.bound, LENGTH * x.error)


ROWS: dict[str, Row] = {
    "ReduceSum": reduction("ReduceSum", lambda b, e: (4 * b, 4 * e)),
    "ReduceMean": reduction("ReduceMean", lambda b, e: (b, e)),
    "ReduceMax": reduction("ReduceMax", lambda b, e: (b, e)),
    "ReduceMin": reduction("ReduceMin", lambda b, e: (b, e)),
    "ReduceL1": reduction("ReduceL1", lambda b, e: (4 * b, 4 * e)),
    "ReduceL2": reduction("ReduceL2", lambda b, e: (2 * b, 2 * e)),
    "ReduceSumSquare": reduction(
        "ReduceSumSquare", lambda b, e: (4 * b * b, 4 * (2 * b * e + e * e))
    ),
    "ReduceLogSumExp": reduction("ReduceLogSumExp", lambda b, e: (b + math.log(4), e)),
    "ReduceLogSum": reduction(
        "ReduceLogSum", lambda b, e: (math.log(4 * b), 1.2 * e), of_positive=True
    ),
    "CumSum": cumulated,
    "Softmax": in_rows("Softmax", 0.5, lambda _: 1.0),
    "LogSoftmax": in_rows("LogSoftmax", 2.0, lambda b: 2 * b + math.log(4)),
    "LayerNormalization": layer_normalization,
    "InstanceNormalization": channels("InstanceNormalization"),
    "GroupNormalization": channels("GroupNormalization", num_groups=2),
    "AveragePool": pool("AveragePool", 1.0, count_include_pad=1),
    "MaxPool": pool("MaxPool", 1.0),
    "LpPool": pool("LpPool", 3.0, p=1),
    "GlobalAveragePool": global_pool("GlobalAveragePool"),
    "GlobalMaxPool": global_pool("GlobalMaxPool"),
}
