"""TensorProto and SparseTensorProto -> onnx_ir tensors, with their sizes checked."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir

from amp_rewrite.graph.proto.external import ExternalFiles
from amp_rewrite.graph.proto.messages import props, text
from amp_rewrite.graph.proto.stored import check_tensor


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
    stored = check_tensor(proto, files, where)
    if stored.location is None and stored.dtype != onnx.TensorProto.STRING:
        return ProtoTensor(proto)
    doc_string = text(proto.doc_string) if proto.HasField("doc_string") else None
    metadata = props(proto.metadata_props) or None
    if stored.location is None:
        return ir.StringTensor(
            list(proto.string_data),
            shape=ir.Shape(proto.dims),
            name=proto.name if proto.HasField("name") else None,
            doc_string=doc_string,
            metadata_props=metadata,
        )
    folder, location, offset, length = stored.location
    return ir.ExternalTensor(
        location,
        offset,
        length,
        ir.DataType(stored.dtype),
        shape=ir.Shape(proto.dims),
        name=proto.name,
        doc_string=doc_string,
        metadata_props=metadata,
        base_dir=folder,
    )
