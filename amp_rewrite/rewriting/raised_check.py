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
    rewritten = rewritten_flat(raised.flat, graph, raised.plan, raised.removed, {})
    after = {node: number for number, node in enumerate(rewritten.origins) if node != ABSENT}
    types = infer(rewritten.flat)
    for vertex in raised.plan.vertices:
        node = graph.nodes[vertex]
        if node not in after:  # a Cast that has become a no-op
            continue
        ends = rewritten.flat.inputs_of(after[node]), rewritten.flat.outputs_of(after[node])
        for index, is_output in _ports(graph, vertex):
            value = ends[is_output][index]
            type_string = None if value == ABSENT else types[value]
            if (
                type_string is not None
                and type_string.startswith("tensor(")
                and type_string != _WIDE
            ):
                raise InvariantError(
                    "a node that was to be raised to float32 is not",
                    where=f"node {graph.node_name(vertex)!r} ({graph.operator_of(vertex).op_type})",
                    found=type_string,
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
