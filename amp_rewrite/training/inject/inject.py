"""Put a loss scale and conditional updates into a finished training graph."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from amp_rewrite.base import arguments
from amp_rewrite.dtypes import FLOAT32, dtype_name
from amp_rewrite.errors import DataError, InjectError
from amp_rewrite.grad.builder.builder import Builder
from amp_rewrite.grad.builder.known import may_have
from amp_rewrite.grad.prepare import record_types
from amp_rewrite.graph import elements
from amp_rewrite.graph.io.load import Source, load
from amp_rewrite.graph.metadata_keys import STEP_KEY
from amp_rewrite.graph.step_part import Part
from amp_rewrite.graph.traverse import ancestors
from amp_rewrite.rewriting.plan.options import RewriteOptions, changed
from amp_rewrite.training.graph.replicas import is_collective
from amp_rewrite.training.graph.training_graph import NO_NUMBERS
from amp_rewrite.training.inject.regions import Regions, mark_parts, regions_of
from amp_rewrite.training.inject.resolve_names import NamedValues, find, names_of
from amp_rewrite.training.loss_scaling.gradients import finite_and_norm, unscaled
from amp_rewrite.training.loss_scaling.loss_scale import (
    PREFIX,
    ROLES,
    LossScale,
    LossScaleState,
    get,
    serialize,
)
from amp_rewrite.training.optimizers.conditional_update import check_mode, conditional
from amp_rewrite.training.step.batch_norm import put_back_batch_norms, spell_out_batch_norms
from amp_rewrite.training.step.cut_step import values_by_name
from amp_rewrite.training.step.precision import in_precision
from amp_rewrite.training.step.read_info import read_info
from amp_rewrite.training.step.step import Step
from amp_rewrite.training.step.step_info import StateInfo, StepInfo

_OLDEST = 13
"""Builders write the operators of this opset and later ones."""
_SCOPE = "loss_scale"
_LOSS, _FINITE, _NORM = "loss", "grads_finite", "gradient_norm"


def inject_loss_scaling(
    model: Source,
    loss: str | None = None,
    seed: str | None = None,
    gradients: Mapping[str, str] | None = None,
    updates: Mapping[str, str] | None = None,
    loss_scale: Any = "dynamic",
    conditional: str = "if",
    *,
    initial: Mapping[str, np.ndarray[Any, Any]] | None = None,
    precision: str = FLOAT32.name,
    options: RewriteOptions | None = None,
) -> ir.Model:
    """Return a training graph with a loss scale and conditional updates.

    The graph is finished: it computes a loss, gradients and the next value of each state, and any
    tool may have made it. The seed is multiplied by the scale where the backward pass uses it;
    gradients are multiplied by its reciprocal, in float32, where they leave the backward pass;
    every state update is applied only if all gradients are finite. The result is a step as
    `build_step` makes them. A step of this package knows the first four arguments itself.

    Args:
        model: A path, an onnx_ir model or a ModelProto, in float32; not changed.
        loss: The name of the loss: float32.
        seed: The name of the value at which the backward pass begins, which the gradients are
            proportional to: float32. Its uses by the forward pass are left alone.
        gradients: Variable -> name of its gradient, float32, before clipping and weight decay.
        updates: State -> name of its next value. A state is named after the graph input or
            initializer that it is read from.
        loss_scale: A LossScale, or an argument of `loss_scaling.get`. With a fixed one every
            update is applied.
        conditional: "if" or "select"; see `LossScaleOptimizer`.
        initial: State -> its value before the first step, where the graph has no default for it.
        precision: "float16" or "bfloat16" rewrite forward and backward pass too, as `build_step`
            does. A step that has been rewritten keeps its precision.
        options: Options of the rewrite, as for `amp_rewrite.rewrite`.

    Raises:
        InjectError: A name denotes nothing suitable; the graph is not what the arguments say; it
            has a loss scale already.
        LossScaleValueError: `loss_scale` denotes none.
        OptionError: Another argument is impossible.
        DataError: An initial value is not an array of numbers.
        StepError: The step has been rewritten to another precision.
    """
    scale, mode = get(loss_scale), check_mode(conditional)
    precision = arguments.text("precision", precision, what="the name of a type")
    options = None if options is None else changed(options)
    if scale is None:
        raise InjectError("there is no loss scale to inject", expected="'dynamic' or a number")
    copied = load(model)
    step_info = read_info(copied) if STEP_KEY in copied.metadata_props else None
    put_back_batch_norms(copied)  # whose running statistics a skipped step leaves alone
    names = names_of(step_info, loss, seed, gradients, updates)
    _check(copied.graph)
    record_types(copied)
    step_values = find(copied.graph, names)
    regions = regions_of(copied.graph, step_values)
    mark_parts(regions)
    make_inputs(copied.graph, step_values, {} if initial is None else initial)
    builder = Builder(copied, scope=_SCOPE, part=Part.LOSS_SCALE)
    injected = add_loss_scale(builder, step_values, regions, scale, mode)
    info = _set_outputs(builder, step_values, injected, scale, step_info)
    copied.graph.sort()
    copied.metadata_props[STEP_KEY] = info.to_json()
    wanted = info.precision if precision == FLOAT32.name else precision
    rewritten = in_precision(Step(copied, info), wanted, options).model
    spell_out_batch_norms(rewritten)
    return rewritten


def _check(graph: ir.Graph) -> None:
    shared = next((node for node in graph if is_collective(node)), None)
    if shared is not None:
        raise InjectError(
            "the graph sums over shards, and a scale put in front of the sums would be another one "
            "on each shard",
            where=shared.name,
            remedy="build the step with LossScaleOptimizer, or train-step --loss-scale",
        )
    opset = graph.opset_imports.get("", _OLDEST)
    if opset < _OLDEST:
        raise InjectError(
            "the model's opset is too old for a loss scale",
            found=f"ai.onnx {opset}",
            expected=f"ai.onnx {_OLDEST} or newer",
            remedy="convert the model with onnx.version_converter",
        )
    taken = next((name for name in values_by_name(graph) if name.startswith(PREFIX)), None)
    if taken is not None:
        raise InjectError(
            "the graph has a loss scale already",
            where=taken,
            remedy="inject one into the graph without",
        )


def _set_outputs(
    b: Builder,
    step_values: NamedValues,
    injected: Injected,
    loss_scale: LossScale,
    step_info: StepInfo | None,
) -> StepInfo:
    """Set the outputs (those of before, the loss, the check, all next states); describe the step.

    An output keeps its name, and the next value of a state takes over that of the unconditional
    one.
    """
    before = {**step_values.outputs, **{str(v.name): v for v in step_values.following.values()}}
    output_of = {state: str(value.name) for state, value in step_values.following.items()}
    outputs = _Outputs(b, before)
    for name, value in injected.fetched.items():
        outputs.add(name, value)
    outputs.add(str(step_values.loss.name), step_values.loss)
    fetches = {} if step_info is None else dict(step_info.fetches)
    if injected.finite is not None:
        fetches[_FINITE] = outputs.add(_FINITE, injected.finite)
    if injected.norm is not None:
        fetches[_NORM] = str(injected.norm.name)
    states = {state: outputs.add(output_of[state], v) for state, v in injected.following.items()}
    described = describe(step_values, states, step_info)
    described += _scale_states(outputs, injected, loss_scale.kept)
    next_states = {state.output for state in described}
    fetches |= {name: name for name in injected.fetched if name not in next_states}
    counters = [injected.scale.current_loss_scale, *injected.next_scale[1:]]
    fetches |= {role: str(value.name) for role, value in zip(ROLES, counters, strict=False)}
    fetches[_LOSS] = str(step_values.loss.name)
    names = {state.name for state in described}
    return StepInfo(
        states=tuple(described),
        inputs=tuple(str(v.name) for v in b.graph.inputs if v.name not in names),
        fetches=fetches,
        loss=fetches[_LOSS],
        targets=None if step_info is None else step_info.targets,
        seed=str(step_values.seed.name),
        gradients={name: str(v.name) for name, v in step_values.gradients.items()},
        precision=FLOAT32.name if step_info is None else step_info.precision,
        loss_scale=serialize(loss_scale),
    )


class _Outputs:
    """The outputs of a graph under construction."""

    def __init__(self, b: Builder, before: Mapping[str, ir.Value]) -> None:
        self._b, self._before = b, before
        self._by_name: dict[str, ir.Value] = {}

    def add(self, name: str, value: ir.Value) -> str:
        """Add an output; return its name, which is another one if this is that of another value."""
        if self._by_name.get(name) is value:
            return name
        if name in self._by_name:
            name = self._b.free_name(f"{name}:again")
        if value.producer() is None or value in self._by_name.values():
            copy = self._b.op("Identity", value)
            copy.type, copy.shape = value.type, value.shape
            value = copy
        holder = self._before.get(name)
        if holder is not None and holder.producer() is None:
            name = self._b.free_name(f"{name}:value")  # an input, or a state, keeps its name
        elif holder is not None and holder is not value:
            holder.name = self._b.free_name(f"{name}:before")
        elif value.name != name:
            name = self._b.free_name(name)
        value.name = name
        self._by_name[name] = value
        self._b.graph.outputs.append(value)
        return name


def _scale_states(outputs: _Outputs, injected: Injected, kept: Collection[str]) -> list[StateInfo]:
    states: list[StateInfo] = []
    for field, role in zip(injected.scale._fields, ROLES, strict=False):
        if field in kept:
            present, following = getattr(injected.scale, field), getattr(injected.next_scale, field)
            output = outputs.add(f"{present.name}:next", following)
            states.append(described(present, output, role))
    return states


Array = np.ndarray[Any, Any]


def make_inputs(graph: ir.Graph, step_values: NamedValues, initial: Mapping[str, Array]) -> None:
    """Make every state a graph input, whose default is what `initial` has for it, if anything."""
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
    if initial.dtype.kind in NO_NUMBERS:
        raise DataError(
            "not numbers of the state's type",
            where=value.name,
            found=initial.dtype,
            expected=dtype_name(dtype),
        )
    array = np.asarray(initial, dtype.numpy())
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


def add_scale(b: Builder, loss_scale: LossScale) -> LossScaleState:
    """Return a loss scale's states, graph inputs with defaults, and its constants."""
    values: dict[str, ir.Value] = {}
    initial = loss_scale.initial_state()
    for field, array in initial._asdict().items():
        if field in loss_scale.kept:
            values[field] = ir.Value(name=b.free_name(PREFIX + field))
            b.graph.inputs.append(values[field])
            _set_default(b.graph, values[field], array)
        else:
            values[field] = b.constant(array)
    return type(initial)(**values)


