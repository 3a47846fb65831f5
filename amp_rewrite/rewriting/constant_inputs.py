"""Constants that nodes read, and nodes that go: what folding constants in place is made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

Array = npt.NDArray[np.float64]


def either(node: ir.Node | None) -> Sequence[tuple[ir.Value | None, ir.Value | None]]:
    """Return the two inputs of a node, in both orders."""
    x, y = (None, None) if node is None else node.inputs
    return ((x, y), (y, x))


def constant(value: ir.Value | None) -> Array | None:
    """Return a constant of float32, in float64; None for what is none."""
    held = held_by(value)
    if held is None:
        return None
    numbers = held.numpy().astype(np.float64)
    return numbers if np.isfinite(numbers).all() else None


def held_by(value: ir.Value | None) -> ir.TensorProtocol | None:
    """Return what a constant of float32 holds; None for what is none, or a caller may feed."""
    if value is None or value.is_graph_input():
        return None
    held = ir.convenience.get_const_tensor(value)
    return held if held is not None and held.dtype == ir.DataType.FLOAT else None


def number(value: ir.Value | None) -> float | None:
    """Return a constant of one number that gives what it is combined with no other rank."""
    held = held_by(value)
    if held is None or held.size != 1 or len(held.shape) > 1:
        return None
    numbers = constant(value)
    return None if numbers is None else float(numbers.ravel()[0])


def stored(node: ir.Node, numbers: Any, name: str) -> ir.Value:
    """Return a new initializer."""
    graph: Any = node.graph
    while name in graph.initializers:
        name += "'"
    held = np.asarray(numbers, np.float32)
    tensor = ir.tensor(held, name=name)
    value = ir.Value(name=name, type=ir.TensorType(tensor.dtype), shape=ir.Shape(held.shape))
    value.const_value = tensor
    graph.register_initializer(value)
    return value


def set_inputs(node: ir.Node, *inputs: ir.Value | None) -> None:
    """Give a node all its inputs."""
    node.resize_inputs(len(inputs))
    for index, value in enumerate(inputs):
        node.replace_input_with(index, value)


def replace(node: ir.Node, value: ir.Value) -> None:
    """Let what reads a node's result read a value instead, which takes its place; remove it.

    The value has the name, the type and the shape that the result had: a graph output needs them.
    """
    old = node.outputs[0]
    value.type = old.type or value.type
    value.shape = value.shape if old.shape is None else old.shape
    ir.convenience.replace_all_uses_with(old, value, replace_graph_outputs=True)
    name, old.name = old.name, f"{old.name}:folded"
    value.name = name
    remove(node)


def bypass(node: ir.Node, value: ir.Value) -> None:
    """Let what reads a node's result read a value instead; remove it."""
    ir.convenience.replace_all_uses_with(node.outputs[0], value)
    remove(node)


def remove(node: ir.Node | None) -> None:
    """Take a node whose result nothing reads out of its graph."""
    if node is not None and node.graph is not None:
        node.graph.remove(node, safe=True)
