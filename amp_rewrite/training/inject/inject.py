"""Put a loss scale and conditional updates into a finished training graph."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import onnx_ir as ir

from amp_rewrite import targets
from amp_rewrite.base import arguments
from amp_rewrite.dtypes import FLOAT32
from amp_rewrite.errors import InjectError
from amp_rewrite.grad.builder.builder import Builder
from amp_rewrite.grad.prepare import record_types
from amp_rewrite.graph.io.load import Source, load
from amp_rewrite.graph.metadata_keys import STEP_KEY
from amp_rewrite.graph.step_part import Part
from amp_rewrite.rewriting.plan.options import RewriteOptions, changed
from amp_rewrite.training.graph.replicas import is_collective
from amp_rewrite.training.inject.insert_scaling import (
    Injected,
    add_loss_scale,
    describe,
    described,
    make_inputs,
)
from amp_rewrite.training.inject.regions import mark_parts, regions_of
from amp_rewrite.training.inject.resolve_names import NamedValues, find, names_of
from amp_rewrite.training.loss_scaling.loss_scale import PREFIX, ROLES, LossScale, get, serialize
from amp_rewrite.training.optimizers.conditional_update import check_mode
from amp_rewrite.training.step.batch_norm import put_back_batch_norms, spell_out_batch_norms
from amp_rewrite.training.step.cut_step import values_by_name
from amp_rewrite.training.step.missing_kernels import refuse_unloadable
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
    gradients are multiplied by its reciprocal, in float32, where they leave the backward pass
    (`inject.regions` defines that); every state update is applied only if all gradients are finite.
    The result is a step as `build_step` makes them: `TrainingSession` runs it, as does any runtime.

    A step of this package knows the first four arguments itself.

    Args:
        model: A path, an onnx_ir model or a ModelProto, in float32; not changed.
        loss: The name of the loss: float32.
        seed: The name of the value at which the backward pass begins, which the gradients are
            proportional to: an input, an initializer or a node's output; float32. Its uses by the
            forward pass are left alone.
        gradients: Variable -> name of its gradient, float32, as it leaves the backward pass, before
            clipping and weight decay.
        updates: State -> name of its next value, for variables and for whatever else a step
            changes. A state is named after the graph input or initializer that it is read from.
        loss_scale: A LossScale, or what `loss_scaling.get` takes. With a fixed one every update is
            applied.
        conditional: "if" or "select"; see `LossScaleOptimizer`.
        initial: State -> its value before the first step, where the graph has no default for it.
        precision: "float16" or "bfloat16" rewrite forward and backward pass too, as `build_step`
            does; injected and updating nodes, states and outputs stay float32. A step that has been
            rewritten keeps its precision.
        options: How to rewrite, as for `amp_rewrite.rewrite`; their precision is replaced.

    Raises:
        InjectError: A name denotes nothing suitable; the graph is not what the arguments say; it
            has a loss scale already.
        LossScaleValueError: `loss_scale` denotes none.
        OptionError: `conditional` or `precision` is unknown, or something else than names is given.
        DataError: An initial value is not an array of numbers.
        StepError: The step has been rewritten to another precision.
        UnloadableError: The target is cpu-arm64, which lacks a kernel for a node of the step.
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
    if options is not None:
        refuse_unloadable(rewritten, targets.find(options.target or targets.DEFAULT))
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

    Raises:
        InjectError: A state has no static shape.
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
    fetches |= _counters(injected)
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
            value = self._copy(value)
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

    def _copy(self, value: ir.Value) -> ir.Value:
        copy = self._b.op("Identity", value)
        copy.type, copy.shape = value.type, value.shape
        return copy


def _scale_states(outputs: _Outputs, injected: Injected, kept: Collection[str]) -> list[StateInfo]:
    states: list[StateInfo] = []
    for field, role in zip(injected.scale._fields, ROLES, strict=False):
        if field in kept:
            present, following = getattr(injected.scale, field), getattr(injected.next_scale, field)
            output = outputs.add(f"{present.name}:next", following)
            states.append(described(present, output, role))
    return states


def _counters(injected: Injected) -> dict[str, str]:
    """Return what can be fetched of the loss scale: the scale used, and the counters after it."""
    values = [injected.scale.current_loss_scale, *injected.next_scale[1:]]
    return {role: str(value.name) for role, value in zip(ROLES, values, strict=False)}
