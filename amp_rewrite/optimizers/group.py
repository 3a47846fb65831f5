"""One step of several optimizers."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from amp_rewrite.errors import OptimizerTypeError, OptimizerValueError
from amp_rewrite.graph.part import Part
from amp_rewrite.optimizers.train_op import TrainOp
from amp_rewrite.training.training_graph import TrainingGraph

NORM = "gradient_norm"
_SHARED = ("global_step", "statistic")
"""Roles of states that several optimizers update alike: such an update counts once."""


def group(*train_ops: TrainOp) -> TrainOp:
    """Return the step that does several steps at once, each from the state before.

    For variables that are trained in different ways, or with different losses: the updates of one
    do not see those of another. The loss, the learning rate and the global step that sessions know
    are those of the first; "gradient_norm" is that of all gradients together. An optimizer's own
    learning rate is set by its `learning_rate`.

    Args:
        *train_ops: Steps on one model, of different variables.

    Raises:
        OptimizerTypeError: One is no TrainOp.
        OptimizerValueError: There is none, they are of different models or update one state, or one
            has a loss scale, which could not skip the others.
    """
    graph = _check(train_ops)
    updates: dict[str, ir.Value] = {}
    for op in train_ops:
        for name, value in op.updates.items():
            if name not in updates:
                updates[name] = value
            elif graph.states[name].role not in _SHARED:
                raise OptimizerValueError(
                    "two steps update one state",
                    where=name,
                    remedy="give each optimizer a var_list of its own",
                )
    first = train_ops[0]
    fetches = dict(first.fetches)
    norms = [op.fetches[NORM] for op in train_ops if NORM in op.fetches]
    if len(norms) > 1:
        fetches[NORM] = _together(graph, norms)
    return TrainOp(graph, first.loss, updates, first.global_step, fetches)


def _check(train_ops: Sequence[TrainOp]) -> TrainingGraph:
    if not train_ops:
        raise OptimizerValueError("no steps to group", expected="at least one TrainOp")
    for op in train_ops:
        if not isinstance(op, TrainOp):  # pyright: ignore[reportUnnecessaryIsInstance] users pass anything
            raise OptimizerTypeError(
                "not a training step", found=type(op).__name__, remedy="pass what minimize returned"
            )
        if op.loss_scale is not None:
            raise OptimizerValueError(
                "a step with a loss scale cannot be grouped",
                expected="steps that are never skipped",
                remedy="train all variables by one optimizer, or without a loss scale",
            )
        if op.graph is not train_ops[0].graph:
            raise OptimizerValueError("steps of different models cannot be grouped")
    return train_ops[0].graph


def _together(graph: TrainingGraph, norms: Sequence[ir.Value]) -> ir.Value:
    """Return sqrt(sum of squares), in the widest of the types."""
    b = graph.scoped("group", Part.CLIP)
    widest = max((b.type_of(n) for n in norms), key=lambda t: t.itemsize)
    return b.sqrt(b.op("Sum", *(b.square(b.cast(n, widest)) for n in norms)))
