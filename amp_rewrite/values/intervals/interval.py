"""Intervals: what is known of the elements of a value, and arithmetic with it.

Interval arithmetic (R. E. Moore, "Interval Analysis", 1966): the result of an operation holds every
number that the operation gives for numbers of its operands. Two facts ride along that the ends do
not tell: how far every element keeps away from zero, and how far some element is known to reach.
Endpoints may be infinite, and NaN lies in every interval. Rounding is the business of whoever
stores the result in an element type (`Interval.rounded`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple


class Interval(NamedTuple):
    """The known bounds of a value's elements.

    Attributes:
        low: No element is less.
        high: No element is greater.
        away: No element has a smaller magnitude; 0 if that is all one can say.
        reach: Some element, if there is any, has at least this magnitude.
    """

    low: float
    high: float
    away: float = 0.0
    reach: float = 0.0

    @property
    def magnitude(self) -> float:
        """The largest magnitude that an element may have."""
        return max(abs(self.low), abs(self.high))

    @property
    def is_bounded(self) -> bool:
        """Whether both ends are finite."""
        return self.magnitude < math.inf

    @property
    def is_point(self) -> bool:
        """Whether all elements are one number."""
        return self.low == self.high

    def scattered(self) -> Interval:
        """Return what is known of some of the elements: which of them are left is not."""
        return self._replace(reach=self.away)

    def __or__(self, other: Interval) -> Interval:
        """Return what holds for elements of either; all of both are there."""
        return Interval(
            min(self.low, other.low),
            max(self.high, other.high),
            min(self.away, other.away),
            max(self.reach, other.reach),
        )

    def within(self, other: Interval) -> bool:
        """Tell whether another interval holds all that this one does."""
        inside = other.low <= self.low and self.high <= other.high
        return inside and self.away >= other.away

    def rounded(self, share: float, tiny: float) -> Interval:
        """Return the interval after each element was rounded.

        Args:
            share: The largest relative error of a rounding.
            tiny: Magnitudes below it may become zero.
        """
        low, high, away, reach = self
        more, less = 1 + share, 1 - share
        low *= less if low >= 0 else more
        high *= more if high >= 0 else less
        return Interval(
            0.0 if 0 < low < tiny else low,
            0.0 if -tiny < high < 0 else high,
            away * less if away >= tiny else 0.0,
            reach * less,
        )


def between(low: float, high: float) -> Interval:
    """Return the interval with these ends."""
    away = max(low, -high, 0.0)
    return Interval(low, high, away, away)


def point(number: float) -> Interval:
    """Return the interval of one number."""
    return Interval(number, number, abs(number), abs(number))


ANY = between(-math.inf, math.inf)
"""Every number."""

ZERO = point(0.0)

UNIT = between(0.0, 1.0)
"""Shares, probabilities and truth values."""

SIGNED_UNIT = between(-1.0, 1.0)

NOT_NEGATIVE = between(0.0, math.inf)


def union(first: Interval, *others: Interval) -> Interval:
    """Return what holds for the elements of several intervals."""
    for other in others:
        first = first | other
    return first


def symmetric(magnitude: float) -> Interval:
    """Return the interval of the numbers up to a magnitude."""
    return between(-magnitude, magnitude)


def add(a: Interval, b: Interval) -> Interval:
    """Return a + b."""
    ends = between(_sum(a.low, b.low, -math.inf), _sum(a.high, b.high, math.inf))
    reach = max(_sum(a.reach, -b.magnitude, 0.0), _sum(b.reach, -a.magnitude, 0.0))
    return ends._replace(reach=max(ends.reach, reach))


def negate(a: Interval) -> Interval:
    """Return -a."""
    return Interval(-a.high, -a.low, a.away, a.reach)


def subtract(a: Interval, b: Interval) -> Interval:
    """Return a - b."""
    return add(a, negate(b))


def multiply(a: Interval, b: Interval) -> Interval:
    """Return a x b; every element of either meets one of the other."""
    if a is ANY and b is ANY:
        return ANY
    ends = [finite_product(x, y) for x in a[:2] for y in b[:2]]
    away = finite_product(a.away, b.away)
    reach = max(finite_product(a.away, b.reach), finite_product(a.reach, b.away), away)
    return Interval(min(ends), max(ends), away, reach)


def invert(a: Interval) -> Interval:
    """Return 1 / a; anything if a may be zero, which has a sign."""
    if not a.away:
        return ANY._replace(away=_inverse(a.magnitude), reach=_inverse(a.magnitude))
    near, far = 1 / a.away, _inverse(a.magnitude)
    low = _inverse(a.high) if a.low > 0 else -near
    high = _inverse(a.low) if a.high < 0 else near
    return Interval(low, high, far, far)


def divide(a: Interval, b: Interval) -> Interval:
    """Return a / b."""
    return multiply(a, invert(b))


def absolute(a: Interval) -> Interval:
    """Return |a|."""
    return Interval(a.away, a.magnitude, a.away, a.reach)


def scale(a: Interval, factor: float) -> Interval:
    """Return a times a number."""
    return multiply(a, point(factor))


def total(term: Interval, count: float, share: float) -> Interval:
    """Return the sum of numbers, each added with a relative error, in whatever order.

    The error of a sum of n terms is at most about n times that of one addition, relative to the sum
    of the magnitudes (N. Higham, "Accuracy and Stability of Numerical Algorithms", section 4.2).
    """
    error = count * share
    low, high = finite_product(term.low, count), finite_product(term.high, count)
    room = finite_product(finite_product(term.magnitude, count), error)
    left = max(0.0, 1 - error)
    low = finite_product(low, left) if low >= 0 else low - room
    high = finite_product(high, left) if high <= 0 else high + room
    return between(low, high)


def largest(a: Interval, b: Interval) -> Interval:
    """Return the larger of a and b, element by element."""
    return _kept(between(max(a.low, b.low), max(a.high, b.high)), a, b)


def smallest(a: Interval, b: Interval) -> Interval:
    """Return the smaller of a and b, element by element."""
    return _kept(between(min(a.low, b.low), min(a.high, b.high)), a, b)


def increasing(function: Callable[[float], float], a: Interval) -> Interval:
    """Return what an increasing function gives, from its values at the ends."""
    return between(_at(function, a.low), _at(function, a.high))


def _kept(ends: Interval, a: Interval, b: Interval) -> Interval:
    """Add that every element is one of a's or b's."""
    away = max(ends.away, min(a.away, b.away))
    return ends._replace(away=away, reach=max(ends.reach, away))


def _at(function: Callable[[float], float], number: float) -> float:
    try:
        return float(function(number))
    except OverflowError:
        return math.copysign(math.inf, number)


def _sum(a: float, b: float, undecided: float) -> float:
    """Return a + b; infinities of both signs say nothing."""
    total = a + b
    return undecided if total != total else total


def raised(number: float, exponent: float) -> float:
    """Return a power of a number that is not negative, or whose exponent is whole and odd."""
    try:
        return math.copysign(abs(number) ** exponent, number)
    except OverflowError:
        return math.copysign(math.inf, number)


def finite_product(a: float, b: float) -> float:
    """Return a x b; infinity stands for large numbers, of which zero times one is zero."""
    return 0.0 if a == 0 or b == 0 else a * b


def _inverse(a: float) -> float:
    return math.inf if a == 0 else 1 / a
