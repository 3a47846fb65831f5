"""Estimates of means and deviations against samples."""

from __future__ import annotations

import math

import numpy as np
import pytest

from amp_rewrite.values.intervals.interval import between
from amp_rewrite.values.magnitudes import estimate as e
from amp_rewrite.values.magnitudes.estimate import DOUBT, Estimate, WeightRows

RNG = np.random.default_rng(0)
N = 200_000
CASES = [Estimate(0.0, 1.0), Estimate(2.0, 1.0), Estimate(-3.0, 2.0), Estimate(5.0, 0.1)]


def sample(a: Estimate) -> np.ndarray:
    return RNG.normal(a.mean, a.spread, N)


def assert_alike(found: Estimate, numbers: np.ndarray) -> None:
    room = 0.03 * max(1.0, numbers.std())
    assert found.mean == pytest.approx(numbers.mean(), abs=room)
    assert found.spread == pytest.approx(numbers.std(), rel=0.03, abs=0.01)


@pytest.mark.parametrize("a", CASES)
def test_what_is_rectified_or_squared(a: Estimate) -> None:
    assert_alike(a.rectified(), np.maximum(sample(a), 0))
    assert_alike(e.squared(a), sample(a) ** 2)
    assert_alike(a.scaled(-0.5), -0.5 * sample(a))


@pytest.mark.parametrize("a", CASES)
@pytest.mark.parametrize("b", CASES)
def test_sums_and_products_of_independent_numbers(a: Estimate, b: Estimate) -> None:
    assert_alike(e.add(a, b), sample(a) + sample(b))
    assert_alike(e.multiply(a, b), sample(a) * sample(b))


def test_an_interval_is_filled_evenly() -> None:
    assert_alike(e.of_bounds(between(0.0, 255.0)), RNG.uniform(0, 255, N))


def test_constants_and_zeros_are_rectified_without_a_deviation() -> None:
    assert Estimate(3.0, 0.0).rectified() == Estimate(3.0, 0.0)
    assert Estimate(-3.0, 0.0).rectified() == Estimate(0.0, 0.0)


def test_squares_of_unscaled_inputs_have_room_for_bytes() -> None:
    unscaled, scaled = e.squared(Estimate(0.0, 1.0, 1.0)), e.squared(Estimate(0.0, 1.0))
    assert unscaled.largest == pytest.approx(e.BYTE * scaled.largest)
    assert Estimate(0.0, 1.0, 1.0).largest == Estimate(0.0, 1.0).largest


def test_positive_weights_add_up_and_mixed_ones_cancel() -> None:
    x = Estimate(1.0, 0.0)
    assert WeightRows.of(np.full((8, 64), 0.5, np.float32)).applied(x) == Estimate(32.0, 0.0)
    signs = RNG.choice([-0.5, 0.5], (512, 64)).astype(np.float32)
    mixed = WeightRows.of(signs).applied(x)
    assert abs(mixed.mean) < 1
    assert mixed.spread * DOUBT == pytest.approx(0.5 * 8, rel=0.2)


def test_a_sample_of_long_weights_says_what_all_of_them_do() -> None:
    weights = RNG.normal(0.01, 0.1, (256, 256))
    whole, part = WeightRows.of(weights), WeightRows.sampled(weights[:64].ravel(), 256)
    assert part.total == pytest.approx(whole.total, rel=0.3)
    assert part.norm == pytest.approx(whole.norm, rel=0.1)


@pytest.mark.parametrize("known", [0.0, 1.0, 20.0, 100.0, 1000.0, 5000.0])
def test_what_is_known_of_a_sum_has_no_room_for_bytes(known: float) -> None:
    square, constant = e.squared(Estimate(0.0, 1.0, 1.0)), Estimate(known, 0.0)
    apart = square.largest + constant.largest
    for whole in (e.add(square, constant), e.mixed(square, constant)):
        assert 0.5 * apart <= whole.largest <= 1.01 * apart


