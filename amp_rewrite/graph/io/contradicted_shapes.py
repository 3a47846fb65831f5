"""Declared shapes that contradict what inference finds: onnx's version converter fails on them.

Paddle's exporter declares outputs of PP-OCRv5 with rank 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import onnx
import onnx_ir as ir

from amp_rewrite.graph.io.slim_proto import slim_proto
from amp_rewrite.graph.proto.messages import graphs_of, shape_of
from amp_rewrite.graph.proto.shape_inference import FAILURES, inferred


def mend_shapes(model: ir.Model) -> tuple[str, ...]:
    """Give values of the main graph and of its bodies the shapes that inference finds, in place.

    That is done where a declared shape of an output or of a value inside contradicts the inferred
    one: its rank, or a length, differs. Inputs are trusted, and so is an initializer that is an
    output as well: onnx reads no axes from one without a shape. The large weights are not read.

    Returns:
        The names of these values; none where inference fails without the declared shapes, too.
    """
    proto = slim_proto(model)
    bare = onnx.ModelProto()
    bare.CopyFrom(proto)
    _forget(bare.graph)
    try:
        found = inferred(bare)
    except FAILURES:
        return ()
    return tuple(_mend(model.graph, proto.graph, found.graph))


def _forget(graph: onnx.GraphProto) -> None:
    """Take away the declared shapes of a graph and its bodies, but those of what is given."""
    del graph.value_info[:]
    declared = {value.name for value in (*graph.initializer, *graph.input)}
    for info in (info for info in graph.output if info.name not in declared):
        info.type.tensor_type.ClearField("shape")
    for body in (body for node in graph.node for body in graphs_of(node)):
        _forget(body)


def _mend(graph: ir.Graph, proto: onnx.GraphProto, inferred: onnx.GraphProto) -> Iterator[str]:
    """Mend a graph and its bodies; yield the names."""
    infos = (*proto.output, *proto.value_info)
    declared = {info.name: shape for info in infos if (shape := shape_of(info)) is not None}
    inferred_infos = {info.name: info for info in (*inferred.value_info, *inferred.output)}
    values = {value.name: value for node in graph for value in node.outputs}
    for name, shape in declared.items():
        if (
            name in inferred_infos
            and name in values
            and _contradict(shape, shape_of(inferred_infos[name]))
        ):
            values[name].shape = _shape(inferred_infos[name])
            yield name
    own, known = _bodies(proto), _bodies(inferred)
    for number, node in enumerate(graph):
        for attribute in node.attributes.values():
            place = number, attribute.name
            if attribute.type == ir.AttributeType.GRAPH and place in known:
                yield from _mend(attribute.as_graph(), own[place], known[place])


def _bodies(graph: onnx.GraphProto) -> dict[tuple[int, str], onnx.GraphProto]:
    """Return the bodies of a graph's nodes by the node's place and the attribute's name."""
    return {
        (number, attribute.name): attribute.g
        for number, node in enumerate(graph.node)
        for attribute in node.attribute
        if attribute.type == onnx.AttributeProto.GRAPH
    }


def _contradict(one: Sequence[int | None], other: Sequence[int | None] | None) -> bool:
    """Tell whether no tensor has both shapes."""
    if other is None:
        return False
    lengths = zip(one, other, strict=False)
    return len(one) != len(other) or any(
        a != b for a, b in lengths if a is not None and b is not None
    )


def _shape(info: onnx.ValueInfoProto) -> ir.Shape:
    dims = info.type.tensor_type.shape.dim
    return ir.Shape([d.dim_value if d.HasField("dim_value") else d.dim_param or None for d in dims])
