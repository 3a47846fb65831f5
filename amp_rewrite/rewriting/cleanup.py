"""Casts of the model that the rewrite turned into no-ops."""

from __future__ import annotations

import onnx_ir as ir

from amp_rewrite.graph.dataflow import TypeGraph
from amp_rewrite.graph.elements import tensor
from amp_rewrite.graph.special_types import attribute_type
from amp_rewrite.rewriting.casts import CastPlan


def noop_casts(type_graph: TypeGraph, plan: CastPlan) -> tuple[ir.Node, ...]:
    """Return the model's Casts that will cast the low type to itself.

    A Cast becomes one if what it reads turns low and it casts to the low type: either it always
    did, or it was retargeted. Casts that were no-ops before are the model's own business.
    """
    low_values = {*plan.retyped, *(v for v in plan.ends if v.is_graph_input())}
    low = tensor(plan.low.ir)
    found: list[ir.Node] = []
    for node in type_graph.nodes:
        if node.op_type != "Cast" or node.domain != "" or node.inputs[0] is None:
            continue
        target = attribute_type(node.attributes, "to")
        was_low = type_graph.types.get(node.inputs[0]) == low
        reads_low = node.inputs[0] in low_values or was_low
        writes_low = node.outputs[0] in low_values or (target == low and not was_low)
        if reads_low and writes_low and not node.outputs[0].is_graph_output():
            found.append(node)
    return tuple(found)


def remove_noop_casts(nodes: tuple[ir.Node, ...]) -> None:
    """Let the consumers of no-op Casts read what the Casts read, and remove the Casts."""
    for node in nodes:
        source, output = node.inputs[0], node.outputs[0]
        if source is None or node.graph is None:
            continue
        for use in tuple(output.uses()):
            use.node.replace_input_with(use.idx, source)
        node.graph.remove(node, safe=True)
