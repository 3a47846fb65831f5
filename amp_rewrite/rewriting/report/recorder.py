"""The records of nodes and casts, made when somebody wants to read them; and reasons."""

from __future__ import annotations

import math
from dataclasses import dataclass

from amp_rewrite.dtypes import FLOAT32
from amp_rewrite.graph.constants import constant_tensor
from amp_rewrite.graph.flat import ABSENT, MAIN, FlatGraph
from amp_rewrite.graph.modules import noted_module
from amp_rewrite.graph.sizes import Sizes
from amp_rewrite.oplists import ListName
from amp_rewrite.rewriting.paint.context import PaintContext, admitting_opset
from amp_rewrite.rewriting.paint.painting import Color, Mark, Painting, PassReason, Reason
from amp_rewrite.rewriting.plan.casts import CastPlan
from amp_rewrite.rewriting.report.records import (
    CastRecord,
    NodeRecord,
    VariableRecord,
)
from amp_rewrite.values.patterns.find_groups import find_groups
from amp_rewrite.values.patterns.library import PATTERNS


@dataclass(frozen=True)
class Recorder:
    """Makes the records of a report's nodes and casts."""

    context: PaintContext
    painting: Painting
    plan: CastPlan
    sizes: Sizes

    def nodes(self) -> tuple[NodeRecord, ...]:
        """Return a record of every node."""
        flat, scopes = self.context.type_graph.flat, _scopes(self.context.type_graph.flat)
        groups, reasons = self._groups(), {True: Reason.CONVERTED, False: Reason.STORED}
        low = (w for w in self.plan.weights if not w.keep_float32)
        converted = {w.value: (w.dtype.name, reasons[not w.stored]) for w in low}
        return tuple(
            NodeRecord(
                name=name,
                op=flat.called(node).op_type,
                domain=flat.called(node).domain,
                scope=scopes[flat.body_of[node]],
                list="unknown" if (e := self.context.entry(node)) is None else e.list.value,
                variables=(
                    self._constant_variables(node, converted)
                    if flat.called(node)[:2] == ("", "Constant")
                    else self._variables(node)
                ),
                group=groups.get(node),
                module=noted_module(flat, node),
            )
            for node, name in enumerate(flat.node_names)
        )

    def _groups(self) -> dict[int, str]:
        """Return the groups of nodes, whether the target computes one as one operator or not."""
        graph, names = self.context.type_graph, self.context.type_graph.flat.node_names
        groups = find_groups(graph, PATTERNS, self.context.low)
        return {node: group.words(names) for group in groups for node in group.nodes}

    def _variables(self, node: int) -> dict[str, VariableRecord]:
        context, graph = self.context, self.context.type_graph
        records: dict[str, VariableRecord] = {}
        for vertex in graph.vertices_of(node):
            mark = why(context, self.painting, vertex)
            dtype = context.low.name if self.painting.is_allow(vertex) else FLOAT32.name
            because = None if mark.because is None else graph.name(mark.because)
            bound = self._bound(node, vertex)
            record = VariableRecord(dtype, mark.reason, because, mark.detail, bound)
            records |= dict.fromkeys(graph.kind_of(vertex).variables, record)
        return records

    def _bound(self, node: int, vertex: int) -> float | None:
        """Return what no result of a vertex exceeds in magnitude, or None."""
        graph, intervals = self.context.type_graph, self.context.values.intervals
        writes = graph.writes[graph.flat.output_start[node] : graph.flat.output_start[node + 1]]
        results = zip(graph.flat.outputs_of(node), writes, strict=True)
        bounds = [intervals[v].magnitude for v, written in results if written == vertex]
        largest = max(bounds, default=math.inf)
        return largest if math.isfinite(largest) else None

    def _constant_variables(
        self, node: int, converted: dict[int, tuple[str, PassReason]]
    ) -> dict[str, VariableRecord]:
        graph = self.context.type_graph
        kept = FLOAT32.name, Reason.CONSTANT
        dtype, reason = converted.get(graph.flat.outputs_of(node)[0], kept)
        record = VariableRecord(dtype, reason, None, None)
        kinds = [graph.kind_of(v) for v in graph.vertices_of(node)]
        return dict.fromkeys((name for kind in kinds for name in kind.variables), record)

    def casts(self) -> tuple[CastRecord, ...]:
        """Return a record of every Cast that was added."""
        graph = self.context.type_graph
        sources = [graph.source[cast.value] for cast in self.plan.casts]
        return tuple(
            CastRecord(
                value=graph.flat.value_names[cast.value],
                to=cast.to.name,
                consumers=tuple(dict.fromkeys(use.name(graph) for use in cast.uses)),
                name=cast.name,
                producer=None if source == ABSENT else graph.name(source),
                bytes=cast_bytes(self.context, self.sizes, cast.value),
            )
            for cast, source in zip(self.plan.casts, sources, strict=True)
        )


