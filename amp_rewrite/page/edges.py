"""What feeds what on the page, and where the types change on the way."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from amp_rewrite.dtypes import FLOAT32
from amp_rewrite.graph.flat import ABSENT, MAIN, FlatGraph
from amp_rewrite.page.columns import NONE, Columns, Strings
from amp_rewrite.rewriting.api import RewriteResult

PLAIN, TO_LOW, TO_FLOAT32 = range(3)
"""What lies on an edge: nothing, a Cast to the low type, or a Cast to float32."""

_MOST_ENDS = 24
"""How many inputs, or outputs, stand in the graph one by one: a training step has hundreds."""


def tabulate_ends(flat: FlatGraph, groups: Columns, strings: Strings) -> Columns:
    """Return the inputs and outputs of the model: those that are no initializers.

    Args:
        flat: The model.
        groups: The table of folders, the outermost one first; where there are many ends of a
            kind, it gets another one for them.
        strings: The strings of the page.
    """
    ends = _ends(flat)
    folders = [_folder(ends, groups, strings, output=output) for output in (False, True)]
    return {
        "name": [strings.number(flat.value_names[value]) for value, _ in ends],
        "output": [int(output) for _, output in ends],
        "group": [folders[output] for _, output in ends],
    }


def _folder(
    ends: Sequence[tuple[int, bool]], groups: Columns, strings: Strings, *, output: bool
) -> int:
    """Return the folder of the inputs, or of the outputs."""
    count = sum(kind == output for _, kind in ends)
    if count <= _MOST_ENDS:
        return 0
    groups["label"].append(strings.number("outputs" if output else "inputs"))
    groups["parent"].append(0)
    groups["owner"].append(NONE)
    return len(groups["label"]) - 1


def _ends(flat: FlatGraph) -> list[tuple[int, bool]]:
    inputs = [(v, False) for v in flat.main.inputs if not flat.is_initializer(v)]
    return inputs + [(v, True) for v in flat.main.outputs]


def tabulate_edges(result: RewriteResult, drawn: Sequence[bool]) -> Columns:
    """Return an edge for each node or end of the model and each reader of what it makes.

    The ends are numbered behind the nodes.

    Args:
        result: The rewrite.
        drawn: By node, whether it has edges.
    """
    flat, first = result.flat, result.flat.n_nodes
    ends = _ends(flat)
    from_end = {v: first + i for i, (v, output) in enumerate(ends) if not output}
    casts = _casts(result)

    def maker(value: int) -> int:
        node = flat.producer[value]
        if node == ABSENT:
            return from_end.get(value, NONE)
        return node if drawn[node] else NONE

    found: dict[tuple[int, int], int] = {}
    for value, node in _reads(flat):
        edge = (maker(value), node)
        if edge[0] != NONE and drawn[node]:
            found[edge] = found.get(edge, PLAIN) or casts.get((value, node), PLAIN)
    for number, (value, output) in enumerate(ends):
        if output and maker(value) != NONE:
            edge = (maker(value), first + number)
            found[edge] = found.get(edge, PLAIN) or casts.get((value, ABSENT), PLAIN)
    return {
        "from": [edge[0] for edge in found],
        "to": [edge[1] for edge in found],
        "cast": list(found.values()),
    }


def _reads(flat: FlatGraph) -> Iterator[tuple[int, int]]:
    for node in range(flat.n_nodes):
        for value in flat.inputs_of(node):
            if value != ABSENT:
                yield value, node


def _casts(result: RewriteResult) -> dict[tuple[int, int], int]:
    """Return (value, reader) -> the kind of the Cast between them; ABSENT reads for an output."""
    found: dict[tuple[int, int], int] = {}
    for cast in result.plan.casts:
        kind = TO_FLOAT32 if cast.to == FLOAT32 else TO_LOW
        for use in cast.uses:
            if use.body in (ABSENT, MAIN):
                found[cast.value, use.node] = kind
    return found
