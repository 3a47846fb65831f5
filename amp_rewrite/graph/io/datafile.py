"""Which tensors of an onnx_ir model go to its data file."""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from amp_rewrite.graph.io.model_files import INLINE_LIMIT
from amp_rewrite.graph.tensors import ConvertedTensor, SparseTensor

_WORTH_MOVING = 1 << 10


def all_tensors(model: ir.Model) -> Iterator[ir.TensorProtocol]:
    """Yield the dense tensors of a model, of initializers and attributes, in a fixed order."""
    for graph in (model.graph, *(function.graph for function in model.functions.values())):
        yield from _tensors(graph)


def _tensors(graph: ir.Graph) -> Iterator[ir.TensorProtocol]:
    for value in graph.initializers.values():
        tensor = value.const_value
        if tensor is not None and not isinstance(tensor, SparseTensor):
            yield tensor
    for node in graph:
        attributes = node.attributes.data
        for attribute in attributes.values():
            yield from _attribute_tensors(attribute)


def _attribute_tensors(attribute: ir.Attr) -> Iterator[ir.TensorProtocol]:
    kinds = ir.AttributeType
    if attribute.value is None:
        return
    if attribute.type is kinds.TENSOR:
        yield attribute.value
    elif attribute.type is kinds.TENSORS:
        yield from attribute.value
    elif attribute.type is kinds.GRAPH:
        yield from _tensors(attribute.value)
    elif attribute.type is kinds.GRAPHS:
        for graph in attribute.value:
            yield from _tensors(graph)


def source_file(tensor: ir.TensorProtocol) -> str | None:
    """Return the file that a tensor's data are read from, or None if it is in memory."""
    while isinstance(tensor, ConvertedTensor):
        tensor = tensor.source
    return tensor.path if isinstance(tensor, ir.ExternalTensor) else None


def choose(tensors: list[ir.TensorProtocol], limit: int = INLINE_LIMIT) -> list[ir.TensorProtocol]:
    """Return the tensors that go to the data file, each once.

    Those that were external stay external; the others join them if they would make the model file
    too large for protobuf.
    """
    unique = {id(tensor): tensor for tensor in tensors if tensor.dtype is not ir.DataType.STRING}
    inline = sum(t.nbytes for t in unique.values() if source_file(t) is None)
    move_all = inline > limit
    return [
        tensor
        for tensor in unique.values()
        if source_file(tensor) is not None or (move_all and tensor.nbytes >= _WORTH_MOVING)
    ]
