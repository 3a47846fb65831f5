"""The page's table of nodes: names, precision, and for each type variable the reason."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from amp_rewrite.base.printable import printable
from amp_rewrite.dtypes import FLOAT32
from amp_rewrite.rewriting.reasons import phrase
from amp_rewrite.rewriting.report.records import NodeRecord, VariableRecord
from amp_rewrite.rewriting.report.rewrite_report import Report

OTHER, LOW, KEPT, MIXED = range(4)
"""The precision of a node: no float32 before, the low type, float32, or both."""

NONE = -1
"""The entry of a column that means nothing."""

Columns = dict[str, list[Any]]
"""The name of a column -> its entries."""


class NodeTable(NamedTuple):
    """The nodes of a page, in execution order, and their type variables, side by side."""

    nodes: Columns
    variables: Columns


def is_drawn(node: NodeRecord) -> bool:
    """Tell whether a node is drawn: a Constant is as little a computation as an initializer."""
    return (node.op, node.domain) != ("Constant", "")


def tabulate_nodes(report: Report, strings: Strings) -> NodeTable:
    """Return the tables of a report's nodes."""
    rows, start = report.nodes, [0]
    for node in rows:
        start.append(start[-1] + len(node.variables))
    nodes: Columns = {
        "name": [strings.number(n.name) for n in rows],
        "op": [strings.number(n.op) for n in rows],
        "domain": [strings.number(n.domain) for n in rows],
        "module": [strings.number(n.module or None) for n in rows],
        "scope": [strings.number(n.scope) for n in rows],
        "list": [strings.number(n.list) for n in rows],
        "part": [strings.number(n.group) for n in rows],
        "precision": [precision_of(n) if is_drawn(n) else OTHER for n in rows],
        "cause": [strings.number(cause_of(n) if is_drawn(n) else None) for n in rows],
        "start": start,
    }
    return NodeTable(nodes, _variables(report, strings))


def precision_of(node: NodeRecord) -> int:
    """Return what a node computes in."""
    low = [v.dtype != FLOAT32.name for v in node.variables.values()]
    if not low:
        return OTHER
    return LOW if all(low) else MIXED if any(low) else KEPT


def cause_of(node: NodeRecord) -> str | None:
    """Return the reason of a node's first 16-bit variable; without any, of its first one."""
    variables = node.variables.values()
    low = (v.reason for v in variables if v.dtype != FLOAT32.name)
    return next(low, None) or next((v.reason for v in variables), None)


def _variables(report: Report, strings: Strings) -> Columns:
    """Return a row for each type variable; `because` is the row of the one it spread from."""
    named = [(f"{n.name}/{name}", name, v) for n in report.nodes for name, v in n.variables.items()]
    row_of = {vertex: row for row, (vertex, _, _) in reversed(list(enumerate(named)))}
    variables = [variable for _, _, variable in named]

    def said(variable: VariableRecord) -> int:
        return strings.number(phrase(variable.reason, report.precision, report.target))

    def bound(variable: VariableRecord) -> int:  # of a low result, if it is proved
        has_bound = variable.dtype != FLOAT32.name and variable.bound
        return strings.number(f"{variable.bound:.4g}") if has_bound else NONE

    return {
        "name": [strings.number(name) for _, name, _ in named],
        "type": [strings.number(v.dtype) for v in variables],
        "reason": [strings.number(v.reason) for v in variables],
        "said": [said(v) for v in variables],
        "detail": [strings.number(v.detail) for v in variables],
        "because": [row_of.get(v.because or "", NONE) for v in variables],
        "from": [strings.number(v.because) for v in variables],
        "bound": [bound(v) for v in variables],
    }


@dataclass
class Strings:
    """The strings of a page, each of them once, as a reader is shown them."""

    texts: list[str] = field(default_factory=list[str])
    _numbers: dict[str, int] = field(default_factory=dict[str, int])

    def number(self, text: str | None) -> int:
        """Return the number of a string, NONE for None."""
        if text is None:
            return NONE
        number_of = self._numbers.get(text)
        if number_of is None:
            number_of = self._numbers[text] = len(self.texts)
            self.texts.append(printable(text))
        return number_of
