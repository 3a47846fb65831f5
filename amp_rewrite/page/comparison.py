"""Another file beside ours: what each node computes there, and how far it is from the original."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from amp_rewrite.base.printable import printable
from amp_rewrite.dtypes import FLOAT32, LOW
from amp_rewrite.graph.flat import FlatGraph
from amp_rewrite.graph.infer import infer
from amp_rewrite.graph.io.read_flat import read_flat
from amp_rewrite.numerics.compare.verify_report import VerifyReport
from amp_rewrite.page.columns import Strings
from amp_rewrite.page.node_table import KEPT, OTHER
from amp_rewrite.page.node_table import LOW as LOW_KIND
from amp_rewrite.page.pictures import error_table, short
from amp_rewrite.page.value_table import element_name, types_of
from amp_rewrite.rewriting.api import RewriteResult


@dataclass(frozen=True)
class Other:
    """What another tool made of the model.

    Attributes:
        name: What its file is called.
        size: Its bytes, data files included.
        types: By node of the original, the type of its first result that was float32 there; None
            where the file has no such node, or the node no such result.
        verification: How far it is from the original; None if it was not run.
        failure: Why it could not be run; "" if it could.
    """

    name: str
    size: int
    types: tuple[str | None, ...]
    verification: VerifyReport | None = None
    failure: str = ""


def types_in(result: RewriteResult, path: Path) -> tuple[str | None, ...]:
    """Return, by node of the original, the type of its first float32 result in another file.

    A node is looked for by its name, one without a name by that of its result: tools keep these.

    Raises:
        LoadError: The file cannot be read.
    """
    flat, other_flat = result.flat, read_flat(path)
    types, before = infer(other_flat), types_of(result)[0]
    nodes = {name: node for node, name in enumerate(other_flat.node_names) if name}
    makers = _makers(other_flat)

    def type_of(node: int) -> str | None:
        mine = flat.outputs_of(node)
        port = next((i for i, value in enumerate(mine) if before[value] == FLOAT32.name), None)
        if port is None:
            return None
        other = nodes.get(flat.node_names[node], makers.get(flat.value_names[mine[0]]))
        if other is None or other_flat.called(other)[:2] != flat.called(node)[:2]:
            return None
        outputs = other_flat.outputs_of(other)
        return element_name(types[outputs[port]]) if port < len(outputs) else None

    return tuple(map(type_of, range(flat.n_nodes)))


def _makers(flat: FlatGraph) -> dict[str, int]:
    return {flat.value_names[v]: n for n in range(flat.n_nodes) for v in flat.outputs_of(n)}


def comparison_table(
    result: RewriteResult, other: Other | None, strings: Strings
) -> dict[str, Any] | None:
    """Return what the page shows of another file; None if there is none.

    `ours` and `theirs` are the types of results by node, NONE where there is nothing to compare.
    """
    if other is None:
        return None
    before, after = types_of(result)
    ours = [_result_type(result.flat.outputs_of(n), before, after) for n in range(len(other.types))]
    theirs = [
        theirs if mine is not None else None for mine, theirs in zip(ours, other.types, strict=True)
    ]
    verification = other.verification
    return {
        "name": printable(other.name),
        "size": other.size,
        "ours": [strings.number(name) for name in ours],
        "theirs": [strings.number(name) for name in theirs],
        "precision": [_kind(name) for name in theirs],
        "errors": error_table(result.flat, verification),
        "failure": printable(other.failure),
        "ok": None if verification is None else verification.ok,
        "worst": None if verification is None else _worst_error(verification),
        "said": [
            printable(line) for line in (() if verification is None else verification.failures[:3])
        ],
    }


def _result_type(
    outputs: list[int], before: list[str | None], after: list[str | None]
) -> str | None:
    first = next((v for v in outputs if before[v] == FLOAT32.name), None)
    return None if first is None else after[first]


def _kind(name: str | None) -> int:
    if name is None:
        return OTHER
    return LOW_KIND if name in LOW else KEPT


def _worst_error(report: VerifyReport) -> float | str:
    return short(max((output.scaled_error for output in report.outputs), default=0.0))
