"""Streams: the elements of a tensor, described so that a thread can read any part of them.

A description is plain: it names a file, an array or a function that makes one, and knows no object
of a model; there may be one for each weight. External data are read, never mapped: mapped pages
count as memory of the process, and a model of 3 GiB must not need 3 GiB.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from amp_rewrite.dtypes import DType
from amp_rewrite.errors import LoadError
from amp_rewrite.graph.rounding import BLOCK, Array, to_low

_BYTE = np.dtype(np.uint8)


class FileRange(NamedTuple):
    """Where the elements of a tensor begin in a file."""

    path: str
    offset: int


class Conversion(NamedTuple):
    """A rounding to another type, and a multiplication by a power of two before it.

    Attributes:
        target: The type, to nearest and ties to even.
        saturate: The magnitude that finite values out of range get; 0 makes them infinite.
        exponent: The power of two that elements are multiplied by first.
    """

    target: DType
    saturate: float = 0.0
    exponent: int = 0

    def of(self, values: Array) -> Array:
        """Return elements, converted."""
        if self.exponent:
            wide = np.float64 if values.dtype == np.float64 else np.float32
            with np.errstate(over="ignore", under="ignore"):
                values = np.ldexp(values.astype(wide), self.exponent)
        return to_low(values, self.target, saturate=self.saturate)


@dataclass(frozen=True, slots=True)
class Stream:
    """The elements of a tensor, in order and flat; nothing is read or computed before it is needed.

    Attributes:
        dtype: The type in which they are stored, little endian.
    """

    count: int
    dtype: np.dtype
    origin: FileRange | Array | Callable[[], Array]
    conversions: tuple[Conversion, ...] = ()
    name: str = ""

    @classmethod
    def of_bytes(cls, data: bytes) -> Stream:
        """Return a stream of bytes in memory."""
        return cls(len(data), _BYTE, np.frombuffer(data, _BYTE))

    @property
    def itemsize(self) -> int:
        """The bytes of one element, converted."""
        return self._converted_type.itemsize

    @property
    def _converted_type(self) -> np.dtype:
        return self.conversions[-1].target.numpy if self.conversions else self.dtype

    @property
    def nbytes(self) -> int:
        """The bytes of all elements, converted."""
        return self.count * self.itemsize

    def converted(self, target: DType, saturate: float = 0.0, exponent: int = 0) -> Stream:
        """Return a stream of elements times 2^exponent, rounded to `target` in the end."""
        conversions = (*self.conversions, Conversion(target, saturate, exponent))
        return Stream(self.count, self.dtype, self.origin, conversions, self.name)

    def at_hand(self) -> Stream:
        """Return a stream of the same elements that calls no function: it holds what one made."""
        if not callable(self.origin):
            return self
        return Stream(self.count, self.dtype, self.origin(), self.conversions, self.name)

    def array(self) -> Array:
        """Return all converted elements of a stream in memory at once.

        Raises:
            LoadError: The file cannot be read, or ends too early.
        """
        result, end = np.empty(self.count, self._converted_type), 0
        for block in self.blocks():
            start, end = end, end + block.size
            result[start:end] = block
        return result

    def blocks(
        self, first: int = 0, count: int | None = None, block: int = BLOCK
    ) -> Iterator[Array]:
        """Yield converted elements as flat, contiguous arrays that are not to be written to.

        Raises:
            LoadError: The file cannot be read, or ends too early.
        """
        stop = self.count if count is None else first + count
        for values in self._stored_blocks(first, stop, block):
            for conversion in self.conversions:
                values = conversion.of(values)
            yield values

    def _stored_blocks(self, first: int, stop: int, block: int) -> Iterator[Array]:
        if isinstance(self.origin, FileRange):
            yield from self._read(self.origin, first, stop, block)
            return
        array = self.origin() if callable(self.origin) else self.origin
        for start in range(first, stop, block):
            yield array[start : min(start + block, stop)]

    def _read(self, origin: FileRange, first: int, stop: int, block: int) -> Iterator[Array]:
        if first == stop:
            return
        try:
            with open(origin.path, "rb", buffering=0) as file:
                file.seek(origin.offset + first * self.dtype.itemsize)
                for start in range(first, stop, block):
                    values = np.empty(min(block, stop - start), self.dtype)
                    data, done = values.view(_BYTE).data, 0
                    while done < len(data):
                        count = file.readinto(data[done:])
                        if not count:
                            raise self._too_short(origin)
                        done += count
                    yield values
        except OSError as error:
            raise LoadError(
                f"external data of tensor {self.name!r} cannot be read",
                where=origin.path,
                found=error.strerror or error,
            ) from error

    def _too_short(self, origin: FileRange) -> LoadError:
        expected = self.count * self.dtype.itemsize
        missing = origin.offset + expected - os.path.getsize(origin.path)
        return LoadError(
            f"external data of tensor {self.name!r} is too short",
            where=origin.path,
            found=f"{missing} bytes missing",
            expected=f"{expected} bytes from offset {origin.offset}",
        )
