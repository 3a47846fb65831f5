"""Slices of an output, each against its own size, or its spread beside an offset.

An output may hold several scales: boxes of 0 to 640 and scores of 0 to 1, a position and a speed, a
latitude of 48 and a longitude of 11. One error over all of it says nothing of the small ones. So
along every axis with a slice whose spread is far below the size of the largest one each slice is
compared by itself. Few numbers that are small by chance are the rounding of larger ones, in float32
as well: what a yardstick moves as far is not at fault. A slice of many numbers that fails so is
excused: nobody can judge it.

Evidence: scores beside boxes of 640 pixels, as YOLO gives (tests/numerics/compare/test_slices.py):
halved, they pass without; with, their error is 50 % of their own size.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from amp_rewrite.base.printable import percent
from amp_rewrite.numerics.compare.chances import slack_of
from amp_rewrite.numerics.inputs.batches import Array

WIDE = 8.0
"""How many times as large as the smallest spread of a slice the largest slice is that shows scales.

Of a slice whose share of the norm is less, 4.5 % of the whole does not notice the half."""

ALLOWED = 4.0
"""How many times as far as a yardstick moves a slice of 32 numbers or more it may be off.

The norms of two noises of 32 numbers each differ by more once in 10,000 (F distribution), if one
is twice the other: rounded weights bring about half of what rounded arithmetic does."""

ENOUGH = 32
"""Of how many numbers a slice has to consist to be judged where no yardstick moves it."""

ENOUGH_TOGETHER = 16
"""The same for all small slices of an axis, taken together: there is one such sum an axis.

Evidence: 80 classes of which 3 of 200 places have a score, halved: found so in 6 of 6 tries, with
single slices alone in 2."""

TINY = 64
"""An output of at most that many elements is a state: each number counts by itself."""

BY_CHANCE = 0.1
"""How many slices as small as one are expected among normal numbers if it is small by chance.

Where no rounding was measured nobody knows what it brings to such a slice, as to a number near zero
of an embedding; a speed of 1.5 beside a place of 1,060 is small by itself."""

LEAST = 1e-6
"""What is smaller, relative to the largest magnitude of the output, is float32's own rounding."""

OFFSET = 64.0
"""How many times as large as its spread a slice is that is measured by it.

Beside a smaller offset float16 keeps more than a slice may lose."""

QUANTITIES = 32
"""Up to how many slices are quantities of their own, unless each is far longer than they are many.

A decoder's logits may hardly differ from token to token, and only their order counts."""

CONSTANT = 1e-5
"""A spread of less than that, relative to the size, is the rounding of float32 arithmetic."""

_COUNT, _ALL, _TOTALS, _SQUARES, _FOURTHS, _ERRORS, _LARGEST, _WORST = range(8)
"""The rows of an axis' sums: elements other than zero, all elements, original, original^2,
original^4, difference^2, and the largest magnitudes of the original and of the difference."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a slice may differ by.

    Attributes:
        relative: Relative to its size.
        absolute: Beside that.
        least: Slices smaller than that are held to it.
        strict: Whether every element must be within, relative to the slice's largest magnitude;
            otherwise the root mean square error counts, relative to its spread.
    """

    relative: float
    absolute: float
    least: float
    strict: bool


@dataclass(frozen=True, slots=True)
class SliceComparison:
    """One slice of an output, over all feeds.

    Attributes:
        axis: The axis that it is a slice along.
        index: Its place there; None for all small slices of that axis together.
        size: The root of the mean square of its elements, relative to that of the largest slice.
        distance: How far it is off: the root mean square error over its spread, or, with a
            tolerance, the largest difference relative to its largest magnitude.
        limit: How far it may be off.
        moves: How far the yardsticks excuse it to be off.
    """

    axis: int
    index: int | None
    size: float
    distance: float
    limit: float
    moves: float = 0.0

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
        name = f"the small slices of axis {self.axis} together: error"
        if self.index is not None:
            size = f"{percent(self.size)} of the largest slice's size"
            name = f"slice {self.index} of axis {self.axis} ({size}): error"
        off, limit = percent(self.distance), percent(self.limit)
        return f"{name} {off} of its own scale, at most {limit} passes"


