"""Histograms of magnitudes: which power of two an element counts under."""

from __future__ import annotations

import numpy as np
import pytest
from rewrite_text import parse

from amp_rewrite.numerics.ranges.histograms import Histogram, magnitude_histograms

MODEL = "g (float[N] x, int64[N] i) => (float[N] y) { y = Neg(x) j = Neg(i) }"


def histogram(*batches: list[float]) -> Histogram:
    feeds = [{"x": np.array(b, np.float32), "i": np.zeros(len(b), np.int64)} for b in batches]
    return magnitude_histograms(parse(MODEL), ["y", "j"], feeds)["y"]


@pytest.mark.parametrize(
    ("number", "exponent"),
    [
        (1.0, 0),
        (-1.0, 0),
        (1.999, 0),
        (2.0, 1),
        (0.5, -1),
        (0.49, -2),
        (65504.0, 15),
        (1e-45, -149),
    ],
)
def test_an_element_counts_under_the_power_of_two_below_it(number: float, exponent: int) -> None:
    found = histogram([number])
    assert (found.first, found.counts) == (exponent, (1,))
    assert found.smallest == found.largest == abs(np.float32(number))


def test_batches_add_up_and_zeros_and_nonfinite_elements_count_apart() -> None:
    found = histogram([0.0, 1.0, 4.0], [np.inf, np.nan, 1.5, -0.0])
    assert (found.first, found.counts) == (0, (2, 0, 1))
    assert (found.zeros, found.nonfinite) == (2, 2)
    assert (found.smallest, found.largest) == (1.0, 4.0)
