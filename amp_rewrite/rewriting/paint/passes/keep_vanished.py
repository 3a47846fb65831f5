"""Epsilons that are zero in the file: whoever rounded the model to a low type lost them.

x / sqrt(var + eps) needs an eps where var is zero, which in float16 it is below 6e-8. With 1e-12
rounded to zero, rows that hardly vary give 0 / 0. The eps does not come back; but in float32 var is
hardly ever zero.

Evidence: an epsilon of 1e-12 in a file that another converter made float16: without the pass
`check` does not name it, and constant rows are NaN.
"""

from __future__ import annotations

import numpy as np

from amp_rewrite.graph.constants import constant_tensor
from amp_rewrite.graph.dataflow import TypeGraph
from amp_rewrite.graph.flat import ABSENT
from amp_rewrite.graph.reach import walk
from amp_rewrite.graph.traits import Trait, has, row_of
from amp_rewrite.rewriting.paint.context import PaintContext
from amp_rewrite.rewriting.paint.paint_pass import PaintPass, Place, Stage
from amp_rewrite.rewriting.paint.painting import Color, Mark, Painting, Reason

# operators: those by which a constant that is at least something keeps a number from zero.
_GUARDING = ("Add", "Max", "Sum")


class KeepVanished(PaintPass):
    """Unpaint what adds a constant zero to a number, up to where that is divided by.

    Only in a painting that was given: nobody writes such a zero into a float32 model.
    """

    name = "keep-vanished"
    places = (
        Place(
            Stage.JUDGING,
            90,
            "of a painting that was given (below): a zero that is added where a division "
            "follows, up to the division: an epsilon that a converter lost",
        ),
    )

    def run(self, context: PaintContext, painting: Painting) -> Painting:
        """Return the painting without such vertices."""
        graph, flat = context.type_graph, context.type_graph.flat
        marks: dict[int, Mark] = {}
        for node in flat.nodes_of(*_GUARDING):
            zero = next((v for v in flat.inputs_of(node) if _is_zero(graph, v)), None)
            if zero is None:
                continue
            way = _to_poles(graph, node)
            if way:
                detail = f"{flat.value_names[zero]}, which guards a division, is zero"
                mark = Mark(Color.NONE, Reason.CONSTANT_UNDERFLOW, None, detail, zero)
                kept = (v for n in (node, *way) for v in graph.vertices_of(n))
                marks |= {v: mark for v in kept if painting.is_allow(v)}
        return painting.with_marks(marks)


def _is_zero(graph: TypeGraph, value: int) -> bool:
    """Tell whether a value is a constant single zero."""
    tensor = None if value == ABSENT else constant_tensor(graph, value)
    return tensor is not None and tensor.size == 1 and not np.any(tensor.numpy())


def _to_poles(graph: TypeGraph, node: int) -> set[int]:
    """Return the nodes behind a node on the ways to all that divide by its result, these included.

    Nothing else stands on such a way than what leaves zero where it is.
    """
    flat, fronts, stack = graph.flat, {node: list[int]()}, [node]
    poles: dict[int, list[int]] = {}
    while stack:
        front = stack.pop()
        for slot in (s for value in flat.outputs_of(front) for s in flat.uses(value)):
            reader = flat.reader(slot)
            if row_of(flat.called(reader)).pole == flat.index(slot):
                poles.setdefault(reader, []).append(front)
            elif _hands_on(graph, reader):
                if reader not in fronts:
                    stack.append(reader)
                fronts.setdefault(reader, []).append(front)
    return walk(poles, (fronts | poles).__getitem__).keys() - {node}


def _hands_on(graph: TypeGraph, node: int) -> bool:
    # The root leaves zero where it is, too.
    called = graph.flat.called(node)
    return has(called, Trait.MOVES, Trait.CASTS) or called[:2] == ("", "Sqrt")
