"""Operators without a kernel in the type that a model came with cannot stay in it.

Evidence: a bfloat16 MatMul in a file for cpu: without the pass `repair` leaves it, and ONNX Runtime
1.32.0 does not load the file.
"""

from __future__ import annotations

from amp_rewrite.graph.dataflow import VertexKind, vertices_in
from amp_rewrite.graph.ports import schema_variable
from amp_rewrite.kernels.runnable import can_run
from amp_rewrite.rewriting.paint.keep import Ask, Keep, Kept, Match, Reason, Stage, keep
from amp_rewrite.targets import Target


@keep("keep-runnable", Reason.NO_KERNEL, Stage.HARMED, 5, overrules=True)
def keep_runnable(m: Match, ask: Ask) -> Kept:
    """Mark what is low in a painting that was given, and what no kernel runs so."""
    given, target = ask.context.given, ask.context.target
    if given is not None and target is not None:
        low, graph = vertices_in(given), m.graph
        numbers = {int(graph.kind[vertex]) for vertex in low}
        lost = {n for n in numbers if not _runs(m, target, graph.kinds[n])}
        yield Keep(None, (), [v for v in low if int(graph.kind[v]) in lost])


def _runs(m: Match, target: Target, kind: VertexKind) -> bool:
    if kind.fixed or kind.schema is None:
        return True
    domain, op, _ = kind.operator
    variables = [(schema_variable(name), kind.known[name]) for name in kind.variables]
    return can_run(target, (domain, op, kind.opset), m.low, variables)
