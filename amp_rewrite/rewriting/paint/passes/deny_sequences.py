"""C, before the first pass: sequences that the painting cannot follow are left alone.

Evidence: the case SequenceGraphOutputDeniesCluster (a sequence that is a graph output): without the
pass its Cast is missing.
"""

from __future__ import annotations

from amp_rewrite.graph.traits import Trait, has
from amp_rewrite.rewriting.paint.context import PaintContext
from amp_rewrite.rewriting.paint.paint_pass import Place, Stage, paints
from amp_rewrite.rewriting.paint.painting import Color, Mark, Marks, Painting, Reason


@paints("deny-sequences", Place(Stage.SEEDING, 10))
def deny_sequences(context: PaintContext, painting: Painting) -> Marks:
    """Deny the clusters whose sequence leaves the painting's sight."""
    marks: dict[int, Mark] = {}
    for cluster in context.clusters:
        detail = _opaque(context, cluster)
        if detail is not None:
            mark = Mark(Color.DENY, Reason.SEQUENCE_DENIED, None, detail)
            marks |= dict.fromkeys(cluster, mark)
    return marks


def _opaque(context: PaintContext, cluster: tuple[int, ...]) -> str | None:
    """Return a sentence that says why a cluster must be left alone, or None."""
    graph, flat = context.type_graph, context.type_graph.flat
    for vertex in cluster:
        node, called = graph.nodes[vertex], graph.operator_of(vertex)
        name = graph.node_name(vertex)
        if not has(called, Trait.SEQUENCE, Trait.PASSES_SEQUENCE):
            return f"its sequence passes through {called.op_type} {name}"
        refusal = context.refusal(vertex)
        if refusal is not None:
            return f"its member {name} stays float32: {refusal.detail}"
        if context.unsupported(vertex) is not None:
            return f"{called.op_type} {name} does not admit {context.low.name}"
        ends = (*flat.inputs_of(node), *flat.outputs_of(node))
        end = next((v for v in ends if v in graph.opaque_ends), None)
        if end is not None:
            sequence = flat.value_names[end]
            return f"its sequence {sequence} enters or leaves where the pass cannot follow it"
    return None
