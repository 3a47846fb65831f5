"""Float32 values whose contents are in the file: initializers and Constant nodes."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from amp_rewrite.graph.dataflow import TypeGraph
from amp_rewrite.graph.elements import FLOAT32_TYPES
from amp_rewrite.graph.io.tensorproto import SparseTensor

FIRST_IR_WITH_OVERRIDES = 4
"""Since this IR version an initializer that is also a graph input is a default, not a constant."""


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
    if node is None or node.op_type != "Constant" or node.domain != "":
        return None
    return constant_attribute(node)


def filled_tensor(type_graph: TypeGraph, value: ir.Value) -> ir.TensorProtocol | None:
    """Return a constant's contents, or what a ConstantOfShape repeats, or None."""
    node = value.producer()
    if node is not None and node.op_type == "ConstantOfShape" and node.domain == "":
        fill = node.attributes.get("value")
        return None if fill is None or fill.is_ref() else fill.as_tensor()
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


def constant_attribute(node: ir.Node) -> ir.TensorProtocol | None:
    """Return the dense float tensor that a Constant node holds, or None."""
    attributes = node.attributes
    if "value" in attributes and not attributes["value"].is_ref():
        return _dense(attributes["value"].as_tensor())
    if "value_float" in attributes:
        return ir.Tensor(np.array(attributes["value_float"].as_float(), np.float32))
    if "value_floats" in attributes:
        return ir.Tensor(np.array(attributes["value_floats"].as_floats(), np.float32))
    return None


def _dense(tensor: ir.TensorProtocol | None) -> ir.TensorProtocol | None:
    """Return a float32 tensor, or None for what cannot be converted (sparse, other types)."""
    if tensor is None or tensor.dtype is not ir.DataType.FLOAT:
        return None
    return None if isinstance(tensor, SparseTensor) else tensor
