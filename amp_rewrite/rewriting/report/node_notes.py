"""What a viewer shows of each node: its precision and the reason, as two short texts."""

from __future__ import annotations

from collections.abc import Mapping

from onnx import NodeProto

from amp_rewrite.base.printable import printable
from amp_rewrite.graph.metadata_keys import PRECISION_KEY, REASON_KEY
from amp_rewrite.graph.proto.flat_proto import FlatProto
from amp_rewrite.rewriting.report.phrases import phrase
from amp_rewrite.rewriting.report.records import NodeRecord, VariableRecord
from amp_rewrite.rewriting.report.rewrite_report import Report


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


def note_nodes(flat: FlatProto, notes: Mapping[int, Mapping[str, str]]) -> None:
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