def describe(
    step_values: NamedValues, outputs: Mapping[str, str], step_info: StepInfo | None
) -> list[StateInfo]:
    """Return the descriptions of the states of the graph, whose next values are `outputs`.

    `step_info` is what the model said of itself: its roles count, and its states that are not made
    conditional are described as before.
    """
    before = {} if step_info is None else {state.name: state for state in step_info.states}
    states: list[StateInfo] = []
    for name, value in step_values.states.items():
        if name in before:
            role = before[name].role
        elif name in step_values.gradients:
            role = "variable"
        else:  # a scalar is taken for a counter
            role = "non_slot" if value.shape is not None and not len(value.shape) else "slot"
        states.append(described(value, outputs[name], role))
    return [*states, *(state for name, state in before.items() if name not in step_values.states)]


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
    """The values that a loss scale added to a training graph.

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

    Returns scaled value -> what is used in its place outside: all gradients, and what outputs need.
    """
    graph, flow = b.graph, regions.flow
    live = ancestors([*graph.outputs, *step_values.following.values()])
    wanted = {*step_values.gradients.values(), *step_values.following.values(), *graph.outputs}
    reciprocal = b.reciprocal(scale)
    without: dict[ir.Value, ir.Value] = {}
    for value in regions.scaled_values:
        uses = [use for use in regions.exits(value) if flow.owner(use[0]) in live]
        if uses or value in wanted:
            result = unscaled(b, value, reciprocal)
            assert isinstance(result, ir.Value), "a dense value stays one"
            without[value] = b.cast_like(result, value)
            _rewire(uses, without[value])
    return without


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
    added, needed = set(b.added), regions.update | regions.backward
    readers = {
        name: [(n, i) for n, i, owner in regions.flow.uses(value) if owner not in needed | added]
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
