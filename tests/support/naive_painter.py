"""Painting once more, from the text of painting.md section 3 alone: sets and loops, no walks.

Two passes are this package's own and documented as such: squares in front of a denied reduction
join the deny roots, and regions without an allow-list operator are dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import chain

import onnx_ir as ir
from onnx import TensorProto

from amp_rewrite.graph.dataflow import Vertex
from amp_rewrite.graph.elements import element
from amp_rewrite.oplists import ListName
from amp_rewrite.paint.context import PaintContext

WRITERS = {"SequenceInsert", "SequenceConstruct", "SplitToSequence"}
READERS = {"SequenceAt", "ConcatFromSequence"}
SEQUENCE_OPS = WRITERS | READERS | {"SequenceEmpty", "SequenceErase", "SequenceLength"}
CARRIERS = {"Identity", "If", "Loop"}
QUANTIZED = ("FLOAT4", "FLOAT6", "FLOAT8", "INT2", "INT4", "UINT2", "UINT4")


class NaivePainter:
    """One run; `paint` returns the set of vertices that become low."""

    def __init__(self, context: PaintContext) -> None:
        self.context = context
        self.type_graph = context.type_graph
        self.vertices = list(context.type_graph.vertices())
        self.list_of = {v: context.list_of(v) for v in self.vertices}
        self.process = {v: context.process(v) for v in self.vertices}
        self.forced = {v for v in self.vertices if context.is_forced(v)}
        self.allow: set[Vertex] = set()
        self.deny: set[Vertex] = set()

    def paint(self) -> set[Vertex]:
        clusters = self.clusters()
        for cluster in clusters:
            if self.is_opaque(cluster):
                self.deny |= cluster
        self.allow = {v for v in self.vertices if self.process[v] and self.is_seed(v)} - self.deny
        if not self.allow:
            return set()
        if not self.context.lists.force_all:
            self.p2_deny()
        self.match(clusters)
        self.p3_between()
        if self.context.infer_after_allow:
            self.p4_follow()
        self.p5_clear()
        self.p6_unpaint()
        self.match(clusters)
        self.drop_islands()
        self.k_casts()
        return self.allow

    def is_seed(self, vertex: Vertex) -> bool:
        return self.list_of[vertex] is ListName.ALLOW or vertex in self.forced

    def outputs(self, vertex: Vertex) -> Iterable[Vertex]:
        return self.type_graph.graph.successors(vertex)

    def inputs(self, vertex: Vertex) -> Iterable[Vertex]:
        return self.type_graph.graph.predecessors(vertex)

    def p2_deny(self) -> None:
        roots = {v for v in self.vertices if self.list_of[v] is ListName.DENY} | self.squares()
        up = roots | {v for v in self.vertices if self.list_of[v] is ListName.INFER}
        up = grow(up, self.inputs, lambda v: self.list_of[v] is ListName.CLEAR)
        before = set(self.deny)
        self.deny |= grow(roots, self.outputs, lambda v: v in up and v not in before)
        self.allow -= self.deny

    def squares(self) -> set[Vertex]:
        found: set[Vertex] = set()
        listed = (ListName.CLEAR, ListName.DENY)
        for vertex in self.vertices:
            node = vertex.node
            if node.op_type != "Mul" or node.domain or node.inputs[0] is not node.inputs[1]:
                continue
            behind = grow({vertex}, self.outputs, lambda v: self.list_of[v] in listed)
            sums = [v for v in behind if v.node.op_type.startswith("Reduce")]
            if self.list_of[vertex] is ListName.INFER and any(
                self.list_of[v] is ListName.DENY for v in sums
            ):
                found.add(vertex)
        return found

    def p3_between(self) -> None:
        roots = {v for v in self.allow if self.process[v] and self.is_seed(v)}

        def enter(vertex: Vertex) -> bool:
            return (
                self.list_of[vertex] in (ListName.CLEAR, ListName.INFER)
                and vertex not in self.deny
                and self.process[vertex]
                and self.context.supports(vertex)
            )

        down = grow(roots, self.outputs, enter)
        self.allow |= grow(roots, self.inputs, lambda v: v in down)

    def p4_follow(self) -> None:
        for vertex in self.vertices:
            if (
                self.list_of[vertex] is not ListName.INFER
                or not self.process[vertex]
                or not self.context.supports(vertex)
                or vertex in self.allow | self.deny
            ):
                continue
            direct = set(self.inputs(vertex))
            if direct & self.allow and not direct & self.deny:
                self.allow.add(vertex)

    def p5_clear(self) -> None:
        painted = self.allow | self.deny

        def enter(vertex: Vertex) -> bool:
            return (
                vertex not in painted
                and self.list_of[vertex] is ListName.CLEAR
                and self.process[vertex]
                and self.context.supports(vertex)
                and not self.context.is_variable_read(vertex)
            )

        roots = {v for v in self.allow if self.process[v]}
        self.allow |= grow(roots, lambda v: chain(self.inputs(v), self.outputs(v)), enter)

    def p6_unpaint(self) -> None:
        for vertex in [v for v in self.allow if self.is_seed(v)]:
            types = [element(t) for t in vertex.kind.known.values()]
            quantized = any(t and TensorProto.DataType.Name(t).startswith(QUANTIZED) for t in types)
            if quantized or not self.context.supports(vertex):
                self.allow.discard(vertex)

    def drop_islands(self) -> None:
        def connected(vertex: Vertex) -> Iterable[Vertex]:
            yield from chain(self.inputs(vertex), self.outputs(vertex))
            handles = self.type_graph.handles
            if vertex in handles:
                yield from chain(handles.predecessors(vertex), handles.successors(vertex))

        seeds = {v for v in self.allow if self.is_seed(v)}
        self.allow = grow(seeds, connected, lambda v: v in self.allow)

    def k_casts(self) -> None:
        retargeted: set[Vertex] = set()
        for node, entry in self.type_graph.nodes.items():
            if node.op_type != "Cast" or node.domain:
                continue
            vertex, value = entry.outputs[0], node.outputs[0]
            if vertex is None or value.is_graph_output() or not value.uses():
                continue
            consumers = {self.type_graph.nodes[u.node].inputs[u.idx] for u in value.uses()}
            if consumers <= self.allow and self.process[vertex] and self.context.supports(vertex):
                retargeted.add(vertex)
        self.allow |= retargeted

    def clusters(self) -> list[set[Vertex]]:
        handles = self.type_graph.handles
        left = {v for v in self.vertices if is_sequence_op(v.node) or is_carrier(v) or v in handles}
        found: list[set[Vertex]] = []
        while left:
            start = next(v for v in self.vertices if v in left)

            def linked(vertex: Vertex) -> Iterable[Vertex]:
                if vertex not in handles:
                    return ()
                return chain(handles.predecessors(vertex), handles.successors(vertex))

            found.append(grow({start}, linked, lambda _: True))
            left -= found[-1]
        return found

    def is_opaque(self, cluster: set[Vertex]) -> bool:
        main = self.type_graph.model.graph
        ends = {*main.inputs, *main.outputs} | {
            value
            for node, entry in self.type_graph.nodes.items()
            if entry.ports.schema is None or node.op_type == "SequenceMap"
            for value in (*node.inputs, *node.outputs)
        }
        for vertex in cluster:
            node = vertex.node
            values = {
                v
                for v in (*node.inputs, *node.outputs)
                if v is not None and self.type_graph.types.get(v, "").startswith(("seq", "opt"))
            }
            if (
                not (is_sequence_op(node) or node.op_type in CARRIERS)
                or not self.process[vertex]
                or not self.context.supports(vertex)
                or values & ends
            ):
                return True
        return False

    def match(self, clusters: list[set[Vertex]]) -> None:
        for cluster in clusters:
            if cluster & self.deny:
                self.allow -= cluster
                self.deny |= cluster
            elif cluster & self.allow:
                self.allow |= cluster


def is_carrier(vertex: Vertex) -> bool:
    return vertex.node.op_type in CARRIERS and not vertex.kind.type.startswith("tensor")


def is_sequence_op(node: ir.Node) -> bool:
    return node.op_type in SEQUENCE_OPS and node.domain == ""


def grow(
    roots: set[Vertex],
    neighbours: Callable[[Vertex], Iterable[Vertex]],
    enter: Callable[[Vertex], bool],
) -> set[Vertex]:
    """Return the roots and what is reached from them, a generation at a time."""
    reached, edge = set(roots), set(roots)
    while edge:
        edge = {n for v in edge for n in neighbours(v) if n not in reached and enter(n)}
        reached |= edge
    return reached
