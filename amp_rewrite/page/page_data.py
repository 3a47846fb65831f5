"""The data of the page: the one place where they are made, from a report and the model's graph."""

from __future__ import annotations

from typing import Any

from amp_rewrite.base.printable import printable
from amp_rewrite.base.version import __version__
from amp_rewrite.graph.flat import FlatGraph
from amp_rewrite.page.columns import NONE, Columns, Strings
from amp_rewrite.page.comparison import Other, comparison_table
from amp_rewrite.page.edges import tabulate_edges, tabulate_ends
from amp_rewrite.page.evidence import Evidence
from amp_rewrite.page.grouping import Group, group_nodes
from amp_rewrite.page.node_table import is_drawn, tabulate_nodes
from amp_rewrite.page.overview import overview
from amp_rewrite.page.pictures import error_table, histogram_table, search_table, type_range
from amp_rewrite.page.value_table import (
    tabulate_attributes,
    tabulate_ports,
    tabulate_values,
    tabulate_weights,
)
from amp_rewrite.rewriting.api import RewriteResult
from amp_rewrite.rewriting.report.rewrite_report import Report

VERSION = 1
"""Version of the data; page and data are written together, so that no reader meets another one."""


def page_data(
    result: RewriteResult, report: Report, evidence: Evidence, other: Other | None = None
) -> dict[str, Any]:
    """Return what the page shows, as JSON has it; names in it are printable.

    Args:
        result: The rewrite, for the graph.
        report: Its report, which may know more sizes than `result.report`.
        evidence: What else is known.
        other: What another tool made of the model.
    """
    flat, strings = result.flat, Strings()
    drawn = [is_drawn(node) for node in report.nodes]
    table = tabulate_nodes(report, strings)
    # The folders of the ends come behind those of the nodes.
    groups, group_of = _tabulate_groups(flat, group_nodes(flat, drawn), strings)
    ends = tabulate_ends(flat, groups, strings)
    pictures = {
        "histograms": histogram_table(flat, evidence.histograms, strings),
        "errors": error_table(flat, evidence.verification),
        "search": search_table(evidence.tuning),
        "range": type_range(result.options.low),
    }
    return {
        "version": VERSION,
        "tool": f"amp-rewrite {__version__}",
        "model": printable(evidence.names.model),
        "precision": report.precision,
        "target": report.target,
        "level": report.level,
        "opset": report.opset,
        "overview": overview(report, evidence),
        "nodes": {
            **table.nodes,
            "group": group_of,
            "attributes": tabulate_attributes(flat, drawn, strings),
        },
        "variables": table.variables,
        "groups": groups,
        "ends": ends,
        "values": tabulate_values(result, evidence, strings),
        "ports": tabulate_ports(result),
        "weights": tabulate_weights(result, strings),
        "comparison": comparison_table(result, other, strings),
        "edges": tabulate_edges(result, drawn),
        "functions": _function_nodes(flat),
        "pictures": pictures,
        "strings": strings.texts,
    }


def _tabulate_groups(flat: FlatGraph, root: Group, strings: Strings) -> tuple[Columns, list[int]]:
    """Return a row for each folder, outer ones first, and by node the folder that it is in."""
    table: Columns = {"label": [], "parent": [], "owner": []}
    group_of = [NONE] * flat.n_nodes
    waiting = [(root, NONE)]
    while waiting:
        group, parent = waiting.pop()
        number = len(table["label"])
        table["label"].append(strings.number(group.label))
        table["parent"].append(parent)
        table["owner"].append(NONE if group.owner is None else group.owner)
        if group.owner is not None:
            group_of[group.owner] = parent
        for member in group.members:
            if isinstance(member, Group):
                waiting.append((member, number))
            else:
                group_of[member] = number
    return table, group_of


def _function_nodes(flat: FlatGraph) -> dict[int, int]:
    """Return, by node that calls a function of the model, how many nodes that function has."""
    called = (node for node in range(flat.n_nodes) if flat.is_call(node))
    return {node: flat.functions[flat.called(node)].graph.n_nodes for node in called}
