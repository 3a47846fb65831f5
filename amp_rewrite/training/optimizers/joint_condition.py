"""Steps that are skipped together: one condition in place of several."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import onnx_ir as ir

from amp_rewrite.graph.step_part import Part
from amp_rewrite.graph.traverse import ancestors, inputs_of, nodes_in
from amp_rewrite.training.graph.training_graph import TrainingGraph
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
