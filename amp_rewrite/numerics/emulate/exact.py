"""Operators whose result needs no rounding, since it is a value that went in, or a 16-bit one."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import onnx_ir as ir

from amp_rewrite.graph.traits import Trait, has, operator


def _is_nearest(node: ir.Node) -> bool:
    return node.attributes.get_string("mode", "nearest") == "nearest"


def _reduces_nothing(node: ir.Node) -> bool:
    """ScatterElements and ScatterND that add or multiply compute new values."""
    return node.attributes.get_string("reduction", "none") in ("none", "max", "min")


def _takes_bounds_as_inputs(node: ir.Node) -> bool:
    """A bound given as an attribute is a float32 number, which the low type may not have."""
    return not any(name in node.attributes for name in ("min", "max", "value"))


def _is_inference(node: ir.Node) -> bool:
    """Without a training_mode input Dropout passes its input on."""
    return len(node.inputs) < 3 or node.inputs[2] is None


_CONDITIONS: Mapping[str, Callable[[ir.Node], bool]] = {
    "Clip": _takes_bounds_as_inputs,
    "Dropout": _is_inference,
    "Pad": _takes_bounds_as_inputs,
    "Resize": _is_nearest,
    "ScatterElements": _reduces_nothing,
    "ScatterND": _reduces_nothing,
    "Upsample": _is_nearest,
}
"""Operator of ai.onnx that is exact in some modes -> whether a node of it is."""


def is_exact(node: ir.Node) -> bool:
    """Tell whether a node's float outputs are representable wherever its inputs are."""
    condition = _CONDITIONS.get(operator(node))
    if condition is not None:
        return condition(node)
    return has(node, Trait.MOVES, Trait.EXACT, Trait.SUBGRAPHS, Trait.HOLDS)
