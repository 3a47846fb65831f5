"""Build the report of a rewrite from its painting and plan."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial

from amp_rewrite.dtypes import FLOAT32
from amp_rewrite.graph.constants import default_tensor, filled_tensor, read_constants
from amp_rewrite.graph.flat import ABSENT, MAIN, FlatGraph
from amp_rewrite.graph.part import part_in
from amp_rewrite.graph.patterns.find_groups import find_groups
from amp_rewrite.graph.patterns.library import PATTERNS
from amp_rewrite.graph.sizes import Sizes
from amp_rewrite.graph.weight_stats import WeightStats
from amp_rewrite.oplists import ListName
from amp_rewrite.paint.context import PaintContext
from amp_rewrite.paint.painting import Painting, Reason
from amp_rewrite.paint.region_costs import RegionCosts, total
from amp_rewrite.report.alignment import misaligned
from amp_rewrite.report.arithmetic_share import compute_share
from amp_rewrite.report.likely_overflow import first_likely_overflow
from amp_rewrite.report.opset_advice import advised_opset
from amp_rewrite.report.reasons import why
from amp_rewrite.report.records import (
    CastRecord,
    NodeRecord,
    RangeRecord,
    RegionRecord,
    Report,
    StoredRecord,
    Summary,
    VariableRecord,
    WeightsRecord,
)
from amp_rewrite.rewriting.casts import CastPlan, PlannedWeight
from amp_rewrite.rewriting.options import RewriteOptions
from amp_rewrite.targets import find


def build_report(
    context: PaintContext,
    painting: Painting,
    plan: CastPlan,
    options: RewriteOptions,
    removed: int,
    sizes: Sizes | None = None,
) -> Report:
    """Return the report.

    Args:
        context: What the painting knew.
        painting: The painting.
        plan: What was changed.
        options: What was asked for.
        removed: How many of the model's Casts became no-ops.
        sizes: The sizes of values; None for those that the file records.
    """
    costs = RegionCosts(context, painting.allow, sizes or Sizes(context.type_graph.flat))
    converted = {w.value: w for w in plan.weights if not w.keep_float32}
    nodes = tuple(_nodes(context, painting, converted))
    casts = _casts(context, plan, costs)
    flat = context.type_graph.flat
    return Report(
        precision=options.precision,
        target=options.target,
        level=context.lists.level,
        opset=flat.opsets.get("", 0),
        nodes=nodes,
        casts=casts,
        weights=_weights(context, plan),
        summary=replace(
            summarize(context, painting, plan, removed),
            cast_bytes=sum(cast.bytes or 0 for cast in casts),
            casts_of_unknown_size=sum(1 for cast in casts if cast.bytes is None),
        ),
        boundaries=_boundaries(context),
        functions=_function_treatment(flat, options),
        input_ranges=options.ranges,
        likely_overflow=first_likely_overflow(context),
        opset_advice=advised_opset(context, painting),
        find_regions=partial(_regions, context, costs),
        alignment=misaligned(context, painting) if find(options.target).tensor_cores else (),
    )


def summarize(context: PaintContext, painting: Painting, plan: CastPlan, removed: int) -> Summary:
    """Return the figures alone, without a record per node."""
    type_graph = context.type_graph
    floats = dict.fromkeys(type_graph.nodes)
    entries = {n: context.entry(n) for n in floats if not is_constant_node(type_graph.flat, n)}
    allow = frozenset(n for n, e in entries.items() if e is not None and e.list is ListName.ALLOW)
    return Summary(
        nodes_converted=len({type_graph.nodes[v] for v in painting.allowed()}),
        float_nodes=len(entries),
        casts_added=sum(1 for c in plan.casts if c.existing == ABSENT),
        casts_removed=removed,
        compute_converted=compute_share(type_graph, painting, allow),
    )


def is_constant_node(flat: FlatGraph, node: int) -> bool:
    """Tell whether a node is a source of the graph like an initializer, and no computation."""
    return flat.called(node)[:2] == ("", "Constant")


def _nodes(
    context: PaintContext, painting: Painting, converted: Mapping[int, PlannedWeight]
) -> Iterator[NodeRecord]:
    flat, scopes = context.type_graph.flat, _scopes(context.type_graph.flat)
    groups = _groups(context)
    for node, name in enumerate(flat.node_names):
        called, entry = flat.called(node), context.entry(node)
        yield NodeRecord(
            name=name,
            op=called.op_type,
            domain=called.domain,
            scope=scopes[flat.body_of[node]],
            list="unknown" if entry is None else entry.list.value,
            variables=(
                _constant_variables(context, node, converted)
                if is_constant_node(flat, node)
                else _variables(context, painting, node)
            ),
            group=groups.get(node),
        )


def _groups(context: PaintContext) -> dict[int, str]:
    """Return what nodes are a part of, whether the target computes it as one operator or not."""
    graph, names = context.type_graph, context.type_graph.flat.node_names
    found = find_groups(graph, PATTERNS)
    return {node: group.words(names) for group in found for node in group.nodes}


def _scopes(flat: FlatGraph) -> list[str]:
    """Return, by graph, the path to it: "If_3/then_branch"."""
    scopes = [""] * len(flat.bodies)
    for number, body in enumerate(flat.bodies):
        if number != MAIN:
            outer = scopes[flat.body_of[body.owner]]
            scopes[number] = f"{outer}/{flat.node_names[body.owner]}/{body.name}".removeprefix("/")
    return scopes


def _variables(context: PaintContext, painting: Painting, node: int) -> dict[str, VariableRecord]:
    graph = context.type_graph
    records: dict[str, VariableRecord] = {}
    for vertex in graph.vertices_of(node):
        mark = why(context, painting, vertex)
        dtype = context.low.name if painting.is_allow(vertex) else FLOAT32.name
        because = None if mark.because is None else graph.name(mark.because)
        bound = _bound(context, node, vertex)
        record = VariableRecord(dtype, mark.reason.value, because, mark.detail, bound)
        records |= dict.fromkeys(graph.kind_of(vertex).variables, record)
    return records


def _bound(context: PaintContext, node: int, vertex: int) -> float | None:
    """Return what no result of a vertex exceeds in magnitude, or None."""
    graph = context.type_graph
    writes = graph.writes[graph.flat.output_start[node] : graph.flat.output_start[node + 1]]
    results = zip(graph.flat.outputs_of(node), writes, strict=True)
    bounds = [context.intervals[v].magnitude for v, written in results if written == vertex]
    largest = max(bounds, default=math.inf)
    return largest if math.isfinite(largest) else None


def _constant_variables(
    context: PaintContext, node: int, converted: Mapping[int, PlannedWeight]
) -> dict[str, VariableRecord]:
    graph = context.type_graph
    weight = converted.get(graph.flat.outputs_of(node)[0])
    dtype, reason = FLOAT32, Reason.CONSTANT
    if weight is not None:
        dtype = weight.dtype
        reason = Reason.CONVERTED if weight.loss is None else Reason.STORED
    record = VariableRecord(dtype.name, reason.value, None, None)
    kinds = [graph.kind_of(v) for v in graph.vertices_of(node)]
    return dict.fromkeys((name for kind in kinds for name in kind.variables), record)


def _casts(context: PaintContext, plan: CastPlan, costs: RegionCosts) -> tuple[CastRecord, ...]:
    graph, names = context.type_graph, context.type_graph.flat.node_names
    sources = [graph.source[cast.value] for cast in plan.casts]
    return tuple(
        CastRecord(
            value=graph.flat.value_names[cast.value],
            to=cast.to.name,
            consumers=tuple(dict.fromkeys(use.name(graph) for use in cast.uses)),
            name=cast.name if cast.existing == ABSENT else names[cast.existing],
            existing=cast.existing != ABSENT,
            producer=None if source == ABSENT else graph.name(source),
            bytes=costs.cast_bytes(cast.value),
        )
        for cast, source in zip(plan.casts, sources, strict=True)
    )


def _regions(context: PaintContext, costs: RegionCosts) -> tuple[RegionRecord, ...]:
    return tuple(
        RegionRecord(
            first=context.type_graph.name(region.vertices[0]),
            vertices=len(region.vertices),
            casts=len(region.casts),
            cast_bytes=total(map(costs.cast_bytes, region.casts)),
            bytes_saved=total(map(costs.saved_bytes, region.vertices)),
            multiply_accumulates=total(map(costs.multiply_accumulates, region.vertices)),
        )
        for region in costs.regions
    )


def _weights(context: PaintContext, plan: CastPlan) -> WeightsRecord:
    overflow, underflow = Reason.CONSTANT_OVERFLOW, Reason.CONSTANT_UNDERFLOW
    gone = {w.value for w in plan.weights if not w.keep_float32}
    return WeightsRecord(
        converted=sum(1 for w in plan.weights if w.uses),
        kept=sum(1 for v in read_constants(context.type_graph) if v not in gone),
        overflow=(*_kept(context, overflow), *_replaced(context, plan)),
        underflow=(*_kept(context, underflow), *_flushed(context, plan)),
        stored=tuple(_stored(context, plan)),
    )


def _stored(context: PaintContext, plan: CastPlan) -> Iterator[StoredRecord]:
    for weight in plan.weights:
        if weight.loss is not None:
            saved = FLOAT32.numpy.itemsize - weight.dtype.numpy.itemsize
            yield StoredRecord(
                name=context.type_graph.flat.value_names[weight.value],
                dtype=weight.dtype.name,
                bytes_saved=saved * weight.tensor.size,
                largest_relative=weight.loss.largest_relative,
                small=weight.loss.small,
            )


def _replaced(context: PaintContext, plan: CastPlan) -> Iterator[RangeRecord]:
    for weight in plan.weights:
        stats = context.stats(weight.value, weight.tensor)
        if stats.overflow(weight.dtype):
            action = "saturated" if weight.saturate else "unbounded"
            yield _range(context, weight, stats.overflow(weight.dtype), action)


def _flushed(context: PaintContext, plan: CastPlan) -> Iterator[RangeRecord]:
    for weight in plan.weights:
        stats = context.stats(weight.value, weight.tensor)
        if stats.flushed_to_zero(weight.dtype):
            yield _range(context, weight, stats.flushed_to_zero(weight.dtype), "flushed")


def _range(context: PaintContext, weight: PlannedWeight, count: int, action: str) -> RangeRecord:
    graph = context.type_graph
    largest = context.stats(weight.value, weight.tensor).max_abs
    consumers = tuple(dict.fromkeys(use.name(graph) for use in weight.uses))
    return RangeRecord(graph.flat.value_names[weight.value], count, largest, action, consumers)


def _kept(context: PaintContext, reason: Reason) -> Iterator[RangeRecord]:
    """Yield a record per constant that keeps its consumers float32."""
    type_graph, low = context.type_graph, context.low
    consumers: dict[int, list[str]] = {}
    for vertex, mark in context.excluded.items():
        if mark.reason is reason and mark.constant is not None:
            consumers.setdefault(mark.constant, []).append(type_graph.name(vertex))
    for value, names in consumers.items():
        tensor = filled_tensor(type_graph, value) or default_tensor(type_graph, value)
        stats = WeightStats() if tensor is None else context.stats(value, tensor)
        count = stats.overflow(low) or stats.flushed_to_zero(low)
        yield RangeRecord(
            type_graph.flat.value_names[value], count, stats.max_abs, "kept", tuple(names)
        )


def _boundaries(context: PaintContext) -> dict[str, int]:
    graph, flat = context.type_graph, context.type_graph.flat
    counts: dict[str, int] = {}
    for node in range(flat.n_nodes):
        has_floats = bool(graph.vertices_of(node)) or graph.ports_of(node).schema is None
        part = part_in(flat.metadata_of(node))
        if part is not None and part.stays_float32:
            continue
        if has_floats and context.entry(node) is None:
            domain, op_type, _ = flat.called(node)
            name = f"{domain}::{op_type}" if domain else op_type
            counts[name] = counts.get(name, 0) + 1
    return dict(sorted(counts.items()))


def _function_treatment(flat: FlatGraph, options: RewriteOptions) -> str:
    if options.inline_functions:
        return "inlined"
    return "boundaries" if flat.functions else "none"
