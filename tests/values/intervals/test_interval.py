"""Arithmetic with intervals: ends, the distance from zero, and how far some element reaches."""

from __future__ import annotations

import math

import pytest

from amp_rewrite.values.intervals import interval as i
from amp_rewrite.values.intervals.interval import Interval, between, point

INF = math.inf


@pytest.mark.parametrize(
    ("interval", "magnitude", "is_bounded", "is_point"),
    [
        (Interval(-3, 2), 3, True, False),
        (Interval(1, 5), 5, True, False),
        (Interval(2, 2), 2, True, True),
        (Interval(0, INF), INF, False, False),
        (Interval(-INF, 0), INF, False, False),
    ],
)
def test_ends_tell_magnitude_and_shape(
    interval: Interval, magnitude: float, is_bounded: bool, is_point: bool
) -> None:
    assert interval.magnitude == magnitude
    assert interval.is_bounded is is_bounded
    assert interval.is_point is is_point


def test_two_ends_alone_say_nothing_of_zero() -> None:
    assert Interval(1, 2) == (1, 2, 0, 0)


def test_of_some_elements_only_the_smallest_magnitude_is_known_to_be_reached() -> None:
    assert Interval(-1, 5, 0.5, 4).scattered() == (-1, 5, 0.5, 0.5)


def test_what_holds_for_elements_of_either() -> None:
    first, second = Interval(1, 2, 1, 2), Interval(-3, 0.5, 0.25, 3)
    assert first | second == second | first == (-3, 2, 0.25, 3)
    assert i.union(first) == first
    assert i.union(first, second, point(7)) == (-3, 7, 0.25, 7)


@pytest.mark.parametrize(
    ("inner", "is_within"),
    [
        (Interval(-2, 3, 1), True),
        (Interval(-1, 2, 1), True),
        (Interval(-1, 2, 1.5), True),
        (Interval(-2.5, 3, 1), False),
        (Interval(-2, 3.5, 1), False),
        (Interval(-2.5, 3.5, 1), False),
        (Interval(-2, 3, 0.5), False),
    ],
)
def test_an_interval_is_within_one_that_holds_all_that_it_does(
    inner: Interval, is_within: bool
) -> None:
    assert inner.within(Interval(-2, 3, 1, 2)) is is_within


@pytest.mark.parametrize("number", [-2, 3, 1, -1, math.nan])
def test_it_holds_its_ends_and_nan(number: float) -> None:
    assert Interval(-2, 3, 1, 2).holds(number)


@pytest.mark.parametrize("number", [-2.5, 3.5, 0.5, 0.0, -0.5, INF])
def test_it_holds_nothing_outside_or_near_zero(number: float) -> None:
    assert not Interval(-2, 3, 1, 2).holds(number)


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


def test_intervals_with_ends_know_how_far_they_are_from_zero() -> None:
    assert between(2, 5) == (2, 5, 2, 2)
    assert between(-5, -2) == (-5, -2, 2, 2)
    assert between(-1, 3) == (-1, 3, 0, 0)
    assert point(-2) == (-2, -2, 2, 2)
    assert i.symmetric(3) == (-3, 3, 0, 0)


def test_intervals_with_a_name() -> None:
    assert between(-INF, INF) == i.ANY == (-INF, INF, 0, 0)
    assert i.ZERO == (0, 0, 0, 0)
    assert i.UNIT == (0, 1, 0, 0)
    assert i.SIGNED_UNIT == (-1, 1, 0, 0)
    assert i.NOT_NEGATIVE == (0, INF, 0, 0)


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


def test_differences() -> None:
    assert i.negate(Interval(-1, 5, 0.5, 4)) == (-5, 1, 0.5, 4)
    assert i.subtract(between(1, 2), between(3, 5)) == (-4, -1, 1, 1)
    assert i.subtract(between(3, 5), between(1, 2)) == (1, 4, 1, 1)


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


def test_a_product_of_anything_is_anything() -> None:
    assert i.multiply(i.ANY, i.ANY) is i.ANY


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


def test_quotients() -> None:
    assert i.divide(between(6, 8), between(2, 4)) == (1.5, 4, 1.5, 1.5)


def test_magnitudes_and_multiples() -> None:
    assert i.absolute(Interval(-5, 3, 1, 4)) == (1, 5, 1, 4)
    assert i.scale(between(1, 2), -3) == (-6, -3, 3, 3)


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


def test_a_sum_of_too_many_terms_may_be_lost_in_its_error_but_keeps_its_sign() -> None:
    assert i.total(between(1, 2), 4, 0.5) == (0, 24, 0, 0)
    assert i.total(between(-2, -1), 4, 0.5) == (-24, 0, 0, 0)
    assert i.total(between(1, 2), 4, 0.25) == (0, 16, 0, 0)


def test_a_sum_of_what_nothing_bounds_is_unbounded_without_an_error_too() -> None:
    assert i.total(i.ANY, 4, 0.0) == i.ANY
    assert i.total(i.NOT_NEGATIVE, 4, 0.0) == i.NOT_NEGATIVE


def test_a_sum_of_nothing_is_zero() -> None:
    assert i.total(i.ANY, 0, 0.25) == i.ZERO


@pytest.mark.parametrize(
    ("a", "b", "larger", "smaller"),
    [
        (between(1, 4), between(2, 3), (2, 4, 2, 2), (1, 3, 1, 1)),
        (between(-4, -1), between(-3, -2), (-3, -1, 1, 1), (-4, -2, 2, 2)),
        (Interval(-4, 4, 2, 4), Interval(-3, 3, 1, 3), (-3, 4, 1, 1), (-4, 3, 1, 1)),
        (between(-5, 5), i.ZERO, (0, 5, 0, 0), (-5, 0, 0, 0)),
    ],
)
def test_extremes_of_two(
    a: Interval, b: Interval, larger: tuple[float, ...], smaller: tuple[float, ...]
) -> None:
    assert i.largest(a, b) == i.largest(b, a) == larger
    assert i.smallest(a, b) == i.smallest(b, a) == smaller


def test_an_increasing_function_is_bounded_by_its_values_at_the_ends() -> None:
    assert i.increasing(lambda x: x**3, between(-2, 3)) == (-8, 27, 0, 0)
    assert i.increasing(lambda x: x + 3, between(-2, 3)) == (1, 6, 1, 1)
    assert i.increasing(math.sinh, between(-1e4, 1e4)) == (-INF, INF, 0, 0)


def test_powers_keep_the_sign_of_the_number_and_overflow_to_infinity() -> None:
    assert i.raised(2.0, 3.0) == 8
    assert i.raised(-2.0, 3.0) == -8
    assert i.raised(4.0, 0.5) == 2
    assert i.raised(0.0, 0.5) == 0
    assert i.raised(1e200, 2.0) == INF
    assert i.raised(-1e200, 3.0) == -INF


@pytest.mark.parametrize(
    ("a", "b", "product"),
    [(0, INF, 0), (INF, 0, 0), (-INF, 0, 0), (2, -3, -6), (-2, INF, -INF), (1, -1, -1)],
)
def test_zero_times_infinity_is_zero(a: float, b: float, product: float) -> None:
    assert i.finite_product(a, b) == product
