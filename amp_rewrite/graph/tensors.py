"""Tensors of onnx_ir as streams: weights are read and converted without holding them whole."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx
import onnx_ir as ir

from amp_rewrite.dtypes import DType
from amp_rewrite.graph.flat import NUMBERS_OF_CONSTANT
from amp_rewrite.graph.rounding import Array
from amp_rewrite.graph.streams import FileRange, Stream


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


class ConvertedTensor(ir.LazyTensor):
    """A tensor rounded to another float type when it is read, chunk by chunk."""

    __slots__ = ("stream",)

    def __init__(
        self,
        source: ir.TensorProtocol,
        target: DType,
        *,
        saturate: float = 0.0,
        exponent: int = 0,
        name: str | None = None,
    ) -> None:
        """Describe the conversion; nothing is read yet. Without a name it has that of `source`."""
        props = getattr(source, "metadata_props", None)
        super().__init__(
            lambda: ir.Tensor(self.numpy(), dtype=target.ir),
            target.ir,
            source.shape,  # pyright: ignore[reportArgumentType] a ShapeProtocol that is a Shape
            name=source.name if name is None else name,
            doc_string=source.doc_string,
            metadata_props=dict(props) if props else None,
        )
        self.stream = stored(source).converted(target, saturate, exponent)

    def numpy(self) -> Array:
        """Return the whole tensor, converted."""
        return self.stream.array().reshape(self.shape.numpy())


def stored(tensor: ir.TensorProtocol) -> Stream:
    """Return what ONNX stores for a tensor: its elements, converted; bytes if they are packed."""
    if isinstance(tensor, ConvertedTensor):
        return tensor.stream
    name, is_packed = (
        tensor.name or "",
        tensor.dtype is ir.DataType.STRING or tensor.dtype.bitwidth % 8 != 0,
    )
    dtype = np.dtype(np.uint8) if is_packed else tensor.dtype.numpy()
    count = tensor.nbytes if is_packed else tensor.size
    if isinstance(tensor, ir.ExternalTensor):
        place = FileRange(tensor.path, tensor.offset or 0)
        return Stream(count, dtype.newbyteorder("<"), place, name=name)

    def flat() -> Array:
        if is_packed:
            return np.frombuffer(tensor.tobytes(), np.uint8)
        return np.ascontiguousarray(tensor.numpy()).reshape(-1)

    return Stream(count, dtype, flat, name=name)


def held_tensor(node: ir.Node) -> ir.TensorProtocol | None:
    """Return the dense tensor of numbers that a Constant node holds; None for any other node."""
    if node.op_type != "Constant" or node.domain != "":
        return None
    for attribute in node.attributes.values():
        if attribute.is_ref():
            return None
        if attribute.name == "value":
            return attribute.as_tensor()
        if attribute.name in NUMBERS_OF_CONSTANT:
            return ir.Tensor(np.array(attribute.value, NUMBERS_OF_CONSTANT[attribute.name]))
    return None


def known_tensor(value: ir.Value | None) -> ir.TensorProtocol | None:
    """Return the tensor of an initializer or of a Constant, None for anything else."""
    producer = None if value is None else value.producer()
    if producer is not None:
        return held_tensor(producer)
    return None if value is None else value.const_value


def all_tensors(model: ir.Model) -> Iterator[ir.TensorProtocol]:
    """Yield the dense tensors of a model, of initializers and attributes, in a fixed order."""
    for graph in (model.graph, *(function.graph for function in model.functions.values())):
        yield from _tensors(graph)


def _tensors(graph: ir.Graph) -> Iterator[ir.TensorProtocol]:
    for value in graph.initializers.values():
        tensor = value.const_value
        if tensor is not None:
            yield tensor
    for node in graph:
        for attribute in node.attributes.data.values():
            if attribute.value is None:
                continue
            if attribute.type is ir.AttributeType.TENSOR:
                yield attribute.value
            elif attribute.type is ir.AttributeType.GRAPH:
                yield from _tensors(attribute.value)
