"""Tensors as files store them, in a message or beside it: checked, and read when asked for."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
import onnx.helper
from onnx import AttributeProto, NodeProto, TensorProto, numpy_helper

from amp_rewrite.errors import GraphError
from amp_rewrite.graph.elements import bits
from amp_rewrite.graph.proto.external import ExternalFiles, Held, Location
from amp_rewrite.graph.proto.messages import check_element, text
from amp_rewrite.graph.rounding import Array
from amp_rewrite.graph.streams import FileRange, Stream

_MAX_ELEMENTS = 1 << 60
_MAX_RANK = 64

_INT32 = "int32_data"
_FIELDS: dict[int, str] = {
    TensorProto.FLOAT: "float_data",
    TensorProto.COMPLEX64: "float_data",
    TensorProto.DOUBLE: "double_data",
    TensorProto.COMPLEX128: "double_data",
    TensorProto.INT64: "int64_data",
    TensorProto.UINT32: "uint64_data",
    TensorProto.UINT64: "uint64_data",
}
"""The typed field in which each element type is stored; the others use int32_data."""
_ALL_FIELDS = (*dict.fromkeys(_FIELDS.values()), _INT32)
_PER_ELEMENT: dict[int, int] = {TensorProto.COMPLEX64: 2, TensorProto.COMPLEX128: 2}
_PACKED = {2: 4, 4: 2}  # bit width -> elements in one entry of int32_data


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """A dense tensor that was checked.

    Attributes:
        dtype: The element type, a number of TensorProto.DataType.
        location: Where its data lie, in a file or in memory; None if they are in the message.
    """

    proto: TensorProto
    dtype: int
    dims: tuple[int, ...]
    size: int
    location: Location | Held | None = None

    @staticmethod
    def of(array: Array) -> StoredTensor:
        """Return the tensor of an array."""
        proto = numpy_helper.from_array(array)
        return StoredTensor(proto, proto.data_type, array.shape, array.size)

    @property
    def nbytes(self) -> int:
        """How many bytes ONNX stores for it; 0 for strings."""
        return (
            0 if self.dtype == TensorProto.STRING else math.ceil(self.size * bits(self.dtype) / 8)
        )

    def numpy(self) -> Array:
        """Return the elements; what is in a file is read."""
        if self.location is None:
            return numpy_helper.to_array(self.proto)
        if bits(self.dtype) < 8:
            return numpy_helper.to_array(with_data(self.proto, self.stored))
        # onnx reads up to the end of a file where no length is recorded
        return self.stream.array().reshape(self.dims)

    @property
    def stored(self) -> Stream:
        """The data that ONNX stores for a tensor, in a file, in memory or in raw_data."""
        if isinstance(self.location, Held) or bits(self.dtype) >= 8:
            return self.stream
        if self.location is None:
            raw = lambda: np.frombuffer(self.proto.raw_data, np.uint8)  # noqa: E731
            return Stream(self.nbytes, np.dtype(np.uint8), raw, name=self.proto.name)
        place = FileRange(self.location.path, self.location.offset)
        return Stream(self.nbytes, np.dtype(np.uint8), place, name=self.proto.name)

    @property
    def stream(self) -> Stream:
        """The elements, which are read when they are needed; whole bytes only."""
        if isinstance(self.location, Held):
            return self.location.stream()
        numpy = onnx.helper.tensor_dtype_to_np_dtype(self.dtype)
        if self.location is not None:
            place = FileRange(self.location.path, self.location.offset)
            return Stream(self.size, numpy.newbyteorder("<"), place, name=self.proto.name)
        return Stream(self.size, numpy, self._flat_array, name=self.proto.name)

    def _flat_array(self) -> Array:
        if self.proto.HasField("raw_data"):
            numpy = onnx.helper.tensor_dtype_to_np_dtype(self.dtype)
            return np.frombuffer(self.proto.raw_data, numpy.newbyteorder("<"))
        return np.ascontiguousarray(self.numpy()).reshape(-1)


def check_tensor(proto: TensorProto, files: ExternalFiles, where: str) -> StoredTensor:
    """Return a tensor whose message and file were checked; no data are copied or read.

    Raises:
        GraphError: Type, dimensions and stored data do not agree.
        LoadError: Its external data are missing, too short or outside the model's folder.
    """
    number = proto.data_type
    check_element(number, where)
    if number == TensorProto.UNDEFINED:
        raise GraphError("the tensor has no element type", where=where)
    dims = tuple(proto.dims)
    size = _size(dims, where)
    if proto.HasField("segment"):
        raise GraphError(
            "the tensor is stored in segments", where=where, remedy="store it in one piece"
        )
    if proto.data_location == TensorProto.EXTERNAL:
        if number == TensorProto.STRING:
            raise GraphError("strings cannot be external data", where=where)
        return StoredTensor(proto, number, dims, size, files.locate(proto, size, where))
    if number == TensorProto.STRING:
        _expect(len(proto.string_data), size, "strings", where)
    else:
        _check_data(proto, size, where)
    return StoredTensor(proto, number, dims, size)


def without_data(source: TensorProto) -> TensorProto:
    """Return a copy of the message of a tensor, without its data and their place."""
    message = TensorProto(data_type=source.data_type, dims=source.dims)
    if source.name:
        message.name = source.name
    if source.doc_string:
        message.doc_string = text(source.doc_string)
    message.metadata_props.extend(source.metadata_props)
    return message


def with_data(source: TensorProto, stream: Stream) -> TensorProto:
    """Return a copy of the message of a tensor whose data are elsewhere, with the data in it."""
    message = without_data(source)
    message.raw_data = stream.array().tobytes()
    return message


def tensors_in(nodes: Iterable[NodeProto]) -> Iterator[TensorProto]:
    """Yield the tensors in attributes of nodes, and of graphs inside them, in order."""
    for node in nodes:
        for attribute in node.attribute:
            if attribute.type == AttributeProto.TENSOR:
                yield attribute.t
            elif attribute.type == AttributeProto.GRAPH:
                yield from attribute.g.initializer
                yield from tensors_in(attribute.g.node)


def _size(dims: Sequence[int], where: str) -> int:
    if dims and min(dims) < 0:
        raise GraphError(
            "the tensor has a negative dimension", where=where, found=list(dims), expected=">= 0"
        )
    if len(dims) > _MAX_RANK:
        raise GraphError(
            "the tensor has too many dimensions",
            where=where,
            found=len(dims),
            expected=f"at most {_MAX_RANK}, as numpy",
        )
    size = math.prod(dims)
    if size > _MAX_ELEMENTS:
        raise GraphError("the tensor is impossibly large", where=where, found=list(dims))
    return size


def _check_data(proto: TensorProto, size: int, where: str) -> None:
    number = proto.data_type
    if proto.HasField("raw_data"):
        _expect(len(proto.raw_data), math.ceil(size * bits(number) / 8), "bytes", where)
        return
    field = _FIELDS.get(number, _INT32)
    per_entry = _PACKED.get(bits(number), 1)
    expected = math.ceil(size * _PER_ELEMENT.get(number, 1) / per_entry)
    stray = next((f for f in _ALL_FIELDS if f != field and len(getattr(proto, f))), None)
    if stray is not None:
        raise GraphError(
            "the data of a tensor are of another type",
            where=where,
            found=f"entries of {stray}",
            expected=field,
        )
    _expect(len(getattr(proto, field)), expected, f"entries of {field}", where)


def _expect(number: int, expected: int, unit: str, where: str) -> None:
    if number != expected:
        raise GraphError(
            "the data of a tensor do not match its dimensions",
            where=where,
            found=f"{number} {unit}",
            expected=expected,
            remedy="the file may be damaged: export the model again",
        )
