"""One model, painted again and again under different findings.

Nothing is copied or rewritten for a painting.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import onnx_ir as ir

from amp_rewrite.dtypes import DType
from amp_rewrite.errors import OptionError
from amp_rewrite.graph.dataflow import TypeGraph, vertices_in
from amp_rewrite.graph.flat import ABSENT, FlatGraph
from amp_rewrite.graph.io.load import Source
from amp_rewrite.graph.io.read import Objects, shared_objects
from amp_rewrite.oplists import NodeRule, OpLists
from amp_rewrite.oplists.files import PAINTED
from amp_rewrite.rewriting.api import RewriteResult, float32_form, rewrite_in_form
from amp_rewrite.rewriting.apply.written_metadata import for_model
from amp_rewrite.rewriting.paint.context import PaintContext
from amp_rewrite.rewriting.paint.masks import Absorbed
from amp_rewrite.rewriting.paint.node_rules import NOTHING_FOUND, Findings
from amp_rewrite.rewriting.paint.painting import OVERFLOWS, Reason
from amp_rewrite.rewriting.paint.pipeline import PaintResult, paint_fitting
from amp_rewrite.rewriting.plan.options import KEEP, RewriteOptions
from amp_rewrite.rewriting.plan.paint_context import lists_of, paint_context, painted
from amp_rewrite.rewriting.raise_dangers import low_of
from amp_rewrite.rewriting.read_source import read_source

_SCALABLE = OVERFLOWS | {Reason.LIKELY_OVERFLOW}


@dataclass
class Repainter:
    """A float32 model, and its painting under any node rules.

    Attributes:
        flat: The float32 model, by number.
        objects: The same as objects of onnx_ir, which nobody changes.
        number: Value -> its number.
        found: The findings that all paintings have.
    """

    flat: FlatGraph
    options: RewriteOptions
    objects: Objects
    number: Mapping[ir.Value, int]
    found: Findings
    _lists: OpLists

    @staticmethod
    def of(source: Source, options: RewriteOptions, found: Findings = NOTHING_FOUND) -> Repainter:
        """Load a model and the lists; a flat graph may be in 16 bits already.

        Raises:
            AmpError: The model, a list or an option is wrong, or nothing is left to convert.
        """
        flat = read_source(source, inline_functions=options.inline_functions)
        options = for_model(options, flat)
        flat = float32_form(flat, options) or flat
        lists, objects = lists_of(options), shared_objects(flat)
        flat.customs = lists.customs
        options.check_names(flat)
        flat.say_lengths(options.lengths)
        number = {value: v for v, value in enumerate(objects.values)}
        painter = Repainter(flat, options, objects, number, found, lists)
        low = None if isinstance(source, FlatGraph) else low_of(flat)
        if low is not None and not painter.paint(()).painting.allow.any():
            raise OptionError(
                f"the model is in {low.name} already",
                expected="the float32 model that it was made of",
                remedy="`amp-rewrite check` judges it as it is",
            )
        return painter

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
        return rewrite_in_form(self.flat, replace(self.options, overflow=KEEP), self.found)

    def paint(self, rules: Sequence[NodeRule]) -> PaintResult:
        """Return the painting that a rewrite with these rules and what was known before has."""
        found = self.found.with_rules(rules)
        return painted(paint_context(self.flat, self._lists, self.options, found))

    @cached_property
    def _context(self) -> PaintContext:
        """The context of the paintings of `model`."""
        return paint_context(self.flat, self._lists, self.options, self.found)

    def paintable(self, result: RewriteResult) -> frozenset[int]:
        """Return the vertices that some rules, or scaling, could leave in 16 bits: a superset.

        If the options let scaling add nodes, values that leave the range may fit after it.
        """
        context, graph = result.context, result.context.type_graph
        scaled = frozenset[int]()
        if self.options.overflow != KEEP and context.values.beyond:
            scaled = frozenset(paint_fitting(context, result.course).painting.allowed())
        if self.options.adds_nodes:
            kept = {v: m for v, m in context.excluded.items() if m.reason not in _SCALABLE}
            context = replace(context, excluded=kept)
        listed = (
            (v, context.entry(graph.nodes[v]))
            for v in vertices_in(context.supported & context.processable)
        )
        chosen = frozenset(v for v, e in listed if e and (e.list in PAINTED or context.force_all))
        return chosen | scaled | frozenset(result.painting.allowed())

    def absorbed(self, values: Iterable[ir.Value]) -> dict[ir.Value, Absorbed]:
        """Return which elements of values are fills of masks that end in a Softmax."""
        graph = self._context.type_graph
        float32 = (n for v in values if graph.is_float32(n := self.number[v]))
        fills_of = self._context.values.masks.absorbed(float32)
        return {self.objects.values[number]: fills for number, fills in fills_of.items()}

    @cached_property
    def carriers(self) -> dict[ir.Value, tuple[int, ...]]:
        """The float32 values in execution order, and the vertices that write or read each."""
        found: dict[ir.Value, dict[int, None]] = {}
        graph = self.type_graph
        for value, vertex in self._uses():
            if vertex != ABSENT and graph.is_float32(value):
                found.setdefault(self.objects.values[value], {})[vertex] = None
        return {value: tuple(vertices) for value, vertices in found.items()}

    def _uses(self) -> Iterator[tuple[int, int]]:
        yield from enumerate(self.type_graph.source)
        yield from zip(self.flat.inputs, self.type_graph.reads, strict=True)
        for number, vertices in self.type_graph.sinks.items():
            yield from zip(self.flat.bodies[number].outputs, vertices, strict=True)