def test_a_square_of_a_sum_has_the_room_of_its_unknown_part() -> None:
    x = Estimate(0.0, 1.0, 1.0)
    assert e.squared(e.add(x, Estimate(0.1, 0.0))).degree == pytest.approx(2.0, abs=0.05)
    assert e.squared(e.add(x, Estimate(255.0, 0.0))).degree < 0.3


def test_parts_without_size_or_beyond_any_number_have_the_largest_degree() -> None:
    nothing = Estimate(0.0, 0.0, 1.0)
    assert e.add(nothing, nothing).degree == 1.0
    assert e.add(nothing, Estimate(0.0, 0.0)).degree == 1.0
    assert e.add(nothing, Estimate(1.0, 0.0)).degree == 0.0
    assert e.add(Estimate(math.inf, 0.0), Estimate(1.0, 0.0, 2.0)).degree == 2.0


def test_the_largest_number_has_room_above_mean_deviation_and_largest_row() -> None:
    assert Estimate(2.0, 3.0).largest == 12 * 2 + 6 * 3
    assert Estimate(-2.0, 3.0).largest == 12 * 2 + 6 * 3
    assert Estimate(0.0, 1.0, row=5.0).largest == 20
    assert Estimate(0.0, 1.0, column=5.0).largest == 20
    assert Estimate(0.0, 1.0, row=1.0, column=1.0).largest == 6
    assert Estimate(0.0, 1.0, 0.5).largest == 6
    assert Estimate(0.0, 1.0, 2.0, row=5.0).largest == 255 * 20
    assert Estimate(0.0, 1.0, 1e9).largest == pytest.approx(6 * 255.0**100)


def test_size_and_square_of_an_estimate() -> None:
    assert Estimate(-3.0, 4.0).square == 25
    assert Estimate(-3.0, 4.0).size == 5


def test_a_factor_scales_all_of_an_estimate_but_its_degree() -> None:
    assert Estimate(2.0, 3.0, 1.5, 4.0, 5.0).scaled(-2.0) == Estimate(-4.0, 6.0, 1.5, 8.0, 10.0)


def test_what_is_turned_exchanges_rows_and_columns() -> None:
    assert Estimate(2.0, 3.0, 1.5, 4.0, 5.0).turned() == Estimate(2.0, 3.0, 1.5, 5.0, 4.0)


def test_what_is_rectified_keeps_its_degree() -> None:
    assert Estimate(1.0, 1.0, 1.5).rectified().degree == 1.5
    assert Estimate(-1.0, 0.0, 1.5).rectified() == Estimate(0.0, 0.0, 1.5)


@pytest.mark.parametrize(("mean", "expected"), [(3.0, 3.0), (-3.0, 0.0)])
def test_an_infinite_deviation_stays_one_behind_a_rectifier(mean: float, expected: float) -> None:
    assert Estimate(mean, math.inf).rectified() == Estimate(expected, math.inf)


def test_what_is_far_below_zero_is_nothing_behind_a_rectifier() -> None:
    assert Estimate(-1e6, 1.0).rectified() == pytest.approx(Estimate(0.0, 0.0), abs=1e-9)
    assert Estimate(1e6, 1.0).rectified().mean == pytest.approx(1e6)


def test_moments_and_bounds_give_an_estimate() -> None:
    assert e.of_moments(3.0, 25.0, 1.5) == Estimate(3.0, 4.0, 1.5)
    assert e.of_moments(3.0, 9.0) == Estimate(3.0, 0.0)
    assert e.of_moments(3.0, 8.9999) == Estimate(3.0, 0.0)
    bounds = e.of_bounds(between(-2.0, 8.0), 1.5)
    assert bounds == pytest.approx(Estimate(3.0, 10 / math.sqrt(12), 1.5))


