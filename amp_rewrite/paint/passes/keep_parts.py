"""What of a training step stays float32 by construction, whatever the lists say.

- The parts that a builder says so of (graph/part.py): arithmetic on gradients, clipping, loss
  scaling, the update, and the losses of this package.
- The loss, when the model computes it: what follows the last allow-list operator on the way to it.
  Labels and errors near zero lose too much, and float32 costs nothing there.
- The gradients of all these, up to the first allow-list operator of the backward pass.
- Sums over axes in a gradient, and the rules that go on computing with one (softmax and the
  normalizations): their terms cancel.
- What divides by a number of elements, which may be more than float16 holds.
- Sums of gradients that arrive at one variable, so that they accumulate in float32; the terms are
  results of allow-list operators and are cast one by one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import onnx_ir as ir

from amp_rewrite.graph.dataflow import Vertex
from amp_rewrite.graph.part import Part, part_of, source_key, source_of
from amp_rewrite.graph.step_metadata import step_description
from amp_rewrite.graph.traits import Trait, has
from amp_rewrite.graph.traverse import subgraphs
from amp_rewrite.oplists import ListName
from amp_rewrite.paint.context import PaintContext
from amp_rewrite.paint.painting import Color, Mark, Painting, Reason
from amp_rewrite.paint.reach import walk

_INTEGERS = frozenset({"tensor(int64)", "tensor(int32)"})


@dataclass(frozen=True)
class KeepParts:
    """Mark every vertex of a training step that stays float32 by construction."""

    name: ClassVar[str] = "keep-parts"

    def run(self, context: PaintContext, painting: Painting) -> Painting:
        """Return the painting with such vertices marked; the same if the model is no step."""
        parts = dict(_parts(context))
        return painting.with_marks(_Search(context, parts).run()) if parts else painting


def _parts(context: PaintContext) -> Iterator[tuple[ir.Node, Part]]:
    """Yield the nodes that belong to a part; in a subgraph, by default, that of its owner."""
    owners: dict[ir.Graph, Part | None] = {}
    for node in context.type_graph.nodes:
        inherited = None if node.graph is None else owners.get(node.graph)  # pyright: ignore[reportArgumentType] functions are boundaries
        part = part_of(node) or inherited
        for graph in subgraphs(node):
            owners[graph] = part
        if part is not None:
            yield node, part


class _Search:
    """One search in one model."""

    def __init__(self, context: PaintContext, parts: dict[ir.Node, Part]) -> None:
        self._context, self._parts = context, parts
        self._graph = context.type_graph.graph
        self._marks: dict[Vertex, Mark] = {}

    def run(self) -> dict[Vertex, Mark]:
        """Return the marks."""
        loss = self._loss()
        sources = {source_key(n) for n in (*loss, *self._parts) if n in loss or self._stays(n)}
        for node, vertices in self._context.type_graph.nodes.items():
            if node in loss:
                self._mark(vertices.all, "the loss")
            elif self._stays(node):
                self._mark(vertices.all, f"part {self._parts[node]} of the training step")
            elif self._parts.get(node) is Part.GRADIENT and source_of(node) in sources:
                self._mark(vertices.all, "the gradient of the loss")
            elif self._parts.get(node) is Part.GRADIENT and has(node, Trait.SEQUENCE):
                self._mark(vertices.all, "gradients of any type pass here (GATE_GRAPH)")
        self._reductions()
        self._counts()
        self._sums()
        return self._marks

    def _mark(self, vertices: tuple[Vertex, ...], detail: str) -> None:
        mark = Mark(Color.NONE, Reason.FLOAT32_PART, None, detail)
        self._marks |= dict.fromkeys(vertices, mark)

    def _loss(self) -> set[ir.Node]:
        """Return the nodes behind the last allow-list operators on the way to the loss."""
        name = step_description(self._context.type_graph.model).get("loss")
        producers = self._context.type_graph.producers
        roots = [v for value, v in producers.items() if value.name == name]
        fast = [v for v in self._graph if self._is_fast(v) and v not in roots]
        before = walk(fast, self._graph.predecessors, lambda _: True)
        reached = walk(roots, self._graph.predecessors, lambda v: v not in before)
        return {v.node for v in reached if self._is_forward(v)}

    def _reductions(self) -> None:
        """Mark sums over axes, and the rules of gradients that go on computing with one."""
        blocks: dict[str | None, list[Vertex]] = {}
        for vertex in self._graph:
            if self._is_gradient(vertex) and vertex not in self._marks:
                blocks.setdefault(source_of(vertex.node), []).append(vertex)
        for block in blocks.values():
            sums = [v for v in block if has(v.node, Trait.SUMS_UP)]
            inside = set(block)
            used = any(s in inside for v in sums for s in self._graph.successors(v))
            listed = (ListName.INFER, ListName.DENY)
            arithmetic = [v for v in block if self._context.list_of(v) in listed]
            marked = arithmetic if used else sums
            self._mark(tuple(marked), "a sum over axes in a gradient")

    def _counts(self) -> None:
        """Mark what divides by, or otherwise computes with, a number of elements."""
        counts = {v for v in self._graph if self._is_count(v)}
        for vertex in self._graph:
            before = list(self._graph.predecessors(vertex))
            if vertex in self._marks or not self._is_gradient(vertex) or not before:
                continue
            if any(v in counts for v in before):
                self._mark((vertex,), "it computes with a number of elements")
            if all(v in counts for v in before):
                counts.add(vertex)

    def _is_count(self, vertex: Vertex) -> bool:
        """Tell whether a vertex is the result of a Cast of integers."""
        node = vertex.node
        if node.op_type != "Cast" or not self._is_gradient(vertex):
            return False
        given = self._context.type_graph.types.get(node.inputs[0]) if node.inputs[0] else None
        return given in _INTEGERS

    def _sums(self) -> None:
        """Mark sums of gradients that only float32 parts read, directly or moved elsewhere."""
        for vertex in self._graph:
            is_sum = has(vertex.node, Trait.ADDS) and self._is_gradient(vertex)
            if is_sum and vertex not in self._marks and self._ends_in_float32(vertex.node):
                self._mark((vertex,), "the sum of the gradients that arrive at a variable")

    def _ends_in_float32(self, node: ir.Node) -> bool:
        stack, found = [node], False
        while stack:
            for user in {use.node for value in stack.pop().outputs for use in value.uses()}:
                vertices = self._context.type_graph.nodes[user].all
                if self._stays(user):
                    found = True
                elif vertices and all(self._passes_on(v) for v in vertices):
                    stack.append(user)
                else:
                    return False
        return found

    def _passes_on(self, vertex: Vertex) -> bool:
        clear = self._context.list_of(vertex) is ListName.CLEAR
        return clear and self._is_gradient(vertex) and vertex not in self._marks

    def _stays(self, node: ir.Node) -> bool:
        part = self._parts.get(node)
        return part is not None and part.stays_float32

    def _is_gradient(self, vertex: Vertex) -> bool:
        return self._parts.get(vertex.node) is Part.GRADIENT

    def _is_forward(self, vertex: Vertex) -> bool:
        return self._parts.get(vertex.node) in (None, Part.RANDOM)

    def _is_fast(self, vertex: Vertex) -> bool:
        """Tell whether a vertex is an allow-list operator of the forward model."""
        return self._is_forward(vertex) and self._context.list_of(vertex) is ListName.ALLOW
