from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gradient_nodes import differentiated, operators
from gradient_table import NEWEST, Constant, Row

from amp_rewrite.grad import GradientError
from amp_rewrite.grad.rules import convolution

CONV = [
    (16, (2, 3, 6), (4, 3, 3), {}),
    (16, (2, 3, 5, 6), (4, 3, 3, 2), {}),
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
    (16, (2, 3, 4), (3, 2, 3), {}),
    (16, (2, 3, 3, 4), (3, 2, 3, 2), {}),
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
FLIPPED = [
    ((2, 4, 7), (2, 4, 3), {"pads": [1, 0]}),
    ((2, 3, 5, 6), (3, 1, 3, 2), {"group": 3, "pads": [1, 0, 2, 1]}),
    ((1, 3, 8, 7), (3, 1, 3, 3), {"group": 3, "dilations": [2, 1], "pads": [4, 2, 0, 1]}),
    ((2, 4, 5, 6), (1, 4, 3, 3), {"dilations": [1, 2]}),
    ((1, 5, 4, 5), (2, 5, 2, 3), {"auto_pad": "SAME_LOWER", "kernel_shape": [2, 3]}),
    ((1, 1, 6), (1, 1, 4), {}),
    ((1, 4, 4, 5, 4), (2, 4, 2, 3, 2), {"pads": [1, 2, 0, 0, 1, 1]}),
    ((2, 2, 4, 3, 4), (2, 1, 1, 3, 2), {"group": 2, "pads": [0, 2, 1, 0, 0, 1]}),
    ((1, 2, 3, 3), (2, 1, 1, 1), {"group": 2}),
]
"""Shapes of x and of a constant w whose gradient by x is a convolution with the flipped w."""
NOT_FLIPPED = [
    ((1, 4, 5, 5), (4, 4, 3, 3), {}),
    ((1, 2, 5, 5), (4, 2, 3, 3), {}),
    ((1, 4, 5, 5), (4, 2, 3, 3), {"group": 2}),
    ((1, 2, 5, 5), (4, 1, 3, 3), {"group": 2}),
    ((1, 4, 5, 5), (2, 4, 3, 3), {"pads": [3, 0, 0, 0]}),
    ((1, 4, 6, 5), (2, 4, 3, 3), {"strides": [2, 1]}),
]


def _constant(x: tuple[int, ...], w: tuple[int, ...], attributes: dict[str, Any]) -> Row:
    weight = np.random.default_rng(1).standard_normal(w)
    shape = "x".join(map(str, w))
    return Row("Conv", (x, Constant(weight)), attributes, note=f"constant-{shape}")


def _rows(
    op: str, table: list[tuple[int, tuple[int, ...], tuple[int, ...], dict]], lengths: str = ""
) -> list[Row]:
    outputs = 0 if op == "Conv" else 1
    rows: list[Row] = []
    for number, (opset, x, w, attributes) in enumerate(table):
        count = w[outputs] * (attributes.get("group", 1) if outputs else 1)
        bias = ((count,),) if number % 2 else ()
        rows.append(Row(op, (x, w, *bias), attributes, opset=opset, lengths=lengths))
    return rows


ROWS = [
    *_rows("Conv", CONV),
    *_rows("ConvTranspose", TRANSPOSE),
    *_rows("Conv", CONV_STATIC, "the padding depends on them"),
    *_rows("ConvTranspose", TRANSPOSE_STATIC, "the padding depends on them"),
    *(_constant(*row) for row in (*FLIPPED, *NOT_FLIPPED)),
]


@pytest.mark.parametrize("row", FLIPPED, ids=str)
def test_the_gradient_by_data_is_a_convolution_with_the_flipped_weight(row: Any) -> None:
    assert operators(_constant(*row)).count("Conv") == 1
    assert "ConvTranspose" not in operators(_constant(*row))
    x, w, attributes = row
    assert "ConvTranspose" in operators(Row("Conv", (x, w), attributes))


@pytest.mark.parametrize("op", ["Conv", "ConvTranspose"])
def test_no_gradient_of_a_constant_weight_is_built(
    op: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(convolution, "weight_gradient", lambda *args: asked.append(args))
    x, w = (1, 2, 5), np.ones((2, 2, 3))
    differentiated(Row(op, (x, Constant(w))))
    assert not asked
    with pytest.raises(AssertionError, match="no gradient for x1"):
        differentiated(Row(op, (x, w.shape)))
    assert len(asked) == 1


def test_so_it_is_where_a_transposed_convolution_has_many_columns() -> None:
    weight = Constant(np.ones((2, 2, 1, 1024)))
    for length, op in ((2**13 - 1, "ConvTranspose"), (2**13, "Conv")):
        assert op in operators(Row("Conv", ((1, 2, 1, length), weight)))


@pytest.mark.parametrize("row", NOT_FLIPPED, ids=str)
def test_the_gradient_by_data_is_a_transposed_convolution(row: Any) -> None:
    assert "Conv" not in operators(_constant(*row))


def _transposed(x: tuple[int, ...], w: tuple[int, ...], **attributes: Any) -> Row:
    return Row("ConvTranspose", (x, w), attributes)


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
