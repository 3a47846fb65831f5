"""Estimates: mean and standard deviation of a value's elements, and how they follow each other.

The rules are those of independent random numbers, as initialisation schemes for networks use them
(K. He et al., "Delving Deep into Rectifiers", 2015, https://arxiv.org/abs/1502.01852, section 2.2).
They are typical and prove nothing; what holds for certain is in values/intervals.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from amp_rewrite.graph.flat import Array
from amp_rewrite.graph.streams import Stream
from amp_rewrite.values.intervals import row_sums
from amp_rewrite.values.intervals.interval import Interval
from amp_rewrite.values.intervals.row_sums import Layout

PEAK = 6.0
"""How many deviations from the mean the largest of millions of normal numbers lies at most."""

ROOM = 12.0
"""How far some elements may lie above a mean: another channel, another position.

In light_resnet50, whose weights are one number per tensor, the largest element is up to 9 times
what the mean says; in trained models means stay below 100.
"""

SPOT = 4.0
"""How far some elements may lie above the mean of the largest row: the mean of an image of noise is
half of its largest number, and of another image all of it."""

BYTE = 255.0
"""How much larger inputs may be than assumed: raw bytes in place of normalised numbers."""

COMMON = 0.5
"""Which share of the variance inputs of one sum have in common: neighbours in images and audio."""

DOUBT = 2.0
"""The divisor of a deviation for each sum of products.

