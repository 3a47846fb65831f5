"""How the magnitudes of every value are spread over the powers of two, measured on data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from amp_rewrite.graph.io.load import Source, load
from amp_rewrite.numerics.compare.distance import is_float
from amp_rewrite.numerics.compare.intermediates import Chunks
from amp_rewrite.numerics.emulate.evaluator import Evaluator
from amp_rewrite.numerics.inputs.batches import Array, Feeds

_LEAST = -149
"""The exponent of float32's smallest number."""

_BINS = 128 - _LEAST


class Histogram(NamedTuple):
    """The magnitudes of one value over all batches.

    Attributes:
        first: The power of two of the first bin: it counts 2**first <= |x| < 2**(first + 1).
        counts: Elements by power of two, from `first` on; neither end of it is zero.
        zeros: How many elements are zero.
        nonfinite: How many are infinite or NaN.
        smallest: The smallest nonzero magnitude; infinity if there is none.
        largest: The largest finite magnitude; 0 if there is none.
    """

    first: int
    counts: tuple[int, ...]
    zeros: int
    nonfinite: int
    smallest: float
    largest: float


class Tally:
    """Running counts of one value."""

    def __init__(self) -> None:
        """Begin without an element."""
        self.bins = np.zeros(_BINS, np.int64)
        self.zeros = self.nonfinite = 0
        self.smallest, self.largest = np.inf, 0.0

    def add(self, array: Array) -> None:
        """Take the elements of one batch into account."""
        magnitude = np.abs(np.asarray(array, np.float32).ravel())
        finite = magnitude[np.isfinite(magnitude)]
        nonzero = finite[finite > 0]
        self.nonfinite += magnitude.size - finite.size
        self.zeros += finite.size - nonzero.size
        if nonzero.size:
            # frexp has mantissas from 1/2 on: its exponent is one above the power of two below
            exponents = np.frexp(nonzero)[1] - 1 - _LEAST
            self.bins += np.bincount(exponents, minlength=_BINS)
            self.smallest = min(self.smallest, float(nonzero.min()))
            self.largest = max(self.largest, float(nonzero.max()))

    def histogram(self) -> Histogram:
        """Return the counts without the empty bins at both ends."""
        filled = np.flatnonzero(self.bins)
        first, end = (int(filled[0]), int(filled[-1]) + 1) if filled.size else (0, 0)
        counts = tuple(self.bins[first:end].tolist())
        return Histogram(
            first + _LEAST, counts, self.zeros, self.nonfinite, self.smallest, self.largest
        )


def magnitude_histograms(
    model: Source, names: Iterable[str], data: Iterable[Feeds]
) -> dict[str, Histogram]:
    """Measure values of the main graph of a float32 model, a few at a time.

    Args:
        model: A path, an onnx_ir model or a ModelProto; not modified.
        names: The values; those that are no tensors of floats are left out.
        data: Batches.

    Returns:
        Value -> its histogram.

    Raises:
        AmpError: A batch does not fit the model, or ONNX Runtime cannot run it.
    """
    wanted = list(dict.fromkeys(names))
    evaluator = Evaluator(load(model), outputs=wanted)
    tallies: dict[str, Tally] = {}
    for feeds in data:
        chunks = Chunks(wanted)
        for chunk in chunks:
            values: Mapping[str, Any] = evaluator.run(feeds, set(chunk))
            chunks.held = sum(int(np.asarray(v).nbytes) for v in values.values())
            for name, value in values.items():
                if is_float(value):
                    tallies.setdefault(name, Tally()).add(value)
    return {name: tallies[name].histogram() for name in wanted if name in tallies}
