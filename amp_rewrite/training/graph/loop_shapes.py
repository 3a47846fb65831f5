"""The shapes of what a Loop carries, which the inference of onnx leaves open."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

import onnx_ir as ir

from amp_rewrite.errors import GradientError
from amp_rewrite.training.builder.annotate import annotate

_STATES_IN = 2  # the first state among the inputs of a Loop and of its body
_STATES_OUT = 1  # the first state among the outputs of the body


def settle_loop_shapes(model: ir.Model) -> bool:
    """Record the shapes of states that Loops keep, in place; return whether one was not known.

    A state keeps its rank if a turn that begins with the initial shapes ends with that rank, and
    those of its lengths that are the same then.
    """
    loops = [n for n in model.graph.all_nodes() if n.op_type == "Loop" and not n.domain]
    learnt = [_settle(node, model) for node in loops]
    return any(learnt)


def _settle(node: ir.Node, model: ir.Model) -> bool:
    body, initial = node.attributes["body"].as_graph(), node.inputs[_STATES_IN:]
    finals = node.outputs[: len(initial)]
    if all(value.shape is not None for value in (*body.inputs[_STATES_IN:], *finals)):
        return False
    kept = _kept_shapes(body, initial, model)
    if kept is None:
        return False
    learnt = False
    for values in (body.inputs[_STATES_IN:], body.outputs[_STATES_OUT:], finals):
        for value, source, shape in zip(values, initial, kept, strict=False):
            if value.shape is None and source is not None:
                value.type, value.shape = value.type or source.type, ir.Shape(shape.dims)
                learnt = True
    return learnt


def _kept_shapes(
    body: ir.Graph, initial: Sequence[ir.Value | None], model: ir.Model
) -> list[ir.Shape] | None:
    """Return what is common to the shapes before all turns; None if a rank is not known."""
    before = [value.shape for value in initial if value is not None and value.shape is not None]
    if len(before) != len(initial):
        return None
    while True:  # each time, more lengths are open
        after = _after_turn(body, before, model)
        pairs = list(zip(before, after, strict=True))
        if any(new is None or len(old.dims) != len(new.dims) for old, new in pairs):
            return None
        kept = [old if new is None else _common(old, new) for old, new in pairs]
        if kept == before:
            return kept
        before = kept


def _common(one: ir.Shape, other: ir.Shape) -> ir.Shape:
    pairs = zip(one.dims, other.dims, strict=True)
    return ir.Shape([a if a == b else None for a, b in pairs])


def _after_turn(
    body: ir.Graph, before: Sequence[ir.Shape], model: ir.Model
) -> list[ir.Shape | None]:
    """Return the shapes of the states after a turn that begins with some shapes."""
    turn = body.clone(allow_outer_scope_values=True)
    for state, shape in zip(turn.inputs[_STATES_IN:], before, strict=True):
        state.shape = state.shape or ir.Shape(shape.dims)
    for node in turn:
        with contextlib.suppress(GradientError):
            annotate(node, model.graph.opset_imports)
    return [value.shape for value in turn.outputs[_STATES_OUT : _STATES_OUT + len(before)]]
