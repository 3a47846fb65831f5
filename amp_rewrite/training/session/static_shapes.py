"""A step for feeds of one shape."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx_ir as ir

from amp_rewrite.graph.proto.infer_in_place import infer_in_place

Shapes = Mapping[str, tuple[int, ...]]


def make_static(model: ir.Model, shapes: Shapes) -> None:
    """Give inputs their shapes, and turn what depends on shapes alone into constants, in place."""
    for value in model.graph.inputs:
        shape = shapes.get(str(value.name))
        if shape is not None:
            value.shape = ir.Shape(shape)
    infer_in_place(model)
    for node in list(model.graph):
        # operators: those that depend on nothing but lengths, and that _fold computes.
        if node.op_type in ("Shape", "Size") and node.domain == "":
            _fold(model.graph, node)


def _known(shape: ir.Shape) -> bool:
    return all(isinstance(d, int) for d in shape)


def _fold(graph: ir.Graph, node: ir.Node) -> None:
    source, old = node.inputs[0], node.outputs[0]
    if source is None or source.shape is None or not _known(source.shape):
        return
    dims = np.array([int(d) for d in source.shape if isinstance(d, int)], np.int64)
    if node.op_type == "Size":
        dims = np.array(dims.prod(), np.int64)
    else:
        end = node.attributes.get("end")
        dims = dims[node.attributes.get_int("start", 0) : None if end is None else end.as_int()]
    if old.is_graph_output():
        return
    name = str(old.name)
    old.name = f"{name}:computed"
    new = ir.Value(
        name=name,
        type=ir.TensorType(ir.DataType.INT64),
        shape=ir.Shape(dims.shape),
        const_value=ir.tensor(dims, name=name),
    )
    graph.register_initializer(new)
    ir.convenience.replace_all_uses_with(old, new)
    graph.remove(node, safe=True)
