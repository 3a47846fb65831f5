"""Shapes that a model does not record, by onnx's inference, which gets it without its weights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import onnx
import onnx.helper
import onnx_ir as ir

from amp_rewrite.base import arguments
from amp_rewrite.errors import OptionError
from amp_rewrite.graph.io.write import ModelWriter
from amp_rewrite.graph.proto.messages import shape_of
from amp_rewrite.graph.proto.shape_inference import FAILURES, inferred
from amp_rewrite.graph.sizes import Shape

_INLINE_BYTES = 1 << 16
"""Larger initializers are left out of the message."""


def inferred_shapes(model: ir.Model, dims: Mapping[str, int]) -> dict[str, Shape]:
    """Return the shapes of the main graph's values by name, as far as inference finds them.

    Args:
        model: The model; not modified, and its large weights are not read.
        dims: Lengths of free dimensions, by the names that the model's inputs give them.

    Raises:
        OptionError: An input has no dimension of such a name, or inference fails.
    """
    proto = slim_proto(model)
    free = {dim.dim_param for info in proto.graph.input for dim in _dims(info) if dim.dim_param}
    for name, length in arguments.mapping("dims", dims, what="lengths by names").items():
        if name not in free:
            raise OptionError(
                "no input has a free dimension of this name",
                found=repr(name),
                expected=" or ".join(map(repr, sorted(free))) or "no name: there is none",
            )
        arguments.integer(f"length of {name!r}", length)
    for info in (*proto.graph.input, *proto.graph.value_info, *proto.graph.output):
        for dim in _dims(info):
            if dim.dim_param in dims:
                dim.dim_value = dims[dim.dim_param]
    try:
        proto = inferred(proto)
    except FAILURES as error:
        raise OptionError("onnx cannot infer the shapes of this model", found=error) from error
    infos = (*proto.graph.value_info, *proto.graph.input, *proto.graph.output)
    shapes = ((info.name, shape_of(info)) for info in infos)
    return {name: shape for name, shape in shapes if shape is not None}


def _dims(info: onnx.ValueInfoProto) -> Iterator[onnx.TensorShapeProto.Dimension]:
    yield from info.type.tensor_type.shape.dim


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
