"""Parts of a training step that stay float32 by construction, whatever the lists say.

- The parts that a builder says so of (graph/step_part.py): arithmetic on gradients, clipping, loss
  scaling, the update, and the losses of this package.
- The loss that the model computes: what follows the last allow-list operator on the way to it.
- The gradients of all these, up to the first allow-list operator of the backward pass.
- Sums over axes in a gradient, and the rules that compute with one: their terms cancel.
- What divides by a number of elements, which may be more than float16 holds.
- Sums of gradients that arrive at one variable; their terms are cast one by one.

Evidence: training steps: without the pass losses, clipping and updates compute in float16
(tests/training/test_mixed_training.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from amp_rewrite.graph.dataflow import vertices_in
from amp_rewrite.graph.flat import ABSENT
from amp_rewrite.graph.reach import walk
from amp_rewrite.graph.step_metadata import step_description
from amp_rewrite.graph.step_part import Part, part_in, source_in
from amp_rewrite.graph.traits import Trait
from amp_rewrite.oplists import ListName
from amp_rewrite.rewriting.paint.context import PaintContext
from amp_rewrite.rewriting.paint.keep import Ask, Keep, Kept, Match, Reason, Stage, keep
from amp_rewrite.rewriting.paint.match import Worklist

_INTEGERS = frozenset({"tensor(int64)", "tensor(int32)"})


@keep("keep-parts", Reason.FLOAT32_PART, Stage.GIVEN, 50, overrules=True)
def keep_parts(m: Match, ask: Ask) -> Kept:
    """Mark every vertex of a training step that stays float32 by construction."""
    parts = dict(_parts(m))
    for vertex, detail in _Step(m, ask.context, parts).run().items() if parts else ():
        yield Keep(detail, (), [vertex])


def _parts(m: Match) -> Iterator[tuple[int, Part]]:
    """Yield the nodes that belong to a part; in a subgraph, by default, that of its owner."""
    flat = m.flat
    if not flat.metadata:
        return
    owners: dict[int, Part | None] = {}
    for node, body in enumerate(flat.body_of):
        part = part_in(flat.metadata_of(node)) or owners.get(body)
        owners |= dict.fromkeys(flat.bodies_in(node), part)
        if part is not None:
            yield node, part


class _Step:
    """A training step: vertex -> what it is there that stays float32."""

    def __init__(self, m: Match, context: PaintContext, parts: dict[int, Part]) -> None:
        self._m, self._context, self._parts = m, context, parts
        self._graph, self._flat = m.graph, m.flat
        self._marks: dict[int, str] = {}
        self._stay = {n for n, part in parts.items() if part.stays_float32}
        self._source = {n: source_in(m.flat.metadata_of(n)) for n in parts}

    def run(self) -> dict[int, str]:
        """Return what stays float32, and what it is."""
        loss = self._loss()
        sources = {self._flat.source_key(n) for n in loss | self._stay}
        for node in range(self._flat.n_nodes):
            vertices, is_gradient = self._graph.vertices_of(node), self._is_gradient(node)
            if node in loss:
                self._mark(vertices, "the loss")
            elif node in self._stay:
                self._mark(vertices, f"part {self._parts[node]} of the training step")
            elif is_gradient and self._source[node] in sources:
                self._mark(vertices, "the gradient of the loss")
        self._gradients = [v for v, n in enumerate(self._graph.nodes) if self._is_gradient(n)]
        self._reductions()
        self._counts()
        self._sums()
        return self._marks

    def _mark(self, vertices: Iterable[int], detail: str) -> None:
        self._marks |= dict.fromkeys(vertices, detail)

    def _loss(self) -> set[int]:
        """Return the nodes behind the last allow-list operators on the way to the loss."""
        graph, nodes = self._graph, self._graph.nodes
        forward = [self._parts.get(n) in (None, Part.RANDOM) for n in nodes]
        values = self._flat.values_called(step_description(self._flat).get("loss") or "")
        roots = [v for v in (graph.source[value] for value in values) if v != ABSENT]
        listed = vertices_in(self._context.on(ListName.ALLOW))
        before = walk([v for v in listed if forward[v] and v not in roots], graph.predecessors)
        reached = walk(roots, graph.predecessors, ~graph.mask(before))
        return {nodes[v] for v in reached if forward[v]}

    def _reductions(self) -> None:
        """Mark sums over axes, and the rules of gradients that go on computing with one."""
        blocks: dict[str | None, list[int]] = {}
        for vertex in self._gradients:
            if vertex not in self._marks:
                blocks.setdefault(self._source[self._graph.nodes[vertex]], []).append(vertex)
        sums_up = self._graph.having(Trait.SUMS_UP)
        arithmetic = self._context.on(ListName.INFER, ListName.DENY)
        for block in blocks.values():
            sums = [v for v in block if sums_up[v]]
            inside = set(block)
            used = any(s in inside for v in sums for s in self._graph.successors(v))
            marked = [v for v in block if arithmetic[v]] if used else sums
            self._mark(marked, "a sum over axes in a gradient")

    def _counts(self) -> None:
        """Mark what divides by, or otherwise computes with, a number of elements."""
        nodes = (self._graph.nodes[v] for v in self._gradients)
        casts = ((n, self._m.read(n)[0]) for n in nodes if self._m.is_a(n, "Cast"))
        made = {n for n, v in casts if v != ABSENT and self._graph.types[v] in _INTEGERS}
        counts = {v for v in self._gradients if self._graph.nodes[v] in made}
        for vertex in self._gradients:
            before = self._graph.predecessors(vertex)
            if vertex in self._marks or not before:
                continue
            if any(v in counts for v in before):
                self._mark((vertex,), "it computes with a number of elements")
            if all(v in counts for v in before):
                counts.add(vertex)

    def _sums(self) -> None:
        """Mark sums of gradients that only float32 parts read, directly or moved elsewhere."""
        adds = self._graph.having(Trait.ADDS)
        for vertex in self._gradients:
            is_sum = adds[vertex] and vertex not in self._marks
            if is_sum and self._ends_in_float32(self._graph.nodes[vertex]):
                self._mark((vertex,), "the sum of the gradients that arrive at a variable")

    def _ends_in_float32(self, node: int) -> bool:
        todo, reads_float32 = Worklist(node), False
        for reached in todo:
            values = self._flat.outputs_of(reached)
            for user in {n for value in values for n in self._flat.readers(value)}:
                vertices = self._graph.vertices_of(user)
                if user in self._stay:
                    reads_float32 = True
                elif vertices and all(self._passes_on(v) for v in vertices):
                    todo.add([user])
                else:
                    return False
        return reads_float32

    def _passes_on(self, vertex: int) -> bool:
        is_gradient = self._is_gradient(self._graph.nodes[vertex])
        clear = self._context.list_of(vertex) is ListName.CLEAR
        return clear and is_gradient and vertex not in self._marks

    def _is_gradient(self, node: int) -> bool:
        return self._parts.get(node) is Part.GRADIENT
