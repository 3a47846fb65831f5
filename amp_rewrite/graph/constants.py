"""Float32 values whose contents are in the file: initializers and Constant nodes."""

from __future__ import annotations

from onnx import TensorProto

from amp_rewrite.graph.dataflow import TypeGraph
from amp_rewrite.graph.elements import FLOAT32_TYPES
from amp_rewrite.graph.flat import ABSENT, FlatGraph, Tensor

FIRST_IR_WITH_OVERRIDES = 4
"""Since this IR version an initializer that is also a graph input is a default, not a constant."""


def constant_tensor(type_graph: TypeGraph, value: int) -> Tensor | None:
    """Return the tensor behind a constant float32 value, or None if it is not a constant.

    An initializer that a caller may override (IR version 4 and later) is an input, not a constant;
    one that training_info binds is a training variable.
    """
    if type_graph.types[value] not in FLOAT32_TYPES:
        return None
    flat = type_graph.flat
    if flat.is_initializer(value):
        overridable = flat.ir_version >= FIRST_IR_WITH_OVERRIDES and flat.is_input(value)
        return None if overridable or value in flat.bound else _float32(flat.initializer(value))
    node = flat.producer[value]
    return None if node == ABSENT else _float32(flat.held(node))


def is_repeated(flat: FlatGraph, value: int) -> bool:
    """Tell whether a value is what a ConstantOfShape repeats."""
    node = flat.producer[value]
    return node != ABSENT and flat.called(node)[:2] == ("", "ConstantOfShape")


def filled_tensor(type_graph: TypeGraph, value: int) -> Tensor | None:
    """Return a constant's contents, or what a ConstantOfShape repeats, or None."""
    flat = type_graph.flat
    if not is_repeated(flat, value):
        return constant_tensor(type_graph, value)
    fill = flat.attributes(flat.producer[value]).get("value")
    return None if fill is None else fill.value


def read_constants(type_graph: TypeGraph) -> list[int]:
    """Return every float32 constant that something reads."""
    flat = type_graph.flat
    values = [value for body in flat.bodies for value in body.initializers]
    values += [flat.outputs_of(node)[0] for node in flat.nodes_of("Constant")]
    return [v for v in values if flat.uses(v) and constant_tensor(type_graph, v) is not None]


def default_tensor(type_graph: TypeGraph, value: int) -> Tensor | None:
    """Return what a float32 graph input holds unless a caller feeds it, or None."""
    flat = type_graph.flat
    if not type_graph.is_float32(value) or not flat.is_input(value):
        return None
    return _float32(flat.initializer(value))


def _float32(tensor: Tensor | None) -> Tensor | None:
    """Return a float32 tensor, or None for what cannot be converted."""
    return tensor if tensor is not None and tensor.dtype == TensorProto.FLOAT else None