def test_a_sum_adds_rows_and_columns_and_the_squares_of_deviations() -> None:
    found = e.add(Estimate(1.0, 3.0, 0.0, 2.0, 4.0), Estimate(-5.0, 4.0, 0.0, 10.0, 20.0))
    assert found == Estimate(-4.0, 5.0, 0.0, 12.0, 24.0)


def test_a_product_has_the_larger_degree_and_a_square_twice_that_of_its_factor() -> None:
    a, b = Estimate(1.0, 2.0, 1.0), Estimate(3.0, 1.0, 2.0)
    assert e.multiply(a, b) == e.multiply(b, a) == Estimate(3.0, 41**0.5, 2.0)
    assert e.squared(Estimate(1.0, 2.0, 1.5)) == Estimate(5.0, 48**0.5, 3.0)


def test_mixed_numbers_are_as_large_as_the_largest_of_them() -> None:
    assert e.mixed(Estimate(3.0, 4.0), Estimate(-1.0, 2.0)) == Estimate(1.0, 24**0.5)
    three = e.mixed(Estimate(3.0, 0.0), Estimate(0.0, 0.0), Estimate(0.0, 0.0))
    assert three == pytest.approx(Estimate(1.0, 8**0.5))


def test_the_degree_of_a_sum_is_that_of_the_part_that_bytes_make_largest() -> None:
    """Of 255 + x with x of size 1 bytes make 255 + 255, which is the root of 255 times less."""
    for found in (
        e.add(Estimate(255.0, 0.0), Estimate(0.0, 1.0, 1.0)),
        e.add(Estimate(0.0, 1.0, 1.0), Estimate(255.0, 0.0)),
    ):
        assert found.degree == pytest.approx(1 + math.log(2 / 256) / math.log(255))
    mixed = e.mixed(Estimate(255.0, 0.0), Estimate(0.0, 1.0, 1.0))
    assert mixed.degree == pytest.approx(0.0, abs=1e-9)
    assert e.add(Estimate(1.0, 0.0, 2.0), Estimate(1.0, 0.0, 2.0)).degree == 2.0


def test_rows_are_measured_by_their_sums_and_squares() -> None:
    found = WeightRows.of(np.array([[1, 2], [3, -4]], np.float32))
    assert found == WeightRows(1.0, 4.0, 15.0, 3.0)
    assert WeightRows.of_sums(np.array([-5.0, 1.0, 1.0]), 30.0) == WeightRows(-1.0, 8.0, 10.0, 5.0)


def test_rows_of_small_types_are_summed_in_double_precision() -> None:
    found = WeightRows.of(np.full((2, 4096), 100, np.float16))
    assert found == WeightRows(409600.0, 0.0, 4096e4, 409600.0)


def test_a_sample_stands_for_rows_of_a_number_of_terms() -> None:
    assert WeightRows.sampled(np.array([1.0, 3.0]), 10.0) == WeightRows(20.0, 10.0, 50.0)


def test_half_of_the_variance_of_the_terms_is_common() -> None:
    rows, x = WeightRows(3.0, 7.0, 10.0, 9.0), Estimate(2.0, 1.0, 1.5, 5.0, 6.0)
    spread = math.sqrt(0.5 * 10 + 0.5 * 16 + 4 * 7) / DOUBT
    assert rows.applied(x) == pytest.approx(Estimate(6.0, spread, 1.5))


@pytest.mark.parametrize(("row", "mean", "column"), [(5.0, 2.0, 45.0), (1.0, -2.0, 18.0)])
def test_the_largest_row_of_weights_makes_a_column_and_that_of_x_a_row(
    row: float, mean: float, column: float
) -> None:
    rows = WeightRows(-3.0, 7.0, 10.0, 9.0)
    found = rows.applied_to_rows(Estimate(mean, 1.0, 1.5, row, 6.0))
    assert (found.row, found.column) == (3 * row, column)
    assert found[:3] == rows.applied(Estimate(mean, 1.0, 1.5))[:3]
