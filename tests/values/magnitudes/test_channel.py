"""Channels that are far larger than others: their arithmetic, and which of a constant are."""

from __future__ import annotations

import numpy as np
import pytest

from amp_rewrite.values.magnitudes.channel import (
    FACTOR,
    FEWEST,
    Channel,
    outliers_of_rows,
)


def rows(large: float, length: int = 9, place: int = 2) -> np.ndarray:
    """Return two rows whose columns have size 1, but for one."""
    found = np.ones((2, length), np.float32)
    found[1] = -1
    found[:, place] = (large, -large / 2)
    return found


@pytest.mark.parametrize(("times", "found"), [(FACTOR, False), (FACTOR * 1.01, True)])
def test_an_outlier_is_more_than_eight_times_the_median(times: float, found: bool) -> None:
    elements = np.ones((1, 9))
    elements[0, 4] = -times
    large = outliers_of_rows(elements)
    assert (large is not None) is found
    if large is not None:
        assert large.channels == {4: Channel(-times, 0.0, times)}


@pytest.mark.parametrize(("length", "found"), [(FEWEST - 1, False), (FEWEST, True)])
def test_of_few_channels_none_is_a_rule(length: int, found: bool) -> None:
    assert (outliers_of_rows(rows(40.0, length)) is not None) is found
