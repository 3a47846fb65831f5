"""Shapes that a file does not record, by onnx's inference, which gets it without its weights.

They are inferred once for a model, when the first one is asked for. Free dimensions stay free
unless the user says how long they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import onnx

from amp_rewrite.graph.constants import FIRST_IR_WITH_OVERRIDES
from amp_rewrite.graph.custom import CustomOperator
from amp_rewrite.graph.elements import element
from amp_rewrite.graph.flat import MAIN, FlatGraph
from amp_rewrite.graph.proto.messages import graphs_of, shape_of
from amp_rewrite.graph.proto.shape_inference import FAILURES, inferred
from amp_rewrite.graph.proto.stored import StoredTensor

Shape = Sequence[int | None]

READ = (onnx.TensorProto.INT64, onnx.TensorProto.INT32, onnx.TensorProto.FLOAT)
MOST_NUMBERS = 64
"""The initializers that inference reads: shapes, axes, indices and scales."""


def missing_shapes(flat: FlatGraph) -> dict[int, Shape]:
    """Return, by value, the shapes that inference finds; nothing where it fails.

    A dimension that is free has None. The shapes that the file records are there as well, as far
    as inference knows more of them. `flat.lengths` are put in the place of free dimensions. The
    model is not modified, and its large weights are not read.
    """
    lengths = flat.lengths
    proto = without_weights(flat)
    proto.graph.value_info.extend(flat.proto.graph.value_info)
    infos = (*proto.graph.input, *proto.graph.output, *proto.graph.value_info)
    for info in infos if lengths else ():
        for dim in info.type.tensor_type.shape.dim:
            if dim.dim_param in lengths:
                dim.dim_value = lengths[dim.dim_param]
    proto.ir_version = max(proto.ir_version, FIRST_IR_WITH_OVERRIDES)
    if len(flat.bodies) > 1:
        hand_down(proto.graph, {})
    try:
        graph = inferred(proto).graph
    except FAILURES:
        return {}
    values: dict[int, dict[str, int]] = {}
    for value, home in enumerate(flat.home):
        values.setdefault(home, {})[flat.value_names[value]] = value
    return dict(_found(flat, MAIN, graph, values))


def _found(
    flat: FlatGraph, body: int, graph: onnx.GraphProto, values: Mapping[int, Mapping[str, int]]
) -> Iterator[tuple[int, Shape]]:
    """Yield the values of a graph, and of those inside it, whose shape inference knows."""
    shapes, read = values.get(body, {}), dict[bytes, Shape | None]()
    for info in (*graph.value_info, *graph.input, *graph.output):
        spelled = info.type.SerializeToString()
        if spelled not in read:
            read[spelled] = shape_of(info)
        shape, value = read[spelled], shapes.get(info.name)
        if shape is not None and value is not None:
            yield value, shape
    holders = [n for n in flat.bodies[body].nodes if flat.bodies_in(n)]
    makers = {name: node for node in graph.node for name in node.output} if holders else {}
    for holder in holders:
        names = [flat.value_names[value] for value in flat.outputs_of(holder)]
        node = next((makers[name] for name in names if name in makers), None)
        bodies = () if node is None else graphs_of(node)
        for inner, held in zip(flat.bodies_in(holder), bodies, strict=False):
            yield from _found(flat, inner, held, values)


def without_weights(flat: FlatGraph) -> onnx.ModelProto:
    """Return a model of which all constants but short ones of shapes are inputs."""
    original = flat.proto
    proto = onnx.ModelProto(ir_version=original.ir_version, opset_import=original.opset_import)
    proto.functions.extend(original.functions)
    graph, names = proto.graph, set[str]()
    for number in flat.main.nodes:
        node, held = flat.nodes[number], flat.held(number)
        custom = flat.customs.get(flat.called(number)[:2]) if flat.customs else None
        if custom is not None:
            graph.node.extend(_stand_ins(node, custom))
        elif held is not None and held.size > MOST_NUMBERS:
            graph.input.append(_declared(node.output[0], held))
        elif held is not None and held.location is not None:
            value = onnx.numpy_helper.from_array(held.numpy())
            graph.node.append(onnx.helper.make_node("Constant", [], node.output, value=value))
        else:
            graph.node.append(node)
    for value in flat.main.initializers:
        name, tensor = flat.value_names[value], flat.tensors.get(value)
        if tensor is None:
            continue
        names.add(name)
        if tensor.dtype in READ and tensor.size <= MOST_NUMBERS:
            graph.initializer.append(onnx.numpy_helper.from_array(tensor.numpy(), name))
        else:
            graph.input.append(_declared(name, tensor))
    graph.input.extend(info for info in original.graph.input if info.name not in names)
    graph.output.extend(original.graph.output)
    return proto


def _stand_ins(node: onnx.NodeProto, custom: CustomOperator) -> Iterator[onnx.NodeProto]:
    for index, name in enumerate(node.output):
        like = custom.like(index)
        source = node.input[like if isinstance(like, int) else 0 :][:1]
        if not name or not source or not source[0]:
            continue
        if isinstance(like, int):
            yield onnx.helper.make_node("Identity", [*source], [name])
        else:
            yield onnx.helper.make_node("Cast", [*source], [name], to=element(like))


def _declared(name: str, tensor: StoredTensor) -> onnx.ValueInfoProto:
    return onnx.helper.make_tensor_value_info(name, tensor.dtype, tensor.dims)


def hand_down(graph: onnx.GraphProto, outer: Mapping[str, onnx.TensorProto]) -> None:
    """Give the graphs inside nodes the numbers that they read from outside: inference does not."""
    held = {**outer, **{tensor.name: tensor for tensor in graph.initializer}}
    for node in graph.node:
        for body in (a.g for a in node.attribute if a.type == onnx.AttributeProto.GRAPH):
            hand_down(body, held)
            read = {name for inner in body.node for name in inner.input if name in held}
            body.initializer.extend(held[name] for name in sorted(read))
