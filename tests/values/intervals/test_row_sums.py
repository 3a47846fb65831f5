"""The rows of constant weights: their layouts, and what they sum up to."""

from __future__ import annotations

import math

import numpy as np
import pytest

from amp_rewrite.values.intervals.interval import Interval, between, point
from amp_rewrite.values.intervals.row_sums import (
    RowSums,
    columns,
    filters,
    rows,
    transposed_filters,
)

INF = math.inf


def counted(*shape: int) -> np.ndarray:
    return np.arange(math.prod(shape)).reshape(shape)


def test_right_operands_have_a_row_for_each_column() -> None:
    assert columns(counted(2, 3)).tolist() == [[0, 3], [1, 4], [2, 5]]
    assert columns(counted(3)).tolist() == [[0, 1, 2]]
    assert columns(np.array(7)).tolist() == [[7]]
    weights = counted(2, 3, 4)
    found = columns(weights)
    assert found.shape == (8, 3)
    assert found.tolist() == [weights[b, :, o].tolist() for b in range(2) for o in range(4)]


def test_left_operands_have_a_row_for_each_row() -> None:
    assert rows(counted(2, 3)).tolist() == [[0, 1, 2], [3, 4, 5]]
    assert rows(counted(3)).tolist() == [[0, 1, 2]]
    assert rows(np.array(7)).tolist() == [[7]]
    assert rows(counted(2, 2, 3)).tolist() == counted(4, 3).tolist()


def test_convolutions_have_a_row_for_each_output() -> None:
    assert filters(counted(2, 3, 2)).tolist() == counted(2, 6).tolist()
    assert filters(counted(2)).tolist() == [[0], [1]]
    assert filters(np.array(7)).tolist() == [[7]]


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_transposed_convolutions_have_a_row_for_each_output_of_each_group(groups: int) -> None:
    weights, size = counted(4, 3, 2), 4 // groups
    found = transposed_filters(groups)(weights)
    expected = [
        weights[g * size : (g + 1) * size, o].reshape(-1).tolist()
        for g in range(groups)
        for o in range(3)
    ]
    assert found.tolist() == expected


@pytest.mark.parametrize(
    ("groups", "shape"), [(3, (4, 3, 2)), (0, (4, 3)), (-1, (4, 3)), (1, (4,)), (2, ())]
)
def test_what_no_transposed_convolution_has_is_one_row(groups: int, shape: tuple[int, ...]) -> None:
    found = transposed_filters(groups)(counted(*shape))
    assert found.tolist() == [list(range(math.prod(shape)))]


def test_the_layout_of_a_number_of_groups_is_one_so_that_sums_are_found_again() -> None:
    assert transposed_filters(7) is transposed_filters(7)
    assert transposed_filters(7) is not transposed_filters(9)


def test_a_matrix_of_one_axis_is_one_output_for_each_group_only_if_it_has_two_axes() -> None:
    assert transposed_filters(2)(counted(4, 1)).tolist() == [[0, 1], [2, 3]]


def test_sums_are_those_of_all_rows_together() -> None:
    found = RowSums.of(np.array([[1, 2, -3], [4, -1, -1]], np.float32))
    assert found == (3, (3, 4), (2, 3), 6)
    assert RowSums.of(np.array([[0.5], [-2]], np.float32)) == (1, (0, 0.5), (0, 2), 2)
    assert RowSums.of(np.array([[-1, -2]], np.float32)) == (2, (0, 0), (3, 3), 3)


def test_sums_of_many_short_numbers_are_exact() -> None:
    found = RowSums.of(np.full((1, 100), 60000, np.float16))
    assert found == (100, (6e6, 6e6), (0, 0), 6e6)


@pytest.mark.parametrize("number", [np.inf, -np.inf, np.nan])
def test_weights_that_are_not_finite_bound_nothing(number: float) -> None:
    sums = RowSums.of(np.array([[1, 2], [number, 1]], np.float32))
    assert sums.times(between(1, 2), 0.0) == between(-INF, INF)


MIXED = [[1, 2, -3], [4, -1, -1]]
POSITIVE = [[1, 2], [3, 4]]
NEGATIVE = [[-1, -2], [-3, -4]]


@pytest.mark.parametrize(
    ("matrix", "x", "expected"),
    [
        (MIXED, (1, 2), (-3, 6)),
        (MIXED, (-1, 2), (-10, 11)),
        (MIXED, (-2, 1), (-11, 10)),
        (MIXED, (-2, -1), (-6, 3)),
        (MIXED, (0, 2), (-6, 8)),
        (MIXED, (-2, 0), (-8, 6)),
        (POSITIVE, (1, 2), (3, 14)),
        (POSITIVE, (-2, -1), (-14, -3)),
        (POSITIVE, (-1, 2), (-7, 14)),
        (POSITIVE, (0, 2), (0, 14)),
        (NEGATIVE, (1, 2), (-14, -3)),
        (NEGATIVE, (-2, -1), (3, 14)),
        # no row has both what is positive and what is negative
        ([[4, 0], [0, -4]], (-1, 1), (-4, 4)),
        ([[4, 0], [0, -4]], (-3, 2), (-12, 12)),
        ([[4, 0], [0, -4]], (-2, 3), (-12, 12)),
        (POSITIVE, (0, INF), (0, INF)),
        (MIXED, (-INF, INF), (-INF, INF)),
        ([[0, 0]], (-INF, INF), (0, 0)),
    ],
)
def test_positive_weights_meet_one_end_and_negative_ones_the_other(
    matrix: list[list[float]], x: tuple[float, float], expected: tuple[float, float]
) -> None:
    found = RowSums.of(np.array(matrix, np.float64)).times(between(*x), 1e-300)
    assert found == between(*expected)


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
