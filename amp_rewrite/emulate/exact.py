"""Operators whose result needs no rounding: it is one of the values that went in.

A rounding pair behind such an operator would change nothing and cost two passes over its output.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import onnx_ir as ir

Condition = Callable[[ir.Node], bool]


def _always(_: ir.Node) -> bool:
    return True


def _is_nearest(node: ir.Node) -> bool:
    mode = node.attributes.get("mode")
    return mode is None or mode.as_string() == "nearest"


def _reduces_nothing(node: ir.Node) -> bool:
    """ScatterElements and ScatterND that add or multiply compute new values."""
    reduction = node.attributes.get("reduction")
    return reduction is None or reduction.as_string() in ("none", "max", "min")


def _takes_bounds_as_inputs(node: ir.Node) -> bool:
    """A bound given as an attribute is a float32 number, which the low type may not have."""
    return not any(name in node.attributes for name in ("min", "max", "value"))


def _is_inference(node: ir.Node) -> bool:
    """Without a training_mode input Dropout passes its input on."""
    return len(node.inputs) < 3 or node.inputs[2] is None


_MOVES = (
    "Compress",
    "Concat",
    "ConcatFromSequence",
    "DepthToSpace",
    "Expand",
    "Flatten",
    "Gather",
    "GatherElements",
    "GatherND",
    "Identity",
    "OneHot",
    "Optional",
    "OptionalGetElement",
    "Reshape",
    "ReverseSequence",
    "Scatter",
    "SequenceAt",
    "SequenceConstruct",
    "SequenceEmpty",
    "SequenceErase",
    "SequenceInsert",
    "Slice",
    "SpaceToDepth",
    "Split",
    "SplitToSequence",
    "Squeeze",
    "TensorScatter",
    "Tile",
    "Transpose",
    "Trilu",
    "Unique",
    "Unsqueeze",
    "Where",
)
"""Copy elements from one place to another."""

_SELECTS = (
    "GlobalMaxPool",
    "Max",
    "MaxPool",
    "MaxUnpool",
    "Min",
    "ReduceMax",
    "ReduceMin",
    "Relu",
    "TopK",
)
"""Return some of the elements, or zero."""

_EXACT = ("Abs", "Ceil", "Floor", "Neg", "Round", "Sign")
"""Compute what every binary floating-point type represents: a sign, or an integer next to x."""

_CONTROL_FLOW = ("If", "Loop", "Scan", "SequenceMap")
"""Return what their bodies computed, where it was rounded."""

_CONSTANTS = ("Constant", "ConstantOfShape", "EyeLike")
"""Hold numbers that are rounded in the model, or 0 and 1."""

EXACT: Mapping[str, Condition] = {
    **dict.fromkeys((*_MOVES, *_SELECTS, *_EXACT, *_CONTROL_FLOW, *_CONSTANTS), _always),
    "Clip": _takes_bounds_as_inputs,
    "Dropout": _is_inference,
    "Pad": _takes_bounds_as_inputs,
    "Resize": _is_nearest,
    "ScatterElements": _reduces_nothing,
    "ScatterND": _reduces_nothing,
    "Upsample": _is_nearest,
}
"""Operator of ai.onnx -> whether a node of it is exact."""


def is_exact(node: ir.Node) -> bool:
    """Tell whether a node's float outputs are representable wherever its inputs are."""
    condition = EXACT.get(node.op_type) if node.domain == "" else None
    return condition is not None and condition(node)
