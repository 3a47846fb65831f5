"""DFT and STFT: linear, so that their gradients are transforms again."""

from __future__ import annotations

import numpy as np
import pytest
from gradient_table import (
    NEWEST,
    Constant,
    Fed,
    Row,
    check_difference,
    check_float32,
    second_views,
)

REAL, COMPLEX = (2, 5, 4, 1), (2, 5, 4, 2)


def number(value: int) -> Constant:
    return Constant(np.array(value, np.int64))


TRANSFORMED = [
    *(
        Row("DFT", (shape, length), {"axis": axis, **attributes}, opset=17)
        for shape, length, axis, attributes in [
            (REAL, None, 1, {}),
            (REAL, None, 2, {"onesided": 1}),
            (REAL, None, 1, {"onesided": 1}),
            (COMPLEX, None, 1, {}),
            (COMPLEX, None, 1, {"inverse": 1}),
            (REAL, number(7), 1, {"onesided": 1}),
            (REAL, number(3), 1, {}),
            (COMPLEX, number(8), 2, {"inverse": 1}),
        ]
    ),
    *(
        Row("DFT", (shape, length, axis), attributes, opset=opset)
        for opset, shape, length, axis, attributes in [
            (20, COMPLEX, None, number(1), {"inverse": 1}),
            (NEWEST, COMPLEX, number(3), number(-2), {}),
            (20, (0, 5, 1), None, number(1), {}),
        ]
    ),
    Row("DFT", (REAL,), {"onesided": 1}, opset=20),
    *(
        Row("DFT", (COMPLEX, *length), {"inverse": 1, "onesided": 1}, opset=20)
        for length in [(), (number(7),), (number(4),), (number(9),)]
    ),
]
WINDOW, STEP = (4,), number(2)
FRAMED = [
    Row("STFT", ((2, 9, 1), STEP, WINDOW), {"onesided": 1}, opset=17),
    Row("STFT", ((2, 9, 1), STEP, WINDOW, number(4)), {"onesided": 0}, opset=17),
    Row("STFT", ((1, 8, 1), number(3), None, number(5)), {"onesided": 1}, opset=20),
    Row("STFT", ((1, 9, 2), Fed(np.array(1)), WINDOW), {"onesided": 0}, opset=NEWEST),
]
ROWS = [*TRANSFORMED, *FRAMED]


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_the_gradient_of_a_transform_equals_the_difference_quotient(row: Row) -> None:
    check_difference(row, static=True)


@pytest.mark.parametrize("row", second_views(ROWS), ids=str)
def test_the_gradient_of_a_transform_needs_no_static_lengths(row: Row) -> None:
    check_difference(row, static=False)


@pytest.mark.parametrize("row", second_views(ROWS), ids=str)
def test_the_gradient_of_a_transform_runs_in_float32(row: Row) -> None:
    check_float32(row)
