"""A training step, made of a TrainOp or read from a file."""

from __future__ import annotations

import copy
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir

from amp_rewrite.base import arguments
from amp_rewrite.errors import StepError
from amp_rewrite.grad.builder.known import copy_of, maker
from amp_rewrite.graph import elements
from amp_rewrite.graph.clone import clone
from amp_rewrite.graph.io.load import Source, load
from amp_rewrite.graph.metadata_keys import PART_KEY, STEP_KEY
from amp_rewrite.graph.step_part import Part
from amp_rewrite.graph.traverse import ancestors, inputs_of
from amp_rewrite.training.graph.compared import compared_by
from amp_rewrite.training.graph.replicas import undefine
from amp_rewrite.training.graph.training_graph import State, TrainingGraph
from amp_rewrite.training.step.batch_norm import put_back_batch_norms
from amp_rewrite.training.step.cut_step import cut_step, resolve_updates, values_by_name
from amp_rewrite.training.step.dropout import replace_dropouts
from amp_rewrite.training.step.read_info import read_info
from amp_rewrite.training.step.step_info import (
    CONSTANT_UNLESS_UPDATED,
    DENOMINATOR,
    IGNORED,
    LABELS,
    LOGITS,
    LOSS,
    PREDICTIONS,
    StateInfo,
    StepInfo,
)
from amp_rewrite.training.step.trained_model import forward_of

if TYPE_CHECKING:
    from amp_rewrite.rewriting.api import RewriteResult
    from amp_rewrite.training.optimizers.train_op import TrainOp


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
        value = copy_of(value, name, node=f"next/{state.name}")
        maker(value).metadata_props[PART_KEY] = Part.UPDATE
        graph.append(maker(value))
    present = graph.initializers[state.name]
    value.type, value.shape = present.type, present.shape
    return value


def _as_tensor(initial: ir.TensorProtocol | np.ndarray, name: str) -> ir.TensorProtocol:
    """Return an initial value as a tensor of its own that may be renamed."""
    if isinstance(initial, np.ndarray | np.generic):
        return ir.tensor(np.asarray(initial), name=name)
    copied = copy.copy(initial)
    copied.name = name
    return copied


@dataclass(frozen=True)
class Step:
    """A training step with everything that can be fetched from it.

    Attributes:
        model: The step before it is cut down to the fetches of one run.
        info: Its description.
        training: The training graph that it was built on, or None if only `model` knows it.
        rewriting: The rewrite of `model` to another precision, or None.
    """

    model: ir.Model
    info: StepInfo
    training: TrainingGraph | None = None
    rewriting: RewriteResult | None = None

    def cut(
        self,
        fetches: Iterable[str],
        *,
        defaults: bool = True,
        applies: bool | None = None,
    ) -> tuple[ir.Model, StepInfo]:
        """Return the model that computes `fetches`; see `cut_step` and `resolve_updates`."""
        model, info = clone(self.model), self.info
        if applies is not None and info.boundary is not None:
            resolve_updates(model, info.boundary, last=applies)
        return model, cut_step(model, info, fetches, defaults=defaults)

    def initial(self) -> dict[str, ir.TensorProtocol]:
        """Return the initial value of every state."""
        tensors: dict[str, ir.TensorProtocol] = {}
        for state in self.info.states:
            value = self.model.graph.initializers.get(state.name)
            tensor = None if value is None else value.const_value
            if tensor is None or tuple(tensor.shape.numpy()) != state.shape:
                raise StepError(
                    "the step has no initial value for a state",
                    where=state.name,
                    found=None if tensor is None else f"one of shape {list(tensor.shape)}",
                    remedy="build the step again, or pass it to inject_loss_scaling",
                )
            tensors[state.name] = tensor
        return tensors

    def original(self) -> ir.Model:
        """Return a copy of the model that is trained, whose weights may be empty."""
        return forward_of(self.model) if self.training is None else self.training.forward()


def read_step(source: Source) -> Step:
    """Return the step in a file or a model that `build_step` made."""
    where = source if isinstance(source, str | os.PathLike) else None
    model = load(source)
    undefine(model)
    put_back_batch_norms(model)
    return Step(model, read_info(model, where))


