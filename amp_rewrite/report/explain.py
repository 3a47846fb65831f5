"""Chains of reasons, told from a report alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from amp_rewrite.dtypes import FLOAT32
from amp_rewrite.errors import OptionError
from amp_rewrite.paint.painting import Reason
from amp_rewrite.report.records import NodeRecord, Report, VariableRecord

if TYPE_CHECKING:
    from amp_rewrite.api import RewriteResult

PHRASES: dict[str, str] = {
    Reason.ALLOW_LIST: "it is on the allow list",
    Reason.FORCED: "the level UNSAFE_FORCE_ALL paints everything",
    Reason.BETWEEN: "it lies between allow operators, reached from",
    Reason.FOLLOWS: "an infer operator right behind",
    Reason.CLEAR: "a clear operator next to",
    Reason.SEQUENCE: "it handles the same sequence as",
    Reason.RETARGETED: "a Cast whose consumers are all low, retargeted for",
    Reason.FLOAT32_PART: "float32 by construction",
    Reason.DENY_LIST: "it is on the deny list",
    Reason.DOWNSTREAM_OF_DENY: "denied, reached forward from",
    Reason.SQUARE: "denied",
    Reason.SEQUENCE_DENIED: "its sequence stays float32",
    Reason.PRESERVED: "the user preserves it",
    Reason.NODE_RULE: "a node rule keeps it",
    Reason.UNLISTED: "it is on no list, by decision",
    Reason.UNKNOWN_OPERATOR: "it is a boundary",
    Reason.FIXED_TYPE: "the operator's schema fixes this type",
    Reason.TYPE_UNSUPPORTED: "the operator's schema does not admit {precision} here",
    Reason.OPSET_TOO_OLD: "Cast gives no {precision} at the model's opset; onnx.version_converter "
    "raises it",
    Reason.NO_KERNEL: "target {target} has no {precision} kernel for it",
    Reason.QUANTIZED: "it has a quantised operand",
    Reason.CONSTANT_OVERFLOW: "a constant does not fit",
    Reason.CONSTANT_UNDERFLOW: "a constant rounds to zero",
    Reason.VARIABLE_READ: "it reads a training variable, and the cast comes after the read",
    Reason.ISOLATED: "no accelerated operator is left in its region, first reached from",
    Reason.CAST_MOVED: "moving the cast across it saves casts or bytes",
    Reason.NOT_BETWEEN: "an infer operator that is neither between nor right behind allow ones",
    Reason.NOT_NEXT: "a clear operator that is not next to an allow one",
    Reason.CONVERTED: "every consumer is low, so it is stored in {precision}",
    Reason.CONSTANT: "a constant that something reads as float32",
    Reason.NO_ALLOW: "the model has no allow operator to be next to",
}
"""What each reason says, for people."""


def explain(result: Report | RewriteResult, node: str) -> str:
    """Return why a node has its types: one line per type variable, back to the origin.

    Args:
        result: What `rewrite` returned, or its report.
        node: The node's name.

    Raises:
        OptionError: The model has no such node.
    """
    report = result if isinstance(result, Report) else result.report
    found = [record for record in report.nodes if record.name == node]
    if not found:
        close = [r.name for r in report.nodes if node.lower() in r.name.lower()][:5]
        raise OptionError(
            "no node has this name",
            found=repr(node),
            expected=" or ".join(map(repr, close)) or "a node name of the model",
            remedy="`amp-rewrite explain MODEL` lists them",
        )
    index = _index(report)
    return "\n".join(line for record in found for line in _lines(report, record, index))


def _index(report: Report) -> dict[str, tuple[NodeRecord, VariableRecord]]:
    return {
        f"{record.name}/{name}": (record, variable)
        for record in reversed(report.nodes)
        for name, variable in record.variables.items()
    }


def _lines(
    report: Report, record: NodeRecord, index: dict[str, tuple[NodeRecord, VariableRecord]]
) -> list[str]:
    where = f" in {record.scope}" if record.scope else ""
    if not record.variables:
        return [f"{record.name} ({record.op}{where}) has no float32 type variable: left as it is"]
    lines: list[str] = []
    many = len(record.variables) > 1
    for name, variable in record.variables.items():
        title = f"{record.name}/{name}" if many else record.name
        verb = "stays" if variable.dtype == FLOAT32.name else "becomes"
        lines.append(
            f"{title} ({record.op}{where}) {verb} {variable.dtype}: "
            f"{_chain(report, f'{record.name}/{name}', variable, index)}"
        )
    return lines


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
    origin = path[-1]
    known = index.get(origin)
    reason = "" if known is None else _phrase(report, known[1]).removeprefix("it is on the ")
    note = "" if known is None else f" ({reason}{_detail(known[1])})"
    through = ", ".join(_node_name(p, index) for p in reversed(path[1:-1]))
    return f"{text} {_node_name(origin, index)}{note}" + (f" through {through}" if through else "")


def _phrase(report: Report, variable: VariableRecord) -> str:
    phrase = PHRASES.get(variable.reason, variable.reason)
    return phrase.format(precision=report.precision, target=report.target)


def _detail(variable: VariableRecord) -> str:
    return f": {variable.detail}" if variable.detail else ""


def _node_name(vertex: str, index: dict[str, tuple[NodeRecord, VariableRecord]]) -> str:
    known = index.get(vertex)
    return vertex if known is None else known[0].name
