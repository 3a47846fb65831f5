"""The rows of constant weights: their layouts, and what they sum up to."""

from __future__ import annotations

import math

import numpy as np
import pytest

from amp_rewrite.values.intervals.interval import Interval, between, point
from amp_rewrite.values.intervals.row_sums import (
    RowSums,
    transposed_filters,
)

INF = math.inf


def counted(*shape: int) -> np.ndarray:
    return np.arange(math.prod(shape)).reshape(shape)


@pytest.mark.parametrize(
    ("groups", "shape"), [(3, (4, 3, 2)), (0, (4, 3)), (-1, (4, 3)), (1, (4,)), (2, ())]
)
def test_what_no_transposed_convolution_has_is_one_row(groups: int, shape: tuple[int, ...]) -> None:
    found = transposed_filters(groups)(counted(*shape))
    assert found.tolist() == [list(range(math.prod(shape)))]


def test_sums_of_many_short_numbers_are_exact() -> None:
    found = RowSums.of(np.full((1, 100), 60000, np.float16))
    assert found == (100, (6e6, 6e6), (0, 0), 6e6)


@pytest.mark.parametrize("number", [np.inf, -np.inf, np.nan])
def test_weights_that_are_not_finite_bound_nothing(number: float) -> None:
    sums = RowSums.of(np.array([[1, 2], [number, 1]], np.float32))
    assert sums.times(between(1, 2), 0.0) == between(-INF, INF)


MIXED = [[1, 2, -3], [4, -1, -1]]
POSITIVE = [[1, 2], [3, 4]]


@pytest.mark.parametrize(
    ("matrix", "x", "share", "expected"),
    [
        (MIXED, between(1, 2), 1 / 64, (-3.75, 6.75)),
        (POSITIVE, between(1, 2), 1 / 64, (2.34375, 14.65625)),
        (POSITIVE, between(-2, -1), 1 / 64, (-14.65625, -2.34375)),
        # the error is larger than the sum, whose sign stays
        (POSITIVE, between(1, 2), 1 / 8, (0, 19.25)),
        (POSITIVE, between(-2, -1), 1 / 8, (-19.25, 0)),
        (POSITIVE, between(0, 2), 1 / 8, (0, 19.25)),
        (POSITIVE, between(-2, 0), 1 / 8, (-19.25, 0)),
        ([[1]], between(0.25, 4), 1 / 8, (0, 5)),
        ([[1]], between(-4, -0.25), 1 / 8, (-5, 0)),
        ([[1]], point(-0.5), 1 / 8, (-0.625, -0.375)),
        ([[1]], point(0.5), 1 / 8, (0.375, 0.625)),
    ],
)
def test_every_addition_rounds(
    matrix: list[list[float]], x: Interval, share: float, expected: tuple[float, float]
) -> None:
    assert RowSums.of(np.array(matrix, np.float64)).times(x, share) == between(*expected)
