"""Arithmetic with intervals: ends, the distance from zero, and how far some element reaches."""

from __future__ import annotations

import math

import pytest

from amp_rewrite.values.intervals import interval as i
from amp_rewrite.values.intervals.interval import Interval

INF = math.inf


def test_two_ends_alone_say_nothing_of_zero() -> None:
    assert Interval(1, 2) == (1, 2, 0, 0)


@pytest.mark.parametrize(
    ("interval", "tiny", "rounded"),
    [
        (Interval(4, 8, 4, 8), 0.0, (3, 10, 3, 6)),
        (Interval(-8, -4, 4, 8), 0.0, (-10, -3, 3, 6)),
        # what a kernel may flush to zero
    ],
)
def test_rounding_moves_the_ends_outward(
    interval: Interval, tiny: float, rounded: tuple[float, ...]
) -> None:
    assert interval.rounded(0.25, tiny) == rounded


def test_powers_keep_the_sign_of_the_number_and_overflow_to_infinity() -> None:
    assert i.raised(2.0, 3.0) == 8
    assert i.raised(-2.0, 3.0) == -8
    assert i.raised(4.0, 0.5) == 2
    assert i.raised(0.0, 0.5) == 0
    assert i.raised(1e200, 2.0) == INF
    assert i.raised(-1e200, 3.0) == -INF
