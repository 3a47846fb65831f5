"""The outputs of a training graph that has got a loss scale, and its description."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx_ir as ir

from amp_rewrite.dtypes import FLOAT32
from amp_rewrite.training.builder.builder import Builder
from amp_rewrite.training.inject.added_states import describe, described
from amp_rewrite.training.inject.insert_scaling import Injected
from amp_rewrite.training.inject.resolve_names import Found
from amp_rewrite.training.loss_scaling.get import serialize
from amp_rewrite.training.loss_scaling.loss_scale import ROLES, LossScale
from amp_rewrite.training.step.step_info import StateInfo, StepInfo

LOSS, FINITE, NORM = "loss", "grads_finite", "gradient_norm"


def set_outputs(
    b: Builder, found: Found, injected: Injected, loss_scale: LossScale, known: StepInfo | None
) -> StepInfo:
    """Set the outputs (those of before, the loss, the check, all next states); describe the step.

    An output keeps its name, and the next value of a state takes over that of the unconditional
    one.

    Args:
        b: Builder of the graph, which has no outputs.
        found: What was in the graph before.
        injected: What was added.
        loss_scale: What was injected.
        known: What the model said of itself.

    Raises:
        InjectError: A state has no static shape.
    """
    before = {**found.outputs, **{str(v.name): v for v in found.following.values()}}
    output_of = {state: str(value.name) for state, value in found.following.items()}
    outputs = _Outputs(b, before)
    for name, value in injected.fetched.items():
        outputs.add(name, value)
    outputs.add(str(found.loss.name), found.loss)
    fetches = {} if known is None else dict(known.fetches)
    finite = b.constant(np.array(True)) if injected.finite is None else injected.finite
    fetches[FINITE] = outputs.add(FINITE, finite)
    if injected.norm is not None:
        fetches[NORM] = str(injected.norm.name)
    states = {state: outputs.add(output_of[state], v) for state, v in injected.following.items()}
    described = describe(found, states, known)
    if injected.finite is not None:
        described += _scale_states(outputs, injected)
    next_states = {state.output for state in described}
    fetches |= {name: name for name in injected.fetched if name not in next_states}
    fetches |= _counters(injected)
    fetches[LOSS] = str(found.loss.name)
    names = {state.name for state in described}
    return StepInfo(
        states=tuple(described),
        inputs=tuple(str(v.name) for v in b.graph.inputs if v.name not in names),
        fetches=fetches,
        loss=fetches[LOSS],
        targets=None if known is None else known.targets,
        seed=str(found.seed.name),
        gradients={name: str(v.name) for name, v in found.gradients.items()},
        precision=FLOAT32.name if known is None else known.precision,
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


def _scale_states(outputs: _Outputs, injected: Injected) -> list[StateInfo]:
    pairs = zip(injected.scale, injected.next_scale, strict=True)
    added = [(present, outputs.add(f"{present.name}:next", v)) for present, v in pairs]
    return [described(*pair, role) for pair, role in zip(added, ROLES, strict=True)]


def _counters(injected: Injected) -> dict[str, str]:
    """Return what can be fetched of the loss scale: the scale used, and the counters after it."""
    values = [injected.scale.current_loss_scale, *injected.next_scale[1:]]
    return {role: str(value.name) for role, value in zip(ROLES, values, strict=True)}
