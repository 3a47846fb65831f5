"""Outliers: the few channels of a value that are far larger than its other ones.

A trained transformer has them: one channel of the residual stream, or one unit of an MLP, is a
hundred times as large as its neighbours (M. Sun et al., "Massive Activations in Large Language
Models", 2024, https://arxiv.org/abs/2402.17762). Mean and deviation of all elements hardly show
one, and it is the first to leave the range of float16. Where the weights make it, they show it: a
column of a matrix, or an element of a bias, is far larger than the others.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from amp_rewrite.graph.flat import Array
from amp_rewrite.values.magnitudes.estimate import PEAK, Estimate

FACTOR = 8.0
"""How many times larger than the median channel a channel of a constant has to be."""

FEWEST = 8
"""How many channels a constant has at least: of fewer none is a rule."""

_MOST = 4
"""How many channels of a value are followed: its largest ones."""

_BOTH = 0.5
"""The largest of the products of two random numbers, as a share of that of their largest: of normal
numbers 6 deviations are as rare as products of 20 times both deviations."""


class Channel(NamedTuple):
    """The distribution of one channel's elements.

    Attributes:
        mean: Their mean.
        spread: Their standard deviation.
        peak: Their likely largest magnitude.
    """

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
    """The outliers of a value.

    Attributes:
        length: How many channels the value has: the length of its last axis.
        channels: Number of a channel -> what it is like.
    """

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
    return LargeChannels(length, dict(held[:_MOST])) if held else None


def outliers_of_rows(rows: Array, *, factor: float = 1.0) -> LargeChannels | None:
    """Return the outliers of a constant, or of some of its rows.

    Args:
        rows: Its elements, a column for each channel: (rows, channels).
        factor: What each element is multiplied by.
    """
    length = rows.shape[1]
    if length < FEWEST or not rows.size:
        return None
    elements = rows.astype(np.float64) * factor
    means, spreads = elements.mean(axis=0), elements.std(axis=0)
    peaks = np.abs(elements).max(axis=0)
    sizes = np.hypot(means, spreads)
    places = np.flatnonzero(sizes > FACTOR * np.median(sizes))
    channels = zip(means[places], spreads[places], peaks[places], strict=True)
    large_channels = (Channel(float(m), float(s), float(p)) for m, s, p in channels)
    return largest_of(length, dict(zip(places.tolist(), large_channels, strict=True)))
