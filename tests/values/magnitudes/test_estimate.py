"""Estimates of means and deviations against samples."""

from __future__ import annotations

import math

import numpy as np
import pytest

from amp_rewrite.graph.streams import Stream
from amp_rewrite.values.intervals import row_sums
from amp_rewrite.values.intervals.interval import between
from amp_rewrite.values.magnitudes import estimate as e
from amp_rewrite.values.magnitudes.estimate import DOUBT, Estimate, WeightRows, long_rows

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


def fourier(points: int) -> np.ndarray:
    steps = np.arange(points)
    return np.cos(2 * np.pi * np.outer(steps, steps) / points).astype(np.float32)


def measured(weight: np.ndarray, layout: row_sums.Layout) -> WeightRows:
    terms = len(weight) if layout is row_sums.columns else weight[0].size
    sampled = WeightRows.sampled(weight.reshape(-1)[:4096].astype(np.float64), terms)
    stream = Stream(weight.size, weight.dtype, weight.reshape(-1))
    return long_rows(sampled, stream, weight.shape, layout)


@pytest.mark.parametrize(
    ("weight", "layout"),
    [
        (np.roll(fourier(600), 300, axis=1)[:, :400], row_sums.columns),
        (np.roll(fourier(600), 300, axis=0)[:400], row_sums.rows),
        (fourier(600).reshape(600, 1, 600), row_sums.filters),
    ],
    ids=["columns", "rows", "filters"],
)
def test_rows_of_large_elements_are_measured_as_those_of_short_weights(weight, layout):
    found, expected = measured(weight, layout), WeightRows.of(layout(weight))
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)
    assert found.peak == pytest.approx(600)


@pytest.mark.parametrize("layout", [row_sums.columns, row_sums.rows])
def test_a_layer_is_left_to_its_sample(layout):
    weight = np.random.default_rng(0).standard_normal((600, 600)).astype(np.float32) / 24
    assert measured(weight, layout).peak == 0


def test_a_weight_of_more_axes_and_one_of_unknown_length_are_left_to_a_sample():
    sampled = WeightRows(0.0, 0.0, 1e6)
    weight = fourier(600)
    stream = Stream(weight.size, weight.dtype, weight.reshape(-1))
    assert long_rows(sampled, stream, (2, 300, 600), row_sums.columns) is sampled
    assert long_rows(sampled, stream, (None, 600), row_sums.rows) is sampled
    assert long_rows(sampled, None, (600, 600), row_sums.rows) is sampled
