from __future__ import annotations

from typing import Any

import onnx_ir as ir
import pytest
from gradient_nodes import check_opened, counts, differentiated, operators
from gradient_table import NEWEST, Row, check_difference, check_float32, second_views

from amp_rewrite.training.grad import GradientError

CONV = [
    (13, (2, 3, 6), (4, 3, 3), {}),
    (13, (2, 3, 5, 6), (4, 3, 3, 2), {}),
    (18, (2, 3, 5, 6), (4, 3, 1, 1), {}),
    (18, (2, 3, 5, 6), (4, 3, 1, 1), {"strides": [2, 2]}),
    (18, (2, 3, 6, 7), (4, 3, 3, 3), {"strides": [2, 2], "pads": [1, 1, 1, 1]}),
    (18, (2, 3, 7, 6), (4, 3, 3, 3), {"strides": [2, 3], "pads": [1, 0, 2, 1]}),
    (18, (2, 3, 7, 7), (4, 3, 3, 2), {"dilations": [2, 3], "pads": [1, 1, 1, 1]}),
    (18, (2, 3, 8, 8), (4, 3, 2, 2), {"dilations": [2, 2], "strides": [3, 2]}),
    (18, (2, 4, 5, 5), (6, 2, 3, 3), {"group": 2, "pads": [1, 1, 1, 1]}),
    (18, (2, 4, 6, 5), (4, 1, 3, 3), {"group": 4, "strides": [2, 2], "pads": [1, 1, 1, 1]}),
    (18, (2, 2, 5, 5), (4, 1, 2, 3), {"group": 2, "dilations": [2, 1]}),
    (18, (2, 3, 5, 5), (4, 3, 3, 3), {"auto_pad": "VALID"}),
    (18, (2, 3, 5, 5), (4, 3, 2, 2), {"auto_pad": "SAME_UPPER", "kernel_shape": [2, 2]}),
    (18, (2, 3, 5, 5), (4, 3, 2, 3), {"auto_pad": "SAME_LOWER", "kernel_shape": [2, 3]}),
    (18, (2, 2, 4, 5, 4), (3, 2, 2, 3, 2), {"strides": [1, 2, 1], "pads": [1, 1, 0, 0, 1, 1]}),
    (18, (1, 32, 4, 5), (2, 32, 3, 3), {"pads": [1, 1, 1, 1]}),
    (18, (1, 32, 5, 5), (2, 32, 3, 3), {"pads": [1, 1, 1, 1], "strides": [2, 2]}),
    (18, (1, 32, 6), (2, 32, 2), {"dilations": [2]}),
    (18, (2, 16, 4, 5), (3, 16, 3, 3), {"pads": [1, 1, 1, 1]}),
    (18, (1, 16, 5, 5), (2, 16, 3, 2), {"pads": [1, 0, 2, 1], "strides": [2, 2]}),
    (18, (1, 16, 7), (2, 16, 3), {"dilations": [2], "pads": [1, 0]}),
    (18, (1, 16, 5, 6), (2, 16, 2, 3), {"dilations": [3, 2], "pads": [0, 1, 2, 0]}),
    (18, (1, 16, 3, 4, 4), (2, 16, 2, 1, 3), {"pads": [1, 0, 1, 0, 1, 0]}),
    (18, (1, 16, 4, 4), (40, 16, 2, 2), {}),
    (18, (1, 16, 4, 5), (2, 16, 1, 3), {"pads": [0, 1, 0, 1]}),
    (18, (1, 2, 9, 9), (3, 2, 7, 7), {"pads": [3, 3, 3, 3], "strides": [2, 2]}),
    (18, (1, 4, 8, 7), (4, 2, 6, 6), {"pads": [2, 2, 2, 2], "group": 2}),
    (NEWEST, (2, 3, 5, 5), (4, 3, 3, 3), {"kernel_shape": [3, 3]}),
    (21, (2, 3, 5, 5), (4, 3, 3, 3), {"pads": [2, 2, 2, 2]}),
]
CONV_STATIC = [
    (18, (2, 3, 5, 6), (4, 3, 3, 3), {"auto_pad": "SAME_UPPER", "strides": [2, 2]}),
    (18, (2, 3, 6, 7), (4, 3, 2, 2), {"auto_pad": "SAME_LOWER", "strides": [2, 3]}),
]
TRANSPOSE = [
    (13, (2, 3, 4), (3, 2, 3), {}),
    (13, (2, 3, 3, 4), (3, 2, 3, 2), {}),
    (18, (2, 3, 3, 4), (3, 2, 3, 3), {"strides": [2, 2], "pads": [1, 1, 1, 1]}),
    (18, (2, 3, 3, 4), (3, 2, 3, 3), {"strides": [2, 2], "output_padding": [1, 1]}),
    (18, (2, 3, 3, 4), (3, 2, 2, 3), {"dilations": [2, 1], "pads": [1, 0, 0, 1]}),
    (18, (2, 4, 3, 3), (4, 2, 3, 3), {"group": 2, "pads": [1, 1, 1, 1]}),
    (18, (2, 4, 3, 3), (4, 1, 2, 2), {"group": 4, "strides": [2, 2]}),
    (18, (2, 2, 3, 3), (2, 2, 3, 3), {"auto_pad": "VALID", "strides": [2, 2]}),
    (18, (2, 2, 2, 3, 2), (2, 2, 2, 2, 3), {"strides": [2, 1, 2]}),
    (NEWEST, (2, 3, 3, 4), (3, 2, 3, 3), {"kernel_shape": [3, 3], "pads": [2, 1, 1, 2]}),
]
TRANSPOSE_STATIC = [
    (18, (2, 2, 3, 3), (2, 2, 3, 3), {"strides": [2, 2], "output_shape": [7, 8]}),
    (18, (2, 2, 3, 3), (2, 2, 3, 3), {"strides": [2, 2], "output_shape": [5, 6]}),
    (18, (2, 2, 3, 3), (2, 2, 3, 3), {"strides": [2, 2], "auto_pad": "SAME_UPPER"}),
    (18, (2, 2, 3, 3), (2, 2, 4, 3), {"strides": [3, 2], "auto_pad": "SAME_LOWER"}),
]


