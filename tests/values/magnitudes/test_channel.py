"""Channels that are far larger than others: their arithmetic, and which of a constant are."""

from __future__ import annotations

import math

import numpy as np
import pytest

from amp_rewrite.values.magnitudes.channel import (
    FACTOR,
    FEWEST,
    Channel,
    LargeChannels,
    largest_of,
    outliers_of_rows,
)
from amp_rewrite.values.magnitudes.estimate import Estimate


def test_a_channel_of_normal_numbers_reaches_six_deviations_from_its_mean() -> None:
    assert Channel.of(2.0, 0.5) == Channel(2.0, 0.5, 5.0)
    assert Channel.of(-2.0, 0.5) == Channel(-2.0, 0.5, 5.0)
    assert Channel.like(Estimate(-2.0, 0.5, 1.0, 9.0, 9.0)) == Channel(-2.0, 0.5, 5.0)


def test_the_size_of_a_channel_is_the_root_of_the_mean_of_its_squares() -> None:
    channel = Channel(-3.0, 4.0, 20.0)
    assert channel.size == pytest.approx(5.0)
    assert channel.estimate == Estimate(-3.0, 4.0)


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        (Channel(1, 3, 10), Channel(-2, 4, 14), Channel(-1, 5, 16)),
        (Channel(-1, 3, 10), Channel(-2, 4, 14), Channel(-3, 5, 18)),
        (Channel(5, 0, 5), Channel(1, 0, 1), Channel(6, 0, 6)),
        (Channel(5, 0, 3), Channel(1, 0, 1), Channel(6, 0, 6)),
        (Channel(0, 0, 7), Channel(1, 0, 1), Channel(1, 0, 8)),
    ],
)
def test_what_is_random_in_a_sum_adds_up_as_deviations_do(
    a: Channel, b: Channel, expected: Channel
) -> None:
    assert a.plus(b) == pytest.approx(expected)
    assert b.plus(a) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        (Channel(2, 0, 2), Channel(3, 4, 27), Channel(6, 8, 54)),
        (Channel(-2, 0, 2), Channel(3, 0, 3), Channel(-6, 0, 6)),
        (Channel(0, 1, 10), Channel(0, 4, 4), Channel(0, 4, 40)),
        (Channel(0, 1, 10), Channel(0, 1, 12), Channel(0, 1, 60)),
        (Channel(1, 1, 5), Channel(3, 4, 27), Channel(3, 41**0.5, 67.5)),
    ],
)
def test_the_largest_of_two_random_factors_seldom_meet(
    a: Channel, b: Channel, expected: Channel
) -> None:
    assert a.times(b) == pytest.approx(expected)
    assert b.times(a) == pytest.approx(expected)


def test_a_bound_cuts_the_peak_alone() -> None:
    channel = Channel(1.0, 2.0, 13.0)
    assert channel.below(13.0) is channel
    assert channel.below(14.0) is channel
    assert channel.below(12.0) == Channel(1.0, 2.0, 12.0)


def test_the_four_largest_channels_are_followed() -> None:
    channels = {k: Channel(0.0, 1.0, float(peak)) for k, peak in enumerate([3, 9, 5, 7, 1, 8])}
    found = largest_of(20, channels)
    assert found == LargeChannels(20, {k: channels[k] for k in (1, 5, 3, 2)})
    assert list(found.channels) == [1, 5, 3, 2]
    assert found.peak == 9.0


@pytest.mark.parametrize(
    "channel",
    [
        Channel(0.0, 0.0, 0.0),
        Channel(0.0, 1.0, math.inf),
        Channel(0.0, 1.0, math.nan),
        Channel(1e30, 0.0, 1e30),
        Channel(0.0, 1e31, 1e31),
    ],
)
def test_what_is_nothing_or_beyond_all_numbers_is_no_channel(channel: Channel) -> None:
    assert largest_of(20, {3: channel}) is None
    held = Channel(0.0, 1.0, 6.0)
    assert largest_of(20, {3: channel, 7: held}) == LargeChannels(20, {7: held})


def test_no_channel_is_none() -> None:
    assert largest_of(20, {}) is None
    small = Channel(0.0, 1e-9, 1e-8)
    assert largest_of(20, {0: small}) == LargeChannels(20, {0: small})


def rows(large: float, length: int = 9, place: int = 2) -> np.ndarray:
    """Return two rows whose columns have size 1, but for one."""
    found = np.ones((2, length), np.float32)
    found[1] = -1
    found[:, place] = (large, -large / 2)
    return found


def test_an_outlier_is_told_by_its_column() -> None:
    found = outliers_of_rows(rows(40.0))
    assert found is not None
    assert found.length == 9
    assert found.channels == {2: Channel(10.0, 30.0, 40.0)}
    scaled = outliers_of_rows(rows(-40.0, place=8), factor=0.5)
    assert scaled == LargeChannels(9, {8: Channel(-5.0, 15.0, 20.0)})


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


def test_no_rows_have_no_outliers() -> None:
    assert outliers_of_rows(np.ones((0, 9))) is None


def test_several_outliers_are_told_the_largest_first() -> None:
    elements = np.ones((3, 20))
    elements[:, [3, 5, 8, 13, 19]] = (50, 30, 70, 20, 60)
    found = outliers_of_rows(elements)
    assert found is not None
    assert list(found.channels) == [8, 19, 3, 5]
    assert found.peak == 70
