"""Keep NaN out of the gradient where a function replaces rows of a softmax by zero."""

from __future__ import annotations

import onnx
from onnx import helper

from amp_rewrite.graph.traits import Trait, having

_CASTS = having(Trait.CASTS) | {"Identity"}


def guard_masked_rows(function: onnx.FunctionProto) -> None:
    """Let a softmax whose result is replaced in masked rows read zeros there.

    The definition of Attention computes where(row is masked, 0, softmax(x)) with x = -inf in all
    of a masked row. The softmax of that is NaN, and so is its gradient, y (g - sum of g y), for
    g = 0. With where(row is masked, 0, x) for x both are finite, and the gradient of x is 0, as in
    PyTorch.

    Args:
        function: The definition of an operator; changed in place.
    """
    makers = {name: node for node in function.node for name in node.output}
    for where in [node for node in function.node if node.op_type == "Where"]:
        softmax = makers.get(where.input[2])
        while softmax is not None and softmax.op_type in _CASTS:
            softmax = makers.get(softmax.input[0])
        if softmax is None or softmax.op_type != "Softmax":
            continue
        x = softmax.input[0]
        number, zero, kept = (f"{x}/{part}" for part in ("number", "zero", "kept"))
        softmax.input[0] = kept
        function.node.extend(
            [
                helper.make_node("Constant", [], [number], value_float=0.0),
                helper.make_node("CastLike", [number, x], [zero]),
                helper.make_node("Where", [where.input[0], zero, x], [kept]),
            ]
        )
    _sort(function)


def _sort(function: onnx.FunctionProto) -> None:
    """Put every node behind those that it reads; their order stays otherwise."""
    waiting, ordered = list(function.node), list[onnx.NodeProto]()
    known = {"", *function.input}
    while waiting:
        ready = next(node for node in waiting if known.issuperset(node.input))
        waiting.remove(ready)
        ordered.append(ready)
        known.update(ready.output)
    copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in ordered]
    del function.node[:]
    function.node.extend(copies)
