from __future__ import annotations

from typing import Any

import pytest
from gradient_nodes import check_opened
from gradient_table import Row, check_difference
from window_grid import AUTO_PADDED, CONVOLUTIONS, POOLS

ROWS = [*CONVOLUTIONS, *POOLS, *AUTO_PADDED]


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
