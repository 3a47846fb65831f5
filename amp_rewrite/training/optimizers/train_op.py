"""A training step inside a training graph, and several steps as one."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import onnx_ir as ir

from amp_rewrite.base.printable import one_line
from amp_rewrite.errors import OptimizerTypeError, OptimizerValueError
from amp_rewrite.graph.step_part import Part
from amp_rewrite.training.graph.training_graph import SCALE_ROLES, GraphValue, State, TrainingGraph
from amp_rewrite.training.optimizers.clipping import global_norm_of

FINITE = "grads_finite"
"""The fetch with the condition under which a step is applied."""
NORM = "gradient_norm"
SHARED = ("global_step", "statistic", *SCALE_ROLES)
"""Roles of states that several optimizers update equally: the update counts once."""


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

        scale = DynamicLossScale()
        slow = LossScaleOptimizer(Adam(1e-4), scale).minimize(loss, var_list=old)
        fast = LossScaleOptimizer(Adam(1e-3), scale).minimize(loss, var_list=new)
        train_op = group(slow, fast)

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
    """Return the step that does several steps with equal conditions at once; see `group`.

    `shared` are roles of states that all of them update equally.
    """
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
