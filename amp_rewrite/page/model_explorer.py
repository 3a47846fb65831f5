"""Node data for Google's Model Explorer: precision, reason, error and range as overlays of a graph.

A file holds one data set (https://github.com/google-ai-edge/model-explorer/wiki/5.-API-Guide,
"Custom node data"); results are found by the name of a tensor that a node makes, or by the node's.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from amp_rewrite.base.printable import printable
from amp_rewrite.graph.flat import FlatGraph
from amp_rewrite.page.columns import Columns, Strings
from amp_rewrite.page.evidence import Evidence
from amp_rewrite.page.node_table import KEPT, LOW, MIXED, cause_of, is_drawn, precision_of
from amp_rewrite.page.pictures import error_table, histogram_table
from amp_rewrite.rewriting.api import RewriteResult
from amp_rewrite.rewriting.report.rewrite_report import Report
from amp_rewrite.rewriting.report.write_text import write_text

_COLORS = {LOW: "#dce8fd", KEPT: "#fdecd2", MIXED: "#ece4fd"}
_HEAT = [{"stop": 0, "bgColor": "#ffffff"}, {"stop": 1, "bgColor": "#e0562b"}]

Overlay = dict[str, Any]
"""What Model Explorer calls the node data of a graph."""


def overlays(result: RewriteResult, report: Report, evidence: Evidence) -> dict[str, Overlay]:
    """Return the data sets by name; errors and ranges where they were measured."""
    flat, strings = result.flat, Strings()
    words = {LOW: report.precision, KEPT: "float32", MIXED: "both"}
    rows = [(n, precision_of(node), cause_of(node)) for n, node in enumerate(report.nodes)]
    painted = [(n, kind, cause) for n, kind, cause in rows if is_drawn(report.nodes[n]) and cause]
    precision = {n: {"value": words[kind], "bgColor": _COLORS[kind]} for n, kind, _ in painted}
    reason = {n: {"value": cause, "bgColor": _COLORS[kind]} for n, kind, cause in painted}
    data_sets: dict[str, Overlay] = {
        "precision": {"results": _by_name(result, precision)},
        "reason": {"results": _by_name(result, reason)},
    }
    errors = error_table(flat, evidence.verification)
    ranges = histogram_table(flat, evidence.histograms, strings)
    for name, column, table in (("error", "distance", errors), ("range", "largest", ranges)):
        if table["node"]:
            results = _by_name(result, _numbers(table, column))
            data_sets[name] = {"results": results, "gradient": _HEAT}
    return {name: {"name": f"amp_rewrite {name}", **data} for name, data in data_sets.items()}


def write_overlays(path: Path, data: Mapping[str, Overlay]) -> tuple[Path, ...]:
    """Write each data set into a file: the precision to `path`, others beside it.

    Returns:
        The files: "overlay.json", "overlay.reason.json" and so on.

    Raises:
        SaveError: One of them cannot be written.
    """
    written: list[Path] = []
    for name, overlay in data.items():
        file = path if not written else path.with_name(f"{path.stem}.{name}{path.suffix}")
        write_text(file, json.dumps(overlay, indent=1, allow_nan=False))
        written.append(file)
    return tuple(written)


def _numbers(table: Columns, column: str) -> dict[int, dict[str, Any]]:
    """Return the largest number of each node; what is infinite is left out, for it has no color."""
    worst: dict[int, float] = {}
    for node, number in zip(table["node"], table[column], strict=True):
        if isinstance(number, float):
            worst[node] = max(worst.get(node, 0.0), number)
    return {node: {"value": number} for node, number in worst.items()}


def _by_name(result: RewriteResult, by_node: Mapping[int, Any]) -> dict[str, Any]:
    """Return data by the names under which the graph before or after shows a node."""
    flat = result.flat
    return {name: data for node, data in by_node.items() for name in _names(result, flat, node)}


def _names(result: RewriteResult, flat: FlatGraph, node: int) -> Iterable[str]:
    values = [v for v in flat.outputs_of(node) if flat.value_names[v]]
    inner = [result.plan.inner[v] for v in values if v in result.plan.inner]
    names = [*(flat.value_names[v] for v in values), *inner, flat.node_names[node]]
    return map(printable, filter(None, names))
