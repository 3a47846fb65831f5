"""A model without its large weights, for parts of onnx that take a message of less than 2 GB."""

from __future__ import annotations

import onnx
import onnx.helper
import onnx_ir as ir

from amp_rewrite.graph.io.write import ModelWriter

_INLINE_BYTES = 1 << 16
"""Larger initializers are left out of the message."""


def slim_proto(model: ir.Model) -> onnx.ModelProto:
    """Return the model as a proto in which large initializers are graph inputs.

    Neither reads external data nor exceeds protobuf's 2 GB because of weights; names, types,
    shapes and all nodes stay.
    """
    writer, deferred = ModelWriter(model), list[ir.Value]()
    proto = writer.header()
    writer.graph(proto.graph, model.graph, deferred)
    for value in deferred:
        tensor = value.const_value
        if tensor is None:
            continue
        if tensor.nbytes <= _INLINE_BYTES and not isinstance(tensor, ir.ExternalTensor):
            entry = proto.graph.initializer.add()
            writer.tensor(entry, tensor)
            entry.name = value.name or ""
        elif not value.is_graph_input():
            shape = list(tensor.shape.numpy())
            proto.graph.input.append(
                onnx.helper.make_tensor_value_info(value.name or "", tensor.dtype.value, shape)
            )
    return proto
