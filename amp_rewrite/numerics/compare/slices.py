"""Slices of an output, each against its own size, or its spread beside an offset.

An output may hold several scales: boxes of 0 to 640 and scores of 0 to 1, a position and a speed, a
latitude of 48 and a longitude of 11. One error over all of it says nothing of the small ones. So
along every axis with a slice whose spread is far below the size of the largest one, each slice is
compared by itself. A few numbers that are small by chance carry the rounding of larger ones, in
float32 as well: they may be off as far as the rounded weights alone move them.

Evidence: scores beside boxes of 640 pixels, as YOLO gives (tests/numerics/compare/test_slices.py):
halved, they pass without; with, their error is 50 % of their own size.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from amp_rewrite.base import arguments
from amp_rewrite.base.printable import percent
from amp_rewrite.dtypes import DType
from amp_rewrite.numerics.inputs.batches import Array

WIDE = 8.0
"""How many times as large as the smallest spread of a slice the largest slice is that shows scales.

Of a slice whose share of the norm is less, 4.5 % of the whole does not notice the half."""

SLICE_ERROR = 0.1
"""The largest error of the worst slice of many; the others lie on both sides of the whole."""

ENOUGH = 32
"""Of how many numbers a slice has to consist to be judged by its own scale alone."""

TINY = 64
"""An output of at most that many elements is a state: each number counts by itself."""

ALLOWED = 4.0
"""How many times as far as the rounded weights alone move it a slice of few numbers may be off.

The norms of two noises of 32 numbers differ by more once in 10,000, if one is twice the other:
rounded weights bring about half of what rounded arithmetic does."""

BY_CHANCE = 0.1
"""How many slices as small as one are expected among normal numbers if it is small by chance.

Where the rounded weights alone are not run nobody knows what rounding brings to such a slice, as to
a number near zero of an embedding; a speed of 1.5 beside a place of 1,060 is small by itself."""

LEAST = 1e-6
"""Relative to the largest magnitude of the output: float32's own rounding."""

OFFSET = 64.0
"""How many times as large as its spread a slice is that is measured by it.

Beside a smaller offset float16 keeps more than a slice may lose."""

QUANTITIES = 32
"""Up to how many slices are quantities of their own, unless each is far longer than they are many.

A decoder's logits may hardly differ from token to token, and only their order counts."""

CONSTANT = 1e-5
"""A spread of less than that, relative to the size, is the rounding of float32 arithmetic."""

_DENSITY = math.sqrt(2 / math.pi)
"""The share of normal numbers that are smaller than x deviations, as a multiple of x, near 0."""

_SHARE = 1e-3
"""By how much a sum of shares may differ from 1."""

_COUNT, _ALL, _TOTALS, _SQUARES, _ERRORS, _LARGEST, _WORST = range(7)
"""The rows of an axis' sums: elements other than zero, all elements, original, original^2,
difference^2, and the largest magnitudes of the original and of the difference."""

_LOGS = np.log([1.0, 2, 3, 4, 6, 8, 12, 16, 24, 32])
_RATIOS = np.log([6366.2, 99.995, 25.68, 13.11, 6.701, 4.765, 3.338, 2.758, 2.236, 2.0])
"""By how much the norms of two noises of N numbers each differ once in 10,000: the root of
what F(n, n) exceeds with a probability of 1e-4."""


def slack_of(numbers: Any) -> Array:
    """Return how many times as much norms of so few numbers differ as those of 32 or more."""
    return np.exp(np.interp(np.log(np.maximum(numbers, 1.0)), _LOGS, _RATIOS) - _RATIOS[-1])


@dataclass(frozen=True, slots=True)
class Tolerances:
    """Limits of the error of an element: `rtol * largest + atol`.

    `largest` is the largest magnitude of the output, or of a slice of another scale: an output
    whose largest number is 1000 cannot be right to 0.004. Every element must be within only if
    `strict`, which a given tolerance is. Slices smaller than `least` are held to it.
    """

    rtol: float
    atol: float
    strict: bool
    least: float = 0.0

    @staticmethod
    def of(low: DType, rtol: float | None = None, atol: float | None = None) -> Tolerances:
        """Return the given tolerances, of which a missing one is 0, or those of a type.

        Raises:
            OptionError: One is not a number of at least 0.
        """
        least, expected = low.smallest_normal, "a number of at least 0"
        if rtol is None and atol is None:
            return Tolerances(low.rtol, 0.0, strict=False, least=least)
        relative = arguments.number("rtol", 0.0 if rtol is None else rtol, low=0, expected=expected)
        absolute = arguments.number("atol", 0.0 if atol is None else atol, low=0, expected=expected)
        return Tolerances(relative, absolute, strict=True, least=least)

    @property
    def of_slices(self) -> Tolerances:
        """The tolerances of a slice, relative to its own scale."""
        return self if self.strict else replace(self, rtol=SLICE_ERROR)


