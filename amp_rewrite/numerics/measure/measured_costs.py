"""The table of costs of one model: what its nodes took in float32, and in the low type."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from amp_rewrite.dtypes import FLOAT32
from amp_rewrite.graph.flat import ABSENT, FlatGraph
from amp_rewrite.kernels.cost_files import digest_of, parse_casts
from amp_rewrite.kernels.costs import ANY, UNKNOWN, CostTable
from amp_rewrite.numerics.measure.pairs import single_casts
from amp_rewrite.numerics.measure.timing import Clock, fitted
from amp_rewrite.numerics.measure.traced_run import TracedRun
from amp_rewrite.rewriting.api import RewriteResult
from amp_rewrite.rewriting.paint.weighing import Weighing
from amp_rewrite.runtimes.facts import facts_of

_LARGEST_GROUP = 32
"""Nodes that are one for the choice at most: where more belong to one, the engine has not fused
them, but their names are lost."""

SOURCE = "amp-rewrite convert --measure"


def table_of(
    provider: str, result: RewriteResult, base: CostTable | None, full: TracedRun, lowest: TracedRun
) -> CostTable:
    """Return the costs of a model's nodes, as measured.

    Args:
        provider: What it ran on.
        result: The rewrite with as much as may be in the low type.
        base: What is known of the device from elsewhere: its casts and families count where the
            model says nothing. Without it casts take what those of the rewritten model did, or, if
            the engine ran none by itself, what small models of one Cast do.
        full: The model in float32, as it ran.
        lowest: The rewritten model, as it ran.

    Raises:
        AmpError: The engine cannot run a Cast alone.
    """
    facts, low = facts_of(provider), result.options.low
    start = base or _with_casts(provider, result, full, lowest)
    nodes = {
        name: {FLOAT32.name: in_full, low.name: in_low}
        for name, in_full, in_low in _times_of_nodes(result, full, lowest)
    }
    return replace(
        start,
        name="",
        provider=provider,
        runtime=facts.runtime,
        device=facts.device,
        driver=facts.driver,
        source=SOURCE,
        nodes=nodes,
        together=tuple(_nodes_together(full, lowest, nodes)),
        model=digest_of(full.flat),
    )


def as_ran(table: CostTable, result: RewriteResult, run: TracedRun) -> CostTable:
    """Return a table with what nodes took in a rewritten model, each in the type that it has."""
    low, flat = result.options.low.name, run.flat
    is_low = set(result.plan.retyped)
    nodes = {name: dict(taken) for name, taken in table.nodes.items()}
    for node, microseconds in run.times.items():
        value = _first_result(flat, node)
        taken = nodes.get(flat.value_names[value]) if value != ABSENT else None
        if taken is not None:
            taken[low if value in is_low else FLOAT32.name] = microseconds
    return replace(table, nodes=nodes)


def _with_casts(
    provider: str, result: RewriteResult, full: TracedRun, lowest: TracedRun
) -> CostTable:
    """Return a table of nothing but casts."""
    low = result.options.low
    rows = _rows_of_casts(result, lowest) or [*single_casts(Clock(provider, low, sessions=2))]
    least = _cheapest(full)
    for row in rows:
        row["call"] = max(row["call"], least)
    none = frozenset[str]()
    return CostTable("", "", "", "", provider, "", {}, none, none, {}, parse_casts(rows), {})


def _cheapest(run: TracedRun) -> float:
    """Return what the cheapest tenth of an engine's nodes takes at most: no Cast takes less."""
    taken = sorted(microseconds for microseconds in run.microseconds if microseconds > 0)
    return taken[len(taken) // 10] if taken else 0.0


def _rows_of_casts(result: RewriteResult, run: TracedRun) -> list[dict[str, Any]]:
    """Return rates of the casts that ran, for either direction; none if none did.

    Where all of one direction are fused with something, they take what the others do.
    """
    by_name = {cast.name: cast for cast in result.plan.casts}
    inner = {result.flat.value_names[value]: value for value in result.plan.inner}
    elements = Weighing(UNKNOWN, "speed", result.flat).elements
    taken: dict[str, list[tuple[int, float]]] = {}
    for name, microseconds in run.casts.items():
        cast = by_name.get(name)
        if cast is not None:
            row = int(elements[cast.value]), microseconds
            taken.setdefault(cast.to.name, []).append(row)
        elif name in inner:
            taken.setdefault(FLOAT32.name, []).append((int(elements[inner[name]]), microseconds))
    if not taken:
        return []
    every = [row for rows in taken.values() for row in rows]
    return [_row(to, taken.get(to) or every) for to in (result.options.low.name, FLOAT32.name)]


def _row(to: str, taken: Sequence[tuple[int, float]]) -> dict[str, Any]:
    cost = fitted([(elements, 0) for elements, _ in taken], [time for _, time in taken])
    ends = {"producer": ANY, "consumer": ANY}
    return {"to": to, **ends, "call": cost["call"], "element": cost["element"]}


def _times_of_nodes(
    result: RewriteResult, full: TracedRun, lowest: TracedRun
) -> Iterator[tuple[str, float, float]]:
    """Yield the first results of the nodes that both runs tell of, with their microseconds.

    Nodes that read and write nothing that may be low are left out.
    """
    flat, graph = full.flat, result.context.type_graph
    for node in sorted(full.times.keys() & lowest.times.keys()):
        value = _first_result(flat, node)
        if value != ABSENT and flat.value_names[value] and len(graph.vertices_of(node)):
            yield flat.value_names[value], full.times[node], lowest.times[node]


def _first_result(flat: FlatGraph, node: int) -> int:
    return next(iter(flat.outputs_of(node)), ABSENT)


def _nodes_together(
    full: TracedRun, lowest: TracedRun, owned: Mapping[str, object]
) -> Iterator[tuple[str, ...]]:
    """Yield the first results of nodes that the engine computes as one in both types."""
    flat = full.flat
    both = {*lowest.groups.values()}
    for nodes in full.groups.values():
        values = (_first_result(flat, node) for node in nodes)
        names = [flat.value_names[value] for value in values if value != ABSENT]
        names = [name for name in names if name in owned]
        if nodes in both and 1 < len(names) <= _LARGEST_GROUP:
            yield tuple(names)
