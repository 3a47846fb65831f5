"""What feeds a float32 operator that its target cannot build behind a Cast stays float32.

TensorRT makes a loop of a recurrent operator. It moves a Cast of the sequence into the loop, past
operators that only move elements, and then finds that the shapes do not fit.

Evidence: a recurrent operator behind a Cast for tensorrt: without the pass TensorRT-RTX 1.7 does
not parse the file (docs/tensorrt.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from amp_rewrite.graph.dataflow import TypeGraph
from amp_rewrite.graph.flat import ABSENT
from amp_rewrite.graph.reach import walk
from amp_rewrite.graph.traits import Trait, has
from amp_rewrite.rewriting.paint.context import PaintContext
from amp_rewrite.rewriting.paint.paint_pass import PaintPass, Place, Stage
from amp_rewrite.rewriting.paint.painting import Color, Mark, Painting, PassReason

NO_CAST_BEHIND = PassReason(
    "no-cast-behind",
    phrase="target {target} cannot have a Cast behind it",
    plain="feeds an operator that target {target} cannot build behind a Cast",
    row="it feeds a float32 operator that the target cannot build behind a Cast",
)


class KeepUncast(PaintPass):
    """Unpaint what makes the inputs of such operators, and what only moves these."""

    name = "keep-uncast"
    places = (
        Place(
            Stage.KEEPING,
            120,
            "what feeds a float32 operator that the target cannot build behind a Cast: on "
            "TensorRT a recurrent one, or Attention",
        ),
    )
    reasons = (NO_CAST_BEHIND,)

    def run(self, context: PaintContext, painting: Painting) -> Painting:
        """Return the painting without such vertices; the same if the target can build all."""
        graph = context.type_graph
        marks: dict[int, Mark] = {}
        for value, reader in _fed_uncast(context):
            if painting.is_allow(reader):
                continue
            detail = f"{graph.node_name(reader)} cannot be built behind a Cast"
            mark = Mark(Color.NONE, NO_CAST_BEHIND, reader, detail)
            marks |= {v: mark for v in _makers(graph, value) if painting.is_allow(v)}
        return painting.with_marks(marks)


def _fed_uncast(context: PaintContext) -> Iterator[tuple[int, int]]:
    """Yield the values that must not come from a Cast where their reader is float32, with it."""
    graph, flat = context.type_graph, context.type_graph.flat
    uncast = {} if context.kernels is None else context.kernels.uncast
    concerned = {i: uncast[o[:2]] for i, o in enumerate(flat.operators) if o[:2] in uncast}
    for node, operator in enumerate(flat.operator) if concerned else ():
        start, end = flat.input_start[node], flat.input_start[node + 1]
        for position in (start + i for i in concerned.get(operator, ()) if start + i < end):
            if graph.reads[position] != ABSENT:
                yield flat.inputs[position], graph.reads[position]


def _makers(graph: TypeGraph, value: int) -> Iterable[int]:
    """Return the vertices that make a value, and what they only move."""

    def moved(vertex: int) -> Iterable[int]:
        moves = has(graph.operator_of(vertex), Trait.MOVES)
        return graph.predecessors(vertex) if moves else ()

    return walk({graph.source[value]} - {ABSENT}, moved)
