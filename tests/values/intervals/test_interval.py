"""Arithmetic with intervals: ends, the distance from zero, and how far some element reaches."""

from __future__ import annotations

import math

import pytest

from amp_rewrite.values.intervals import interval as i
from amp_rewrite.values.intervals.interval import Interval, between, point

INF = math.inf


def test_two_ends_alone_say_nothing_of_zero() -> None:
    assert Interval(1, 2) == (1, 2, 0, 0)


@pytest.mark.parametrize("number", [-2, 3, 1, -1, math.nan])
def test_it_holds_its_ends_and_nan(number: float) -> None:
    assert Interval(-2, 3, 1, 2).holds(number)


@pytest.mark.parametrize(
    ("interval", "tiny", "rounded"),
    [
        (Interval(4, 8, 4, 8), 0.0, (3, 10, 3, 6)),
        (Interval(-8, -4, 4, 8), 0.0, (-10, -3, 3, 6)),
        (Interval(-4, 4, 1, 2), 0.0, (-5, 5, 0.75, 1.5)),
        (Interval(0, 4), 0.0, (0, 5, 0, 0)),
        (Interval(-4, 0), 0.0, (-5, 0, 0, 0)),
        (Interval(0.5, 0.5), 0.0, (0.375, 0.625, 0, 0)),
        (Interval(-0.5, -0.5), 0.0, (-0.625, -0.375, 0, 0)),
        # what a kernel may flush to zero
        (Interval(4, 8, 4), 3.0, (3, 10, 3, 0)),
        (Interval(4, 8, 4), 3.5, (0, 10, 3, 0)),
        (Interval(2, 8, 2), 3.0, (0, 10, 0, 0)),
        (Interval(-8, -4, 4), 3.0, (-10, -3, 3, 0)),
        (Interval(-8, -2, 2), 3.0, (-10, 0, 0, 0)),
        (Interval(-0.5, 0.5), 3.0, (-0.625, 0.625, 0, 0)),
        (Interval(-8, 8, 3), 3.0, (-10, 10, 2.25, 0)),
        (Interval(-8, 8, 2.75), 3.0, (-10, 10, 0, 0)),
    ],
)
def test_rounding_moves_the_ends_outward(
    interval: Interval, tiny: float, rounded: tuple[float, ...]
) -> None:
    assert interval.rounded(0.25, tiny) == rounded


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        (between(1, 2), between(3, 5), (4, 7, 4, 4)),
        (between(3, 4), between(-9, -8), (-6, -4, 4, 4)),
        (Interval(-5, 5, 0, 4), point(1), (-4, 6, 0, 3)),
        (Interval(-5, 5, 0, 4), Interval(-6, 2, 0, 3), (-11, 7, 0, 0)),
        (point(INF), point(-INF), (-INF, INF, 0, 0)),
        (Interval(-INF, 1), point(INF), (-INF, INF, 0, 0)),
        (Interval(-INF, INF, 0, INF), i.ANY, (-INF, INF, 0, 0)),
    ],
)
def test_sums(a: Interval, b: Interval, expected: tuple[float, ...]) -> None:
    assert i.add(a, b) == expected
    assert i.add(b, a) == expected


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        (between(-2, 3), between(-5, 4), (-15, 12, 0, 0)),
        (between(-5, -2), between(-3, -1), (2, 15, 2, 2)),
        (between(-5, -2), between(1, 3), (-15, -2, 2, 2)),
        (Interval(-5, 5, 2, 4), Interval(-3, 3, 1, 3), (-15, 15, 2, 6)),
        (Interval(-5, 5, 2, 5), Interval(-3, 3, 1, 1), (-15, 15, 2, 5)),
        (Interval(2, 3, 2), Interval(4, 5, 4), (8, 15, 8, 8)),
        (i.ANY, i.ZERO, (0, 0, 0, 0)),
        (i.ANY, point(2), (-INF, INF, 0, 0)),
        (i.NOT_NEGATIVE, point(-2), (-INF, 0, 0, 0)),
    ],
)
def test_products(a: Interval, b: Interval, expected: tuple[float, ...]) -> None:
    assert i.multiply(a, b) == expected
    assert i.multiply(b, a) == expected


@pytest.mark.parametrize(
    ("a", "expected"),
    [
        (between(2, 4), (0.25, 0.5, 0.25, 0.25)),
        (between(-4, -2), (-0.5, -0.25, 0.25, 0.25)),
        (Interval(-4, 8, 2, 8), (-0.5, 0.5, 0.125, 0.125)),
        (Interval(-0.5, 0.5, 0.25, 0.5), (-4, 4, 2, 2)),
        (between(-2, 4), (-INF, INF, 0.25, 0.25)),
        (between(0, 4), (-INF, INF, 0.25, 0.25)),
        (i.ZERO, (-INF, INF, INF, INF)),
        (i.ANY, (-INF, INF, 0, 0)),
        (between(2, INF), (0, 0.5, 0, 0)),
        (between(-INF, -2), (-0.5, 0, 0, 0)),
        (between(0.25, 0.5), (2, 4, 2, 2)),
        (between(-0.5, -0.25), (-4, -2, 2, 2)),
    ],
)
def test_reciprocals(a: Interval, expected: tuple[float, ...]) -> None:
    assert i.invert(a) == expected


@pytest.mark.parametrize(
    ("term", "low", "high"),
    [
        (between(1, 2), 3.5, 9),
        (between(-2, -1), -9, -3.5),
        (between(-1, 2), -5, 9),
        (between(-2, 1), -9, 5),
        (between(0, 2), 0, 9),
        (between(-2, 0), -9, 0),
        (between(-0.25, 0.25), -1.125, 1.125),
        (between(0.125, 0.25), 0.4375, 1.125),
        (between(-0.25, -0.125), -1.125, -0.4375),
        (i.ZERO, 0, 0),
        (i.NOT_NEGATIVE, 0, INF),
        (i.ANY, -INF, INF),
    ],
)
def test_a_sum_of_four_terms_with_an_error_of_an_eighth(
    term: Interval, low: float, high: float
) -> None:
    assert i.total(term, 4, 1 / 32) == between(low, high)


def test_powers_keep_the_sign_of_the_number_and_overflow_to_infinity() -> None:
    assert i.raised(2.0, 3.0) == 8
    assert i.raised(-2.0, 3.0) == -8
    assert i.raised(4.0, 0.5) == 2
    assert i.raised(0.0, 0.5) == 0
    assert i.raised(1e200, 2.0) == INF
    assert i.raised(-1e200, 3.0) == -INF
