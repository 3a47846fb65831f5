"""The rows of long weights: one block at a time, and only of those with large elements.

A row of ones among those of a Fourier transform adds up to as much as it is long, while the mean
and variance of elements say the square root of that. By Cauchy and Schwarz no row of n elements
exceeds sqrt(n times its sum of squares), which stays small for the weights of layers: their rows
have a sum of squares of about 1. So only what a sample shows to have large rows is read.

Evidence: a Fourier transform of 640 points as a matrix, float16: its row of ones overflows, and
nothing is seen without it (tests/conformance/test_small_constants.py).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from amp_rewrite.graph.flat import Array
from amp_rewrite.graph.streams import Stream
from amp_rewrite.values.intervals import row_sums
from amp_rewrite.values.intervals.row_sums import Layout
from amp_rewrite.values.magnitudes.estimate import WeightRows

_MOST = 1 << 24
"""Elements of the longest weight that is read: a Fourier transform of 4,096 points, in 20 ms."""

_LARGE = 256.0
"""The bound of each row in a weight that is left to a sample; 256 squared is just beyond float16.
"""


def long_rows(
    sampled: WeightRows, stream: Stream | None, shape: Sequence[int | None], layout: Layout
) -> WeightRows:
    """Return what the rows of a long weight are like: `sampled`, unless some may be large.

    Args:
        sampled: What a sample of elements says of its rows.
        stream: The elements.
        shape: (terms, outputs) for the layout `columns`, (outputs, terms...) for others.
        layout: How rows lie in the weight.
    """
    dims = [d for d in shape if d is not None]
    if stream is None or len(dims) < max(2, len(shape)) or not 0 < stream.count <= _MOST:
        return sampled
    rest = math.prod(dims[1:])
    terms = dims[0] if layout is row_sums.columns else rest
    if math.sqrt(terms * sampled.norm) < _LARGE or dims[0] * rest != stream.count:
        return sampled
    if layout is row_sums.columns and len(dims) == 2:
        return _of_columns(stream, rest)
    if layout is row_sums.filters or (layout is row_sums.rows and len(dims) == 2):
        return _of_rows(stream, rest)
    return sampled


def _of_rows(stream: Stream, terms: int) -> WeightRows:
    sums, squares = list[Array](), 0.0
    for block in stream.at_hand().blocks(block=_whole(terms)):
        matrix = block.reshape(-1, terms)
        sums.append(matrix.sum(axis=1, dtype=np.float64))
        squares += _squares(matrix)
    return WeightRows.of_sums(np.concatenate(sums), squares)


def _of_columns(stream: Stream, outputs: int) -> WeightRows:
    sums, squares = np.zeros(outputs), 0.0
    for block in stream.at_hand().blocks(block=_whole(outputs)):
        matrix = block.reshape(-1, outputs)
        sums += matrix.sum(axis=0, dtype=np.float64)
        squares += _squares(matrix)
    return WeightRows.of_sums(sums, squares)


def _whole(length: int) -> int:
    """Return how many elements a block has at most, so that it ends where a line of them does."""
    return max(1, (1 << 16) // length) * length


def _squares(matrix: Array) -> float:
    flat = matrix.astype(np.float64).reshape(-1)
    return float(flat @ flat)
