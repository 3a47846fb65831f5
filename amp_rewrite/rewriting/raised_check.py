"""The invariant of raising: what a plan says becomes float32 is float32 in the rewritten model."""

from __future__ import annotations

from collections.abc import Iterator

from amp_rewrite.dtypes import FLOAT32
from amp_rewrite.errors import InvariantError
from amp_rewrite.graph.dataflow import TypeGraph
from amp_rewrite.graph.elements import tensor
from amp_rewrite.graph.flat import ABSENT
from amp_rewrite.graph.infer import infer
from amp_rewrite.rewriting.apply.rewritten_model import rewritten_flat
from amp_rewrite.rewriting.widen import Raised

_WIDE = tensor(FLOAT32.number)


def check_raised(raised: Raised) -> None:
    """Refuse a model in which not all is float32 that is said to be.

    Types are inferred in the rewritten model, and each of its nodes is known by the number that it
    had before.

    Raises:
        InvariantError: A type variable that was to be raised has another type; nothing is written.
    """
    if raised.plan.is_empty:
        return
    graph = raised.context.type_graph
    made = rewritten_flat(raised.flat, graph, raised.plan, raised.removed, {})
    after = {node: number for number, node in enumerate(made.origins) if node != ABSENT}
    types = infer(made.flat)
    for vertex in raised.plan.vertices:
        node = graph.nodes[vertex]
        if node not in after:  # a Cast that has become a no-op
            continue
        ends = made.flat.inputs_of(after[node]), made.flat.outputs_of(after[node])
        for index, is_output in _ports(graph, vertex):
            value = ends[is_output][index]
            found = None if value == ABSENT else types[value]
            if found is not None and found.startswith("tensor(") and found != _WIDE:
                raise InvariantError(
                    "a node that was to be raised to float32 is not",
                    where=f"node {graph.node_name(vertex)!r} ({graph.operator_of(vertex).op_type})",
                    found=found,
                    remedy="please report this with the model; nothing was written",
                )


def _ports(graph: TypeGraph, vertex: int) -> Iterator[tuple[int, bool]]:
    """Yield where a node reads and writes what a vertex stands for: the index, and which."""
    flat, node = graph.flat, graph.nodes[vertex]
    for is_output, starts, ports in (
        (False, flat.input_start, graph.reads),
        (True, flat.output_start, graph.writes),
    ):
        first = starts[node]
        for slot in range(first, starts[node + 1]):
            if ports[slot] == vertex:
                yield slot - first, is_output
