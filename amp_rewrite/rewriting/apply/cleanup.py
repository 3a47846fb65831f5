"""Casts of the model that the rewrite turned into no-ops."""

from __future__ import annotations

from amp_rewrite.graph.dataflow import TypeGraph
from amp_rewrite.graph.elements import tensor
from amp_rewrite.graph.special_types import attribute_type
from amp_rewrite.rewriting.plan.casts import CastPlan


def noop_casts(type_graph: TypeGraph, plan: CastPlan) -> tuple[int, ...]:
    """Return the model's Casts that will cast the low type to itself.

    A Cast becomes one if what it reads turns low and it casts to the low type: either it always
    did, or it was retargeted. Casts that were no-ops before are the model's own business.
    """
    flat = type_graph.flat
    low_values = {*plan.retyped, *(v for v in plan.ends if flat.is_input(v))}
    low = tensor(plan.low.number)
    found: list[int] = []
    for node in flat.nodes_of("Cast"):
        source, output = flat.inputs_of(node)[0], flat.outputs_of(node)[0]
        was_low = type_graph.types[source] == low
        casts_to_low = attribute_type(flat.attributes(node), "to") == low
        writes_low = output in low_values or (casts_to_low and not was_low)
        if (source in low_values or was_low) and writes_low and not flat.is_output(output):
            found.append(node)
    return tuple(found)
