"""Guards of a division that are zero in the file, lost when it was rounded to 16 bits.

With 1e-12 rounded to zero, rows that hardly vary give 0 / 0. In float32 var is hardly ever zero.

Evidence: an epsilon of 1e-12 in a file that another converter made float16: without the pass
`check` does not name it, and constant rows are NaN.
"""

from __future__ import annotations

import numpy as np

from amp_rewrite.graph.reach import walk
from amp_rewrite.graph.traits import Trait, having, row_of
from amp_rewrite.rewriting.paint.keep import Ask, Keep, Kept, Match, Reason, Stage, keep
from amp_rewrite.rewriting.paint.match import Worklist

# Those that leave zero where it is, as the root does.
_HANDING_ON = having(Trait.MOVES, Trait.CASTS) | {"Sqrt"}


@keep("keep-vanished", Reason.CONSTANT_UNDERFLOW, Stage.JUDGING, 105, overrules=True, danger=False)
def keep_vanished(m: Match, ask: Ask) -> Kept:
    """Unpaint what adds a constant zero to a number, up to where that is divided by."""
    # Those by which a constant that is at least something keeps a number from zero.
    for node in m.nodes("Add", "Max", "Sum"):
        zero = next((v for v in m.read(node) if _is_zero(m, v)), None)
        way = set[int]() if zero is None else _to_poles(m, node)
        if zero is not None and way:
            detail = f"{m.flat.value_names[zero]}, which guards a division, is zero"
            kept = (v for n in (node, *way) for v in m.graph.vertices_of(n))
            yield Keep(detail, (), filter(ask.painting.is_allow, kept), constant=zero)


def _is_zero(m: Match, value: int) -> bool:
    """Tell whether a value is a constant single zero."""
    tensor = m.tensor(value)
    return tensor is not None and tensor.size == 1 and not np.any(tensor.numpy())


def _to_poles(m: Match, node: int) -> set[int]:
    """Return the nodes on the ways from a node to all that divide by its result, these included."""
    flat, todo, fronts = m.flat, Worklist(node), {node: list[int]()}
    poles: dict[int, list[int]] = {}
    for front in todo:
        for slot in (s for value in flat.outputs_of(front) for s in flat.uses(value)):
            reader = flat.reader(slot)
            if row_of(flat.called(reader)).pole == flat.index(slot):
                poles.setdefault(reader, []).append(front)
            elif m.op(reader) in _HANDING_ON:
                fronts.setdefault(reader, []).append(front)
                todo.add([reader])
    return walk(poles, (fronts | poles).__getitem__).keys() - {node}
