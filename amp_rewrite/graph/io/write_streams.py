"""Write streams one after the other to a file, on all cores.

Threads fill segments of the output and write them in any order; the caller's thread then sees their
bytes in order, as a hash has to. In memory are two segments a core, and the arrays of streams.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from functools import partial
from typing import NamedTuple

import numpy as np

from amp_rewrite.graph.streams import Stream
from amp_rewrite.graph.threads import in_order

SEGMENT = 1 << 21
"""How many bytes of the output a segment has: half a million float32 numbers, a million float16."""

_AT_ONCE = 1 << 18
"""Bytes of one write. Linux puts larger ones on larger pages, which took three times as long on a
virtual machine: it had given their memory back to its host."""


class _Piece(NamedTuple):
    stream: Stream
    first: int
    size: int


class _Segment(NamedTuple):
    """Consecutive bytes of the output: their place, their number, and what they are made of."""

    offset: int
    nbytes: int
    pieces: tuple[_Piece, ...]


def write_streams(
    streams: Iterable[Stream],
    file: int,
    *observers: Callable[[memoryview], object],
    is_read_next: bool = False,
) -> None:
    """Write streams from the beginning of a file on, whose position is neither used nor moved.

    Observers are called with the bytes of each segment, in order and in the caller's thread. A file
    that `is_read_next` is best kept in memory.
    """
    segments = _segments(streams)
    with closing(in_order(partial(_write_segment, file, is_read_next), segments)) as written:
        for data in written:
            for observe in observers:
                observe(data)


def _segments(streams: Iterable[Stream]) -> Iterator[_Segment]:
    offset, used, pieces = 0, 0, list[_Piece]()
    for stream in (lazy.at_hand() for lazy in streams):
        first = 0
        while first < stream.count:
            size = min(stream.count - first, (SEGMENT - used) // stream.itemsize)
            if not size:
                yield _Segment(offset, used, tuple(pieces))
                offset, used, pieces = offset + used, 0, []
                continue
            pieces.append(_Piece(stream, first, size))
            first, used = first + size, used + size * stream.itemsize
    if pieces:
        yield _Segment(offset, used, tuple(pieces))


def _write_segment(file: int, is_read_next: bool, segment: _Segment) -> memoryview:
    array, end = np.empty(segment.nbytes, np.uint8), 0
    for piece in segment.pieces:
        for block in piece.stream.blocks(piece.first, piece.size):
            start, end = end, end + block.nbytes
            array[start:end] = block.view(np.uint8)
    data, done = array.data, 0
    while done < len(data):
        done += os.pwrite(file, data[done : done + _AT_ONCE], segment.offset + done)
    # the disk begins now, and fsync has little left to wait for
    if hasattr(os, "posix_fadvise") and not is_read_next:
        os.posix_fadvise(file, segment.offset, len(data), os.POSIX_FADV_DONTNEED)
    return data
