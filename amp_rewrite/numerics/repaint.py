"""Paint one model again and again under different node rules, and compare the paintings.

A rewrite works on a copy of the model, so paintings are compared by position: the index of the node
in execution order, and the name of its type variable. Where only the colors count, the model is
painted as it is (paint/pipeline.py), and nothing is copied or rewritten.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import onnx_ir as ir

from amp_rewrite.api import RewriteResult, rewrite
from amp_rewrite.dtypes import DType
from amp_rewrite.graph.build_type_graph import build_type_graph
from amp_rewrite.graph.dataflow import TypeGraph, Vertex
from amp_rewrite.graph.functions import inline
from amp_rewrite.graph.io.load import Source, load
from amp_rewrite.oplists import ListName, NodeRule, OpLists, load_lists
from amp_rewrite.paint.context import PaintContext
from amp_rewrite.paint.pipeline import PaintResult, paint
from amp_rewrite.rewriting.options import RewriteOptions
from amp_rewrite.rewriting.paint_context import lists_of, low_ends, paint_context

_PAINTED = frozenset({ListName.ALLOW, ListName.INFER, ListName.CLEAR})


class Slot(NamedTuple):
    """A type variable by position: the same in every copy of a model.

    Attributes:
        node: The index of the node in execution order.
        variable: The name of the type variable.
    """

    node: int
    variable: str


@dataclass
class Repainter:
    """A float32 model, and its painting under any node rules.

    Attributes:
        model: The float32 model; never modified.
        options: The options of the rewrite, with the lists read once.
        type_graph: The dataflow of `model`, without ties.
        nodes: The nodes of `model` in execution order.
        index: Node -> its position.
    """

    model: ir.Model
    options: RewriteOptions
    type_graph: TypeGraph
    nodes: tuple[ir.Node, ...]
    index: Mapping[ir.Node, int]
    _lists: OpLists

    @staticmethod
    def of(source: Source, options: RewriteOptions) -> Repainter:
        """Load a model and the lists.

        Raises:
            AmpError: The model, a list or an option is wrong.
        """
        model = load(source)
        if options.inline_functions:
            inline(model)  # nodes keep their positions in every rewrite
        type_graph = build_type_graph(model)
        nodes = tuple(type_graph.nodes)
        index = {node: i for i, node in enumerate(nodes)}
        return Repainter(model, options, type_graph, nodes, index, _read(options))

    @cached_property
    def ends(self) -> frozenset[ir.Value]:
        """The graph inputs and outputs of `model` that become low where anything does."""
        return low_ends(self.type_graph, self.options)

    @property
    def low(self) -> DType:
        """The low-precision type."""
        return self.options.low

    def rewrite(self) -> RewriteResult:
        """Return the rewritten model under the lists' node rules alone.

        Raises:
            StrictError: The option `strict` is set, and the rewrite is not complete.
        """
        return rewrite(self.model, self.options, lists=self._lists)

    def paint(self, rules: Sequence[NodeRule]) -> PaintResult:
        """Return the painting that a rewrite under the lists' node rules and these has."""
        lists = self._context.lists
        lists = replace(lists, node_rules=(*lists.node_rules, *rules))
        return paint(replace(self._context, lists=lists))

    @cached_property
    def _context(self) -> PaintContext:
        """What the paintings of `model` know; what it remembers does not depend on node rules."""
        options = replace(self.options, lists=self._lists)
        return paint_context(self.model, lists_of(options), options)

    def low_slots(self, result: RewriteResult | PaintResult) -> frozenset[Slot]:
        """Return the slots that a rewrite or a painting made low."""
        position = {n: i for i, n in enumerate(result.context.type_graph.nodes)}
        return frozenset(
            Slot(position[v.node], variable)
            for v in result.painting.allowed()
            for variable in v.kind.variables
        )

    def paintable(self, result: RewriteResult) -> frozenset[Slot]:
        """Return the slots that some node rules or other could leave low: a superset."""
        context = result.context
        found: set[Slot] = set()
        for i, (node, entry) in enumerate(context.type_graph.nodes.items()):
            listed = context.entry(node)
            if listed is None or not (listed.list in _PAINTED or context.lists.force_all):
                continue
            found.update(
                Slot(i, variable)
                for v in entry.all
                if context.supports(v) and context.process(v)
                for variable in v.kind.variables
            )
        return frozenset(found) | self.low_slots(result)

    def carriers(self, value: ir.Value) -> tuple[Slot, ...]:
        """Return the slots that write or read a value of `model`."""
        return self._carriers.get(value, ())

    def values(self) -> Iterator[ir.Value]:
        """Yield every float32 value that a slot writes or reads, in execution order."""
        yield from self._carriers

    def name(self, slot: Slot) -> str:
        """Return a slot as reports spell it: "MatMul_3/T"."""
        return f"{self.nodes[slot.node].name}/{slot.variable}"

    @cached_property
    def _carriers(self) -> dict[ir.Value, tuple[Slot, ...]]:
        found: dict[ir.Value, list[Slot]] = {}
        for value, vertex in self._uses():
            if vertex is not None and self.type_graph.is_float32(value):
                slot = Slot(self.index[vertex.node], vertex.kind.variables[0])
                slots = found.setdefault(value, [])
                if slot not in slots:
                    slots.append(slot)
        return {value: tuple(slots) for value, slots in found.items()}

    def _uses(self) -> Iterator[tuple[ir.Value, Vertex | None]]:
        yield from self.type_graph.producers.items()
        for node, entry in self.type_graph.nodes.items():
            for value, vertex in zip(node.inputs, entry.inputs, strict=True):
                if value is not None:
                    yield value, vertex
        for graph, vertices in self.type_graph.sinks.items():
            yield from zip(graph.outputs, vertices, strict=True)


def _read(options: RewriteOptions) -> OpLists:
    """Read the lists; environment and level are applied by the rewrite."""
    if isinstance(options.lists, OpLists):
        return options.lists
    given = options.lists
    if given is not None:
        given = [given] if isinstance(given, str | os.PathLike) else given
        given = [os.fspath(item) for item in given]
    return load_lists(given, precision=options.precision, target=options.target, environ={})