@dataclass(frozen=True, slots=True)
class SliceComparison:
    """One slice of an output, over all feeds.

    Attributes:
        axis: The axis that it is a slice along.
        index: Its place there.
        size: The root of the mean square of its elements, relative to that of the largest slice.
        distance: The root mean square error over its spread, or, with a tolerance, the largest
            difference relative to its largest magnitude.
        limit: The largest distance that passes.
    """

    axis: int
    index: int
    size: float
    distance: float
    limit: float

    @property
    def share(self) -> float:
        """Which share of its limit it is off."""
        if self.limit:
            return self.distance / self.limit
        return math.inf if self.distance else 0.0

    @property
    def ok(self) -> bool:
        """Whether it is within its limit."""
        return self.distance <= self.limit

    def __str__(self) -> str:
        """Return which slice is off, and how far."""
        size, off, limit = map(percent, (self.size, self.distance, self.limit))
        return (
            f"slice {self.index} of axis {self.axis} ({size} of the largest slice's size): error "
            f"{off} of its own scale, at most {limit} passes"
        )


@dataclass
class Slices:
    """Sums over the slices along each axis, of the feeds in which these differ widely.

    Attributes:
        axes: Axis, counted from the last one (-1), and how many slices it has -> their sums, of
            shape (7, slices).
        rank: The dimensions of the output.
        tiny: Whether every feed's output has at most TINY elements.
        largest: The largest magnitude of the original.
    """

    axes: dict[tuple[int, int], Array] = field(default_factory=dict[tuple[int, int], Array])
    rank: int = 0
    tiny: bool = True
    largest: float = 0.0

    def add(self, original: Array, difference: Array, rank: int) -> None:
        """Take one feed into account: both float64, 0 where an element does not count.

        Of `rank` dimensions the first ones may have been joined: then `original` has fewer.
        """
        if not original.any():
            return  # a picture with nothing found in it says nothing of boxes, nor does silence
        self.rank = rank
        self.tiny &= original.size <= TINY
        self.largest = max(self.largest, float(np.abs(original).max()))
        squares, errors = np.square(original), None
        for axis in range(int(original.ndim < rank), original.ndim):
            others = tuple(other for other in range(original.ndim) if other != axis)
            sums = squares.sum(others)
            held = np.empty((7, sums.size))
            held[_COUNT] = np.count_nonzero(original, others)
            held[_ALL] = original.size // sums.size
            held[_TOTALS], held[_SQUARES] = original.sum(others), sums
            if not _differ_widely(held) or are_shares(original, axis):
                continue
            errors = np.square(difference) if errors is None else errors
            held[_ERRORS] = errors.sum(others)
            held[_LARGEST] = np.sqrt(squares.max(others, initial=0.0))
            held[_WORST] = np.sqrt(errors.max(others, initial=0.0))
            key = axis - original.ndim, sums.size
            had = self.axes.setdefault(key, np.zeros_like(held))
            had[:_LARGEST] += held[:_LARGEST]
            np.maximum(had[_LARGEST:], held[_LARGEST:], out=had[_LARGEST:])

    def asks_for_noise(self, limits: Tolerances) -> bool:
        """Tell whether slices of few numbers are so far off that only noise may explain it."""
        for sums in self.axes.values():
            off, limit, _ = self._off(sums, limits)
            if ((sums[_COUNT] < ENOUGH) & (off > limit)).any():
                return True
        return False

    def worst(self, limits: Tolerances, alone: Slices) -> SliceComparison | None:
        """Return the slice furthest beyond its limit, or nearest to it; None without one.

        `alone` is how far the rounded weights alone move slices, empty if that is not known.
        """
        found: list[SliceComparison] = []
        for key, sums in self.axes.items():
            sizes = np.sqrt(sums[_SQUARES] / np.maximum(sums[_COUNT], 1))
            off, limit, norms = self._off(sums, limits)
            few, moves = sums[_COUNT] < ENOUGH, np.zeros(len(norms))
            if key in alone.axes:
                moves = ALLOWED * _noise(alone.axes[key], limits, self.tiny) / norms
                is_judged = ~few | (moves > 0)
            else:
                is_judged = ~few | (self.tiny & ~_are_small_by_chance(sums, sizes))
            places = np.flatnonzero(is_judged & (sums[_COUNT] > 0))
            if not places.size:
                continue
            slack = 1.0 if self.tiny else slack_of(sums[_COUNT])
            limit = np.where(few, np.maximum(limit, slack * moves), limit)
            at = int(places[np.argmax(off[places] / np.maximum(limit[places], 1e-300))])
            row = (sizes[at] / sizes.max(), off[at], limit[at])
            found.append(SliceComparison(key[0] + self.rank, at, *map(float, row)))
        return max(found, key=lambda each: each.share, default=None)

    def _off(self, sums: Array, limits: Tolerances) -> tuple[Array, Array, Array]:
        """Return how far slices are off, how far they may be without noise, and their norms."""
        least = max(limits.least, LEAST * self.largest)
        norms = _norms(sums, limits, least)
        limit = limits.rtol + limits.atol / np.maximum(sums[_LARGEST], least)
        return _errors(sums, limits) / norms, limit, norms


