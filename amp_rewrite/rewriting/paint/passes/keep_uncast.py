"""Inputs of a float32 operator that its target cannot build after a Cast stay float32.

TensorRT makes a loop of a recurrent operator. It moves a Cast of the sequence into the loop, past
operators that only move elements, and then finds that the shapes do not fit.

Evidence: a recurrent operator behind a Cast for tensorrt: without the pass TensorRT-RTX 1.7 does
not parse the file (docs/tensorrt.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from amp_rewrite.graph.flat import ABSENT
from amp_rewrite.graph.reach import walk
from amp_rewrite.graph.traits import Trait
from amp_rewrite.rewriting.paint.keep import Ask, Keep, Kept, Match, Need, keep
from amp_rewrite.rewriting.paint.paint_pass import Stage
from amp_rewrite.rewriting.paint.painting import PassReason

NO_CAST_BEHIND = PassReason(
    "no-cast-behind",
    phrase="target {target} cannot have a Cast after it",
    plain="feeds an operator that target {target} cannot build after a Cast",
    row="it feeds a float32 operator that the target cannot build after a Cast",
)


@keep(
    "keep-uncast",
    NO_CAST_BEHIND,
    Stage.KEEPING,
    120,
    "what feeds a float32 operator that the target cannot build after a Cast: on TensorRT a "
    "recurrent one, or Attention",
    needs=Need.NOTHING,
    overrules=True,
)
def keep_uncast(m: Match, ask: Ask) -> Kept:
    """Unpaint what makes the inputs of such operators, and what only moves these."""
    is_allow = ask.painting.is_allow
    for value, reader in reversed([*_fed_uncast(m, ask)]):  # the last one is told
        if not is_allow(reader):
            detail = f"{m.graph.node_name(reader)} cannot be built after a Cast"
            yield Keep(detail, (), filter(is_allow, _makers(m, value)), reader)


def _fed_uncast(m: Match, ask: Ask) -> Iterator[tuple[int, int]]:
    """Yield the values that must not come from a Cast where their reader is float32, with it."""
    flat, kernels = m.flat, ask.context.kernels
    uncast = {} if kernels is None else kernels.uncast
    concerned = {i: uncast[o[:2]] for i, o in enumerate(flat.operators) if o[:2] in uncast}
    for node, operator in enumerate(flat.operator) if concerned else ():
        start, end = flat.input_start[node], flat.input_start[node + 1]
        for position in (start + i for i in concerned.get(operator, ()) if start + i < end):
            if m.graph.reads[position] != ABSENT:
                yield flat.inputs[position], m.graph.reads[position]


def _makers(m: Match, value: int) -> Iterable[int]:
    """Return the vertices that make a value, and what they only move."""

    def moved(vertex: int) -> Iterable[int]:
        moves = m.has(m.graph.nodes[vertex], Trait.MOVES)
        return m.graph.predecessors(vertex) if moves else ()

    return walk({m.graph.source[value]} - {ABSENT}, moved)