Means follow from sums of weights; deviations from guesses about how inputs go together, and guesses
multiply: in ppocrv4_det they were too large by 1.2 to 2 times with each of 25 layers. Estimates are
to fall short of the truth rather than to raise false alarms.
"""

_HIGHEST_POWER = 100.0
"""BYTE to this power is far beyond every type of 16 bits, and still a float."""


class Estimate(NamedTuple):
    """The distribution of a value's elements.

    Attributes:
        mean: Their mean.
        spread: Their standard deviation.
        degree: With which power they grow with the model's inputs; 0 where the scale is known, and
            below the power where most of them is known: x^2 + 1000 hardly grows.
        row: The magnitude of the mean of the largest row, along the last axis, where weights whose
            sums differ make one larger than all; 0 where that is not known.
        column: The same of the largest column.
    """

    mean: float
    spread: float
    degree: float = 0.0
    row: float = 0.0
    column: float = 0.0

    @property
    def square(self) -> float:
        """The mean of the squares."""
        return self.mean * self.mean + self.spread * self.spread

    @property
    def size(self) -> float:
        """The root of the mean of the squares."""
        return math.hypot(self.mean, self.spread)

    @property
    def largest(self) -> float:
        """The likely largest magnitude.

        Powers of inputs whose scale is not known have room for inputs that are bytes: the square of
        those is 255 times as large, relative to the input, as that of normalised ones.
        """
        peak = ROOM * abs(self.mean) + PEAK * self.spread
        peak = max(peak, SPOT * self.row, SPOT * self.column)
        return peak * BYTE ** min(max(0.0, self.degree - 1), _HIGHEST_POWER)

    def scaled(self, factor: float) -> Estimate:
        """Return the estimate of the elements times a factor."""
        size = abs(factor)
        return Estimate(
            self.mean * factor, self.spread * size, self.degree, self.row * size, self.column * size
        )

    def turned(self) -> Estimate:
        """Return the estimate of the transposed elements."""
        return self._replace(row=self.column, column=self.row)

    def rectified(self) -> Estimate:
        """Return the estimate of max(x, 0) of normal numbers."""
        if not self.spread or math.isinf(self.spread):
            return self._replace(mean=max(self.mean, 0.0))
        z = self.mean / self.spread
        share = 0.5 * (1 + math.erf(z / math.sqrt(2)))
        density = math.exp(-0.5 * min(z * z, 1400.0)) / math.sqrt(2 * math.pi)
        mean = self.mean * share + self.spread * density
        square = self.square * share + self.mean * self.spread * density
        return of_moments(mean, square, self.degree)


def of_moments(mean: float, square: float, degree: float = 0.0) -> Estimate:
    """Return the estimate of elements by their mean and the mean of their squares."""
    return Estimate(mean, math.sqrt(max(square - mean * mean, 0.0)), degree)


def of_bounds(bounds: Interval, degree: float = 0.0) -> Estimate:
    """Return the estimate of elements spread evenly over an interval."""
    return Estimate(
        (bounds.low + bounds.high) / 2, (bounds.high - bounds.low) / math.sqrt(12), degree
    )


def add(a: Estimate, b: Estimate) -> Estimate:
    """Return the estimate of a + b, or a - b but for the sign of the mean."""
    degree = _joined((a, b), sum)
    spread, row, column = math.hypot(a.spread, b.spread), a.row + b.row, a.column + b.column
    return Estimate(a.mean + b.mean, spread, degree, row, column)


def multiply(a: Estimate, b: Estimate) -> Estimate:
    """Return the estimate of a x b."""
    return of_moments(a.mean * b.mean, a.square * b.square, max(a.degree, b.degree))


def squared(a: Estimate) -> Estimate:
    """Return the estimate of the squares of normal numbers."""
    variance, square = a.spread * a.spread, a.mean * a.mean
    fourth = 3 * variance * variance + 6 * variance * square + square * square
    return of_moments(a.square, fourth, 2 * a.degree)


def mixed(*parts: Estimate) -> Estimate:
    """Return the estimate of elements that come from several values: as large as the largest."""
    mean = sum(p.mean for p in parts) / len(parts)
    return of_moments(mean, max(p.square for p in parts), _joined(parts, max))


def _joined(parts: Sequence[Estimate], whole: Callable[[Iterable[float]], float]) -> float:
    """Return the degree of several parts: a large one that is known leaves less."""
    sized = [p for p in parts if p.size] or parts
    degree = max(p.degree for p in sized)
    size = whole(p.size for p in sized)
    if all(p.degree == degree for p in sized) or not 0 < size < math.inf:
        return degree
    share = whole(p.size * BYTE ** (p.degree - degree) for p in sized) / size
    return max(0.0, degree + math.log(share) / math.log(BYTE))


class WeightRows(NamedTuple):
    """The rows of a weight, one for each output: mean and variance of sums, mean sum of squares.

    `peak` is the largest magnitude of a row's sum: the row of ones of a Fourier transform; 0 where
    that is not known.
    """

    total: float
    variance: float
    norm: float
    peak: float = 0.0

    @classmethod
    def of(cls, rows: Array) -> WeightRows:
        """Measure rows."""
        squares = float(np.square(rows, dtype=np.float64).sum())
        return cls.of_sums(rows.sum(axis=1, dtype=np.float64), squares)

    @classmethod
    def of_sums(cls, sums: Array, squares: float) -> WeightRows:
        """Say what rows are like by their sums and the sum of the squares of all elements."""
        peak = float(np.abs(sums).max(initial=0.0))
        with np.errstate(invalid="ignore", over="ignore"):  # weights may be infinite
            return cls(float(sums.mean()), float(sums.var()), squares / len(sums), peak)

    @classmethod
    def sampled(cls, elements: Array, terms: float) -> WeightRows:
        """Say what rows of N terms are like whose elements are like a sample."""
        mean, variance = float(elements.mean()), float(elements.var())
        return cls(terms * mean, terms * variance, terms * (mean * mean + variance))

    def applied(self, x: Estimate) -> Estimate:
        """Return the estimate of the sums of x times each row."""
        together = self.total * self.total + self.variance
        spread = x.spread**2 * ((1 - COMMON) * self.norm + COMMON * together)
        variance = spread + x.mean**2 * self.variance
        return Estimate(x.mean * self.total, math.sqrt(variance) / DOUBT, x.degree)

    def applied_to_rows(self, x: Estimate) -> Estimate:
        """Return `applied` with the largest row and column; each row of x is multiplied.

        A row of large elements gives one, and each row has its largest element where the row of
        weights is that has the largest sum.
        """
        column = self.peak * max(abs(x.mean), x.row)
        return self.applied(x)._replace(row=abs(self.total) * x.row, column=column)


_MOST = 1 << 24
"""Elements of the longest weight that is read: a Fourier transform of 4,096 points, in 20 ms."""

_LARGE = 256.0
"""The bound of rows in a weight left to a sample; 256 squared is just beyond float16."""


def long_rows(
    sampled: WeightRows, stream: Stream | None, shape: Sequence[int | None], layout: Layout
) -> WeightRows:
    """Return what the rows of a long weight are like: `sampled`, unless some may be large.

    A row of ones among those of a Fourier transform adds up to as much as it is long, while mean
    and variance of elements say the square root of that. By Cauchy and Schwarz no row of n elements
    exceeds sqrt(n times its sum of squares), which stays small for layers. So only what a sample
    shows to have large rows is read, one block at a time. Without it the overflow of a transform of
    640 points as a matrix is not seen (tests/conformance/test_small_constants.py).
    """
    dims = [d for d in shape if d is not None]
    if stream is None or len(dims) < max(2, len(shape)) or not 0 < stream.count <= _MOST:
        return sampled
    rest = math.prod(dims[1:])
    terms = dims[0] if layout is row_sums.columns else rest
    if math.sqrt(terms * sampled.norm) < _LARGE or dims[0] * rest != stream.count:
        return sampled
    if layout is row_sums.columns and len(dims) == 2:
        return _read(stream, rest, axis=0)
    if layout is row_sums.filters or (layout is row_sums.rows and len(dims) == 2):
        return _read(stream, rest, axis=1)
    return sampled


def _read(stream: Stream, line: int, axis: int) -> WeightRows:
    """Measure lines of some length: rows along axis 1, columns along axis 0."""
    sums, squares = list[Array](), 0.0
    for block in stream.at_hand().blocks(block=_whole(line)):
        matrix = block.reshape(-1, line)
        sums.append(matrix.sum(axis=axis, dtype=np.float64))
        flat = matrix.astype(np.float64).reshape(-1)
        squares += float(np.einsum("i,i->", flat, flat))  # BLAS would wake its threads
    return WeightRows.of_sums(np.concatenate(sums) if axis else np.sum(sums, axis=0), squares)


def _whole(length: int) -> int:
    """Return how many elements a block has at most, so that it ends where a line of them does."""
    return max(1, (1 << 16) // length) * length


# Outliers: a trained transformer has channels of the residual stream, or units of an MLP, that are
# a hundred times as large as their neighbours (M. Sun et al., "Massive Activations in Large
# Language Models", 2024, https://arxiv.org/abs/2402.17762). Mean and deviation hardly show one, and
# it is the first to leave the range of float16. Weights that make it show it.

FACTOR = 8.0
"""How many times larger than the median channel a channel of a constant has to be."""

FEWEST = 8
"""How many channels a constant has at least: of fewer none is a rule."""

_MOST_CHANNELS = 4
"""How many channels of a value are followed: its largest ones."""

_BOTH = 0.5
"""The largest of the products of two random numbers, as a share of that of their largest: of normal
numbers 6 deviations are as rare as products of 20 times both deviations."""


class Channel(NamedTuple):
    """The mean, deviation and likely largest magnitude of one channel."""

    mean: float
    spread: float
    peak: float

    @classmethod
    def of(cls, mean: float, spread: float) -> Channel:
        """Return a channel of normal numbers."""
        return cls(mean, spread, abs(mean) + PEAK * spread)

    @classmethod
    def like(cls, estimate: Estimate) -> Channel:
        """Return a channel that is like all of a value."""
        return cls.of(estimate.mean, estimate.spread)

    @property
    def size(self) -> float:
        """The root of the mean of the squares."""
        return math.hypot(self.mean, self.spread)

    @property
    def estimate(self) -> Estimate:
        """The channel, as rules of estimates take it."""
        return Estimate(self.mean, self.spread)

    def plus(self, other: Channel) -> Channel:
        """Return the channel of a sum: what is random adds up as deviations do."""
        mean, spread = self.mean + other.mean, math.hypot(self.spread, other.spread)
        around = (max(c.peak - abs(c.mean), 0.0) for c in (self, other))
        return Channel(mean, spread, abs(mean) + math.hypot(*around))

    def times(self, other: Channel) -> Channel:
        """Return the channel of a product of two that are independent."""
        mean, square = self.mean * other.mean, (self.size * other.size) ** 2
        peaks = self.peak * other.size, self.size * other.peak, _BOTH * self.peak * other.peak
        return Channel(mean, math.sqrt(max(square - mean * mean, 0.0)), max(peaks))

    def below(self, bound: float) -> Channel:
        """Return the channel of elements that do not exceed a bound."""
        return self if self.peak <= bound else Channel(self.mean, self.spread, bound)


class LargeChannels(NamedTuple):
    """The outliers of a value: how many channels it has, and those that are large, by number."""

    length: int
    channels: Mapping[int, Channel]

    @property
    def peak(self) -> float:
        """The likely largest magnitude of all."""
        return max(channel.peak for channel in self.channels.values())


def largest_of(length: int, channels: Mapping[int, Channel]) -> LargeChannels | None:
    """Return the largest of some channels; None if there is none, or a number is not finite."""
    held = [(k, c) for k, c in channels.items() if 0 < c.peak < math.inf and c.size < 1e30]
    held.sort(key=lambda item: -item[1].peak)
    return LargeChannels(length, dict(held[:_MOST_CHANNELS])) if held else None


def outliers_of_rows(rows: Array, *, factor: float = 1.0) -> LargeChannels | None:
    """Return the outliers of a constant, or of some of its rows."""
    length = rows.shape[1]
    if length < FEWEST or not rows.size:
        return None
    elements = rows.astype(np.float64) * factor
    means, spreads = elements.mean(axis=0), elements.std(axis=0)
    peaks = np.abs(elements).max(axis=0)
    sizes = np.hypot(means, spreads)
    ordered = np.sort(sizes)  # numpy's median imports masked arrays
    median = (ordered[(length - 1) // 2] + ordered[length // 2]) / 2
    places = np.flatnonzero(sizes > FACTOR * median)
    channels = zip(means[places], spreads[places], peaks[places], strict=True)
    large_channels = (Channel(float(m), float(s), float(p)) for m, s, p in channels)
    return largest_of(length, dict(zip(places.tolist(), large_channels, strict=True)))