def _errors(sums: Array, limits: Tolerances) -> Array:
    return sums[_WORST] if limits.strict else np.sqrt(sums[_ERRORS])


def _noise(sums: Array, limits: Tolerances, tiny: bool) -> Array:
    """Return how far noise moves slices; of a tiny output at least as far as the whole axis.

    That of a single number may be small by chance.
    """
    own = _errors(sums, limits)
    if not tiny:
        return own
    if limits.strict:
        return np.full_like(own, own.max())
    mean = np.square(own).sum() / max(1.0, sums[_COUNT].sum())
    return np.maximum(own, np.sqrt(mean * sums[_COUNT]))


def _norms(sums: Array, limits: Tolerances, least: float) -> Array:
    """Return what the errors of slices are relative to."""
    if limits.strict:
        return np.maximum(sums[_LARGEST], least)
    floor = least * np.sqrt(np.maximum(sums[_COUNT], 1))
    norms = np.sqrt(sums[_ALL]) * _scales(sums)
    return np.maximum(norms, np.maximum(floor, np.finfo(np.float64).tiny))


def _are_small_by_chance(sums: Array, sizes: Array) -> Array:
    """Tell of each slice whether one as small is likely among as many of normal numbers."""
    counted = sums[_COUNT] > 0
    usual = math.sqrt(float(np.square(sizes[counted]).mean()))
    share = np.minimum(_DENSITY * sizes / usual, 1.0) ** np.maximum(sums[_COUNT], 1.0)
    return np.count_nonzero(counted) * share > BY_CHANCE


def _scales(sums: Array) -> Array:
    """Return the size of each slice, but beside an offset its spread.

    Few numbers may lie near each other by chance, and the many columns of logits are one quantity.
    """
    square, spread = _moments(sums)
    size = np.sqrt(square)
    count, numbers = sums.shape[1], sums[_ALL]
    apart = (numbers >= ENOUGH) & ((count <= QUANTITIES) | (numbers >= ENOUGH * count))
    return np.where(apart & (spread * OFFSET <= size) & (spread > CONSTANT * size), spread, size)


def _moments(sums: Array) -> tuple[Array, Array]:
    """Return the mean square of each slice, and its spread."""
    numbers = np.maximum(sums[_ALL], 1)
    square = sums[_SQUARES] / numbers
    return square, np.sqrt(np.maximum(square - np.square(sums[_TOTALS] / numbers), 0))


def _differ_widely(sums: Array) -> bool:
    """Tell whether a slice's spread is far below the size of the largest one."""
    own = _scales(sums)[sums[_SQUARES] > 0]
    if own.size == 0 or sums.shape[1] < 2:
        return False
    return float(own.min()) * WIDE <= math.sqrt(float(_moments(sums)[0].max()))


def are_shares(original: Array, axis: int) -> bool:
    """Tell whether the elements along an axis are shares of 1: which is first is what counts."""
    if original.min() < 0 or original.max() > 1 + _SHARE:
        return False
    return bool(np.abs(original.sum(axis) - 1).max() <= _SHARE)
