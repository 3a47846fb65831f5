"""TensorProto and SparseTensorProto -> onnx_ir tensors, with their sizes checked."""

from __future__ import annotations

import onnx
import onnx_ir as ir

from amp_rewrite.graph.proto.external import ExternalFiles, Held
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


def read_tensor(proto: onnx.TensorProto, files: ExternalFiles, where: str) -> ir.TensorProtocol:
    """Return a tensor that refers to `proto` or to a file, or the one in memory that it refers to.

    No data are copied or read.

    Raises:
        GraphError: Type, dimensions and stored data do not agree.
        LoadError: Its external data are missing, too short or outside the model's folder.
    """
    stored = check_tensor(proto, files, where)
    if isinstance(stored.location, Held):
        return stored.location.tensor
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
