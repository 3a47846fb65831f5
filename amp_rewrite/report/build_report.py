"""Build the report of a rewrite from its painting and plan."""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from amp_rewrite.dtypes import FLOAT32
from amp_rewrite.graph.constants import default_tensor, filled_tensor, read_constants
from amp_rewrite.graph.dataflow import Vertex
from amp_rewrite.graph.part import part_of
from amp_rewrite.graph.tensors import WeightStats
from amp_rewrite.graph.traverse import named_subgraphs
from amp_rewrite.oplists import ListName
from amp_rewrite.paint.context import PaintContext
from amp_rewrite.paint.painting import Painting, Reason
from amp_rewrite.report.arithmetic_share import compute_share
from amp_rewrite.report.reasons import why
from amp_rewrite.report.records import (
    CastRecord,
    NodeRecord,
    RangeRecord,
    Report,
    Summary,
    VariableRecord,
    WeightsRecord,
)
from amp_rewrite.rewriting.casts import CastPlan, PlannedWeight
from amp_rewrite.rewriting.options import RewriteOptions


def build_report(
    context: PaintContext,
    painting: Painting,
    plan: CastPlan,
    options: RewriteOptions,
    removed: int,
) -> Report:
    """Return the report; `removed` counts the model's Casts that became no-ops."""
    converted = frozenset(w.value for w in plan.weights if not w.keep_float32)
    nodes = tuple(_nodes(context, painting, converted))
    model = context.type_graph.model
    return Report(
        precision=options.precision,
        target=options.target,
        level=context.lists.level,
        opset=model.graph.opset_imports.get("", 0),
        nodes=nodes,
        casts=_casts(plan),
        weights=_weights(context, plan),
        summary=summarize(context, painting, plan, removed),
        boundaries=_boundaries(context),
        functions=_function_treatment(model, options),
    )


def summarize(context: PaintContext, painting: Painting, plan: CastPlan, removed: int) -> Summary:
    """Return the figures alone, without a record per node."""
    type_graph = context.type_graph
    entries = {
        n: context.entry(n)
        for n, v in type_graph.nodes.items()
        if v.all and not is_constant_node(n)
    }
    allow = frozenset(n for n, e in entries.items() if e is not None and e.list is ListName.ALLOW)
    return Summary(
        nodes_converted=len({v.node for v in painting.allowed()}),
        float_nodes=len(entries),
        casts_added=sum(1 for c in plan.casts if c.existing is None),
        casts_removed=removed,
        compute_converted=compute_share(type_graph, painting, allow),
    )


def is_constant_node(node: ir.Node) -> bool:
    """Tell whether a node is a source of the graph like an initializer, and no computation."""
    return node.op_type == "Constant" and node.domain == ""


def _nodes(
    context: PaintContext, painting: Painting, converted: frozenset[ir.Value]
) -> Iterator[NodeRecord]:
    scopes: dict[ir.Graph, str] = {}
    for node, vertices in context.type_graph.nodes.items():
        scope = "" if node.graph is None else scopes.get(node.graph, "")
        for name, graph in named_subgraphs(node):
            scopes[graph] = f"{scope}/{node.name}/{name}".removeprefix("/")
        entry = context.entry(node)
        yield NodeRecord(
            name=node.name or "",
            op=node.op_type,
            domain=node.domain,
            scope=scope,
            list="unknown" if entry is None else entry.list.value,
            variables=(
                _constant_variables(context, node, vertices.all, converted)
                if is_constant_node(node)
                else _variables(context, painting, vertices.all)
            ),
        )


def _variables(
    context: PaintContext, painting: Painting, vertices: tuple[Vertex, ...]
) -> dict[str, VariableRecord]:
    records: dict[str, VariableRecord] = {}
    for vertex in vertices:
        mark = why(context, painting, vertex)
        dtype = context.low.name if painting.is_allow(vertex) else FLOAT32.name
        because = None if mark.because is None else mark.because.name
        record = VariableRecord(dtype, mark.reason.value, because, mark.detail)
        records |= dict.fromkeys(vertex.kind.variables, record)
    return records