def _rows(op: str, table: list[tuple[int, tuple[int, ...], tuple[int, ...], dict]]) -> list[Row]:
    outputs = 0 if op == "Conv" else 1
    rows: list[Row] = []
    for number, (opset, x, w, attributes) in enumerate(table):
        count = w[outputs] * (attributes.get("group", 1) if outputs else 1)
        bias = ((count,),) if number % 2 else ()
        rows.append(Row(op, (x, w, *bias), attributes, opset=opset))
    return rows


ROWS = [*_rows("Conv", CONV), *_rows("ConvTranspose", TRANSPOSE)]
STATIC = [*_rows("Conv", CONV_STATIC), *_rows("ConvTranspose", TRANSPOSE_STATIC)]


@pytest.mark.share(2)
@pytest.mark.parametrize("row", [*ROWS, *STATIC], ids=str)
def test_the_gradient_of_a_convolution_equals_the_difference_quotient(row: Row) -> None:
    check_difference(row, static=True)


@pytest.mark.share(4, each="row.op")
@pytest.mark.parametrize("row", second_views(ROWS), ids=str)
def test_the_gradient_of_a_convolution_needs_no_static_lengths(row: Row) -> None:
    check_difference(row, static=False)


@pytest.mark.share(3, each="row.op")
@pytest.mark.parametrize("row", second_views(ROWS), ids=str)
def test_the_gradient_of_a_convolution_runs_in_float32(row: Row) -> None:
    check_float32(row)


def _conv(x: tuple[int, ...], w: tuple[int, ...], **attributes: Any) -> Row:
    return Row("Conv", (x, w), attributes)


def _transposed(x: tuple[int, ...], w: tuple[int, ...], **attributes: Any) -> Row:
    return Row("ConvTranspose", (x, w), attributes)


@pytest.mark.parametrize(
    ("row", "added"),
    [
        (_conv((1, 2, 4, 5), (3, 2, 1, 1)), ["Transpose", "Conv"]),
        (_conv((1, 2, 4), (3, 2, 1)), ["Transpose", "Conv"]),
        (_conv((1, 2, 4, 4), (3, 2, 1, 1), dilations=[2, 2]), ["Transpose", "Conv"]),
        (_conv((1, 2, 4, 4), (4, 1, 1, 1), group=2), ["ConvTranspose"]),
        (_conv((1, 2, 4, 5), (3, 2, 1, 2)), ["ConvTranspose"]),
        (_conv((1, 2, 4, 4), (3, 2, 2, 2), strides=[2, 2]), ["ConvTranspose"]),
        (_conv((1, 2, 4, 4), (3, 2, 1, 1), strides=[1, 2]), ["ConvTranspose"]),
        (_conv((1, 2, 4, 4), (3, 2, 1, 1), pads=[0, 1, 0, 0]), ["ConvTranspose"]),
        (_transposed((1, 2, 4, 4), (2, 3, 2, 2)), ["Conv"]),
        (_transposed((1, 2, 4), (2, 3, 2), strides=[2], output_padding=[0]), ["Conv"]),
        (_transposed((1, 2, 4), (2, 3, 2), strides=[2], output_padding=[1]), ["Conv", "Slice"]),
        (_transposed((1, 2, 4), (2, 3, 3), strides=[2], output_shape=[9]), ["Conv"]),
        (_transposed((1, 2, 4), (2, 3, 3), strides=[2], output_shape=[8]), ["Conv"]),
        (_transposed((1, 2, 4), (2, 3, 3), strides=[2], output_shape=[10]), ["Conv", "Slice"]),
        (_transposed((1, 2, 4), (2, 3, 2), strides=[2], auto_pad="SAME_UPPER"), ["Conv"]),
        (_transposed((1, 2, 4), (2, 3, 3), strides=[2], auto_pad="SAME_LOWER"), ["Conv"]),
        (_transposed((1, 2, 4), (2, 3, 2), strides=[3], auto_pad="SAME_LOWER"), ["Conv", "Slice"]),
    ],
    ids=str,
)
def test_the_gradient_of_what_is_convolved_takes_the_fewest_nodes(
    row: Row, added: list[str]
) -> None:
    assert operators(row, "x0") == added


