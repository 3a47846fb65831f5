from __future__ import annotations

import pytest
from gradient_table import Row, check_difference, check_float32, second_views
from torch_table import TorchRow, check_torch
from window_grid import AUTO_PADDED, CONVOLUTIONS, POOLS

ROWS = [case.row for case in (*CONVOLUTIONS, *POOLS)]


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


@pytest.mark.share(3)
@pytest.mark.parametrize("case", [*CONVOLUTIONS, *POOLS], ids=str)
def test_every_window_has_the_gradient_that_it_has_in_pytorch(case: TorchRow) -> None:
    check_torch(case)
