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
