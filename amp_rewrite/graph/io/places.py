"""TensorProtos: with their data, or with the place of their data in a file."""

from __future__ import annotations

import onnx
import onnx_ir as ir

from amp_rewrite.graph.io.model_files import Place, refer
from amp_rewrite.graph.io.wire import to_bytes


def fill_tensor(
    proto: onnx.TensorProto, tensor: ir.TensorProtocol, place: Place | None, *, data: bool
) -> None:
    """Fill a TensorProto.

    Args:
        proto: An empty message.
        tensor: The tensor; an external one without a new place keeps the one it has.
        place: Where the data lie instead of in the message, or None.
        data: Whether to write raw_data; without it, the caller does.
    """
    if place is None and isinstance(tensor, ir.ExternalTensor):
        place = Place(str(tensor.location), tensor.offset or 0, tensor.nbytes)
    if place is None and isinstance(tensor, ir.TensorProtoTensor) and data:
        proto.CopyFrom(tensor.raw)
        return
    if tensor.name:
        proto.name = tensor.name
    if tensor.doc_string:
        proto.doc_string = tensor.doc_string
    proto.data_type = tensor.dtype.value
    proto.dims.extend(tensor.shape.numpy())  # pyright: ignore[reportAttributeAccessIssue]
    for key, entry in tensor.metadata_props.items():
        proto.metadata_props.add(key=key, value=entry)
    if place is not None:
        refer(proto, place)
    elif tensor.dtype is ir.DataType.STRING:
        proto.string_data.extend(to_bytes(entry) for entry in tensor.numpy().reshape(-1))
    elif data:
        proto.raw_data = tensor.tobytes()