def _constant_variables(
    context: PaintContext,
    node: ir.Node,
    vertices: tuple[Vertex, ...],
    converted: frozenset[ir.Value],
) -> dict[str, VariableRecord]:
    low = node.outputs[0] in converted
    dtype, reason = (context.low.name, Reason.CONVERTED) if low else (FLOAT32.name, Reason.CONSTANT)
    record = VariableRecord(dtype, reason.value, None, None)
    return dict.fromkeys((name for v in vertices for name in v.kind.variables), record)


def _casts(plan: CastPlan) -> tuple[CastRecord, ...]:
    return tuple(
        CastRecord(
            value=cast.source,
            to=cast.to.name,
            consumers=tuple(dict.fromkeys(use.name for use in cast.uses)),
            name=cast.name if cast.existing is None else cast.existing.name or "",
            existing=cast.existing is not None,
        )
        for cast in plan.casts
    )


def _weights(context: PaintContext, plan: CastPlan) -> WeightsRecord:
    overflow, underflow = Reason.CONSTANT_OVERFLOW, Reason.CONSTANT_UNDERFLOW
    gone = {w.value for w in plan.weights if not w.keep_float32}
    return WeightsRecord(
        converted=len(plan.weights),
        kept=sum(1 for v in read_constants(context.type_graph) if v not in gone),
        overflow=(*_kept(context, overflow), *_replaced(context, plan)),
        underflow=(*_kept(context, underflow), *_flushed(context, plan)),
    )


def _replaced(context: PaintContext, plan: CastPlan) -> Iterator[RangeRecord]:
    for weight in plan.weights:
        stats = context.measured.stats(weight.value, weight.tensor)
        if stats.overflow(plan.low):
            action = "saturated" if weight.saturate else "unbounded"
            yield _range(weight, stats, stats.overflow(plan.low), action)


def _flushed(context: PaintContext, plan: CastPlan) -> Iterator[RangeRecord]:
    for weight in plan.weights:
        stats = context.measured.stats(weight.value, weight.tensor)
        if stats.flushed_to_zero(plan.low):
            yield _range(weight, stats, stats.flushed_to_zero(plan.low), "flushed")


def _range(weight: PlannedWeight, stats: WeightStats, count: int, action: str) -> RangeRecord:
    consumers = tuple(dict.fromkeys(use.name for use in weight.uses))
    return RangeRecord(weight.value.name or "", count, stats.max_abs, action, consumers)


def _kept(context: PaintContext, reason: Reason) -> Iterator[RangeRecord]:
    """Yield a record per constant that keeps its consumers float32."""
    type_graph, low = context.type_graph, context.low
    consumers: dict[ir.Value, list[str]] = {}
    for vertex, mark in context.excluded.items():
        if mark.reason is reason and mark.constant is not None:
            consumers.setdefault(mark.constant, []).append(vertex.name)
    for value, names in consumers.items():
        tensor = filled_tensor(type_graph, value) or default_tensor(type_graph, value)
        stats = WeightStats() if tensor is None else context.measured.stats(value, tensor)
        count = stats.overflow(low) or stats.flushed_to_zero(low)
        yield RangeRecord(value.name or "", count, stats.max_abs, "kept", tuple(names))


def _boundaries(context: PaintContext) -> dict[str, int]:
    counts: dict[str, int] = {}
    for node, vertices in context.type_graph.nodes.items():
        has_floats = bool(vertices.all) or vertices.ports.schema is None
        part = part_of(node)
        if part is not None and part.stays_float32:
            continue
        if has_floats and context.entry(node) is None:
            name = f"{node.domain}::{node.op_type}" if node.domain else node.op_type
            counts[name] = counts.get(name, 0) + 1
    return dict(sorted(counts.items()))


def _function_treatment(model: ir.Model, options: RewriteOptions) -> str:
    if options.inline_functions:
        return "inlined"
    return "boundaries" if model.functions else "none"