def _scopes(flat: FlatGraph) -> list[str]:
    """Return, by graph, the path to it: "If_3/then_branch"."""
    scopes = [""] * len(flat.bodies)
    for number, body in enumerate(flat.bodies):
        if number != MAIN:
            outer = scopes[flat.body_of[body.owner]]
            scopes[number] = f"{outer}/{flat.node_names[body.owner]}/{body.name}".removeprefix("/")
    return scopes


def why(context: PaintContext, painting: Painting, vertex: int) -> Mark:
    """Return the mark of a vertex, or one that says why no pass gave it any.

    An option of the user comes first, whatever else may be said of a vertex.
    """
    asked = None if painting.is_allow(vertex) else context.asked(vertex)
    if asked is not None:
        return asked
    mark = painting.marks.get(vertex)
    if mark is not None:
        return _with_opset(context, vertex, mark)
    refusal = context.refusal(vertex)
    if refusal is not None:
        return refusal
    entry, unsupported = (
        context.entry(context.type_graph.nodes[vertex]),
        context.unsupported(vertex),
    )
    if entry is None:
        return Mark(Color.NONE, Reason.UNKNOWN_OPERATOR, None, "no op list knows the operator")
    if entry.list is ListName.UNLISTED:
        return Mark(Color.NONE, Reason.UNLISTED, None, entry.why)
    if unsupported is not None:
        return _with_opset(context, vertex, Mark(Color.NONE, unsupported))
    if not painting.allow.any():
        return Mark(Color.NONE, Reason.NO_ALLOW)
    if context.variable_reads[vertex]:
        return Mark(Color.NONE, Reason.VARIABLE_READ)
    clear = context.list_of(vertex) is ListName.CLEAR
    return Mark(Color.NONE, Reason.NOT_NEXT if clear else Reason.NOT_BETWEEN)


def _with_opset(context: PaintContext, vertex: int, mark: Mark) -> Mark:
    """Add to a type that the schema does not admit yet from which opset on it does."""
    if mark.reason is not Reason.TYPE_UNSUPPORTED or mark.detail is not None:
        return mark
    kind = context.type_graph.kind_of(vertex)
    opset = admitting_opset(kind, context.low)
    if opset is None:
        return mark
    detail = (
        f"{kind.operator.op_type} admits it since opset {opset}, the model imports "
        f"{kind.opset}; `convert --opset {opset}` raises it"
    )
    return mark._replace(detail=detail)


def cast_bytes(context: PaintContext, sizes: Sizes, value: int) -> int | None:
    """Return the bytes that a Cast of a value reads and writes in a run; None if not known.

    A Cast of a constant is folded when the model is loaded.
    """
    if constant_tensor(context.type_graph, value) is not None:
        return 0
    elements = sizes.elements(value)
    itemsizes = FLOAT32.numpy.itemsize + context.low.numpy.itemsize
    return None if elements is None else elements * itemsizes
