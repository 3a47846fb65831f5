"""Settle ceil_mode where the inference of older opsets counts a window that no runtime computes."""

from __future__ import annotations

import onnx_ir as ir

_SETTLED = 22
"""The opset from which onnx's inference leaves out a window that begins behind the data."""


def settle_ceil_mode(model: ir.Model) -> bool:
    """Turn ceil_mode off where it changes no result; return whether shapes are to be inferred anew.

    With n = ceil((length + pads - extent) / stride) + 1 windows along an axis, a last one that
    would begin in the padding behind the data is left out by PyTorch, by ONNX Runtime and by the
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
