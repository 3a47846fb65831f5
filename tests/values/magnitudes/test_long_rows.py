"""Rows of long weights are measured block by block where a sample says that some may be large."""

import numpy as np
import pytest

from amp_rewrite.graph.streams import Stream
from amp_rewrite.values.intervals import row_sums
from amp_rewrite.values.magnitudes.estimate import WeightRows
from amp_rewrite.values.magnitudes.long_rows import long_rows


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


@pytest.mark.parametrize(("norm", "is_read"), [(109.0, False), (110.0, True)])
def test_a_weight_is_read_if_a_row_may_exceed_256(norm, is_read):
    """By Cauchy and Schwarz: 600 elements with a sum of squares of 109.2 at most."""
    weight = fourier(600)
    stream = Stream(weight.size, weight.dtype, weight.reshape(-1))
    sampled = WeightRows(0.0, 0.0, norm)
    for layout, shape in (
        (row_sums.rows, (600, 600)),
        (row_sums.columns, (600, 600)),
        (row_sums.filters, (600, 30, 20)),
    ):
        assert (long_rows(sampled, stream, shape, layout) is not sampled) is is_read


def test_terms_are_the_rows_for_columns_and_all_other_axes_for_filters():
    """A row of 1,000 elements may exceed 256 where one of 360 may not."""
    weight = np.ones((360, 1000), np.float32)
    stream = Stream(weight.size, weight.dtype, weight.reshape(-1))
    sampled = WeightRows(0.0, 0.0, 100.0)
    assert long_rows(sampled, stream, (360, 1000), row_sums.columns) is sampled
    found = long_rows(sampled, stream, (360, 1000), row_sums.rows)
    assert found == WeightRows(1000.0, 0.0, 1000.0, 1000.0)
    found = long_rows(sampled, stream, (1000, 360), row_sums.columns)
    assert found == WeightRows(1000.0, 0.0, 1000.0, 1000.0)
    assert long_rows(sampled, stream, (1000, 360), row_sums.rows) is sampled
    assert long_rows(sampled, stream, (1000, 36, 10), row_sums.rows) is sampled
    assert long_rows(sampled, stream, (10, 100, 360), row_sums.rows) is sampled
