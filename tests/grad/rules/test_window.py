from __future__ import annotations

from typing import Any

import pytest
from gradient_nodes import check_opened
from gradient_table import Row, check_difference, check_float32, second_views
from window_grid import AUTO_PADDED, CONVOLUTIONS, POOLS

ROWS = [*CONVOLUTIONS, *POOLS]


@pytest.mark.share(7, each="row.op")
@pytest.mark.parametrize("row", [*ROWS, *AUTO_PADDED], ids=str)
def test_every_window_has_the_gradient_of_the_difference_quotient(row: Row) -> None:
    check_difference(row, static=True)


@pytest.mark.parametrize("row", second_views(ROWS), ids=str)
def test_the_gradient_of_a_window_needs_no_static_lengths(row: Row) -> None:
    check_difference(row, static=False)


@pytest.mark.parametrize("row", second_views(ROWS), ids=str)
def test_the_gradient_of_a_window_runs_in_float32(row: Row) -> None:
    check_float32(row)


UPPER, LOWER = {"auto_pad": "SAME_UPPER"}, {"auto_pad": "SAME_LOWER"}


def conv(x: tuple[int, ...], w: tuple[int, ...], **attributes: Any) -> Row:
    return Row("Conv", (x, w), attributes)


NUMBERS = [
    conv((2, 2, 6), (3, 2, 3), strides=[2]),
    conv((2, 2, 7), (3, 2, 3), strides=[2]),
    conv((2, 2, 5), (3, 2, 2), strides=[2], pads=[0, 2]),
    conv((2, 2, 6), (3, 2, 2), strides=[4], pads=[1, 1]),
    conv((2, 2, 7, 6), (3, 2, 3, 2), strides=[2, 3], pads=[0, 1, 0, 0]),
    conv((2, 2, 7, 8), (3, 2, 2, 2), strides=[2, 1], dilations=[2, 3], pads=[2, 0, 1, 1]),
]


@pytest.mark.parametrize("row", NUMBERS, ids=str)
def test_elements_that_no_window_reaches_get_zero(row: Row) -> None:
    check_difference(row, static=True)
    check_opened(row, "x0")
