"""Chains of reasons, told from a report alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from onnx import NodeProto

from amp_rewrite.base import arguments
from amp_rewrite.base.name_patterns import NamePattern, hint, suggestion
from amp_rewrite.base.printable import printable
from amp_rewrite.dtypes import FLOAT32
from amp_rewrite.errors import OptionError
from amp_rewrite.graph.flat import FlatGraph
from amp_rewrite.graph.metadata_keys import PRECISION_KEY, REASON_KEY
from amp_rewrite.graph.modules import known_as, nodes_called
from amp_rewrite.rewriting.reasons import phrase
from amp_rewrite.rewriting.report.records import NodeRecord, VariableRecord
from amp_rewrite.rewriting.report.rewrite_report import Report

Index = Mapping[str, tuple[NodeRecord, VariableRecord]]
"""Vertex, "node/variable" -> its records."""


class Reported(Protocol):
    """An object with a report, such as the result of `rewrite`."""

    @property
    def report(self) -> Report:
        """The record of what happened and why."""
        ...


def explain(result: Report | Reported, node: str | None) -> str:
    """Return why a node has its types: one line per type variable, back to the origin.

    The name may be that of a node, or of a module such as "encoder.layers.0", or a pattern of such
    names: all nodes that it means and that have float32 type variables. Of a result, it may be that
    of a value, too: the node that makes it, or the nodes that read an input or a constant. None
    means all nodes.

    Raises:
        OptionError: The model has nothing of this name, or something else than a result was given.
    """
    report = result if isinstance(result, Report) else getattr(result, "report", None)
    if not isinstance(report, Report):
        raise OptionError(
            "there is nothing to explain",
            found=f"an object of type {type(result).__name__}",
            expected="what amp_rewrite.rewrite returned, or its report",
        )
    flat = getattr(result, "flat", None)
    records = [record for record in report.nodes if record.variables]
    if node is not None:
        arguments.text("node", node, what="the name of a node, a module or a value")
        records = _records_of(report, flat if isinstance(flat, FlatGraph) else None, node)
    index = {  # of nodes of one name those of the first
        f"{record.name}/{name}": (record, variable)
        for record in reversed(report.nodes)
        for name, variable in record.variables.items()
    }
    lines = (printable(line) for record in records for line in _lines(report, record, index))
    return "\n".join(lines)


def _records_of(report: Report, flat: FlatGraph | None, name: str) -> list[NodeRecord]:
    """Return the records of the nodes that a name means.

    Raises:
        OptionError: It means none.
    """
    found = [record for record in report.nodes if record.name == name]
    pattern = NamePattern.of(name, "node")
    found = found or [r for r in report.nodes if pattern.matches_any(known_as(r.name, r.module))]
    if not found and flat is not None:
        found = [report.nodes[node] for node in nodes_called(flat, name)]
    if not found:
        names = dict.fromkeys(n for r in report.nodes for n in known_as(r.name, r.module))
        values = () if flat is None else flat.value_names
        raise OptionError(
            "no node has this name",
            found=repr(name),
            expected=suggestion(
                name.strip("*."), [*names, *values], "the name of a node, a module or a value"
            ),
            remedy=f"{hint(name)}; `amp-rewrite explain MODEL` lists the names",
        )
    return [record for record in found if record.variables] or found[:1]


def _lines(report: Report, record: NodeRecord, index: Index) -> list[str]:
    where = f" of {record.module}" if record.module else ""
    where += f" in {record.scope}" if record.scope else ""
    if not record.variables:
        return [f"{record.name} ({record.op}{where}) has no float32 type variable: left as it is"]
    lines: list[str] = []
    scaled = "" if report.scaling is None else report.scaling.of_node(record.name)
    for name, variable in record.variables.items():
        title = f"{record.name}/{name}" if len(record.variables) > 1 else record.name
        is_low = variable.dtype != FLOAT32.name
        is_told = record.group is None or record.group in (variable.detail or "")
        ends = (
            f"it cannot exceed {variable.bound:.4g}" if is_low and variable.bound else "",
            "" if is_told else f"part of {record.group}",
            scaled,
        )
        chain = _chain(report, f"{record.name}/{name}", variable, index)
        lines.append(
            f"{title} ({record.op}{where}) {'becomes' if is_low else 'stays'} {variable.dtype}: "
            + "; ".join((chain, *filter(None, ends)))
        )
    return lines


def _chain(
    report: Report,
    start: str,
    variable: VariableRecord,
    index: Index,
) -> str:
    """Follow `because` to its origin: phrase, origin (its reason), through the vertices between."""
    path = [start]
    current = variable
    while current.because is not None and current.because not in path:
        path.append(current.because)
        if current.because not in index:
            break
        current = index[current.because][1]
    text = _phrase(report, variable)
    if len(path) == 1:
        return f"{text}{_detail(variable)}"
    if variable.detail:
        way = ", ".join(_node_name(p, index) for p in path[1:])
        return f"{text}{_detail(variable)}, by way of {way}"
    origin = path[-1]
    entry = index.get(origin)
    reason = "" if entry is None else _phrase(report, entry[1]).removeprefix("it is on the ")
    note = "" if entry is None else f" ({reason}{_detail(entry[1])})"
    full = FLOAT32.name
    if entry is not None and entry[1].dtype == full != variable.dtype:
        note = f", which itself stays {full}{note}"
    through = ", ".join(_node_name(p, index) for p in reversed(path[1:-1]))
    return f"{text} {_node_name(origin, index)}{note}" + (f" through {through}" if through else "")


def _phrase(report: Report, variable: VariableRecord) -> str:
    return phrase(variable.reason, report.precision, report.target)


def _detail(variable: VariableRecord) -> str:
    return f": {variable.detail}" if variable.detail else ""


def _node_name(vertex: str, index: Index) -> str:
    entry = index.get(vertex)
    return vertex if entry is None else entry[0].name


def node_notes(report: Report) -> dict[int, dict[str, str]]:
    """Return node -> key -> note, for every node with a float32 type variable."""
    return {
        number: {
            PRECISION_KEY: _by_variable(node, {n: v.dtype for n, v in node.variables.items()}),
            REASON_KEY: _by_variable(
                node, {n: _reason(report, v) for n, v in node.variables.items()}
            ),
        }
        for number, node in enumerate(report.nodes)
        if node.variables
    }


def _reason(report: Report, variable: VariableRecord) -> str:
    """Return the word of a reason, what it says, and where it came from."""
    origin = f" {variable.because}" if variable.because and not variable.detail else ""
    said = f"{_phrase(report, variable)}{origin}{_detail(variable)}"
    return printable(f"{variable.reason}: {said}")


def _by_variable(node: NodeRecord, texts: dict[str, str]) -> str:
    """Return a text for a node: one for each variable where they differ."""
    if len(set(texts.values())) == 1:
        return next(iter(texts.values()))
    return "; ".join(f"{name}: {texts[name]}" for name in node.variables)


def note_nodes(flat: FlatGraph, notes: Mapping[int, Mapping[str, str]]) -> None:
    """Add notes (node -> key -> note) to the metadata of nodes, or replace them.

    The nodes become other messages, for the caller of a rewrite may hold those that were given.
    """
    for node, entries in notes.items():
        node_before, message = flat.nodes[node], NodeProto()
        message.CopyFrom(node_before)
        del message.metadata_props[:]
        message.metadata_props.extend(e for e in node_before.metadata_props if e.key not in entries)
        for key, value in entries.items():
            message.metadata_props.add(key=key, value=value)
        flat.nodes[node] = message