def whole_step(train_op: TrainOp, *, seed: int = 0) -> Step:
    """Return a step with everything that can be fetched."""
    check_train_op(train_op)
    seed = arguments.integer("the seed", seed, low=-(2**63))
    training = train_op.graph
    # The graph may hold the states of other optimizers too, which are not a part of this step.
    wanted = {*train_op.updates.values(), *train_op.fetches.values()}
    read = wanted.union(*map(inputs_of, ancestors(wanted)))
    _name_values(training.model.graph)
    names = {*values_by_name(training.source.graph)}
    names.update(str(value.name) for value in train_op.fetches.values())
    model = clone(training.model)
    values = values_by_name(model.graph)
    states: list[StateInfo] = []
    for name, state in training.states.items():
        update = train_op.updates.get(name, state.value if state.kept else None)
        if update is None and (state.role in CONSTANT_UNLESS_UPDATED or state.value not in read):
            continue
        value = make_input(model.graph, values[str(state.value.name)], state)
        following = value if update is None else values[str(update.name)]
        earlier = values.get(f"{state.name}:next")  # of a step that was grouped, say
        if earlier not in (None, following) and earlier.name not in names:
            earlier.name = f"{earlier.name}:replaced"
        output = next_value(model.graph, following, state, names)
        tensor = value.const_value
        assert tensor is not None, "a state has an initial value"
        dtype = elements.tensor(tensor.dtype)[len("tensor(") : -1]
        shape = tuple(tensor.shape.numpy())
        states.append(StateInfo(state.name, str(output.name), state.role, dtype, shape))
    states += replace_dropouts(model, seed)
    info = _info(train_op, model, states)
    model.metadata_props[STEP_KEY] = info.to_json()
    return Step(model, info, training)


def check_train_op(given: object) -> None:
    """Refuse what is not a training step."""
    if all(hasattr(given, name) for name in ("graph", "updates", "fetches")):
        return
    raise StepError(
        "not a training step",
        found=f"an object of type {type(given).__name__}",
        expected="a TrainOp",
        remedy="pass what Optimizer.minimize or apply_gradients returned",
    )


def _info(train_op: TrainOp, model: ir.Model, states: list[StateInfo]) -> StepInfo:
    names = {state.name for state in states}
    fetches = {key: str(value.name) for key, value in train_op.fetches.items()}
    if train_op.loss is not None:
        fetches.setdefault(LOSS, str(train_op.loss.value.name))
    training = train_op.graph
    once = len(training.seeds) == 1
    accumulated = train_op.accumulated
    return StepInfo(
        states=tuple(states),
        inputs=tuple(str(v.name) for v in model.graph.inputs if v.name not in names),
        fetches=fetches,
        loss=fetches.get(LOSS),
        targets=None if train_op.loss is None else targets_of(train_op.loss.value),
        seed=str(training.seeds[0].name) if once else None,
        gradients=_names(training.gradients) if once else None,
        loss_scale=None if train_op.loss_scale is None else dict(train_op.loss_scale),
        accumulate=1 if accumulated is None else accumulated.steps,
        boundary=None if accumulated is None else str(accumulated.boundary.name),
        averages=dict(train_op.averages) or None,
    )


def _names(values: Mapping[str, ir.Value]) -> dict[str, str]:
    return {key: str(value.name) for key, value in values.items()}


def _name_values(graph: ir.Graph) -> None:
    """Give a name to every output of a node that has none, so that a clone can be matched."""
    used = set(values_by_name(graph))
    for index, node in enumerate(graph):
        for position, value in enumerate(node.outputs):
            if not value.name and value.uses():
                stem = f"{node.name or node.op_type}_{index}_out_{position}"
                value.name = stem if stem not in used else f"{stem}_{len(used)}"
                used.add(value.name)


def targets_of(loss: ir.Value) -> dict[str, Any] | None:
    """Return `StepInfo.targets`: what a loss compares; None if nobody knows.

    Labels that are not fed as they are have no name there.
    """
    compared = compared_by(loss)
    if compared is None:
        return None
    targets: dict[str, Any] = {
        LOGITS if compared.of_classes else PREDICTIONS: str(compared.predictions.name)
    }
    if compared.labels.is_graph_input():
        targets[LABELS] = str(compared.labels.name)
    if compared.ignore_index is not None:
        targets[IGNORED] = compared.ignore_index
    if compared.denominator is not None:
        targets[DENOMINATOR] = str(compared.denominator.name)
    return targets
