"""Shapes that onnx does not infer or infers wrongly: states of a Loop, and windows of a pool."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

import onnx_ir as ir

from amp_rewrite.errors import GradientError
from amp_rewrite.grad.builder.annotate import annotate
from amp_rewrite.grad.loop_gradient import STATES_IN, STATES_OUT


def settle_loop_shapes(model: ir.Model) -> bool:
    """Record the shapes of states that Loops keep, in place; return whether one was not known.

    A state keeps its rank if a turn that begins with the initial shapes ends with that rank, and
    those of its lengths that are the same then.
    """
    loops = [n for n in model.graph.all_nodes() if n.op_type == "Loop" and not n.domain]
    learnt = [_settle(node, model) for node in loops]
    return any(learnt)


def _settle(node: ir.Node, model: ir.Model) -> bool:
    body, initial = node.attributes["body"].as_graph(), node.inputs[STATES_IN:]
    finals = node.outputs[: len(initial)]
    if all(value.shape is not None for value in (*body.inputs[STATES_IN:], *finals)):
        return False
    kept = _kept_shapes(body, initial, model)
    if kept is None:
        return False
    learnt = False
    for values in (body.inputs[STATES_IN:], body.outputs[STATES_OUT:], finals):
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
    for state, shape in zip(turn.inputs[STATES_IN:], before, strict=True):
        state.shape = state.shape or ir.Shape(shape.dims)
    for node in turn:
        with contextlib.suppress(GradientError):
            annotate(node, model.graph.opset_imports)
    return [value.shape for value in turn.outputs[STATES_OUT : STATES_OUT + len(before)]]


_SETTLED = 22
"""The opset from which onnx's inference leaves out a window that begins after the data."""


def settle_ceil_mode(model: ir.Model) -> bool:
    """Turn ceil_mode off where it changes no result; return whether shapes are to be inferred anew.

    With n = ceil((length + pads - extent) / stride) + 1 windows along an axis, a last one that
    would begin in the padding after the data is left out by PyTorch, by ONNX Runtime and by the
    standard from opset 22 on, but counted by the inference of older opsets. Without ceil_mode there
    are n - 1 windows, the same ones. The shapes of what is computed from such a node are forgotten.
    """
    if model.graph.opset_imports.get("", 0) >= _SETTLED:
        return False
    stale: set[ir.Value] = set()
    for node in model.graph:
        if _counts_too_many(node):
            node.attributes["ceil_mode"] = ir.AttrInt64("ceil_mode", 0)
            stale.update(node.outputs)
        elif any(v in stale for v in node.inputs):
            stale.update(node.outputs)
    for value in stale:
        value.shape = None
    return bool(stale)


def _counts_too_many(node: ir.Node) -> bool:
    """Return whether a pool has a window too many, and none on any axis that it needs to keep."""
    if node.domain or not node.attributes.get_int("ceil_mode", 0):
        return False
    data = node.inputs[0]
    if data is None or data.shape is None:
        return False
    lengths = [n for n in data.shape.dims[2:] if isinstance(n, int)]
    if len(lengths) != len(data.shape.dims) - 2:
        return False
    ones, none = (1,) * len(lengths), (0,) * (2 * len(lengths))
    kernel = node.attributes.get_ints("kernel_shape", ones)
    strides = tuple(node.attributes.get_ints("strides", ())) or ones
    dilations = tuple(node.attributes.get_ints("dilations", ())) or ones
    pads = tuple(node.attributes.get_ints("pads", ())) or none
    too_many = False
    for axis, (length, stride) in enumerate(zip(lengths, strides, strict=True)):
        extent = (kernel[axis] - 1) * dilations[axis] + 1
        room = length + pads[axis] + pads[axis + len(lengths)] - extent
        if room % stride == 0:
            continue
        if (room // stride + 1) * stride < length + pads[axis]:
            return False
        too_many = True
    return too_many
