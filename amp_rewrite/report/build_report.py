"""Build the report of a rewrite from its painting and plan."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import onnx_ir as ir

from amp_rewrite.dtypes import FLOAT32
from amp_rewrite.graph.dataflow import Vertex
from amp_rewrite.graph.part import part_of
from amp_rewrite.graph.ports import subgraphs_of
from amp_rewrite.oplists import ListName
from amp_rewrite.paint.constant_facts import ConstantFacts
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
from amp_rewrite.rewrite.casts import CastPlan, PlannedWeight
from amp_rewrite.rewrite.options import RewriteOptions


def build_report(
    context: PaintContext,
    painting: Painting,
    plan: CastPlan,
    facts: ConstantFacts,
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
        weights=_weights(plan, facts),
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
        for name, graph in subgraphs_of(node):
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


def _weights(plan: CastPlan, facts: ConstantFacts) -> WeightsRecord:
    overflow = [*_kept(facts, facts.refused), *_replaced(plan, facts)]
    underflow = [
        *_kept(facts, facts.zeroed),
        *(
            _range(w, facts, facts.stats(w.value, w.tensor).flushed_to_zero(plan.low), "flushed")
            for w in plan.weights
            if facts.stats(w.value, w.tensor).flushed_to_zero(plan.low)
        ),
    ]
    gone = {w.value for w in plan.weights if not w.keep_float32}
    constants = facts.constants()
    return WeightsRecord(
        converted=len(plan.weights),
        kept=sum(1 for v in constants if v not in gone),
        overflow=tuple(overflow),
        underflow=tuple(underflow),
    )


def _replaced(plan: CastPlan, facts: ConstantFacts) -> Iterator[RangeRecord]:
    for weight in plan.weights:
        count = facts.stats(weight.value, weight.tensor).overflow(plan.low)
        if count:
            yield _range(weight, facts, count, "saturated" if weight.saturate else "unbounded")


def _range(weight: PlannedWeight, facts: ConstantFacts, count: int, action: str) -> RangeRecord:
    stats = facts.stats(weight.value, weight.tensor)
    consumers = tuple(dict.fromkeys(use.name for use in weight.uses))
    return RangeRecord(weight.value.name or "", count, stats.max_abs, action, consumers)


def _kept(facts: ConstantFacts, vertices: Mapping[Vertex, ir.Value]) -> Iterator[RangeRecord]:
    """Yield a record per constant that keeps its consumers float32."""
    consumers: dict[ir.Value, list[str]] = {}
    for vertex, value in vertices.items():
        consumers.setdefault(value, []).append(vertex.name)
    for value, names in consumers.items():
        stats = facts.known(value)
        count = stats.overflow(facts.low) or stats.flushed_to_zero(facts.low)
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
