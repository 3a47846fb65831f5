"""Inputs of a float32 operator that its target cannot build after a Cast stay float32.

TensorRT moves a Cast of the sequence of a recurrent operator into its loop; the shapes do not fit.

Evidence: a recurrent operator behind a Cast for tensorrt: without the pass TensorRT-RTX 1.7 does
not parse the file (docs/tensorrt.md).
"""

from __future__ import annotations

from collections.abc import Iterable

from amp_rewrite.graph.flat import ABSENT, Operator
from amp_rewrite.graph.reach import walk
from amp_rewrite.graph.traits import Trait, operator
from amp_rewrite.rewriting.paint.keep import Ask, Keep, Kept, Match, Reason, Stage, keep


@keep("keep-uncast", Reason.NO_CAST_BEHIND, Stage.KEEPING, 120, overrules=True)
def keep_uncast(m: Match, ask: Ask) -> Kept:
    """Unpaint what makes the inputs of such operators, and what only moves these."""
    allow, kernels = ask.painting.allow, ask.context.kernels
    uncast = {} if kernels is None else kernels.uncast
    ports = {operator(Operator(*called)): sorted(some) for called, some in uncast.items()}
    for read in reversed([*m.reads(~allow, ports)]) if ports else ():  # the last one is told
        detail = f"{m.name(read.node)} cannot be built after a Cast"
        made = (v for v in _makers(m, read.value) if allow[v])
        yield Keep(detail, (), made, read.vertex)


def _makers(m: Match, value: int) -> Iterable[int]:
    """Return the vertices that make a value, and what they only move."""

    def moved(vertex: int) -> Iterable[int]:
        moves = m.has(m.graph.nodes[vertex], Trait.MOVES)
        return m.graph.predecessors(vertex) if moves else ()

    return walk({m.graph.source[value]} - {ABSENT}, moved)
