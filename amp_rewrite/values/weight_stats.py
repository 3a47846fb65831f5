"""The statistics that decide whether a weight may be converted, from one pass over its stream."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np

from amp_rewrite.dtypes import LOW, DType
from amp_rewrite.graph.rounding import Array
from amp_rewrite.graph.streams import Stream
from amp_rewrite.graph.threads import in_order

_SHARE = 1 << 20
"""How many elements a thread measures at once; a stream that is not longer needs no thread."""

_ABS = np.uint32(0x7FFFFFFF)
_INFINITY = np.uint32(0x7F800000)
_ONE = np.uint32(1)
_OVERFLOWS = min(dtype.overflow for dtype in LOW.values())
_FLUSHED = max(dtype.smallest_subnormal for dtype in LOW.values()) / 2


@dataclass(slots=True)
class WeightStats:
    """The statistics that decide whether a weight may be converted.

    Attributes:
        max_abs: The largest finite magnitude; 0 for an empty tensor.
        smallest_nonzero_abs: The smallest magnitude that is not zero, or None if all are.
        flushed: By type name, how many nonzero elements round to zero.
        overflowed: By type name, how many finite elements round to infinity.
    """

    count: int = 0
    max_abs: float = 0.0
    smallest_nonzero_abs: float | None = None
    nans: int = 0
    infs: int = 0
    flushed: dict[str, int] = field(default_factory=lambda: dict.fromkeys(LOW, 0))
    overflowed: dict[str, int] = field(default_factory=lambda: dict.fromkeys(LOW, 0))

    def flushed_to_zero(self, dtype: DType) -> int:
        """Return how many nonzero elements round to zero in `dtype`."""
        return self.flushed[dtype.name]

    def overflow(self, dtype: DType) -> int:
        """Return how many finite elements round to infinity in `dtype`."""
        return self.overflowed[dtype.name]

    def add(self, values: Array) -> None:
        """Take a flat block of float values into account."""
        if not values.size:
            return
        magnitude = np.ascontiguousarray(values, np.float32).view(np.uint32) & _ABS
        self.count += magnitude.size
        largest = magnitude.max()
        if largest >= _INFINITY:
            self.nans += int(np.count_nonzero(magnitude > _INFINITY))
            self.infs += int(np.count_nonzero(magnitude == _INFINITY))
            magnitude = magnitude[magnitude < _INFINITY]
            if not magnitude.size:
                return
            largest = magnitude.max()
        self._add_finite(magnitude, float(largest.view(np.float32)))

    def _add_finite(self, magnitude: Array, largest: float) -> None:
        """Take the bits of finite magnitudes into account, and overwrite them."""
        self.max_abs = max(self.max_abs, largest)
        for name, dtype in LOW.items() if largest >= _OVERFLOWS else ():
            limit = np.float32(dtype.overflow).view(np.uint32)
            self.overflowed[name] += int(np.count_nonzero(magnitude >= limit))
        # Zero minus one wraps to the largest number, so that no minimum and no limit includes it.
        np.subtract(magnitude, _ONE, out=magnitude)
        smallest = float((magnitude.min() + _ONE).view(np.float32))
        if not smallest:
            return
        before = self.smallest_nonzero_abs
        self.smallest_nonzero_abs = smallest if before is None else min(before, smallest)
        for name, dtype in LOW.items() if smallest <= _FLUSHED else ():
            half = np.float32(dtype.smallest_subnormal / 2).view(np.uint32)
            self.flushed[name] += int(np.count_nonzero(magnitude < half))


def merged(parts: Iterable[WeightStats]) -> WeightStats:
    """Return the statistics of several parts taken together."""
    total = WeightStats()
    for part in parts:
        total.count += part.count
        total.max_abs = max(total.max_abs, part.max_abs)
        both = (total.smallest_nonzero_abs, part.smallest_nonzero_abs)
        total.smallest_nonzero_abs = min((x for x in both if x is not None), default=None)
        total.nans += part.nans
        total.infs += part.infs
        for name in LOW:
            total.flushed[name] += part.flushed[name]
            total.overflowed[name] += part.overflowed[name]
    return total


def measure(stream: Stream) -> WeightStats:
    """Measure a stream of floats in one pass, a long one on all cores.

    Raises:
        LoadError: The stream cannot be read.
    """
    stream = stream.at_hand()

    def share(first: int) -> WeightStats:
        stats = WeightStats()
        with np.errstate(all="ignore"):
            for block in stream.blocks(first, min(_SHARE, stream.count - first)):
                stats.add(block)
        return stats

    if stream.count <= _SHARE:
        return share(0)
    return merged(in_order(share, range(0, stream.count, _SHARE)))


class MeasuredConstants:
    """The statistics of constants, by value; each is measured once, when first asked for."""

    def __init__(self) -> None:
        """Start with nothing measured."""
        self._stats: dict[int, WeightStats] = {}

    def stats(self, value: int, elements: Callable[[], Stream]) -> WeightStats:
        """Return the statistics of a constant with these contents."""
        if value not in self._stats:
            self._stats[value] = measure(elements())
        return self._stats[value]
