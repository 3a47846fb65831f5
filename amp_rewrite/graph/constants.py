"""Float32 values whose contents are in the file: initializers and Constant nodes."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from amp_rewrite.graph.dataflow import TypeGraph
from amp_rewrite.graph.elements import FLOAT32_TYPES
from amp_rewrite.graph.io.tensorproto import SparseTensor

FIRST_IR_WITH_OVERRIDES = 4
"""Since this IR version an initializer that is also a graph input is a default, not a constant."""

_NUMBERS = {
    "value_float": np.float32,
    "value_floats": np.float32,
    "value_int": np.int64,
    "value_ints": np.int64,
}
"""Attribute of Constant -> the type of the tensor that it makes of numbers."""


def constant_tensor(type_graph: TypeGraph, value: ir.Value) -> ir.TensorProtocol | None:
    """Return the tensor behind a constant float32 value, or None if it is not a constant.

    An initializer that a caller may override (IR version 4 and later) is an input, not a constant;
    one that training_info binds is a training variable.
    """
    if type_graph.types.get(value) not in FLOAT32_TYPES:
        return None
    if value.is_initializer():
        if value.name in type_graph.bound and value.graph is type_graph.model.graph:
            return None
        overridable = type_graph.model.ir_version >= FIRST_IR_WITH_OVERRIDES
        return None if value.is_graph_input() and overridable else _dense(value.const_value)
    node = value.producer()
    return None if node is None else _dense(held_tensor(node))


def filled_tensor(type_graph: TypeGraph, value: ir.Value) -> ir.TensorProtocol | None:
    """Return a constant's contents, or what a ConstantOfShape repeats, or None."""
    node = value.producer()
    if node is not None and node.op_type == "ConstantOfShape" and node.domain == "":
        fill = node.attributes.get("value")
        return None if fill is None else fill.as_tensor()
    return constant_tensor(type_graph, value)


def read_constants(type_graph: TypeGraph) -> list[ir.Value]:
    """Return every float32 constant that something reads."""
    values = [v for g in type_graph.model.graphs() for v in g.initializers.values()]
    values += [n.outputs[0] for n in type_graph.nodes if n.op_type == "Constant"]
    return [v for v in values if v.uses() and constant_tensor(type_graph, v) is not None]


def default_tensor(type_graph: TypeGraph, value: ir.Value) -> ir.TensorProtocol | None:
    """Return what a float32 graph input holds unless a caller feeds it, or None."""
    if type_graph.types.get(value) not in FLOAT32_TYPES or not value.is_graph_input():
        return None
    return _dense(value.const_value) if value.is_initializer() else None


def held_tensor(node: ir.Node) -> ir.TensorProtocol | None:
    """Return the dense tensor of numbers that a Constant node holds; None for any other node."""
    if node.op_type != "Constant" or node.domain != "":
        return None
    for attribute in node.attributes.values():
        if attribute.is_ref():
            return None
        if attribute.name == "value":
            return attribute.as_tensor()
        if attribute.name in _NUMBERS:
            return ir.Tensor(np.array(attribute.value, _NUMBERS[attribute.name]))
    return None


def _dense(tensor: ir.TensorProtocol | None) -> ir.TensorProtocol | None:
    """Return a float32 tensor, or None for what cannot be converted (sparse, other types)."""
    if tensor is None or tensor.dtype is not ir.DataType.FLOAT:
        return None
    return None if isinstance(tensor, SparseTensor) else tensor
