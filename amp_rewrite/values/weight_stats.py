"""The statistics that decide whether a weight may be converted, from one pass over its stream."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from amp_rewrite.dtypes import LOW, DType
from amp_rewrite.graph.rounding import Array
from amp_rewrite.graph.streams import FileRange, Stream
from amp_rewrite.graph.threads import in_order

_SHARE = 1 << 20
"""How many elements a thread measures at once; a stream that is not longer needs no thread."""

_SHORT = 1 << 12
"""Elements of a tensor that is measured together with others: a call of numpy costs as much."""

_TOGETHER = 1 << 8
"""How many short tensors are measured at once: 4 MiB of float32 at most."""

_ABS = np.uint32(0x7FFFFFFF)
_INFINITY = np.uint32(0x7F800000)
_ONE = np.uint32(1)
_OVERFLOWS = np.float32(min(dtype.overflow for dtype in LOW.values())).view(np.uint32)
_FLUSHED = np.float32(max(dtype.smallest_subnormal for dtype in LOW.values()) / 2).view(np.uint32)


@dataclass(slots=True)
class WeightStats:
    """The statistics that decide whether a weight may be converted.

    Attributes:
        count: The number of elements.
        max_abs: The largest finite magnitude; 0 for an empty tensor.
        smallest_nonzero_abs: The smallest magnitude that is not zero, or None if all are.
        nans: How many elements are NaN.
        infs: How many elements are infinite.
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
        if magnitude.max() >= _INFINITY:
            self.nans += int(np.count_nonzero(magnitude > _INFINITY))
            self.infs += int(np.count_nonzero(magnitude == _INFINITY))
            magnitude = magnitude[magnitude < _INFINITY]
        if magnitude.size:
            self._add_finite(magnitude)

    def _add_finite(self, magnitude: Array) -> None:
        """Take the bits of finite magnitudes into account, and overwrite them."""
        largest = float(magnitude.max().view(np.float32))
        self.max_abs = max(self.max_abs, largest)
        for name, dtype in LOW.items():
            if largest >= dtype.overflow:
                limit = np.float32(dtype.overflow).view(np.uint32)
                self.overflowed[name] += int(np.count_nonzero(magnitude >= limit))
        # Zero minus one wraps to the largest number, so that no minimum and no limit includes it.
        np.subtract(magnitude, _ONE, out=magnitude)
        smallest = float((magnitude.min() + _ONE).view(np.float32))
        if not smallest:
            return
        before = self.smallest_nonzero_abs
        self.smallest_nonzero_abs = smallest if before is None else min(before, smallest)
        for name, dtype in LOW.items():
            half = np.float32(dtype.smallest_subnormal / 2)
            if smallest <= half:
                self.flushed[name] += int(np.count_nonzero(magnitude < half.view(np.uint32)))


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


def measure_short(streams: Sequence[Stream]) -> Iterator[WeightStats]:
    """Yield the statistics of streams of 1 to `_SHORT` elements, by few calls of numpy."""
    blocks = [stream.array() for stream in streams]
    magnitude = np.concatenate(blocks).astype(np.float32, copy=False).view(np.uint32) & _ABS
    starts = np.cumsum([0, *(block.size for block in blocks[:-1])])
    largest = np.maximum.reduceat(magnitude, starts)
    np.subtract(magnitude, _ONE, out=magnitude)  # zero wraps to the largest number
    smallest = np.minimum.reduceat(magnitude, starts) + _ONE
    fits = (largest < _OVERFLOWS) & ((smallest > _FLUSHED) | (smallest == 0))
    rows = (largest.view(np.float32), smallest.view(np.float32), fits)
    facts = zip(streams, *(row.tolist() for row in rows), strict=True)
    for stream, high, low, is_plain in facts:
        yield WeightStats(stream.count, high, low or None) if is_plain else measure(stream)


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

    def measure_all(self, streams: Mapping[int, Stream]) -> None:
        """Measure the short ones among some constants; long ones may never be asked for."""
        short = [v for v, s in streams.items() if v not in self._stats and _is_short(s)]
        for first in range(0, len(short), _TOGETHER):
            batch = short[first : first + _TOGETHER]
            measured = measure_short([streams[value] for value in batch])
            self._stats.update(zip(batch, measured, strict=True))


def _is_short(stream: Stream) -> bool:
    return 0 < stream.count <= _SHORT and not isinstance(stream.origin, FileRange)
