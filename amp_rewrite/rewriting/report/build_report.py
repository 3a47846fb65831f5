"""Build the report of a rewrite from its painting and plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np

from amp_rewrite.dtypes import FLOAT32
from amp_rewrite.graph.constants import default_tensor, filled_tensor, read_constants
from amp_rewrite.graph.dataflow import TypeGraph
from amp_rewrite.graph.elements import tensor
from amp_rewrite.graph.flat import ABSENT, Array, FlatGraph
from amp_rewrite.graph.sizes import Sizes
from amp_rewrite.graph.step_part import part_in
from amp_rewrite.oplists import ListName
from amp_rewrite.rewriting.paint.context import PaintContext
from amp_rewrite.rewriting.paint.painting import Painting, PassReason, Reason
from amp_rewrite.rewriting.plan.casts import CastPlan
from amp_rewrite.rewriting.plan.options import RewriteOptions, option_words
from amp_rewrite.rewriting.report.advice import advised_opset
from amp_rewrite.rewriting.report.arithmetic_share import compute_share
from amp_rewrite.rewriting.report.recorder import Recorder, cast_bytes, why
from amp_rewrite.rewriting.report.records import RangeRecord, StoredRecord, Summary, WeightsRecord
from amp_rewrite.rewriting.report.rewrite_report import Report
from amp_rewrite.rewriting.report.shortcomings import (
    first_likely_overflow,
    near_end,
    unknown_lengths,
    unmatched_rules,
)
from amp_rewrite.values.weight_stats import WeightStats


def build_report(
    context: PaintContext,
    painting: Painting,
    plan: CastPlan,
    options: RewriteOptions,
    removed: int,
    sizes: Sizes | None = None,
) -> Report:
    """Return the report."""
    flat = context.type_graph.flat
    sizes = sizes or Sizes(flat)
    return Report(
        precision=options.precision,
        target=options.chosen_target,
        level=context.lists.level,
        opset=flat.opsets.get("", 0),
        weights=_weights(context, plan),
        summary=summarize(context, painting, plan, removed, sizes),
        kept=_kept_nodes(context, painting),
        details=Recorder(context, painting, plan, sizes),
        boundaries=_boundaries(context),
        functions="inlined"
        if options.inline_functions
        else ("boundaries" if flat.functions else "none"),
        input_ranges=options.ranges,
        unknown_lengths=unknown_lengths(context, painting),
        wide_ends={flat.value_names[v]: why for v, why in context.wide_ends.items()},
        likely_overflow=first_likely_overflow(context),
        near_end=near_end(context, painting),
        unmatched_rules=unmatched_rules(context),
        opset_advice=advised_opset(context, painting),
        asked=option_words(options),
    )


def summarize(
    context: PaintContext, painting: Painting, plan: CastPlan, removed: int, sizes: Sizes
) -> Summary:
    """Return the figures."""
    graph, flat = context.type_graph, context.type_graph.flat
    is_constant = constant_nodes(flat)
    allow = nodes_of(graph, context.on(ListName.ALLOW))
    low = {value for value, type_ in enumerate(graph.types) if type_ == tensor(context.low.number)}
    sources = {*flat.nodes_of("Cast", "Constant")} if low else set[int]()
    moved = [cast_bytes(context, sizes, cast.value) for cast in plan.casts]
    return Summary(
        nodes_converted=len(nodes_of(graph, painting.allow)),
        float_nodes=int(np.count_nonzero((np.diff(graph.first) > 0) & ~is_constant)),
        casts_added=len(plan.casts),
        casts_removed=removed,
        compute_converted=compute_share(graph, painting, allow[~is_constant[allow]].tolist()),
        cast_bytes=sum(count or 0 for count in moved),
        casts_of_unknown_size=moved.count(None),
        nodes_low_before=len({flat.producer[v] for v in low} - sources - {ABSENT}),
        operands_with_axes=len(plan.ranks),
    )


def nodes_of(graph: TypeGraph, vertices: Array) -> Array:
    """Return the numbers of the nodes of the vertices in a mask, each once, in order."""
    has_some = np.zeros(graph.flat.n_nodes, np.bool_)
    has_some[graph.node[vertices]] = True
    return np.flatnonzero(has_some)


def constant_nodes(flat: FlatGraph) -> Array:
    """Return a mask of the nodes that are sources of the graph like initializers."""
    is_constant = [called[:2] == ("", "Constant") for called in flat.operators]
    return np.array(is_constant, np.bool_)[np.array(flat.operator, np.int64)]


def _kept_nodes(context: PaintContext, painting: Painting) -> dict[str, dict[str, int]]:
    """Return reason -> operator -> how many nodes stay float32 for it; constants do not count."""
    graph, flat = context.type_graph, context.type_graph.flat
    stays = ~constant_nodes(flat)
    stays[graph.node[painting.allow]] = False
    stays &= np.diff(graph.first) > 0
    counts: dict[str, Counter[str]] = {}
    for node in np.flatnonzero(stays).tolist():
        reason = why(context, painting, graph.vertices_of(node)[0]).reason
        op = "(every)" if reason is Reason.OPSET_TOO_OLD else flat.called(node).op_type
        counts.setdefault(reason, Counter())[op] += 1
    most = sorted(counts.items(), key=lambda row: -row[1].total())
    return {
        reason: dict(sorted(operators.items(), key=lambda row: (-row[1], row[0])))
        for reason, operators in most
    }


def _weights(context: PaintContext, plan: CastPlan) -> WeightsRecord:
    graph, names = context.type_graph, context.type_graph.flat.value_names
    overflow = [*_kept(context, Reason.CONSTANT_OVERFLOW)]
    underflow = [*_kept(context, Reason.CONSTANT_UNDERFLOW)]
    stored: list[StoredRecord] = []
    for weight in plan.weights:
        stats, name = context.values.stats(weight.value, weight.tensor), names[weight.value]
        consumers = tuple(dict.fromkeys(use.name(graph) for use in weight.uses))
        if count := stats.overflow(weight.dtype):
            action = "saturated" if weight.saturate else "unbounded"
            overflow.append(RangeRecord(name, count, stats.max_abs, action, consumers))
        if count := stats.flushed_to_zero(weight.dtype):
            underflow.append(RangeRecord(name, count, stats.max_abs, "flushed", consumers))
        if weight.stored:
            saved = FLOAT32.numpy.itemsize - weight.dtype.numpy.itemsize
            stored.append(StoredRecord(name, weight.dtype.name, saved * weight.tensor.size))
    gone = {w.value for w in plan.weights if not w.keep_float32}
    return WeightsRecord(
        converted=sum(1 for w in plan.weights if w.uses),
        kept=sum(1 for v in read_constants(graph) if v not in gone),
        overflow=tuple(overflow),
        underflow=tuple(underflow),
        stored=tuple(stored),
        twice=sum(1 for w in plan.weights if w.uses and w.keep_float32),
    )


def _kept(context: PaintContext, reason: PassReason) -> Iterator[RangeRecord]:
    """Yield a record per constant that keeps its consumers float32."""
    type_graph, low = context.type_graph, context.low
    consumers: dict[int, list[str]] = {}
    for vertex, mark in context.excluded.items():
        if mark.reason is reason and mark.constant is not None:
            consumers.setdefault(mark.constant, []).append(type_graph.name(vertex))
    for value, names in consumers.items():
        tensor = filled_tensor(type_graph, value) or default_tensor(type_graph, value)
        stats = WeightStats() if tensor is None else context.values.stats(value, tensor)
        count = stats.overflow(low) or stats.flushed_to_zero(low)
        yield RangeRecord(
            type_graph.flat.value_names[value], count, stats.max_abs, "kept", tuple(names)
        )


def _boundaries(context: PaintContext) -> dict[str, int]:
    graph, flat = context.type_graph, context.type_graph.flat
    counts: dict[str, int] = {}
    for node in range(flat.n_nodes):
        if context.entry(node) is not None:
            continue
        has_floats = bool(graph.vertices_of(node)) or graph.ports_of(node).schema is None
        part = part_in(flat.metadata_of(node))
        if has_floats and (part is None or not part.stays_float32):
            domain, op_type, _ = flat.called(node)
            name = f"{domain}::{op_type}" if domain else op_type
            counts[name] = counts.get(name, 0) + 1
    return dict(sorted(counts.items()))
