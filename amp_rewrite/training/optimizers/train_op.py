"""A training step inside a training graph, and several steps as one."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import onnx_ir as ir

from amp_rewrite.base.printable import one_line
from amp_rewrite.errors import OptimizerTypeError, OptimizerValueError
from amp_rewrite.graph.step_part import Part
from amp_rewrite.training.graph.training_graph import (
    SCALE_ROLES,
    GraphValue,
    State,
    TrainingGraph,
)
from amp_rewrite.training.optimizers.clipping import global_norm_of

FINITE = "grads_finite"
"""The fetch with the condition under which a step is applied."""
NORM = "gradient_norm"
SHARED = ("global_step", "statistic", *SCALE_ROLES)
"""Roles of states that several optimizers update equally: the update counts once."""

AVERAGE, COUNT = "average", "averaged"
"""The roles of the states: an average, and the number of steps in it."""


@dataclass(frozen=True)
class TrainOp:
    """One training step inside a training graph.

    Attributes:
        graph: The training graph.
        loss: The loss, or None if no optimizer computed the gradients.
        updates: Name of a state -> its value after the step.
        global_step: The name of the state that counts the steps.
        fetches: Name -> value: "loss", "gradient_norm", "learning_rate" (of this step),
            "global_step" (after the step). With a loss scale also "grads_finite", "loss_scale",
            "good_steps", "skipped_steps", "consecutive_skips". With accumulation "accumulated":
            how many batches wait for an update.
        loss_scale: The configuration of the loss scale, or None.
        accumulated: How gradients are accumulated, or None.
        averages: Variable -> the state that holds its average.
    """

    graph: TrainingGraph = field(repr=False)
    loss: GraphValue | None
    updates: Mapping[str, ir.Value]
    global_step: str | None
    fetches: Mapping[str, ir.Value]
    loss_scale: Mapping[str, Any] | None = None
    accumulated: Accumulated | None = None
    averages: Mapping[str, str] = field(default_factory=dict[str, str])

    def __repr__(self) -> str:
        """Return one line."""
        loss = "no loss" if self.loss is None else f"loss {self.loss.name}"
        return one_line(self, f"{loss}, {len(self.updates)} states are updated")


@dataclass(frozen=True)
class Accumulated:
    """How a step accumulates gradients."""

    steps: int  # the number of batches of one update
    boundary: ir.Value  # whether this batch is the last one of an update: bool, shape ()
    counter: State  # counts the batches since the last update


def group(*train_ops: TrainOp) -> TrainOp:
    """Return the step that does several steps at once, each from the state before.

    It is for variables that are trained in different ways, or with different losses. Fetches are
    those of the first step, but "gradient_norm" is the norm of all gradients.

    Optimizers with a loss scale must have the same LossScale object, which is updated once. One
    gradient that is not finite skips all updates.

    Args:
        *train_ops: Steps on one model, of different variables. Those with a loss scale skip
            together from then on, by themselves too.

    Raises:
        OptimizerTypeError: One is no TrainOp.
        OptimizerValueError: There is none, they are of different models, update one state or have
            different loss scales.
    """
    _check(train_ops)
    op = merged(train_ops, SHARED)
    conditions = list(dict.fromkeys(op.fetches[FINITE] for op in train_ops if FINITE in op.fetches))
    if len(conditions) < 2:
        return op
    return replace(op, fetches={**op.fetches, FINITE: _one_condition(op.graph, conditions)})


def _one_condition(graph: TrainingGraph, conditions: Sequence[ir.Value]) -> ir.Value:
    """Replace several conditions by one, that all hold, in place; return it."""
    readers = [(use.node, use.idx) for condition in conditions for use in condition.uses()]
    b = graph.scoped("group", Part.LOSS_SCALE)
    together = conditions[0]
    for condition in conditions[1:]:
        together = b.logical_and(together, condition)
    together.name = graph.free_name(FINITE)
    for node, index in readers:
        node.replace_input_with(index, together)
    graph.model.graph.sort()
    return together


def merged(steps: Sequence[TrainOp], shared: Collection[str]) -> TrainOp:
    """Return the step that does several with equal conditions; all update `shared` roles."""
    graph = steps[0].graph
    updates: dict[str, ir.Value] = {}
    for op in steps:
        for name, value in op.updates.items():
            if name not in updates:
                updates[name] = value
            elif graph.states[name].role not in shared:
                raise OptimizerValueError(
                    "two steps update one state",
                    where=name,
                    remedy="give each optimizer a var_list of its own",
                )
    first = steps[0]
    fetches = dict(first.fetches)
    norms = [op.fetches[NORM] for op in steps if NORM in op.fetches]
    if len(norms) > 1:
        fetches[NORM] = global_norm_of(graph.scoped("group", Part.CLIP), norms)
    averages = {name: average for op in steps for name, average in op.averages.items()}
    return replace(first, updates=updates, fetches=fetches, averages=averages)


def _check(train_ops: Sequence[TrainOp]) -> None:
    if not train_ops:
        raise OptimizerValueError("no steps to group", expected="at least one TrainOp")
    for op in train_ops:
        if not isinstance(op, TrainOp):  # pyright: ignore[reportUnnecessaryIsInstance] users pass anything
            raise OptimizerTypeError(
                "not a training step", found=type(op).__name__, remedy="pass what minimize returned"
            )
        if op.accumulated is not None:
            raise OptimizerValueError(
                "steps that accumulate gradients cannot be grouped",
                remedy="train groups of variables with ParameterGroups, whose minimize accumulates",
            )
        if op.graph is not train_ops[0].graph:
            raise OptimizerValueError("steps of different models cannot be grouped")
        if _scale_of(op) != _scale_of(train_ops[0]):
            raise OptimizerValueError(
                "steps with different loss scales cannot be grouped",
                found=" and ".join(str(o.loss_scale) for o in (train_ops[0], op)),
                expected="one LossScale, or none",
                remedy="make one LossScale, and give it to each LossScaleOptimizer",
            )


def _scale_of(op: TrainOp) -> object:
    """Return the configuration of a loss scale, and the name of its state."""
    roles = {name: op.graph.states[name].role for name in op.updates}
    return op.loss_scale, [name for name, role in roles.items() if role == SCALE_ROLES[0]]


def averaged(
    op: TrainOp, *, decay: float | None, warm_up: bool = False, start: int = 0, every: int = 1
) -> TrainOp:
    """Return a step that averages the variables that it updates; see `WeightAverage`."""
    graph = op.graph
    b = graph.scoped("average", Part.UPDATE)
    updated = [graph.states[name] for name in op.updates]
    variables = [state for state in updated if state.role == "variable"]
    averages = {v.name: graph.state(f"{v.name}/{AVERAGE}", v.read(), AVERAGE) for v in variables}
    count = graph.state(COUNT, np.array(0, np.int64), COUNT)
    assert op.global_step is not None, "an optimizer counts its steps"
    # Steps are counted from 1; `done` averages were made before this one.
    past = b.sub(b.cast(op.updates[op.global_step], ir.DataType.INT64), start)
    begun = counts = b.greater_or_equal(past, 1)
    if every > 1:
        rest = b.sub(past, b.mul(b.div(past, every), every))
        counts = b.logical_and(counts, b.equal(rest, 0))
    done = b.cast(count.value, ir.DataType.FLOAT)
    if decay is None:
        share: ir.Value | float = b.reciprocal(b.add(done, 1.0))
    elif warm_up:
        growing = b.div(b.add(done, 1.0), b.add(done, 10.0))
        share = b.sub(1.0, b.minimum(growing, decay))
    else:
        share = 1 - decay
    share = b.where(counts, share, b.where(begun, 0.0, b.constant(np.array(1, np.float32))))
    updates = {**op.updates, count.name: b.add(count.value, b.cast(counts, ir.DataType.INT64))}
    for name, state in averages.items():
        moved = b.mul(b.sub(op.updates[name], state.value), b.cast(share, state.dtype))
        updates[state.name] = b.shaped_like(b.add(state.value, moved), state.value)
    names = {name: state.name for name, state in averages.items()}
    return replace(op, updates=updates, averages={**op.averages, **names})
