"""Paint one model again and again under different node rules, and compare the paintings.

A rewrite works on a copy of the model, so paintings are compared by position: the index of the node
in execution order, and the name of its type variable. Where only the colors count, the model is
painted as it is (paint/pipeline.py), and nothing is copied or rewritten.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import onnx_ir as ir

from amp_rewrite.dtypes import DType
from amp_rewrite.graph.build_type_graph import build_type_graph
from amp_rewrite.graph.dataflow import TypeGraph, vertices_in
from amp_rewrite.graph.flat import ABSENT
from amp_rewrite.graph.flat_model import FlatModel
from amp_rewrite.graph.io.functions import inline
from amp_rewrite.graph.io.load import Source, load_named
from amp_rewrite.oplists import ListName, NodeRule, OpLists, load_lists
from amp_rewrite.rewriting.api import RewriteResult, rewrite_freely
from amp_rewrite.rewriting.apply.written_metadata import for_model
from amp_rewrite.rewriting.paint.context import PaintContext
from amp_rewrite.rewriting.paint.fills import Absorbed, absorbed_fills
from amp_rewrite.rewriting.paint.painting import OVERFLOWS, Reason
from amp_rewrite.rewriting.paint.pipeline import PaintResult, paint, paint_fitting
from amp_rewrite.rewriting.plan.options import KEEP, RewriteOptions
from amp_rewrite.rewriting.plan.paint_context import lists_of, low_ends, paint_context

_PAINTED = frozenset({ListName.ALLOW, ListName.INFER, ListName.CLEAR})

_SCALABLE = OVERFLOWS | {Reason.LIKELY_OVERFLOW}


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
        flat: The numbers of the nodes and values of `model`.
        type_graph: The dataflow of `model`, without ties.
        index: Node -> its position.
    """

    model: ir.Model
    options: RewriteOptions
    flat: FlatModel
    type_graph: TypeGraph
    index: Mapping[ir.Node, int]
    _lists: OpLists

    @staticmethod
    def of(source: Source, options: RewriteOptions) -> Repainter:
        """Load a model and the lists.

        Raises:
            AmpError: The model, a list or an option is wrong.
        """
        model = load_named(source)
        options = for_model(options, model)
        if options.inline_functions:
            inline(model)  # nodes keep their positions in every rewrite
        flat = FlatModel.of(model)
        index = {node: i for i, node in enumerate(flat.nodes)}
        return Repainter(model, options, flat, build_type_graph(flat), index, read_lists(options))

    @property
    def nodes(self) -> Sequence[ir.Node]:
        """The nodes of `model` in execution order."""
        return self.flat.nodes

    @cached_property
    def ends(self) -> frozenset[ir.Value]:
        """The graph inputs and outputs of `model` that become low where anything does."""
        return frozenset(self.flat.values[v] for v in low_ends(self.type_graph, self.options))

    @property
    def low(self) -> DType:
        """The low-precision type."""
        return self.options.low

    def rewrite(self) -> RewriteResult:
        """Return the rewritten model under the lists' node rules alone.

        Raises:
            StrictError: The option `strict` is set, and the rewrite is not complete.
        """
        return rewrite_freely(self.model, replace(self.options, lists=self._lists, overflow=KEEP))

    def paint(self, rules: Sequence[NodeRule]) -> PaintResult:
        """Return the painting that a rewrite under the lists' node rules and these has."""
        context = self._context
        lists = replace(context.lists, node_rules=(*context.lists.node_rules, *rules))
        return paint(replace(context, lists=lists))

    @cached_property
    def _context(self) -> PaintContext:
        """What the paintings of `model` know; what it remembers does not depend on node rules."""
        options = replace(self.options, lists=self._lists)
        return paint_context(self.flat, lists_of(options), options)

    def low_slots(self, result: RewriteResult | PaintResult) -> frozenset[Slot]:
        """Return the slots that a rewrite or a painting made low."""
        graph = result.context.type_graph
        return frozenset(
            Slot(graph.nodes[v], variable)
            for v in result.painting.allowed()
            for variable in graph.kind_of(v).variables
        )

    def paintable(self, result: RewriteResult) -> frozenset[Slot]:
        """Return the slots that some node rules or other, or scaling, could leave low: a superset.

        Scaling counts where the options let it add nodes: what leaves the range may fit then.
        """
        context, graph = result.context, result.context.type_graph
        if self.options.adds_nodes:
            kept = {v: m for v, m in context.excluded.items() if m.reason not in _SCALABLE}
            context = replace(context, excluded=kept)
        slots: set[Slot] = set()
        for vertex in vertices_in(context.supported & context.processable):
            listed = context.entry(graph.nodes[vertex])
            if listed is None or not (listed.list in _PAINTED or context.lists.force_all):
                continue
            variables = graph.kind_of(vertex).variables
            slots.update(Slot(graph.nodes[vertex], variable) for variable in variables)
        return frozenset(slots) | self.low_slots(result)

    def scalable(self, result: RewriteResult) -> frozenset[Slot]:
        """Return the slots that scaling could leave low where an overflow keeps them in float32."""
        context = result.context
        if self.options.overflow == KEEP or not context.values.beyond:
            return frozenset()
        return self.low_slots(paint_fitting(context, result.course))

    def absorbed(self, values: Iterable[ir.Value]) -> dict[ir.Value, Absorbed]:
        """Return which elements of values are fills of masks that end in a Softmax."""
        graph, numbers = self._context.type_graph, self.flat.number
        float32 = (n for v in values if graph.is_float32(n := numbers[v]))
        fills_of = absorbed_fills(self._context, self.paint(()).painting, float32)
        return {self.flat.values[number]: fills for number, fills in fills_of.items()}

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
        slots_of: dict[ir.Value, list[Slot]] = {}
        graph = self.type_graph
        for value, vertex in self._uses():
            if vertex != ABSENT and graph.is_float32(value):
                slot = Slot(graph.nodes[vertex], graph.kind_of(vertex).variables[0])
                slots = slots_of.setdefault(self.flat.values[value], [])
                if slot not in slots:
                    slots.append(slot)
        return {value: tuple(slots) for value, slots in slots_of.items()}

    def _uses(self) -> Iterator[tuple[int, int]]:
        yield from enumerate(self.type_graph.source)
        yield from zip(self.flat.inputs, self.type_graph.reads, strict=True)
        for number, vertices in self.type_graph.sinks.items():
            yield from zip(self.flat.bodies[number].outputs, vertices, strict=True)


def read_lists(options: RewriteOptions) -> OpLists:
    """Read the op lists of a rewrite; environment and level are applied by the rewrite.

    Raises:
        AmpError: A list is wrong.
    """
    if isinstance(options.lists, OpLists):
        return options.lists
    lists = options.lists
    if lists is not None:
        lists = [lists] if isinstance(lists, str | os.PathLike) else lists
        lists = [os.fspath(item) for item in lists]
    return load_lists(lists, precision=options.precision, target=options.chosen_target, environ={})
