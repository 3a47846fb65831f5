"""Values that wait for a gradient, for an engine that computes wrongly what a shape depends on.

What is computed again for the gradients waits in a Reshape, whose shape is its own plus 0 times a
gradient (repeat_segments.py). OpenVINO 2026.4 takes all that a shape depends on for arithmetic of
shapes, and leaves divisions there as they are, but not what reads them: a product with 1 / the
deviation of a LayerNormalization became a quotient, and gradients a thousandth of what they are.
"""

from __future__ import annotations

import onnx_ir as ir

from amp_rewrite.graph.step_part import Part
from amp_rewrite.training.builder.builder import Builder
from amp_rewrite.training.builder.known import constant_tensor, dims


def wait_by_arithmetic(model: ir.Model) -> None:
    """Let numbers wait in a Sub of that 0, which changes none, in place; types are known.

    Integers, of which shapes are made, do not wait: they are computed once.
    """
    b = Builder(model, scope="waiting", part=Part.GRADIENT)
    for node in list(model.graph):
        nothing = _nothing_in(node)
        value = node.inputs[0] if node.inputs else None
        before, old = len(b.added), node.outputs[0]
        if nothing is None or value is None or value.dtype is None or old.is_graph_output():
            continue
        after = value
        if value.dtype.is_floating_point():
            after = b.sub(value, b.cast(b.op("Squeeze", nothing), value.dtype))
            for added in b.added[before:]:
                added.metadata_props.clear()
                added.metadata_props.update(node.metadata_props)
            after.type, after.shape = old.type, old.shape
        ir.convenience.replace_all_uses_with(old, after)
        model.graph.remove(node, safe=True)
    if b.added:
        model.graph.sort()


def _nothing_in(node: ir.Node) -> ir.Value | None:
    """Return what is 0 in "the shape of x + 0" by which a node reshapes x; None of other nodes."""
    if node.op_type != "Reshape" or node.inputs[1] is None:
        return None
    total = node.inputs[1].producer()
    if total is None or total.op_type != "Add":
        return None
    shape, nothing = total.inputs
    maker = None if nothing is None else nothing.producer()
    if maker is None or maker.op_type != "Mul" or shape is None:
        return None
    times = _numbers(maker.inputs[1])
    if times is None or any(times):
        return None
    taken = shape.producer()
    of_x = taken is not None and taken.op_type == "Shape" and taken.inputs[0] is node.inputs[0]
    same = node.inputs[0] is not None and _numbers(shape) == dims(node.inputs[0])
    return nothing if of_x or same else None


def _numbers(value: ir.Value | None) -> tuple[int, ...] | None:
    """Return what a constant of one axis, or of none, holds."""
    held = None if value is None else constant_tensor(value)
    return None if held is None else tuple(int(n) for n in held.numpy().ravel())
