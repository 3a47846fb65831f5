"""Painting once more, from the text of painting.md section 3 alone: sets and loops, no walks.

Two passes are this package's own and documented as such: squares in front of a denied reduction
join the deny roots, and regions without an allow-list operator are dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import chain

from onnx import TensorProto

from amp_rewrite.graph.elements import element
from amp_rewrite.graph.flat import ABSENT, Operator
from amp_rewrite.oplists import ListName
from amp_rewrite.rewriting.paint.context import PaintContext

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
        self.flat = context.type_graph.flat
        self.vertices = range(len(context.type_graph))
        self.list_of = {v: context.list_of(v) for v in self.vertices}
        self.process = {v for v in self.vertices if context.refusal(v) is None}
        self.supports = {v for v in self.vertices if context.unsupported(v) is None}
        self.forced = {v for v in self.vertices if context.forced[v]}
        edges: list[tuple[int, int]] = self.type_graph.edges.tolist()
        self.behind = table(edges)
        self.before = table((b, a) for a, b in edges)
        self.links = table(chain(*(((a, b), (b, a)) for a, b in self.type_graph.handles)))
        self.allow: set[int] = set()
        self.deny: set[int] = set()

    def paint(self) -> set[int]:
        clusters = self.clusters()
        for cluster in clusters:
            if self.is_opaque(cluster):
                self.deny |= cluster
        self.allow = {v for v in self.vertices if v in self.process and self.is_seed(v)} - self.deny
        if not self.allow:
            return set()
        if not self.context.force_all:
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

    def is_seed(self, vertex: int) -> bool:
        return self.list_of[vertex] is ListName.ALLOW or vertex in self.forced

    def outputs(self, vertex: int) -> Iterable[int]:
        return self.behind.get(vertex, ())

    def inputs(self, vertex: int) -> Iterable[int]:
        return self.before.get(vertex, ())

    def linked(self, vertex: int) -> Iterable[int]:
        return self.links.get(vertex, ())

    def operator(self, vertex: int) -> Operator:
        return self.flat.called(self.type_graph.nodes[vertex])

    def p2_deny(self) -> None:
        roots = {v for v in self.vertices if self.list_of[v] is ListName.DENY} | self.squares()
        up = roots | {v for v in self.vertices if self.list_of[v] is ListName.INFER}
        up = grow(up, self.inputs, lambda v: self.list_of[v] is ListName.CLEAR)
        before = set(self.deny)
        self.deny |= grow(roots, self.outputs, lambda v: v in up and v not in before)
        self.allow -= self.deny

    def squares(self) -> set[int]:
        found: set[int] = set()
        listed = (ListName.CLEAR, ListName.DENY)
        for vertex in self.vertices:
            factors = {self.original(v) for v in self.flat.inputs_of(self.type_graph.nodes[vertex])}
            if self.operator(vertex)[:2] != ("", "Mul") or len(factors) > 1:
                continue
            behind = grow({vertex}, self.outputs, lambda v: self.list_of[v] in listed)
            sums = [v for v in behind if self.operator(v).op_type.startswith("Reduce")]
            if self.list_of[vertex] is ListName.INFER and any(
                self.list_of[v] is ListName.DENY for v in sums
            ):
                found.add(vertex)
        return found

    def original(self, value: int) -> int:
        """Return what a value is, in front of Identities and Casts that change no type."""
        node = self.flat.producer[value]
        if node == ABSENT or self.flat.called(node)[:2] not in (("", "Identity"), ("", "Cast")):
            return value
        read = self.flat.inputs_of(node)[0]
        same = self.type_graph.types[read] == self.type_graph.types[value]
        return self.original(read) if same else value

    def p3_between(self) -> None:
        roots = {v for v in self.allow if v in self.process and self.is_seed(v)}

        def enter(vertex: int) -> bool:
            return (
                self.list_of[vertex] in (ListName.CLEAR, ListName.INFER)
                and vertex not in self.deny
                and vertex in self.process
                and vertex in self.supports
            )

        down = grow(roots, self.outputs, enter)
        self.allow |= grow(roots, self.inputs, lambda v: v in down)

    def p4_follow(self) -> None:
        painted = self.allow | self.deny
        for vertex in self.vertices:
            if (
                self.list_of[vertex] is not ListName.INFER
                or vertex not in self.process
                or vertex not in self.supports
                or vertex in self.allow | self.deny
            ):
                continue
            direct = self.direct_inputs(vertex, painted)
            if direct & self.allow and not direct & self.deny:
                self.allow.add(vertex)

    def direct_inputs(self, vertex: int, painted: set[int]) -> set[int]:
        def hands_on(other: int) -> bool:
            return (
                self.operator(other).op_type in ("Identity", "If")
                and self.list_of[other] is ListName.CLEAR
                and other in self.process
                and other in self.supports
                and other not in painted
            )

        passed = grow({vertex}, self.inputs, hands_on)
        return {v for p in passed for v in self.inputs(p) if not hands_on(v)}

    def p5_clear(self) -> None:
        painted = self.allow | self.deny

        def enter(vertex: int) -> bool:
            return (
                vertex not in painted
                and self.list_of[vertex] is ListName.CLEAR
                and vertex in self.process
                and vertex in self.supports
                and not self.reads_variable(vertex)
            )

        roots = {v for v in self.allow if v in self.process}
        self.allow |= grow(roots, lambda v: chain(self.inputs(v), self.outputs(v)), enter)

    def reads_variable(self, vertex: int) -> bool:
        if self.operator(vertex).op_type != "Identity":
            return False
        return self.flat.inputs_of(self.type_graph.nodes[vertex])[0] in self.context.variables

    def p6_unpaint(self) -> None:
        for vertex in [v for v in self.allow if self.is_seed(v)]:
            types = [element(t) for t in self.type_graph.kind_of(vertex).known.values()]
            quantized = any(t and TensorProto.DataType.Name(t).startswith(QUANTIZED) for t in types)
            if quantized or vertex not in self.supports:
                self.allow.discard(vertex)

    def drop_islands(self) -> None:
        def connected(vertex: int) -> Iterable[int]:
            return chain(self.inputs(vertex), self.outputs(vertex), self.linked(vertex))

        seeds = {v for v in self.allow if self.is_seed(v)}
        self.allow = grow(seeds, connected, lambda v: v in self.allow)

    def k_casts(self) -> None:
        retargeted: set[int] = set()
        ends = {v for body in self.flat.bodies for v in body.outputs}
        for node in range(self.flat.n_nodes):
            if self.flat.called(node)[:2] != ("", "Cast"):
                continue
            (value,) = self.flat.outputs_of(node)
            vertex = self.type_graph.source[value]
            consumers = {
                reader
                for read, reader in zip(self.flat.inputs, self.type_graph.reads, strict=True)
                if read == value
            }
            if vertex == ABSENT or value in ends or not consumers:
                continue
            if consumers <= self.allow and vertex in self.process and vertex in self.supports:
                retargeted.add(vertex)
        self.allow |= retargeted

    def clusters(self) -> list[set[int]]:
        left = {
            v
            for v in self.vertices
            if is_sequence_op(self.operator(v)) or self.is_carrier(v) or v in self.links
        }
        found: list[set[int]] = []
        while left:
            start = next(v for v in self.vertices if v in left)
            found.append(grow({start}, self.linked, lambda _: True))
            left -= found[-1]
        return found

    def is_carrier(self, vertex: int) -> bool:
        is_tensor = self.type_graph.kind_of(vertex).type.startswith("tensor")
        return self.operator(vertex).op_type in CARRIERS and not is_tensor

    def is_opaque(self, cluster: set[int]) -> bool:
        ends = {*self.flat.bodies[0].inputs, *self.flat.bodies[0].outputs}
        for node in range(self.flat.n_nodes):
            is_map = self.flat.called(node).op_type == "SequenceMap"
            if is_map or self.type_graph.ports_of(node).schema is None:
                ends |= self.values_of(node)
        for vertex in cluster:
            values = {
                v
                for v in self.values_of(self.type_graph.nodes[vertex])
                if (self.type_graph.types[v] or "").startswith(("seq", "opt"))
            }
            operator = self.operator(vertex)
            if (
                not (is_sequence_op(operator) or operator.op_type in CARRIERS)
                or vertex not in self.process
                or vertex not in self.supports
                or values & ends
            ):
                return True
        return False

    def values_of(self, node: int) -> set[int]:
        return {*self.flat.inputs_of(node), *self.flat.outputs_of(node)} - {ABSENT}

    def match(self, clusters: list[set[int]]) -> None:
        for cluster in clusters:
            if cluster & self.deny:
                self.allow -= cluster
                self.deny |= cluster
            elif cluster & self.allow:
                self.allow |= cluster


def is_sequence_op(operator: Operator) -> bool:
    return operator.op_type in SEQUENCE_OPS and operator.domain == ""


def table(pairs: Iterable[tuple[int, int]]) -> dict[int, set[int]]:
    """Return, for each first of the pairs, the second ones."""
    found: dict[int, set[int]] = {}
    for first, second in pairs:
        found.setdefault(first, set()).add(second)
    return found


def grow(
    roots: set[int],
    neighbours: Callable[[int], Iterable[int]],
    enter: Callable[[int], bool],
) -> set[int]:
    """Return the roots and what is reached from them, a generation at a time."""
    reached, edge = set(roots), set(roots)
    while edge:
        edge = {n for v in edge for n in neighbours(v) if n not in reached and enter(n)}
        reached |= edge
    return reached
