"""Chains of reasons, told from a report alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from onnx import NodeProto

from amp_rewrite.base import arguments
from amp_rewrite.base.name_patterns import suggestion
from amp_rewrite.base.printable import printable
from amp_rewrite.dtypes import FLOAT32
from amp_rewrite.errors import OptionError
from amp_rewrite.graph.flat import FlatGraph
from amp_rewrite.graph.metadata_keys import PRECISION_KEY, REASON_KEY
from amp_rewrite.graph.modules import known_as, nodes_called
from amp_rewrite.rewriting.reasons import phrase
from amp_rewrite.rewriting.report.records import NodeRecord, VariableRecord
from amp_rewrite.rewriting.report.rewrite_report import Report


class Reported(Protocol):
    """An object with a report, such as the result of `rewrite`."""

    @property
    def report(self) -> Report:
        """The record of what happened and why."""
        ...


def explain(result: Report | Reported, node: str) -> str:
    """Return why a node has its types: one line per type variable, back to the origin.

    Args:
        result: What `rewrite` returned, or its report.
        node: The name of a node, or of a module such as "encoder.layers.0": all nodes in it that
            have float32 type variables. Of a result, the name of a value, too: the node that makes
            it, or the nodes that read an input or a constant.

    Raises:
        OptionError: The model has nothing of this name, or something else than a result was given.
    """
    report = _report_of(result)
    arguments.text("node", node, what="the name of a node, a module or a value")
    flat = getattr(result, "flat", None)
    records = _records_of(report, flat if isinstance(flat, FlatGraph) else None, node)
    index = vertices_by_name(report)
    lines = (printable(line) for record in records for line in _lines(report, record, index))
    return "\n".join(lines)


def _records_of(report: Report, flat: FlatGraph | None, name: str) -> list[NodeRecord]:
    """Return the records of the nodes that a name means.

    Raises:
        OptionError: It means none.
    """
    found = [record for record in report.nodes if record.name == name]
    found = found or [r for r in report.nodes if name in known_as(r.name, r.module)]
    if not found and flat is not None:
        found = [report.nodes[node] for node in nodes_called(flat, name)]
    if not found:
        names = dict.fromkeys(n for r in report.nodes for n in known_as(r.name, r.module))
        values = () if flat is None else flat.value_names
        raise OptionError(
            "no node has this name",
            found=repr(name),
            expected=suggestion(name, names, "")
            or suggestion(name, values, "the name of a node, a module or a value"),
            remedy="`amp-rewrite explain MODEL` lists them",
        )
    return [record for record in found if record.variables] or found[:1]


def _report_of(result: object) -> Report:
    report = result if isinstance(result, Report) else getattr(result, "report", None)
    if not isinstance(report, Report):
        raise OptionError(
            "there is nothing to explain",
            found=f"an object of type {type(result).__name__}",
            expected="what amp_rewrite.rewrite returned, or its report",
        )
    return report


def vertices_by_name(report: Report) -> dict[str, tuple[NodeRecord, VariableRecord]]:
    """Return "node/variable" -> its records; of nodes of one name those of the first."""
    return {
        f"{record.name}/{name}": (record, variable)
        for record in reversed(report.nodes)
        for name, variable in record.variables.items()
    }


def _lines(
    report: Report, record: NodeRecord, index: dict[str, tuple[NodeRecord, VariableRecord]]
) -> list[str]:
    where = f" of {record.module}" if record.module else ""
    where += f" in {record.scope}" if record.scope else ""
    if not record.variables:
        return [f"{record.name} ({record.op}{where}) has no float32 type variable: left as it is"]
    lines: list[str] = []
    many = len(record.variables) > 1
    for name, variable in record.variables.items():
        title = f"{record.name}/{name}" if many else record.name
        verb = "stays" if variable.dtype == FLOAT32.name else "becomes"
        lines.append(
            f"{title} ({record.op}{where}) {verb} {variable.dtype}: "
            f"{_chain(report, f'{record.name}/{name}', variable, index)}{_bound(variable)}"
            f"{_group(record, variable)}{_scaled(report, record)}"
        )
    return lines


def _scaled(report: Report, record: NodeRecord) -> str:
    """Return what scaling does to a node."""
    said = "" if report.scaling is None else report.scaling.of_node(record.name)
    return f"; {said}" if said else ""


def _group(record: NodeRecord, variable: VariableRecord) -> str:
    """Return what a node is a part of, if the reason has not said so."""
    if record.group is None or record.group in (variable.detail or ""):
        return ""
    return f"; part of {record.group}"


def _chain(
    report: Report,
    start: str,
    variable: VariableRecord,
    index: dict[str, tuple[NodeRecord, VariableRecord]],
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


def _bound(variable: VariableRecord) -> str:
    """Return what a low result cannot exceed, as far as that is proved."""
    is_low = variable.dtype != FLOAT32.name
    return f"; it cannot exceed {variable.bound:.4g}" if is_low and variable.bound else ""


def _node_name(vertex: str, index: dict[str, tuple[NodeRecord, VariableRecord]]) -> str:
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
    said = phrase(variable.reason, report.precision, report.target)
    origin = f" {variable.because}" if variable.because and not variable.detail else ""
    detail = f": {variable.detail}" if variable.detail else ""
    return printable(f"{variable.reason}: {said}{origin}{detail}")


def _by_variable(node: NodeRecord, texts: dict[str, str]) -> str:
    """Return a text for a node: one for each variable where they differ."""
    if len(set(texts.values())) == 1:
        return next(iter(texts.values()))
    return "; ".join(f"{name}: {texts[name]}" for name in node.variables)


def note_nodes(flat: FlatGraph, notes: Mapping[int, Mapping[str, str]]) -> None:
    """Add notes to the metadata of nodes; those under the same keys are replaced.

    Args:
        flat: A model; what is saved of it has the notes. Its nodes become other messages, for the
            caller of a rewrite may hold those that were given.
        notes: Node -> key -> note.
    """
    for node, entries in notes.items():
        node_before, message = flat.nodes[node], NodeProto()
        message.CopyFrom(node_before)
        del message.metadata_props[:]
        message.metadata_props.extend(e for e in node_before.metadata_props if e.key not in entries)
        for key, value in entries.items():
            message.metadata_props.add(key=key, value=value)
        flat.nodes[node] = message