@dataclass
class Slices:
    """Sums over the slices along each axis, of the feeds in which these differ widely.

    Attributes:
        axes: Axis, counted from the last one (-1), and how many slices it has -> their sums, of
            shape (6, slices).
        dropped: Axes of tiny outputs whose slices were of like size in a feed: a single number that
            is small in another feed is so by chance.
        rank: The dimensions of the output.
        tiny: Whether every feed's output has at most TINY elements.
        largest: The largest magnitude of the original.
        times: As a yardstick, how many times what a slice moves counts.
        stands_in: As a yardstick, whether it stands in for a rounding, of which none was measured.
    """

    axes: dict[tuple[int, int], Array] = field(default_factory=dict[tuple[int, int], Array])
    dropped: set[int] = field(default_factory=set[int])
    rank: int = 0
    tiny: bool = True
    largest: float = 0.0
    times: float = 1.0
    stands_in: bool = False

    def add(self, original: Array, difference: Array, rank: int) -> None:
        """Take one feed into account.

        Args:
            original: Float64; 0 where an element does not count.
            difference: What was rewritten less that, of the same shape; 0 there as well.
            rank: The dimensions of the output, of which the first ones may have been joined to one
                that is of no interest: then `original` has fewer.
        """
        if not original.any():
            return  # a picture with nothing found in it says nothing of boxes, nor does silence
        fed = Slices(rank=rank, tiny=original.size <= TINY)
        fed.largest = float(np.abs(original).max())
        fed._measure(original, difference, range(int(original.ndim < rank), original.ndim))
        self.merge(fed)

    def _measure(self, original: Array, difference: Array, axes: range) -> None:
        squares = np.square(original)
        errors: Array | None = None
        for axis in axes:
            number = axis - original.ndim
            others = tuple(other for other in range(original.ndim) if other != axis)
            sums = squares.sum(others)
            held = np.empty((8, sums.size))
            held[_COUNT] = np.count_nonzero(original, others)
            held[_ALL] = original.size // sums.size
            held[_TOTALS], held[_SQUARES] = original.sum(others), sums
            if not _differ_widely(held) or are_shares(original, axis):
                self.dropped |= {number} if self.tiny else set()
                continue
            errors = np.square(difference) if errors is None else errors
            held[_ERRORS] = errors.sum(others)
            held[_FOURTHS] = np.square(squares).sum(others)
            held[_LARGEST] = np.sqrt(squares.max(others, initial=0.0))
            held[_WORST] = np.sqrt(errors.max(others, initial=0.0))
            self.axes[number, sums.size] = held

    def merge(self, other: Slices) -> None:
        """Take what was seen of the same output elsewhere into account."""
        if not other.rank:
            return
        for key, more in other.axes.items():
            mine = self.axes.get(key)
            if mine is None:
                self.axes[key] = more.copy()
                continue
            mine[:_LARGEST] += more[:_LARGEST]
            np.maximum(mine[_LARGEST:], more[_LARGEST:], out=mine[_LARGEST:])
        self.dropped |= other.dropped
        self.axes = {key: sums for key, sums in self.axes.items() if key[0] not in self.dropped}
        self.rank = other.rank
        self.tiny &= other.tiny
        self.largest = max(self.largest, other.largest)

    def worst(self, limits: Limits, yardsticks: Sequence[Slices] = ()) -> SliceComparison | None:
        """Return the slice that is furthest beyond its limit, or nearest to it; None without one.

        Args:
            limits: What slices may differ by.
            yardsticks: How far the slices of the same feeds move by themselves.
        """
        least = max(limits.least, LEAST * self.largest)
        rounded = not all(y.stands_in for y in yardsticks)
        comparisons: list[SliceComparison] = []
        for key, sums in self.axes.items():
            noises = [(y.axes[key], y.times) for y in yardsticks if key in y.axes]
            axis = _Axis(sums, noises, limits, least, tiny=self.tiny, rounded=rounded)
            together = axis.small()
            rows = (axis.worst(), None if together is None else together.worst())
            comparisons += [SliceComparison(key[0] + self.rank, *row) for row in rows if row]
        return max(comparisons, key=lambda each: each.share, default=None)


