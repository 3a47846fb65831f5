"""The state tensors of a finished training graph, and those that a loss scale adds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx_ir as ir

from amp_rewrite.base import arguments
from amp_rewrite.dtypes import dtype_name
from amp_rewrite.errors import DataError, InjectError
from amp_rewrite.graph import elements
from amp_rewrite.training.builder.builder import Builder
from amp_rewrite.training.inject.resolve_names import NamedValues
from amp_rewrite.training.loss_scaling.loss_scale import PREFIX, LossScale, LossScaleState
from amp_rewrite.training.step.step_info import StateInfo, StepInfo

Array = np.ndarray[Any, Any]


def make_inputs(graph: ir.Graph, step_values: NamedValues, initial: Mapping[str, Array]) -> None:
    """Make every state a graph input, whose default is what `initial` has for it, if anything.

    Raises:
        InjectError: An initial value belongs to no state, or has another shape.
        DataError: It is not an array of numbers.
    """
    for name in arguments.mapping("initial", initial, what="arrays by the names of states"):
        if name not in step_values.states:
            raise InjectError(
                "an initial value belongs to no state",
                where=name,
                expected=f"one of {', '.join(step_values.states)}",
            )
    for name, value in step_values.states.items():
        if not value.is_graph_input():
            graph.inputs.append(value)
        if name in initial:
            _set_default(graph, value, arguments.array(name, initial[name]))


def _set_default(graph: ir.Graph, value: ir.Value, initial: Array) -> None:
    dtype = value.dtype or ir.DataType.from_numpy(initial.dtype)
    array = _as_type(value, initial, dtype)
    declared = None if value.shape is None else tuple(value.shape)
    if declared is not None and not _fits(array.shape, declared):
        raise InjectError(
            "an initial value has another shape than its state",
            where=value.name,
            found=array.shape,
            expected=declared,
        )
    value.const_value = ir.tensor(array, dtype=dtype, name=value.name)
    value.type, value.shape = ir.TensorType(dtype), ir.Shape(array.shape)
    graph.initializers[str(value.name)] = value


def _as_type(value: ir.Value, initial: Array, dtype: ir.DataType) -> Array:
    if initial.dtype.kind in "OUScmM":
        raise DataError(
            "not numbers of the state's type",
            where=value.name,
            found=initial.dtype,
            expected=dtype_name(dtype),
        )
    return np.asarray(initial, dtype.numpy())


def _fits(shape: tuple[int, ...], declared: tuple[Any, ...]) -> bool:
    return len(shape) == len(declared) and all(
        not isinstance(d, int) or d == n for d, n in zip(declared, shape, strict=True)
    )


def add_scale(b: Builder, loss_scale: LossScale) -> LossScaleState:
    """Return the states of a loss scale: graph inputs with defaults, or constants for good."""
    initial = loss_scale.initial_state()
    if not loss_scale.checks:
        return LossScaleState(*map(b.constant, initial))
    return LossScaleState(*(_add(b, PREFIX + k, array) for k, array in initial._asdict().items()))


def _add(b: Builder, name: str, initial: Array) -> ir.Value:
    value = ir.Value(name=b.free_name(name))
    b.graph.inputs.append(value)
    _set_default(b.graph, value, initial)
    return value


def describe(
    step_values: NamedValues, outputs: Mapping[str, str], step_info: StepInfo | None
) -> list[StateInfo]:
    """Return the descriptions of the states of the graph.

    Args:
        step_values: The states.
        outputs: State -> the graph output that holds its next value.
        step_info: What the model said of itself, whose roles count, and whose states that are not
            made conditional are described as before.

    Raises:
        InjectError: A state has no static type and shape.
    """
    before = {} if step_info is None else {state.name: state for state in step_info.states}
    roles = {name: state.role for name, state in before.items()}
    states = [
        described(value, outputs[name], roles.get(name) or _role(name, step_values))
        for name, value in step_values.states.items()
    ]
    return [*states, *(state for name, state in before.items() if name not in step_values.states)]


def _role(name: str, step_values: NamedValues) -> str:
    """Return what a state of an unknown graph is; a scalar is taken for a counter."""
    if name in step_values.gradients:
        return "variable"
    shape = step_values.states[name].shape
    return "non_slot" if shape is not None and not len(shape) else "slot"


def described(value: ir.Value, output: str, role: str) -> StateInfo:
    """Return the description of a state."""
    name, shape = str(value.name), value.shape
    if value.dtype is None or shape is None or not all(isinstance(d, int) for d in shape):
        raise InjectError(
            "a state has no static shape",
            where=name,
            found="no shape" if shape is None else str(shape),
            remedy="pass its initial value, whose shape counts",
        )
    return StateInfo(
        name=name,
        output=output,
        role=role,
        dtype=elements.tensor(value.dtype)[len("tensor(") : -1],
        shape=tuple(int(d) for d in shape if isinstance(d, int)),
    )
