"""Gradients of operators that are float32 stay float32, as the operators do.

Evidence: training steps: without the pass the gradient of a float32 operator is float16
(tests/training/test_mixed_training.py).
"""

from __future__ import annotations

from amp_rewrite.graph.dataflow import vertices_in
from amp_rewrite.graph.step_part import source_in
from amp_rewrite.oplists import ListName
from amp_rewrite.rewriting.paint.keep import Ask, Keep, Kept, Match, Reason, Stage, keep


@keep("keep-gradients", Reason.FLOAT32_PART, Stage.KEEPING, 110, overrules=True)
def keep_gradients(m: Match, ask: Ask) -> Kept:
    """Unpaint the infer vertices of the gradients of denied and excluded operators."""
    context, painting = ask
    nodes, metadata_of = m.graph.nodes, m.flat.metadata_of
    sources = {v: source_in(metadata_of(nodes[v])) for v in painting.allowed()}
    if not any(sources.values()):
        return
    kept = painting.deny | m.graph.mask(context.excluded)
    refused = {
        m.flat.source_key(node): node
        for node in sorted({nodes[v] for v in vertices_in(kept)})
        if source_in(metadata_of(node)) is None
    }
    for vertex, source in sources.items():
        node = refused.get(source or "")
        if node is not None and context.list_of(vertex) is ListName.INFER:
            yield Keep(f"the gradient of {m.name(node)}, which is float32", (), [vertex])