@dataclass
class _Axis:
    """The slices along one axis, and what yardsticks make of them."""

    sums: Array
    noises: list[tuple[Array, float]]
    limits: Limits
    least: float
    tiny: bool
    rounded: bool
    enough: int = ENOUGH
    largest: float = 0.0

    def small(self) -> _Axis | None:
        """Return all small slices as one; None if there are none."""
        sizes = _sizes(self.sums)
        small = (sizes * WIDE <= sizes.max()) & self._counted
        if not small.any():
            return None
        noises = [(_pooled(noise, small), times) for noise, times in self.noises]
        return replace(
            self,
            sums=_pooled(self.sums, small),
            noises=noises,
            tiny=False,
            enough=ENOUGH_TOGETHER,
            largest=float(sizes.max()),
        )

    @property
    def _counted(self) -> Array:
        return (self.sums[_COUNT] > 0) & ~_are_constant(self.sums)

    def worst(self) -> tuple[int | None, float, float, float, float] | None:
        """Return the worst slice: index, size, distance, limit, and how far it is excused to be."""
        sizes = _sizes(self.sums)
        off, moves = self._errors(self.sums) / self._norms, ALLOWED * self._moves()
        numbers = _numbers(self.sums)
        few, slack = numbers < self.enough, 1.0 if self.tiny else slack_of(numbers)
        chosen = self._counted & (~few | self.tiny | (moves > 0))
        by_chance = few & (not self.rounded) & self._are_small_by_chance(sizes)
        places = np.flatnonzero(chosen & ~by_chance)
        if not places.size:
            return None
        largest = np.maximum(self.sums[_LARGEST], self.least)
        limit = self.limits.relative + self.limits.absolute / largest
        limit = np.where(few, np.maximum(limit, slack * moves), limit)
        at = int(places[np.argmax(off[places] / np.maximum(limit[places], 1e-300))])
        relative = sizes[at] / max(self.largest, sizes.max())
        index = None if self.largest else at
        return index, float(relative), float(off[at]), float(limit[at]), float(moves[at])

    def _are_small_by_chance(self, sizes: Array) -> Array:
        """Tell of each slice whether one as small is likely among as many of normal numbers."""
        counted = self.sums[_COUNT] > 0
        usual = math.sqrt(float(np.square(sizes[counted]).mean()))
        share = np.minimum(_DENSITY * sizes / usual, 1.0) ** np.maximum(_numbers(self.sums), 1.0)
        return np.count_nonzero(counted) * share > BY_CHANCE

    def _moves(self) -> Array:
        """Return how far the yardsticks move slices at most, relative to their size.

        The noise of a single number may be small by chance: that of the whole axis stands in.
        """
        errors = [times * self._errors(noise) for noise, times in self.noises]
        if self.tiny:
            errors += [self._errors(_leveled(noise)) for noise, _ in self.noises]
        moves = np.zeros(self.sums.shape[1])
        return np.max([moves, *errors], axis=0) / self._norms

    def _errors(self, sums: Array) -> Array:
        return sums[_WORST] if self.limits.strict else np.sqrt(sums[_ERRORS])

    @cached_property
    def _norms(self) -> Array:
        sums = self.sums
        if self.limits.strict:
            return np.maximum(sums[_LARGEST], self.least)
        floor = self.least * np.sqrt(np.maximum(sums[_COUNT], 1))
        norms = np.sqrt(sums[_ALL]) * yardsticks(sums)
        return np.maximum(norms, np.maximum(floor, np.finfo(np.float64).tiny))


def yardsticks(sums: Array) -> Array:
    """Return what errors of slices are relative to: their size, but beside an offset their spread.

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


def _are_constant(sums: Array) -> Array:
    """Tell which slices are one number, of so many that it is not by chance."""
    square, spread = _moments(sums)
    return (spread <= CONSTANT * np.sqrt(square)) & (sums[_ALL] >= ENOUGH)


def _sizes(sums: Array) -> Array:
    """Return the root of the mean square of each slice."""
    return np.sqrt(sums[_SQUARES] / np.maximum(sums[_COUNT], 1))


def _numbers(sums: Array) -> Array:
    """Return of how many numbers of one size each norm consists: (sum a^2)^2 / sum a^4."""
    return np.square(sums[_SQUARES]) / np.maximum(sums[_FOURTHS], np.finfo(np.float64).tiny)


def _pooled(sums: Array, chosen: Array) -> Array:
    """Return the sums of several slices as those of one, of shape (8, 1)."""
    some = sums[:, chosen]
    return np.concatenate([some[:_LARGEST].sum(1), some[_LARGEST:].max(1)])[:, None]


def _leveled(noise: Array) -> Array:
    """Return a noise as if it were of one level along the axis."""
    level = noise.copy()
    level[_ERRORS] = noise[_ERRORS].sum() / max(1.0, noise[_COUNT].sum()) * noise[_COUNT]
    level[_WORST] = noise[_WORST].max()
    return level


def _differ_widely(sums: Array) -> bool:
    """Tell whether a slice's spread is far below the size of the largest one."""
    own = yardsticks(sums)[(sums[_SQUARES] > 0) & ~_are_constant(sums)]
    return own.size > 0 and sums.shape[1] > 1 and float(own.min()) * WIDE <= _largest(sums)


def _largest(sums: Array) -> float:
    return float(np.sqrt(_moments(sums)[0]).max())


def are_shares(original: Array, axis: int) -> bool:
    """Tell whether the elements along an axis are shares of 1: which is first is what counts."""
    if original.min() < 0 or original.max() > 1 + _SHARE:
        return False
    return bool(np.abs(original.sum(axis) - 1).max() <= _SHARE)


_DENSITY = math.sqrt(2 / math.pi)
"""The share of normal numbers that are smaller than x deviations, as a multiple of x, near 0."""

_SHARE = 1e-3
"""By how much a sum of shares may differ from 1."""
