"""The data of the page: the one place where they are made, from a report and the model's graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from amp_rewrite.base.printable import printable
from amp_rewrite.base.version import __version__
from amp_rewrite.dtypes import FLOAT32
from amp_rewrite.graph.elements import FLOAT32_TYPES
from amp_rewrite.graph.flat import ABSENT, MAIN, FlatGraph
from amp_rewrite.page.grouping import Group, group_nodes
from amp_rewrite.page.node_table import NONE, Columns, Strings, is_drawn, tabulate_nodes
from amp_rewrite.page.overview import Evidence, overview
from amp_rewrite.rewriting.api import RewriteResult
from amp_rewrite.rewriting.report.rewrite_report import Report

VERSION = 1
"""Version of the data; page and data are written together, so that no reader meets another one."""


PLAIN, TO_LOW, TO_FLOAT32 = range(3)
"""The cast on an edge: nothing, a Cast to the low type, or a Cast to float32."""

_MOST_ENDS = 24
"""How many inputs, or outputs, stand in the graph one by one: a training step has hundreds."""

_NAMES = {FLOAT32.onnx: FLOAT32.name, "double": "float64"}
"""How types are called that ONNX's type strings call otherwise."""


def page_data(result: RewriteResult, report: Report, evidence: Evidence) -> dict[str, Any]:
    """Return what the page shows, as JSON has it; names in it are printable."""
    flat, strings = result.flat, Strings()
    drawn = [is_drawn(node) for node in report.nodes]
    table = tabulate_nodes(report, strings)
    # The folders of the ends come behind those of the nodes.
    groups, group_of = _tabulate_groups(flat, group_nodes(flat, drawn), strings)
    ends = tabulate_ends(flat, groups, strings)
    return {
        "version": VERSION,
        "tool": f"amp-rewrite {__version__}",
        "model": printable(evidence.names.model),
        "precision": report.precision,
        "target": report.target,
        "level": report.level,
        "opset": report.opset,
        "overview": overview(report, evidence),
        "nodes": {**table.nodes, "group": group_of},
        "variables": table.variables,
        "groups": groups,
        "ends": ends,
        "values": _tabulate_values(result, strings),
        "ports": _tabulate_ports(result),
        "edges": tabulate_edges(result, drawn),
        "functions": {  # by node that calls one, how many nodes it has
            node: flat.functions[flat.called(node)].graph.n_nodes
            for node in range(flat.n_nodes)
            if flat.is_call(node)
        },
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


def tabulate_ends(flat: FlatGraph, groups: Columns, strings: Strings) -> Columns:
    """Return the inputs and outputs of the model: those that are no initializers.

    Where there are many of a kind, the table of folders gets another one for them.
    """
    ends = _ends(flat)
    folders = [_folder(ends, groups, strings, output=output) for output in (False, True)]
    return {
        "name": [strings.number(flat.value_names[value]) for value, _ in ends],
        "output": [int(output) for _, output in ends],
        "group": [folders[output] for _, output in ends],
    }


def _folder(
    ends: Sequence[tuple[int, bool]], groups: Columns, strings: Strings, *, output: bool
) -> int:
    """Return the folder of the inputs, or of the outputs."""
    count = sum(kind == output for _, kind in ends)
    if count <= _MOST_ENDS:
        return 0
    groups["label"].append(strings.number("outputs" if output else "inputs"))
    groups["parent"].append(0)
    groups["owner"].append(NONE)
    return len(groups["label"]) - 1


def _ends(flat: FlatGraph) -> list[tuple[int, bool]]:
    inputs = [(v, False) for v in flat.main.inputs if not flat.is_initializer(v)]
    return inputs + [(v, True) for v in flat.main.outputs]


def tabulate_edges(result: RewriteResult, drawn: Sequence[bool]) -> Columns:
    """Return an edge for each node or end of the model and each reader of what it makes.

    The ends are numbered behind the nodes.
    """
    flat, first = result.flat, result.flat.n_nodes
    ends = _ends(flat)
    from_end = {v: first + i for i, (v, output) in enumerate(ends) if not output}
    casts = _casts(result)

    def maker(value: int) -> int:
        node = flat.producer[value]
        if node == ABSENT:
            return from_end.get(value, NONE)
        return node if drawn[node] else NONE

    edges: dict[tuple[int, int], int] = {}
    reads = ((v, n) for n in range(flat.n_nodes) for v in flat.inputs_of(n) if v != ABSENT)
    for value, node in reads:
        edge = (maker(value), node)
        if edge[0] != NONE and drawn[node]:
            edges[edge] = edges.get(edge, PLAIN) or casts.get((value, node), PLAIN)
    for number, (value, output) in enumerate(ends):
        if output and maker(value) != NONE:
            edge = (maker(value), first + number)
            edges[edge] = edges.get(edge, PLAIN) or casts.get((value, ABSENT), PLAIN)
    return {
        "from": [edge[0] for edge in edges],
        "to": [edge[1] for edge in edges],
        "cast": list(edges.values()),
    }


def _casts(result: RewriteResult) -> dict[tuple[int, int], int]:
    """Return (value, reader) -> the kind of the Cast between them; ABSENT reads for an output."""
    kinds: dict[tuple[int, int], int] = {}
    for cast in result.plan.casts:
        kind = TO_FLOAT32 if cast.to == FLOAT32 else TO_LOW
        for use in cast.uses:
            if use.body in (ABSENT, MAIN):
                kinds[cast.value, use.node] = kind
    return kinds


def _tabulate_values(result: RewriteResult, strings: Strings) -> Columns:
    """Return a row for each value: its name, its types before and after, and its shape."""
    flat = result.flat
    before, after = types_of(result)

    def shape(value: int) -> int:
        dims = flat.shape(value)
        if dims is None:
            return NONE
        return strings.number(
            "\N{MULTIPLICATION SIGN}".join("?" if d is None else str(d) for d in dims)
        )

    return {
        "name": [strings.number(name) for name in flat.value_names],
        "before": [strings.number(name) for name in before],
        "after": [strings.number(name) for name in after],
        "shape": [shape(value) for value in range(flat.n_values)],
    }


def types_of(result: RewriteResult) -> tuple[list[str | None], list[str | None]]:
    """Return, by value, what its type is called before and after; None where it is not known."""
    types = result.context.type_graph.types
    before = [None if t is None else _type_name(t) for t in types]
    after = list(before)
    low = result.plan.low
    changed = {*result.plan.retyped, *result.plan.ends}
    changed |= {w.value for w in result.plan.weights if not w.keep_float32}
    for value in changed:
        name = before[value]
        if types[value] in FLOAT32_TYPES and name is not None:
            after[value] = name.replace(FLOAT32.name, low.name)
    return before, after


def _type_name(type_string: str) -> str:
    """Return what a reader calls a type: its element's name, with "seq" around it if it is one."""
    inside = type_string.replace("tensor(", "").replace(")", "")
    *around, name = inside.split("(")
    return " of ".join([*around, _NAMES.get(name, name)])


def _tabulate_ports(result: RewriteResult) -> Columns:
    """Return what nodes read and make: the values of all, and where those of a node begin.

    An input that is cast, or a 16-bit copy of a weight, has a row in `cast`: its place in `inputs`
    and 1 if it is read in the 16-bit type, 0 in float32.
    """
    flat = result.flat
    casts: dict[int, int] = {}
    for cast in result.plan.casts:
        for use in cast.uses:
            if use.node != ABSENT:
                casts[flat.input_start[use.node] + use.index] = int(cast.to != FLOAT32)
    for weight in result.plan.weights:
        for use in weight.uses if weight.keep_float32 else ():
            if use.node != ABSENT:
                casts[flat.input_start[use.node] + use.index] = 1
    return {
        "inputs": list(flat.inputs),
        "inputStart": list(flat.input_start),
        "outputs": list(flat.outputs),
        "outputStart": list(flat.output_start),
        "cast": [[slot, low] for slot, low in casts.items()],
    }
