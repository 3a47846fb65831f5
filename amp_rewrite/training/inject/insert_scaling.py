"""Add the nodes of a loss scale to a training graph."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from amp_rewrite.base import arguments
from amp_rewrite.dtypes import dtype_name
from amp_rewrite.errors import DataError, InjectError
from amp_rewrite.grad.builder.builder import Builder
from amp_rewrite.grad.builder.known import may_have
from amp_rewrite.graph import elements
from amp_rewrite.graph.traverse import ancestors
from amp_rewrite.training.inject.regions import Regions
from amp_rewrite.training.inject.resolve_names import NamedValues
from amp_rewrite.training.loss_scaling.gradients import finite_and_norm, unscaled
from amp_rewrite.training.loss_scaling.loss_scale import PREFIX, LossScale, LossScaleState
from amp_rewrite.training.optimizers.conditional_update import conditional
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
    if not may_have(value, array.shape):
        raise InjectError(
            "an initial value has another shape than its state",
            where=value.name,
            found=array.shape,
            expected=tuple(value.shape or ()),
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


def add_scale(b: Builder, loss_scale: LossScale) -> LossScaleState:
    """Return a loss scale's states, graph inputs with defaults, and its constants."""
    initial = loss_scale.initial_state()
    return type(initial)(
        *(
            _add(b, PREFIX + k, array) if k in loss_scale.kept else b.constant(array)
            for k, array in initial._asdict().items()
        )
    )


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


@dataclass(frozen=True)
class Injected:
    """What a loss scale added to a training graph.

    Attributes:
        scale: Its states; constants if they never change.
        next_scale: Their next values.
        finite: Whether all gradients are finite: bool, shape (); None if that is not checked.
        norm: The global norm of the unscaled gradients; None if nothing is checked.
        following: State -> its next value, conditional if gradients are checked.
        fetched: Name of a graph output -> its value, unscaled.
    """

    scale: LossScaleState
    next_scale: LossScaleState
    finite: ir.Value | None
    norm: ir.Value | None
    following: dict[str, ir.Value]
    fetched: dict[str, ir.Value]


def add_loss_scale(
    b: Builder, step_values: NamedValues, regions: Regions, loss_scale: LossScale, mode: str
) -> Injected:
    """Scale the seed, unscale the gradients, and make the updates conditional.

    The graph has no outputs afterwards. `mode` is "if" or "select".
    """
    scale = add_scale(b, loss_scale)
    _rewire(regions.seed_uses(step_values.seed), b.mul(step_values.seed, scale.current_loss_scale))
    without = _unscale(b, step_values, regions, scale.current_loss_scale)
    following = {name: without.get(v, v) for name, v in step_values.following.items()}
    fetched = {name: without.get(v, v) for name, v in step_values.outputs.items()}
    b.graph.outputs.clear()  # a value that is an output cannot move into an If
    b.graph.sort()
    if not loss_scale.checks:
        return Injected(scale, scale, None, None, following, fetched)
    gradients = [without[v] for v in dict.fromkeys(step_values.gradients.values())]
    finite, norm = finite_and_norm(b, gradients)
    state_of = {_original(v): name for name, v in reversed(following.items())}
    state_of |= {v: name for name, v in reversed(following.items())}
    keep = {step_values.loss, norm, *fetched.values()} - state_of.keys()
    after = _make_conditional(b, step_values, regions, following, finite, mode, keep)
    next_scale = loss_scale.update(b, scale, finite)
    fetched = {k: after[state_of[v]] if v in state_of else v for k, v in fetched.items()}
    return Injected(scale, next_scale, finite, norm, after, fetched)


def _rewire(uses: Iterable[tuple[ir.Node, int]], value: ir.Value) -> None:
    for node, index in uses:
        node.replace_input_with(index, value)


def _unscale(
    b: Builder, step_values: NamedValues, regions: Regions, scale: ir.Value
) -> dict[ir.Value, ir.Value]:
    """Take the scale out where values leave the backward pass.

    Returns:
        Scaled value -> what is used in its place outside: all gradients, and what outputs need.
    """
    graph, flow = b.graph, regions.flow
    live = ancestors([*graph.outputs, *step_values.following.values()])
    wanted = {*step_values.gradients.values(), *step_values.following.values(), *graph.outputs}
    reciprocal = b.reciprocal(scale)
    without: dict[ir.Value, ir.Value] = {}
    for value in regions.scaled_values:
        uses = [use for use in regions.exits(value) if flow.owner(use[0]) in live]
        if uses or value in wanted:
            without[value] = _unscaled(b, value, reciprocal)
            _rewire(uses, without[value])
    return without


def _unscaled(b: Builder, value: ir.Value, reciprocal: ir.Value) -> ir.Value:
    result = unscaled(b, value, reciprocal)
    assert isinstance(result, ir.Value), "a dense value stays one"
    return b.cast_like(result, value)


def _make_conditional(
    b: Builder,
    step_values: NamedValues,
    regions: Regions,
    following: dict[str, ir.Value],
    finite: ir.Value,
    mode: str,
    keep: set[ir.Value],
) -> dict[str, ir.Value]:
    """Return state -> its next value: the present one if not all gradients are finite.

    What reads a next state without being part of the update, say a norm of the new weights, reads
    the conditional value.
    """
    readers = {
        name: _later_uses(b, regions, value)
        for name, value in following.items()
        if value.producer() in regions.update
    }
    for name, uses in readers.items():
        _rewire(uses, step_values.states[name])  # for now, so that nothing keeps the value outside
    # The next value of a constant learning rate, say, is a copy of the present one in any case.
    changed = {k: v for k, v in following.items() if _original(v) is not step_values.states[k]}
    after = {**following, **conditional(b, finite, changed, step_values.states, mode, keep=keep)}
    for name, uses in readers.items():
        _rewire(uses, after[name])
    return after


def _original(value: ir.Value) -> ir.Value:
    """Return what a value is a copy of, or itself."""
    node = value.producer()
    if node is None or node.op_type != "Identity" or node.inputs[0] is None:
        return value
    return node.inputs[0]


def _later_uses(b: Builder, regions: Regions, value: ir.Value) -> list[tuple[ir.Node, int]]:
    """Return the uses of a next state by nodes that no next state and no gradient needs."""
    added, needed = set(b.added), regions.update | regions.backward
    uses = regions.flow.uses(value)
    return [(n, i) for n, i, owner in uses if owner not in needed and owner not in added]