def test_a_convolution_without_a_bias_sums_nothing() -> None:
    assert counts(_conv((1, 2, 4), (3, 2, 2)))["ReduceSum"] == 0
    with_bias = Row("Conv", ((1, 2, 4), (3, 2, 2), (3,)))
    assert operators(with_bias, "x2") == ["ReduceSum"]


NUMBERS = [
    Row("Conv", ((2, 3, 4, 5), (2, 3, 1, 1), (2,))),
    _conv((2, 3, 2, 2, 3), (2, 3, 1, 1, 1)),
    _conv((2, 3, 4), (2, 3, 1), pads=[1, 2]),
    _conv((2, 4, 3), (6, 2, 1), group=2),
    _conv((2, 2, 6, 7), (3, 2, 3, 2), strides=[2, 3], pads=[1, 0, 0, 1], dilations=[2, 1]),
    _conv((2, 2, 6, 6), (3, 2, 2, 2), strides=[2, 2]),
    _conv((2, 2, 7), (3, 2, 2), strides=[3], pads=[0, 2]),
    _conv((2, 2, 6), (3, 2, 3), pads=[1, 0]),
    _conv((2, 2, 6), (3, 2, 2), strides=[2], auto_pad="VALID"),
    _transposed((2, 2, 3, 4), (2, 3, 2, 3), strides=[2, 3], pads=[1, 0, 0, 2]),
    _transposed((2, 4, 3), (4, 2, 2), group=2, strides=[2], output_padding=[1]),
    Row("ConvTranspose", ((2, 2, 3, 2), (2, 3, 2, 2), (3,)), {"strides": [2, 1]}),
]
FIXED = [
    # ONNX Runtime has no kernel for more output padding than the strides
    _transposed((2, 2, 4), (2, 3, 3), dilations=[2], output_padding=[1]),
    _transposed((2, 2, 3, 4), (2, 3, 3, 2), dilations=[1, 3], output_padding=[0, 2]),
    _conv((2, 2, 6), (3, 2, 4), strides=[2], auto_pad="SAME_UPPER"),
    _conv((2, 2, 6), (3, 2, 4), strides=[2], auto_pad="SAME_LOWER"),
    _transposed((2, 2, 3), (2, 3, 4), strides=[2], output_shape=[7]),
    _transposed((2, 2, 3), (2, 3, 4), strides=[2], output_shape=[5], auto_pad="SAME_UPPER"),
    _transposed((2, 2, 3), (2, 3, 2), strides=[2], output_shape=[8]),
    _transposed((2, 2, 3), (2, 3, 4), strides=[2], output_padding=[1], output_shape=[6]),
    _transposed((2, 2, 3, 2), (2, 3, 2, 3), strides=[2, 3], output_shape=[7, 5]),
    _transposed((2, 2, 3), (2, 3, 4), strides=[1], auto_pad="SAME_UPPER"),
    _transposed((2, 2, 3), (2, 3, 4), strides=[1], auto_pad="SAME_LOWER"),
    _transposed((2, 2, 3), (2, 3, 2), strides=[3], auto_pad="SAME_UPPER"),
]


@pytest.mark.parametrize("row", [*NUMBERS, *FIXED], ids=str)
def test_a_convolution_of_any_window_has_the_gradient_of_the_difference_quotient(row: Row) -> None:
    check_difference(row, static=True)


@pytest.mark.parametrize("row", NUMBERS, ids=str)
def test_lengths_of_what_is_convolved_change_no_gradient(row: Row) -> None:
    check_opened(row, "x0")


@pytest.mark.parametrize(
    ("attributes", "opened", "message"),
    [
        ({"auto_pad": "SAME_UPPER"}, "x1", "needs the kernel's lengths"),
        ({"output_shape": [7]}, "x1", "needs the kernel's lengths"),
        ({"output_shape": [7]}, "x0", "needs spatial lengths"),
    ],
)
def test_a_transposed_convolution_says_which_lengths_it_needs(
    attributes: dict[str, Any], opened: str, message: str
) -> None:
    row = _transposed((2, 2, 3), (2, 3, 4), strides=[2], **attributes)
    with pytest.raises(GradientError, match=rf"'node'.*{message}, which the model leaves open"):
        differentiated(row, opened=[opened])


def test_auto_pad_that_follows_from_the_strides_needs_no_lengths() -> None:
    row = _transposed((2, 2, 3), (2, 3, 3), strides=[2], auto_pad="SAME_UPPER")
    assert isinstance(differentiated(row, opened=["x0"]), ir.Model)
