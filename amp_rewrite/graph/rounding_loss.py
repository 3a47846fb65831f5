"""Losses of a constant that is rounded to a 16-bit type, measured in one pass over its stream."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from amp_rewrite.dtypes import DType
from amp_rewrite.graph.rounding import Array, to_low
from amp_rewrite.graph.streams import Stream
from amp_rewrite.graph.threads import in_order

_SHARE = 1 << 20
"""How many elements a thread measures at once; a stream that is not longer needs no thread."""

MOST_SMALL = 0.01
"""The share of nonzero elements that may lie below the smallest normal number, where a low type has
fewer digits. Weights around 0.02, such as embeddings, have 0.2 % there in float16."""


@dataclass(frozen=True, slots=True)
class RoundingLoss:
    """Losses of a constant's elements in a 16-bit type.

    Attributes:
        largest_relative: The largest error of an element that does not, relative to it.
    """

    nonzero: int = 0
    overflowed: int = 0
    small: int = 0
    largest_relative: float = 0.0

    @property
    def is_kept(self) -> bool:
        """Whether the constant survives.

        No element overflows, and at most MOST_SMALL of them lie where the low type has fewer
        digits. The error of all others is half a unit of the last place at most, and so is that
        of the small ones at the smallest normal number, below which the constant hardly goes.
        """
        return not self.overflowed and self.small <= MOST_SMALL * self.nonzero

    def __add__(self, other: RoundingLoss) -> RoundingLoss:
        """Return what two parts lose, taken together."""
        return RoundingLoss(
            self.nonzero + other.nonzero,
            self.overflowed + other.overflowed,
            self.small + other.small,
            max(self.largest_relative, other.largest_relative),
        )


def rounding_loss(stream: Stream, dtype: DType) -> RoundingLoss:
    """Measure what a stream of float32 elements loses in a low type, a long one on all cores."""
    stream = stream.at_hand()

    def share(first: int) -> RoundingLoss:
        blocks = stream.blocks(first, min(_SHARE, stream.count - first))
        return sum((_loss(block, dtype) for block in blocks), RoundingLoss())

    if stream.count <= _SHARE:
        return share(0)
    return sum(in_order(share, range(0, stream.count, _SHARE)), RoundingLoss())


def _loss(values: Array, dtype: DType) -> RoundingLoss:
    magnitude = np.abs(np.asarray(values, np.float32))
    magnitude = magnitude[(magnitude > 0) & np.isfinite(magnitude)]
    fits = magnitude < dtype.overflow
    small = magnitude < dtype.smallest_normal
    normal = magnitude[fits & ~small]
    error = np.abs(to_low(normal, dtype).astype(np.float32) - normal) / normal
    return RoundingLoss(
        nonzero=magnitude.size,
        overflowed=magnitude.size - int(np.count_nonzero(fits)),
        small=int(np.count_nonzero(small)),
        largest_relative=float(error.max(initial=0.0)),
    )
