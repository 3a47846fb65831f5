from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from gradient_nodes import check_vjp
from gradient_table import (
    NEWEST,
    Constant,
    Fed,
    Row,
    normal,
    spread,
)

MAX = [
    (16, (2, 2, 6), {"kernel_shape": [2]}),
    (16, (2, 2, 4, 6), {"kernel_shape": [2, 2], "strides": [2, 2]}),
    (16, (2, 2, 5, 6), {"kernel_shape": [3, 2]}),
    (16, (2, 2, 5, 6), {"kernel_shape": [3, 3], "strides": [2, 1], "pads": [1, 1, 1, 1]}),
    (18, (2, 2, 5, 6), {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}),
    (18, (2, 2, 5, 6), {"kernel_shape": [2, 2], "strides": [2, 2], "ceil_mode": 1}),
    (18, (2, 2, 7, 7), {"kernel_shape": [3, 2], "dilations": [2, 3]}),
    (18, (2, 2, 5, 5), {"kernel_shape": [2, 2], "auto_pad": "SAME_UPPER"}),
    (18, (2, 2, 5, 5), {"kernel_shape": [3, 2], "auto_pad": "SAME_LOWER", "strides": [2, 2]}),
    (18, (2, 2, 5, 5), {"kernel_shape": [2, 2], "auto_pad": "VALID"}),
    (18, (2, 2, 4, 6), {"kernel_shape": [2, 2], "storage_order": 1}),
    (NEWEST, (2, 2, 3, 4, 4), {"kernel_shape": [2, 2, 2], "strides": [1, 2, 2]}),
]
AVERAGE = [
    (16, (2, 2, 6), {"kernel_shape": [2]}),
    (16, (2, 2, 4, 6), {"kernel_shape": [2, 2], "strides": [2, 2]}),
    (18, (2, 2, 5, 6), {"kernel_shape": [3, 2], "strides": [2, 1]}),
    (18, (2, 2, 5, 6), {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}),
    (18, (2, 2, 5, 6), {"kernel_shape": [3, 3], "pads": [1, 0, 1, 1], "count_include_pad": 1}),
    (18, (2, 2, 5, 6), {"kernel_shape": [2, 2], "strides": [2, 2], "ceil_mode": 1}),
    (
        NEWEST,
        (2, 2, 6, 6),
        {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1], "ceil_mode": 1},
    ),
    (19, (2, 2, 7, 7), {"kernel_shape": [3, 2], "dilations": [2, 3]}),
    (18, (2, 2, 5, 5), {"kernel_shape": [2, 2], "auto_pad": "SAME_UPPER"}),
    (18, (2, 2, 5, 5), {"kernel_shape": [2, 3], "auto_pad": "SAME_LOWER"}),
    (18, (2, 2, 5, 5), {"kernel_shape": [2, 2], "auto_pad": "VALID", "strides": [2, 2]}),
    (NEWEST, (2, 2, 3, 4, 4), {"kernel_shape": [2, 2, 2], "strides": [1, 2, 2]}),
]
LP = [
    (16, (2, 2, 4, 6), {"kernel_shape": [2, 2], "strides": [2, 2]}),
    (16, (2, 2, 5, 6), {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "p": 1}),
    (18, (2, 2, 5, 6), {"kernel_shape": [3, 2], "p": 3, "strides": [2, 1]}),
    (18, (2, 2, 5, 6), {"kernel_shape": [2, 2], "dilations": [2, 2]}),
    (18, (2, 2, 6), {"kernel_shape": [2]}),
    (NEWEST, (2, 2, 5, 6), {"kernel_shape": [2, 2], "strides": [2, 2]}),
    (NEWEST, (2, 2, 3, 4, 4), {"kernel_shape": [2, 2, 2], "ceil_mode": 1, "strides": [1, 2, 2]}),
]
BLOCKS: dict[str, Any] = {"kernel_shape": [2, 2], "strides": [2, 2]}
ROWS = [
    *(
        Row("Col2Im", (shape, Constant(image), Constant(block)), attributes, opset=18)
        for shape, image, block, attributes in [
            ((2, 8, 12), [4, 5], [2, 2], {}),
            ((1, 6, 9), [5, 4], [2, 3], {"pads": [1, 0, 0, 1], "strides": [2, 1]}),
            (
                (2, 4, 4),
                [5, 5],
                [2, 2],
                {"dilations": [2, 2], "strides": [2, 2], "pads": [0, 0, 1, 1]},
            ),
        ]
    ),
    Row(
        "MaxUnpool",
        ((1, 2, 2, 2), Fed([[[[1, 3], [4, 6]], [[9, 10], [12, 15]]]])),
        BLOCKS,
        opset=16,
    ),
    Row("MaxUnpool", ((1, 1, 2), Fed([[[2, 0]]])), {"kernel_shape": [2]}, opset=22),
    *(Row("MaxPool", (x,), attrs, opset=opset, generate=spread) for opset, x, attrs in MAX),
    *(Row("AveragePool", (x,), attrs, opset=opset, generate=normal) for opset, x, attrs in AVERAGE),
    *(Row("LpPool", (x,), attrs, opset=opset, generate=normal) for opset, x, attrs in LP),
    *(
        Row(
            op,
            (x,),
            attributes,
            opset=opset,
            generate=spread,
            kernel=op != "GlobalLpPool" or opset < 22,  # ONNX Runtime has none from 22 on
        )
        for op, attributes in [
            ("GlobalAveragePool", {}),
            ("GlobalMaxPool", {}),
            ("GlobalLpPool", {}),
            ("GlobalLpPool", {"p": 3}),
        ]
        for opset, x in [(16, (2, 3, 4)), (18, (2, 3, 4, 2)), (NEWEST, (2, 3, 2, 2, 2))]
    ),
]
for _index, _row in enumerate(ROWS):
    same = str(_row.attributes.get("auto_pad", "")).startswith("SAME")
    if same and _row.op != "MaxPool" and "strides" in _row.attributes:
        ROWS[_index] = replace(_row, lengths="auto_pad pads by the input's lengths")


