from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from gradient_nodes import check_vjp
from gradient_table import (
    NEWEST,
    Constant,
    Fed,
    Row,
    normal,
    over,
    positive,
    spread,
)

KINDS = {
    "ReduceSum": normal,
    "ReduceMean": normal,
    "ReduceMax": spread,
    "ReduceMin": spread,
    "ReduceProd": normal,
    "ReduceL1": normal,
    "ReduceL2": normal,
    "ReduceLogSum": positive,
    "ReduceLogSumExp": normal,
    "ReduceSumSquare": normal,
}


def _rows(op: str) -> list[Row]:
    generate = KINDS[op]
    # Until opset 18 only ReduceSum takes its axes as an input.
    old = (
        [Row(op, ((2, 3, 4), Constant([1])), opset=16, generate=generate)]
        if op == "ReduceSum"
        else [
            Row(op, ((2, 3, 4),), {"axes": [1]}, opset=16, generate=generate),
            Row(op, ((2, 3, 4),), {"axes": [-1, 0], "keepdims": 0}, opset=17, generate=generate),
        ]
    )
    return [
        *old,
        Row(op, ((2, 3),), {"keepdims": 0}, opset=16, generate=generate),
        Row(op, ((2, 3),), opset=18, generate=generate),
        Row(op, ((2, 3, 4), Constant([0, 2])), {"keepdims": 0}, opset=18, generate=generate),
        Row(op, ((2, 3, 4), Constant([-2])), opset=21, generate=generate),
        Row(op, ((2, 3, 4), Fed([-1, 0])), {"keepdims": 0}, opset=NEWEST, generate=generate),
        Row(op, ((2, 3, 4), Fed([1])), opset=NEWEST, generate=generate),
        Row(op, ((2, 3), Constant([])), {"noop_with_empty_axes": 1}, generate=generate),
    ]


ROWS = [
    *(row for op in KINDS for row in _rows(op)),
    Row("ReduceSum", ((2, 3),), {"noop_with_empty_axes": 1}),
    Row("ReduceMean", ((3, 1), Constant([1])), note="of one number"),
    Row("ReduceProd", ((2, 3), Constant([1])), generate=lambda r, s: [[0.0, 2, 3], [1, 0, 0]]),
    Row("ReduceProd", ((2, 3),), generate=lambda r, s: [[0.0, 2, 3], [1, 4, 5]], note="one zero"),
    *(
        row
        for exclusive in (0, 1)
        for reverse in (0, 1)
        for row in over(
            (16, NEWEST),
            "CumSum",
            ((3, 4), Constant(1)),
            {"exclusive": exclusive, "reverse": reverse},
        )
    ),
    Row("CumSum", ((3, 4), Fed(-2))),
]


X = np.array([[1.0, 3, 3], [-2, 4, 1]])


def _of(op: str, x: npt.ArrayLike, *axes: Constant | Fed, **attributes: int) -> Row:
    array = np.asarray(x, np.float64)
    return Row(op, (array.shape, *axes), attributes, generate=lambda rng, shape: array)


@pytest.mark.parametrize(
    ("x", "expected"),
    [
        ([2, 0, 5], [0, 10, 0]),
        ([0, 0, 5], [0, 0, 0]),
        ([2, 3, 5], [15, 10, 6]),
        ([0, 1, 1], [1, 0, 0]),
        ([-1, 1, 0], [0, 0, -1]),
    ],
)
@pytest.mark.parametrize("keepdims", [0, 1])
def test_the_gradient_of_a_product_is_that_of_the_others(
    x: list[float], expected: list[float], keepdims: int
) -> None:
    check_vjp(_of("ReduceProd", x, keepdims=keepdims), [[3.0] if keepdims else 3.0],
              [3 * np.array(expected)])  # fmt: skip


@pytest.mark.parametrize("op", ["ReduceMax", "ReduceMin"])
@pytest.mark.parametrize("keepdims", [0, 1])
def test_equal_extrema_share_the_gradient(op: str, keepdims: int) -> None:
    sign = 1 if op == "ReduceMax" else -1
    row = _of(op, sign * np.array([[2.0, 2, 0], [3, 1, 3]]), keepdims=keepdims)
    check_vjp(row, [[[8.0]] if keepdims else 8.0], [[[0, 0, 0], [4, 0, 4]]])


@pytest.mark.parametrize("x", [[[0.0, 0], [3, 4]], [[0.0, 0], [0.3, 0.4]]])
def test_the_gradient_of_a_norm_is_0_where_the_norm_is(x: list[list[float]]) -> None:
    row = _of("ReduceL2", x, Constant([1]), keepdims=0)
    check_vjp(row, [[7, 10]], [[[0, 0], [6, 8]]])
