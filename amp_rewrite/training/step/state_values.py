"""The inputs and outputs of a step that hold its states."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from amp_rewrite.errors import StepError
from amp_rewrite.graph import elements
from amp_rewrite.graph.metadata_keys import PART_KEY
from amp_rewrite.graph.step_part import Part
from amp_rewrite.training.step.step_info import StateInfo

if TYPE_CHECKING:
    from amp_rewrite.training.graph.training_graph import State


def make_input(graph: ir.Graph, value: ir.Value, state: State) -> ir.Value:
    """Make the value of a state a graph input whose default is the initial value, in place."""
    tensor = _as_tensor(state.initial, state.name)
    if not value.is_graph_input():
        graph.inputs.append(value)
    if value.name != state.name:
        graph.initializers.pop(str(value.name), None)
        value.name = state.name
    value.const_value = tensor
    value.type = ir.TensorType(tensor.dtype)
    value.shape = ir.Shape(tensor.shape.numpy())
    graph.initializers[state.name] = value
    return value


def next_value(graph: ir.Graph, value: ir.Value, state: State, names: set[str]) -> ir.Value:
    """Return the value that becomes the output of a state, under its name.

    A value that users know by its own name, or that is not a result of a node, is copied.
    `make_input` has made the state an input.

    Raises:
        StepError: The update has another type than the state.
    """
    name = f"{state.name}:next"
    if state.value.dtype is not None and value.dtype not in (None, state.value.dtype):
        raise StepError(
            "the update has another type than the state",
            where=state.name,
            found=value.dtype,
            expected=state.value.dtype,
        )
    free = value.producer() is not None and value.name not in names
    if free and not str(value.name).endswith(":next"):
        value.name = name
    elif value.producer() is None or value.name != name:
        origin: dict[str, str] = {PART_KEY: Part.UPDATE}
        node = ir.node("Identity", [value], name=f"next/{state.name}", metadata_props=origin)
        graph.append(node)
        node.outputs[0].name = name
        value = node.outputs[0]
    present = graph.initializers[state.name]
    value.type, value.shape = present.type, present.shape
    return value


def describe(state: State, output: ir.Value) -> StateInfo:
    """Return what the metadata of a step say of a state, whose next value is `output`."""
    tensor = _as_tensor(state.initial, state.name)
    return StateInfo(
        name=state.name,
        output=str(output.name),
        role=state.role,
        dtype=elements.tensor(tensor.dtype)[len("tensor(") : -1],
        shape=tuple(tensor.shape.numpy()),
    )


def _as_tensor(initial: ir.TensorProtocol | np.ndarray, name: str) -> ir.TensorProtocol:
    """Return an initial value as a tensor of its own that may be renamed."""
    if isinstance(initial, np.ndarray | np.generic):
        return ir.tensor(np.asarray(initial), name=name)
    copied = copy.copy(initial)
    copied.name = name
    return copied