def _pool(op: str, x: tuple[int, ...], *, opset: int = 18, **attributes: Any) -> Row:
    made = spread if op == "MaxPool" else normal
    return Row(op, (x,), attributes, opset=opset, generate=made)


def test_of_equal_numbers_the_first_gets_the_gradient() -> None:
    x = np.array([[1.0, 1, 0, 2], [1, 1, 2, 0], [0, 0, 0, 0], [3, 3, 0, 5]])
    row = Row("MaxPool", ((1, 1, 4, 4),), BLOCKS, generate=lambda r, s: x.reshape(s))
    by_x = [[1, 0, 0, 2], [0, 0, 0, 0], [0, 0, 0, 0], [3, 0, 0, 4]]
    check_vjp(row, [[[[[1, 2], [3, 4]]]]], [[[by_x]]])
    whole = Row("GlobalMaxPool", ((1, 1, 4, 4),), generate=lambda r, s: np.minimum(x, 1).reshape(s))
    check_vjp(whole, [[[[[2]]]]], [[[[[2, 0, 0, 0], *[[0] * 4] * 3]]]])


@pytest.mark.parametrize("p", [1, 2, 3])
@pytest.mark.parametrize("op", ["LpPool", "GlobalLpPool"])
def test_the_gradient_of_a_norm_is_0_where_the_norm_is(op: str, p: int) -> None:
    window: dict[str, Any] = {} if op == "GlobalLpPool" else {"kernel_shape": [2]}
    row = Row(op, ((1, 2, 2),), {**window, "p": p}, generate=lambda r, s: [[[0, 0], [0.25, 0]]])
    check_vjp(row, [[[[3], [5]]]], [[[[0, 0], [5, 0]]]])


def test_what_is_unpooled_into_a_shape_gets_the_gradient_of_its_place() -> None:
    inputs = ((1, 1, 2), Fed([[[4, 0]]]), Constant([1, 1, 6]))
    row = Row("MaxUnpool", inputs, {"kernel_shape": [2]}, opset=16)
    check_vjp(row, [[[[1, 2, 3, 4, 5, 6]]]], [[[[5, 1]]]])
