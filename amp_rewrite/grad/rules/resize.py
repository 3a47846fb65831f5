"""Gradient of Resize."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from amp_rewrite.errors import GradientError
from amp_rewrite.grad.builder.builder import Builder
from amp_rewrite.grad.rule import Gradients, Rules
from amp_rewrite.grad.rules.arithmetic import Received, known, operands, rank_of
from amp_rewrite.grad.rules.formula import option
from amp_rewrite.graph.names import place

_CROP = "tf_crop_and_resize"
_LARGEST_CONSTANT = 256
_AXES = 18
"""The opset from which a Resize can name its axes."""


def resize(node: ir.Node, gs: Received, b: Builder) -> Gradients:
    """y = x times one matrix per axis: g times their transposes.

    Resizing is linear along each axis by itself, whatever the mode, the coordinate transformation,
    the cropping, the rounding and the antialiasing (except a constant outside of a crop): the
    matrix of an axis is what the same Resize makes of the identity. (A runtime folds it into a
    constant where the lengths are known.)
    """
    x, g = operands(node)[0], known(gs[0])
    rank = rank_of(node, b, x)
    recorded = b.rank(node.outputs[0])
    if recorded not in (None, rank):
        raise GradientError(
            "the recorded shape of a Resize has another rank than its input",
            where=place(node),
            found=recorded,
            expected=rank,
            remedy="remove the value_info of its output",
        )
    policy = node.attributes.get_string("keep_aspect_ratio_policy", "stretch")
    if policy != "stretch":
        raise GradientError(
            "a Resize that keeps the aspect ratio has no gradient rule",
            where=place(node),
            found=f"keep_aspect_ratio_policy {policy}",
            expected="stretch",
            remedy="give the sizes that result, with the policy 'stretch'",
        )
    axes = [a % rank for a in node.attributes.get_ints("axes", tuple(range(rank)))]
    for position, axis in enumerate(axes):
        if not _is_kept(node, b, x, axis, position):
            g = _applied(b, g, _matrix(node, b, x, axis, position), axis, rank)
    return [b.shaped_like(g, x)]


def _is_kept(node: ir.Node, b: Builder, x: ir.Value, axis: int, position: int) -> bool:
    """Return whether an axis is known to stay as it is."""
    before, after = b.dims(x), b.dims(node.outputs[0])
    if before is not None and after is not None and before[axis] is not None:
        return before[axis] == after[axis]
    scales = b.array(option(node, 2))
    return scales is not None and scales.size > position and float(scales[position]) == 1


def _matrix(node: ir.Node, b: Builder, x: ir.Value, axis: int, position: int) -> ir.Value:
    """Return what Resize makes of the identity along an axis: (input length, output length)."""
    scales, sizes = (
        None if v is None else b.slice(v, [position], [position + 1])
        for v in (option(node, 2), option(node, 3))
    )
    axes: list[int] | None = [1]
    roi = _region(node, b, x, position)
    if b.opset < _AXES:
        axes = None
        if roi is not None:
            one, kind = b.constant([0.0, 1.0], b.type_of(roi)), b.constant([0, 2, 1, 3])
            roi = b.gather(b.concat([one, roi], 0), kind)
        if sizes is not None:
            sizes = b.concat([b.dim(x, axis), sizes], 0)
        elif scales is not None:
            scales = b.concat([b.constant([1], b.type_of(scales)), scales], 0)
    if sizes is not None:
        # Inference takes a tensor of sizes of unknown length for an empty one.
        sizes.shape = ir.Shape([1 if axes else 2])
    kept = {
        k: a.value for k, a in node.attributes.items() if k not in ("axes", "extrapolation_value")
    }
    inputs = [_identity(b, x, axis), roi, None if sizes is not None else scales, sizes]
    while inputs[-1] is None:
        inputs.pop()
    return b.op("Resize", *inputs, axes=axes, **kept)


def _region(node: ir.Node, b: Builder, x: ir.Value, position: int) -> ir.Value | None:
    """Return where the cropped region starts and ends along an axis, if the node crops."""
    if node.attributes.get_string("coordinate_transformation_mode", "half_pixel") != _CROP:
        return None
    roi, rank = option(node, 1), len(b.dims(x) or ())
    count = len(node.attributes.get_ints("axes", tuple(range(rank))))
    assert roi is not None, "the standard wants a region for this mode"
    return b.gather(roi, b.constant([position, count + position]))


def _identity(b: Builder, x: ir.Value, axis: int) -> ir.Value:
    """Return the identity of the length of an axis."""
    dims = b.dims(x)
    length = None if dims is None else dims[axis]
    if length is not None and length <= _LARGEST_CONSTANT:
        return b.constant(np.eye(length, dtype=b.type_of(x).numpy()))
    count = b.range(0, b.squeeze(b.dim(x, axis), [0]))
    return b.cast_like(b.equal(count, b.unsqueeze(count, [1])), x)


def _applied(b: Builder, g: ir.Value, matrix: ir.Value, axis: int, rank: int) -> ir.Value:
    """Return g with a matrix (input length, output length) applied along an axis."""
    if axis == rank - 2:
        return b.matmul(matrix, g)
    turned = b.op("Transpose", matrix, perm=[1, 0])
    if axis == rank - 1:
        return b.matmul(g, turned)
    last = [*(k for k in range(rank) if k != axis), axis]
    back = [*range(axis), rank - 1, *range(axis, rank - 1)]
    return b.transpose(b.matmul(b.transpose(g, last), turned), back)


RULES: Rules = {"Resize": resize}
