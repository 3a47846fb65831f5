"""TensorProto and SparseTensorProto -> onnx_ir tensors, with their sizes checked."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import onnx
import onnx_ir as ir

from amp_rewrite.errors import GraphError
from amp_rewrite.graph.io.external import ExternalFiles
from amp_rewrite.graph.io.typeproto import data_type, props, text

_MAX_ELEMENTS = 1 << 60
_MAX_RANK = 64
_MAX_DENSE = 1 << 28  # elements: 1 GiB of float32

_INT32 = "int32_data"
_FIELDS: dict[ir.DataType, str] = {
    ir.DataType.FLOAT: "float_data",
    ir.DataType.COMPLEX64: "float_data",
    ir.DataType.DOUBLE: "double_data",
    ir.DataType.COMPLEX128: "double_data",
    ir.DataType.INT64: "int64_data",
    ir.DataType.UINT32: "uint64_data",
    ir.DataType.UINT64: "uint64_data",
}
"""The typed field in which each element type is stored; the others use int32_data."""
_ALL_FIELDS = (*dict.fromkeys(_FIELDS.values()), _INT32)
_PER_ELEMENT = {ir.DataType.COMPLEX64: 2, ir.DataType.COMPLEX128: 2}
_PACKED = {2: 4, 4: 2}  # bit width -> elements in one entry of int32_data


class ProtoTensor(ir.TensorProtoTensor):
    """A tensor in a TensorProto that somebody else may own: renaming does not change it."""

    __slots__ = ("_own_name",)

    def __init__(self, proto: onnx.TensorProto) -> None:
        """Refer to the message."""
        super().__init__(proto)
        self._own_name: str = proto.name

    @property
    def name(self) -> str:
        """The tensor's name."""
        return self._own_name

    @name.setter
    def name(self, value: str | None) -> None:
        self._own_name = value or ""

    @property
    def raw(self) -> onnx.TensorProto:
        """The message; a renamed copy of it after renaming."""
        if self._own_name == self._proto.name:
            return self._proto
        renamed = onnx.TensorProto()
        renamed.CopyFrom(self._proto)
        renamed.name = self._own_name
        return renamed


class SparseTensor(ir.LazyTensor):
    """A sparse initializer: it reads like a dense tensor and is saved as the sparse one it was.

    Attributes:
        proto: The SparseTensorProto.
    """

    __slots__ = ("proto",)

    def __init__(self, proto: onnx.SparseTensorProto) -> None:
        """Refer to the message, which must have been checked."""
        super().__init__(
            lambda: ir.Tensor(_dense(proto)),
            ir.DataType(proto.values.data_type),
            ir.Shape(proto.dims, frozen=True),
            name=proto.values.name,
        )
        self.proto = proto


def _dense(proto: onnx.SparseTensorProto) -> np.ndarray:
    values = ir.TensorProtoTensor(proto.values).numpy()
    indices = ir.TensorProtoTensor(proto.indices).numpy()
    dense = np.zeros(tuple(proto.dims), values.dtype)
    if indices.ndim == 1:
        dense.reshape(-1)[indices] = values
    else:
        dense[tuple(indices.T)] = values
    return dense


def read_tensor(proto: onnx.TensorProto, files: ExternalFiles, where: str) -> ir.TensorProtocol:
    """Return a tensor that refers to `proto` or to a file; no data are copied or read.

    Raises:
        GraphError: Type, dimensions and stored data do not agree.
        LoadError: Its external data are missing, too short or outside the model's folder.
    """
    dtype = data_type(proto.data_type, where)
    if dtype is ir.DataType.UNDEFINED:
        raise GraphError("the tensor has no element type", where=where)
    size = _size(proto.dims, where)
    if proto.HasField("segment"):
        raise GraphError(
            "the tensor is stored in segments", where=where, remedy="store it in one piece"
        )
    if proto.data_location == onnx.TensorProto.EXTERNAL:
        if dtype is ir.DataType.STRING:
            raise GraphError("strings cannot be external data", where=where)
        return files.tensor(proto, dtype, size, where)
    if dtype is ir.DataType.STRING:
        _expect(len(proto.string_data), size, "strings", where)
        return ir.StringTensor(
            list(proto.string_data),
            shape=ir.Shape(proto.dims),
            name=proto.name if proto.HasField("name") else None,
            doc_string=text(proto.doc_string) if proto.HasField("doc_string") else None,
            metadata_props=props(proto.metadata_props) or None,
        )
    _check_data(proto, dtype, size, where)
    return ProtoTensor(proto)


def _size(dims: Sequence[int], where: str) -> int:
    if any(dim < 0 for dim in dims):
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


def _check_data(proto: onnx.TensorProto, dtype: ir.DataType, size: int, where: str) -> None:
    if proto.HasField("raw_data"):
        _expect(len(proto.raw_data), math.ceil(size * dtype.bitwidth / 8), "bytes", where)
        return
    field = _FIELDS.get(dtype, _INT32)
    per_entry = _PACKED.get(dtype.bitwidth, 1)
    expected = math.ceil(size * _PER_ELEMENT.get(dtype, 1) / per_entry)
    stray = next((f for f in _ALL_FIELDS if f != field and len(getattr(proto, f))), None)
    if stray is not None:
        raise GraphError(
            "the data of a tensor are of another type",
            where=where,
            found=f"entries of {stray}",
            expected=field,
        )
    _expect(len(getattr(proto, field)), expected, f"entries of {field}", where)


def _expect(found: int, expected: int, unit: str, where: str) -> None:
    if found != expected:
        raise GraphError(
            "the data of a tensor do not match its dimensions",
            where=where,
            found=f"{found} {unit}",
            expected=expected,
            remedy="the file may be damaged: export the model again",
        )


def check_sparse(proto: onnx.SparseTensorProto, files: ExternalFiles, where: str) -> None:
    """Check a sparse tensor.

    Raises:
        GraphError: Values, indices and dimensions do not agree.
    """
    values = read_tensor(proto.values, files, where)
    indices = read_tensor(proto.indices, files, where)
    size = _size(proto.dims, where)
    if size > _MAX_DENSE:
        raise GraphError(
            "a sparse tensor is too large to be read as a dense one",
            where=where,
            found=list(proto.dims),
            expected=f"at most {_MAX_DENSE} elements",
        )
    if not isinstance(values, ProtoTensor) or not isinstance(indices, ProtoTensor):
        raise GraphError("a sparse tensor of strings or of external data", where=where)
    _check_indices(indices, values, tuple(proto.dims), size, where)


def _check_indices(
    indices: ProtoTensor, values: ProtoTensor, dims: tuple[int, ...], size: int, where: str
) -> None:
    shape, count = indices.shape.numpy(), values.size
    if len(values.shape) != 1 or shape not in {(count,), (count, len(dims))}:
        raise GraphError(
            "indices and values of a sparse tensor do not agree",
            where=where,
            found=f"indices {list(shape)}, values {list(values.shape)}",
            expected=f"indices [{count}] or [{count}, {len(dims)}]",
        )
    if indices.dtype is not ir.DataType.INT64:
        raise GraphError("indices must be int64", where=where, found=indices.dtype.name)
    array = indices.numpy()
    limits = np.array(dims if array.ndim == 2 else size)
    if count and ((array < 0) | (array >= limits)).any():
        raise GraphError("an index of a sparse tensor is out of range", where=where, expected=dims)
