"""Tensors as streams: read, measure and convert weights without holding them whole.

External data is read from its file, never through memory mapping: mapped pages count as resident
memory of the process, and a model of 3 GiB must not need 3 GiB.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import IO, Any

import numpy as np
import onnx_ir as ir

from amp_rewrite.dtypes import LOW, DType
from amp_rewrite.errors import LoadError
from amp_rewrite.graph.rounding import Array, to_low

CHUNK = 1 << 20
"""How many elements a chunk has by default: 4 MiB of float32."""

_ABS = np.uint32(0x7FFFFFFF)
_INFINITY = np.uint32(0x7F800000)
_ONE = np.uint32(1)


class ConvertedTensor(ir.LazyTensor):
    """A tensor rounded to another float type when it is read, chunk by chunk.

    Attributes:
        source: The tensor that is converted.
        target: The type to round to.
        saturate: The magnitude that finite values out of range get; 0 makes them infinite.
    """

    __slots__ = ("saturate", "source", "target")

    def __init__(
        self,
        source: ir.TensorProtocol,
        target: DType,
        *,
        saturate: float = 0.0,
        name: str | None = None,
    ) -> None:
        """Describe the conversion; nothing is read yet.

        Args:
            source: A float tensor.
            target: The type to round to, to nearest and ties to even.
            saturate: See the class.
            name: The name of the tensor; None takes the name of `source`.
        """
        props = getattr(source, "metadata_props", None)
        super().__init__(
            lambda: ir.Tensor(self.numpy(), dtype=target.ir),
            target.ir,
            source.shape,  # pyright: ignore[reportArgumentType] a ShapeProtocol that is a Shape
            name=source.name if name is None else name,
            doc_string=source.doc_string,
            metadata_props=dict(props) if props else None,
        )
        self.source = source
        self.target = target
        self.saturate = saturate

    def chunks(self, chunk_elements: int = CHUNK) -> Iterator[Array]:
        """Yield the converted elements in order, flat."""
        for chunk in chunks(self.source, chunk_elements):
            yield to_low(chunk, self.target, saturate=self.saturate)

    def numpy(self) -> Array:
        """Return the whole tensor, converted."""
        result = np.empty(self.size, self.target.numpy)
        start = 0
        for chunk in self.chunks():
            result[start : start + chunk.size] = chunk
            start += chunk.size
        return result.reshape(self.shape.numpy())

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        """Return the converted tensor for numpy."""
        return self.numpy().astype(dtype) if dtype is not None else self.numpy()

    def tobytes(self) -> bytes:
        """Return the converted bytes, little endian."""
        return b"".join(bytes(chunk) for chunk in byte_chunks(self))

    def tofile(self, file: IO[bytes]) -> None:
        """Write the converted bytes chunk by chunk."""
        for chunk in byte_chunks(self):
            file.write(chunk)

    def __repr__(self) -> str:
        """Name the conversion."""
        return f"ConvertedTensor({self.name!r}, {self.source.dtype} -> {self.target.name})"


def chunks(tensor: ir.TensorProtocol, chunk_elements: int = CHUNK) -> Iterator[Array]:
    """Yield the elements of any tensor in order, as flat arrays of at most `chunk_elements`.

    Args:
        tensor: Any tensor; an external one is read from its file.
        chunk_elements: The largest number of elements at once.

    Raises:
        LoadError: The external data cannot be read.
    """
    if isinstance(tensor, ConvertedTensor):
        yield from tensor.chunks(chunk_elements)
    elif isinstance(tensor, ir.ExternalTensor) and _whole_bytes(tensor.dtype):
        dtype = tensor.dtype.numpy().newbyteorder("<")
        for data in _file_chunks(tensor, chunk_elements * dtype.itemsize):
            yield data.view(dtype)
    else:
        flat = np.asarray(tensor.numpy()).reshape(-1)
        for start in range(0, flat.size, chunk_elements):
            yield flat[start : start + chunk_elements]


def byte_chunks(
    tensor: ir.TensorProtocol, chunk_elements: int = CHUNK
) -> Iterator[bytes | memoryview]:
    """Yield the bytes that ONNX stores for a tensor (raw_data, external data), in order.

    Raises:
        LoadError: The external data cannot be read.
    """
    if isinstance(tensor, ir.ExternalTensor):
        for data in _file_chunks(tensor, chunk_elements * 4):
            yield data.data
    elif isinstance(tensor, ConvertedTensor):
        for chunk in tensor.chunks(chunk_elements):
            yield np.ascontiguousarray(chunk).view(np.uint8).data
    else:
        yield tensor.tobytes()


def _whole_bytes(dtype: ir.DataType) -> bool:
    return dtype is not ir.DataType.STRING and dtype.bitwidth % 8 == 0


def _file_chunks(tensor: ir.ExternalTensor, chunk_bytes: int) -> Iterator[Array]:
    """Yield the bytes of an external tensor as uint8 arrays."""
    left, offset = tensor.nbytes, tensor.offset or 0
    if not left:
        return
    try:
        with open(tensor.path, "rb", buffering=0) as file:
            if hasattr(os, "posix_fadvise"):
                os.posix_fadvise(file.fileno(), offset, left, os.POSIX_FADV_SEQUENTIAL)
            file.seek(offset)
            while left:
                buffer = np.empty(min(chunk_bytes, left), np.uint8)
                _fill(file, buffer, tensor)
                left -= buffer.size
                yield buffer
    except OSError as error:
        raise LoadError(
            f"external data of tensor {tensor.name!r} cannot be read",
            where=tensor.path,
            found=error.strerror or error,
        ) from error


def _fill(file: Any, buffer: Array, tensor: ir.ExternalTensor) -> None:
    view, done = buffer.data, 0
    while done < len(view):
        count = file.readinto(view[done:])
        if not count:
            raise LoadError(
                f"external data of tensor {tensor.name!r} is too short",
                where=tensor.path,
                found=f"{len(view) - done} bytes missing",
                expected=f"{tensor.nbytes} bytes from offset {tensor.offset or 0}",
            )
        done += count


@dataclass(slots=True)
class WeightStats:
    """What decides whether a weight may be converted.

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
        """Take a flat chunk of float values into account."""
        if not values.size:
            return
        single = np.ascontiguousarray(values, np.float32)
        magnitude = single.view(np.uint32) & _ABS
        self.count += magnitude.size
        if magnitude.max() >= _INFINITY:
            self.nans += int(np.count_nonzero(magnitude > _INFINITY))
            self.infs += int(np.count_nonzero(magnitude == _INFINITY))
            magnitude = magnitude[magnitude < _INFINITY]
        if magnitude.size:
            self._add_finite(magnitude)

    def _add_finite(self, magnitude: Array) -> None:
        largest = float(magnitude.max().view(np.float32))
        # Zero minus one wraps to the largest number, so that the minimum skips zeros.
        smallest = float((np.subtract(magnitude, _ONE).min() + _ONE).view(np.float32))
        self.max_abs = max(self.max_abs, largest)
        if smallest:
            known = self.smallest_nonzero_abs
            self.smallest_nonzero_abs = smallest if known is None else min(known, smallest)
        for name, dtype in LOW.items():
            half = np.float32(dtype.smallest_subnormal / 2)
            if smallest and smallest <= half:
                tiny = (magnitude <= half.view(np.uint32)) & (magnitude != 0)
                self.flushed[name] += int(np.count_nonzero(tiny))
            if largest >= dtype.overflow:
                limit = np.float32(dtype.overflow).view(np.uint32)
                self.overflowed[name] += int(np.count_nonzero(magnitude >= limit))


def weight_stats(tensor: ir.TensorProtocol, chunk_elements: int = CHUNK // 4) -> WeightStats:
    """Measure a float tensor in one pass.

    Args:
        tensor: float32, float16 or bfloat16; float64 is measured after rounding to float32.
        chunk_elements: The largest number of elements held at once.

    Raises:
        LoadError: The external data cannot be read.
    """
    stats = WeightStats()
    with np.errstate(all="ignore"):
        for chunk in chunks(tensor, chunk_elements):
            stats.add(chunk)
    return stats


class MeasuredConstants:
    """The statistics of constants; each is measured once, when first asked for."""

    def __init__(self) -> None:
        """Start with nothing measured."""
        self._stats: dict[ir.Value, WeightStats] = {}

    def stats(self, value: ir.Value, tensor: ir.TensorProtocol) -> WeightStats:
        """Return the statistics of a constant with these contents."""
        if value not in self._stats:
            self._stats[value] = weight_stats(tensor)
        return self._stats[value]
