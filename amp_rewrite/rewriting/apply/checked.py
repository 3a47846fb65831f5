"""The message for onnx's checker of a model that is about to be written: all but its large weights.

Those are graph inputs for it, those of Constants too, so that nothing of them is read. Types are
not inferred of many nodes: they follow from the painting.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from typing import NamedTuple

import onnx
from onnx import TensorProto

from amp_rewrite.graph.io.checker import checker_fault
from amp_rewrite.graph.io.model_files import Weight
from amp_rewrite.graph.proto.messages import varint
from amp_rewrite.graph.proto.missing_shapes import long_constant
from amp_rewrite.rewriting.apply.rewritten_graph import without_data

_GRAPH = varint(onnx.ModelProto.DESCRIPTOR.fields_by_name["graph"].number << 3 | 2)
_NODE = varint(onnx.GraphProto.DESCRIPTOR.fields_by_name["node"].number << 3 | 2)

_READ = 1 << 8
"""Elements of the largest constants that the checker sees: shapes, axes and scales."""

MANY_NODES = 2_000
"""Of more nodes types are not inferred: that takes more than 5 % of the time of `convert`."""


class Nodes(NamedTuple):
    """The nodes of a graph as its message holds them.

    Attributes:
        constants: Where Constants of many elements stand in them, and what these make.
    """

    content: bytes
    total: int
    constants: list[tuple[slice, onnx.ValueInfoProto]]

    def without_constants(self, kept: Collection[str]) -> tuple[bytes, list[onnx.ValueInfoProto]]:
        """Return the nodes without the long Constants, and what those make, but for some values."""
        left, start, infos = list[bytes](), 0, list[onnx.ValueInfoProto]()
        for place, info in self.constants:
            if info.name not in kept:
                left.append(self.content[start : place.start])
                start = place.stop
                infos.append(info)
        return b"".join([*left, self.content[start:]]), infos


def fault_of(
    header: bytes,
    nodes: Nodes,
    rest: onnx.GraphProto,
    weights: Iterable[Weight],
) -> str | None:
    """Return what the checker says against a model; None for nothing."""
    more, fed = onnx.GraphProto(), {info.name for info in rest.input}
    content, infos = nodes.without_constants({info.name for info in rest.output})
    more.input.extend(infos)
    for weight in weights:
        message = weight.message
        is_elsewhere = message.data_location == TensorProto.EXTERNAL
        if math.prod(message.dims) > _READ or (weight.stream is None and is_elsewhere):
            if message.name not in fed:
                dims, kind = list(message.dims), message.data_type
                info = onnx.helper.make_tensor_value_info(message.name, kind, dims)
                more.input.append(info)
        elif weight.stream is None:
            more.initializer.append(message)
        else:
            held = without_data(message)
            held.raw_data = b"".join(block.tobytes() for block in weight.stream.blocks())
            more.initializer.append(held)
    graph = content + rest.SerializeToString() + more.SerializeToString()
    content = header + _GRAPH + varint(len(graph)) + graph
    return checker_fault(content, types=nodes.total <= MANY_NODES)


def serialized(nodes: Iterable[onnx.NodeProto]) -> Nodes:
    """Return the nodes of a graph as its message holds them."""
    content, count, constants = bytearray(), 0, list[tuple[slice, onnx.ValueInfoProto]]()
    for message in nodes:
        node = message.SerializeToString()
        start = len(content)
        content += _NODE + varint(len(node)) + node
        count += 1
        if len(node) > _READ:
            info = long_constant(message, _READ)
            if info is not None:
                constants.append((slice(start, len(content)), info))
    return Nodes(bytes(content), count, constants)
