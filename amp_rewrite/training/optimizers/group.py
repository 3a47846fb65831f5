"""One step of several optimizers."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import onnx_ir as ir

from amp_rewrite.errors import OptimizerTypeError, OptimizerValueError
from amp_rewrite.graph.step_part import Part
from amp_rewrite.graph.traverse import ancestors, inputs_of, nodes_in
from amp_rewrite.training.graph.training_graph import SCALE_ROLES, TrainingGraph
from amp_rewrite.training.optimizers.train_op import TrainOp

_SCOPE = "group"
FINITE = "grads_finite"
"""The name among the fetches of a step of the condition under which it is applied."""


def skipped_together(graph: TrainingGraph, train_ops: Sequence[TrainOp]) -> list[TrainOp]:
    """Return steps that are applied only if the gradients of all of them are finite.

    The steps that are given stay as they are: what depends on their conditions is copied. They have
    one loss scale, or none.
    """
    conditions = list(dict.fromkeys(op.fetches[FINITE] for op in train_ops if FINITE in op.fetches))
    if len(conditions) < 2:
        return list(train_ops)
    b = graph.scoped(_SCOPE, Part.LOSS_SCALE)
    together = conditions[0]
    for condition in conditions[1:]:
        together = b.logical_and(together, condition)
    together.name = graph.free_name(FINITE)
    copies = dict.fromkeys(conditions, together)
    wanted = [v for op in train_ops for v in (*op.updates.values(), *op.fetches.values())]
    needed = ancestors(wanted)
    for node in list(graph.model.graph):
        if node in needed and any(value in copies for value in inputs_of(node)):
            copies.update(zip(node.outputs, _copied(graph, node, copies), strict=True))
    return [
        replace(op, updates=_mapped(op.updates, copies), fetches=_mapped(op.fetches, copies))
        for op in train_ops
    ]


def _mapped(
    values: Mapping[str, ir.Value], copies: Mapping[ir.Value, ir.Value]
) -> dict[str, ir.Value]:
    return {name: copies.get(value, value) for name, value in values.items()}


def _copied(
    graph: TrainingGraph, node: ir.Node, copies: Mapping[ir.Value, ir.Value]
) -> Sequence[ir.Value]:
    """Add a copy of a node that reads copies; return its outputs, which have names of their own."""
    copy = ir.Node(
        node.domain,
        node.op_type,
        [None if v is None else copies.get(v, v) for v in node.inputs],
        [_own(attribute) for attribute in node.attributes.values()],
        num_outputs=len(node.outputs),
        metadata_props=dict(node.metadata_props),
    )
    for old, new in zip(node.outputs, copy.outputs, strict=True):
        new.type, new.shape = old.type, old.shape
        new.name = old.name
    for inner in nodes_in(copy):
        inner.name = graph.free_name(f"{_SCOPE}/{inner.name or inner.op_type}")
        for index, value in enumerate(inner.inputs):
            if value is not None and value in copies:
                inner.replace_input_with(index, copies[value])
        for value in inner.outputs:
            value.name = graph.free_name(f"{_SCOPE}/{value.name}")
    graph.model.graph.append(copy)
    return copy.outputs


def _own(attribute: ir.Attr) -> ir.Attr:
    """Return an attribute that shares no graph with another node."""
    if attribute.type != ir.AttributeType.GRAPH:
        return attribute
    return ir.AttrGraph(attribute.name, attribute.as_graph().clone(allow_outer_scope_values=True))


NORM = "gradient_norm"
SHARED = ("global_step", "statistic", *SCALE_ROLES)
"""Roles of states that several optimizers update in the same way: such an update counts once."""


def group(*train_ops: TrainOp) -> TrainOp:
    """Return the step that does several steps at once, each from the state before.

    For variables that are trained in different ways, or with different losses: the updates of one
    do not see those of another. The loss, the learning rate and the global step that sessions know
    are those of the first; "gradient_norm" is that of all gradients together. An optimizer's own
    learning rate is set by its `learning_rate`.

    Optimizers with a loss scale must have been given one and the same LossScale. It has one state,
    which the step updates once; gradients of any of them that are not finite skip all. (Losses with
    scales of their own are minimized by MultiLossScaleOptimizer, around ParameterGroups if need
    be.)

        scale = DynamicLossScale()
        slow = LossScaleOptimizer(Adam(1e-4), scale).minimize(loss, var_list=old)
        fast = LossScaleOptimizer(Adam(1e-3), scale).minimize(loss, var_list=new)
        train_op = group(slow, fast)

    Args:
        *train_ops: Steps on one model, of different variables; they stay as they are.

    Raises:
        OptimizerTypeError: One is no TrainOp.
        OptimizerValueError: There is none, they are of different models, update one state or have
            different loss scales, of which one could not skip the others.
    """
    graph = _check(train_ops)
    return merged(skipped_together(graph, train_ops), SHARED)


def merged(steps: Sequence[TrainOp], shared: Collection[str]) -> TrainOp:
    """Return the step that does several steps at once; see `group`.

    Args:
        steps: At least one; their conditions are the same.
        shared: Roles of states that all of them update in the same way.

    Raises:
        OptimizerValueError: Two of them update one state of another role.
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
        fetches[NORM] = _together(graph, norms)
    averages = {name: average for op in steps for name, average in op.averages.items()}
    return replace(first, updates=updates, fetches=fetches, averages=averages)


def _check(train_ops: Sequence[TrainOp]) -> TrainingGraph:
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
                remedy="make one LossScale, and give it to each LossScaleOptimizer; losses with "
                "scales of their own are minimized by MultiLossScaleOptimizer",
            )
    return train_ops[0].graph


def _scale_of(op: TrainOp) -> object:
    """Return what tells one loss scale from another: its states, and what it is."""
    roles = {name: op.graph.states[name].role for name in op.updates}
    return op.loss_scale, [name for name, role in roles.items() if role in SCALE_ROLES]


def _together(graph: TrainingGraph, norms: Sequence[ir.Value]) -> ir.Value:
    """Return sqrt(sum of squares), in the widest of the types."""
    b = graph.scoped("group", Part.CLIP)
    widest = max((b.type_of(n) for n in norms), key=lambda t: t.itemsize)
    return b.sqrt(b.op("Sum", *(b.square(b.cast(n, widest)) for n in norms)))
