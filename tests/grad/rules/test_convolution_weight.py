"""The form of the gradient of a convolution's weight, and its numbers in each form."""

from __future__ import annotations

from typing import Any

import pytest
from gradient_nodes import check_opened, counts, nodes
from gradient_table import Row, check_difference


def conv(x: tuple[int, ...], w: tuple[int, ...], **attributes: Any) -> Row:
    return Row("Conv", (x, w), attributes)


def form(row: Row, **known: Any) -> str:
    """Return the form of the weight's gradient, by the nodes that it takes."""
    made = counts(row, "x1", **known)
    if made["Conv"]:
        return "swapped"
    if made["MatMul"]:
        return "columns of groups"
    products = [n for n in nodes(row, "x1", **known) if n.op_type == "Gemm"]
    if products[0].attributes.get_int("transA", 0):
        return f"{len(products)} taps"
    return "columns" if len(products) == 1 else f"{len(products)} rows"


FORMS = [
    (conv((1, 2, 9, 9), (3, 2, 5, 5)), "columns"),
    (conv((1, 2, 30), (3, 2, 25)), "columns"),
    (conv((1, 2, 30), (3, 2, 26)), "swapped"),
    (conv((1, 4, 6), (4, 2, 3), group=2), "columns of groups"),
    (conv((1, 64, 6), (4, 32, 3), group=2), "columns of groups"),
    (conv((1, 4, 30), (4, 2, 26), group=2), "swapped"),
    (conv((1, 32, 3, 3), (2, 32, 1, 1)), "columns"),
    (conv((1, 16, 3, 3), (2, 16, 1, 1)), "columns"),
    (conv((1, 15, 6), (2, 15, 3)), "columns"),
    (conv((1, 16, 6), (2, 16, 3)), "3 rows"),
    (conv((1, 31, 6), (2, 31, 3)), "3 rows"),
    (conv((1, 32, 6), (2, 32, 3)), "3 taps"),
    (conv((1, 33, 6), (2, 33, 3)), "3 taps"),
    (conv((1, 16, 6), (2, 16, 3), strides=[2]), "3 taps"),
    (conv((1, 15, 6), (2, 15, 3), strides=[2]), "columns"),
    (conv((1, 16, 5, 5), (2, 16, 2, 3), strides=[1, 2]), "6 taps"),
    (conv((1, 16, 6), (32, 16, 3)), "3 rows"),
    (conv((1, 16, 6), (33, 16, 3)), "columns"),
    (conv((1, 16, 5, 5), (2, 16, 2, 3)), "2 rows"),
    (conv((1, 16, 5, 5), (2, 16, 1, 3)), "columns"),
]


@pytest.mark.parametrize(("row", "expected"), FORMS, ids=str)
def test_the_form_follows_from_the_sizes(row: Row, expected: str) -> None:
    assert form(row) == expected
    assert form(row, opened=["x0"]) == expected
    products = [n for n in nodes(row, "x1") if n.op_type == "Gemm"]
    assert all(a.value in (0, 1) for n in products for a in n.attributes.values())


PLAIN = [
    (conv((1, 2, 4, 5), (3, 2, 1, 1)), ["Transpose", "Transpose", "Reshape", "Reshape", "Gemm"]),
    (conv((1, 2, 30), (3, 2, 26)), ["Transpose", "Transpose", "Conv", "Slice", "Transpose"]),
]


NUMBERS = [
    # columns, and columns of groups
    conv((2, 3, 5, 4), (4, 3, 3, 2), pads=[1, 0, 0, 2], strides=[2, 1], dilations=[1, 2]),
    conv((2, 3, 4, 5), (2, 3, 2, 2), strides=[2, 2]),
    conv((2, 3, 4), (2, 3, 1), pads=[1, 2]),
    conv((2, 3, 4, 5), (2, 3, 1, 1), strides=[2, 3]),
    conv((2, 6, 5, 4), (4, 3, 2, 3), group=2, pads=[0, 1, 1, 0]),
    conv((2, 6, 5), (6, 2, 2), group=3, strides=[2]),
    # taps
    conv((2, 16, 5, 6), (3, 16, 2, 3), pads=[0, 1, 2, 0], strides=[2, 1], dilations=[1, 2]),
    conv((2, 32, 5), (3, 32, 2), pads=[1, 0]),
    # rows
    conv((2, 16, 5, 6), (3, 16, 2, 3), pads=[0, 1, 2, 0], dilations=[3, 2]),
    conv((2, 16, 6), (3, 16, 3), pads=[2, 1], dilations=[2]),
    conv((1, 16, 3, 4, 4), (2, 16, 2, 1, 3), pads=[1, 0, 1, 0, 1, 0]),
    conv((1, 16, 2, 67), (2, 16, 2, 2)),
    # swapped
    conv((2, 2, 33), (3, 2, 26), strides=[2], pads=[3, 1]),
    conv((2, 4, 8, 10), (4, 2, 4, 7), group=2, pads=[0, 1, 2, 0], strides=[2, 1]),
]


@pytest.mark.parametrize("row", NUMBERS, ids=str)
def test_every_form_has_the_gradient_of_the_difference_quotient(row: Row) -> None:
    check_difference(row, static=True)


@pytest.mark.parametrize("row", NUMBERS, ids=str)
def test_the_form_without_lengths_has_the_same_gradient(row: Row) -> None:
    check_opened(row, "x0", "x1")
