"""Paint one model again and again under different findings, and compare the paintings.

What runs a model are copies of it, so paintings are compared by position: the index of the node in
execution order, and the name of its type variable. Nothing is copied or rewritten for a painting.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import onnx_ir as ir

from amp_rewrite.dtypes import DType
from amp_rewrite.graph.dataflow import TypeGraph, vertices_in
from amp_rewrite.graph.flat import ABSENT, FlatGraph
from amp_rewrite.graph.io.load import Source
from amp_rewrite.graph.io.read import Objects, shared_objects
from amp_rewrite.oplists import ListName, NodeRule, OpLists
from amp_rewrite.rewriting.api import RewriteResult, rewrite_freely
from amp_rewrite.rewriting.apply.written_metadata import for_model
from amp_rewrite.rewriting.paint.context import PaintContext
from amp_rewrite.rewriting.paint.masks import Absorbed
from amp_rewrite.rewriting.paint.node_rules import NOTHING_FOUND, Findings
from amp_rewrite.rewriting.paint.painting import OVERFLOWS, Reason
from amp_rewrite.rewriting.paint.pipeline import PaintResult, paint_fitting
from amp_rewrite.rewriting.plan.options import KEEP, RewriteOptions
from amp_rewrite.rewriting.plan.paint_context import lists_of, paint_context, painted
from amp_rewrite.rewriting.read_source import read_source

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
        flat: The float32 model, by number.
        options: The options of the rewrite.
        objects: The same as objects of onnx_ir, which nobody changes.
        index: Node -> its position.
        number: Value -> its number.
        found: What is known of the model before anything is looked for.
    """

    flat: FlatGraph
    options: RewriteOptions
    objects: Objects
    index: Mapping[ir.Node, int]
    number: Mapping[ir.Value, int]
    found: Findings
    _lists: OpLists

    @staticmethod
    def of(source: Source, options: RewriteOptions, found: Findings = NOTHING_FOUND) -> Repainter:
        """Load a model and the lists.

        Raises:
            AmpError: The model, a list or an option is wrong.
        """
        flat = read_source(source, inline_functions=options.inline_functions)
        options = for_model(options, flat)
        lists, objects = lists_of(options), shared_objects(flat)
        flat.customs = lists.customs
        options.check_names(flat)
        flat.say_lengths(options.lengths)
        index = {node: i for i, node in enumerate(objects.nodes)}
        number = {value: v for v, value in enumerate(objects.values)}
        return Repainter(flat, options, objects, index, number, found, lists)

    @property
    def model(self) -> ir.Model:
        """The float32 model; never modified."""
        return self.objects.model

    @property
    def nodes(self) -> Sequence[ir.Node]:
        """The nodes of `model` in execution order."""
        return self.objects.nodes

    @property
    def type_graph(self) -> TypeGraph:
        """The dataflow of the model."""
        return self._context.type_graph

    @cached_property
    def ends(self) -> frozenset[ir.Value]:
        """The graph inputs and outputs of `model` that become low where anything does."""
        return frozenset(self.objects.values[v] for v in self._context.low_ends)

    @property
    def low(self) -> DType:
        """The low-precision type."""
        return self.options.low

    def rewrite(self) -> RewriteResult:
        """Return the rewritten model by what was known before.

        Raises:
            StrictError: The option `strict` is set, and the rewrite is not complete.
        """
        return rewrite_freely(self.flat, replace(self.options, overflow=KEEP), self.found)

    def paint(self, rules: Sequence[NodeRule]) -> PaintResult:
        """Return the painting that a rewrite with these rules and what was known before has."""
        found = self.found.with_rules(rules)
        return painted(paint_context(self.flat, self._lists, self.options, found))

    @cached_property
    def _context(self) -> PaintContext:
        """The context of the paintings of `model`."""
        return paint_context(self.flat, self._lists, self.options, self.found)

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
            if listed is None or not (listed.list in _PAINTED or context.force_all):
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
        graph = self._context.type_graph
        float32 = (n for v in values if graph.is_float32(n := self.number[v]))
        fills_of = self._context.values.masks.absorbed(float32)
        return {self.objects.values[number]: fills for number, fills in fills_of.items()}

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
                slots = slots_of.setdefault(self.objects.values[value], [])
                if slot not in slots:
                    slots.append(slot)
        return {value: tuple(slots) for value, slots in slots_of.items()}

    def _uses(self) -> Iterator[tuple[int, int]]:
        yield from enumerate(self.type_graph.source)
        yield from zip(self.flat.inputs, self.type_graph.reads, strict=True)
        for number, vertices in self.type_graph.sinks.items():
            yield from zip(self.flat.bodies[number].outputs, vertices, strict=True)
