"""The parts of a model that are not in 16 bits, for devices that compute in nothing else.

Casts at the inputs and outputs of the model are no part of it: whoever runs it there makes them.
What an operator takes as float32 in whatever model is a setting, Resize's scales for one, and does
not count.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from onnx import TensorProto

from amp_rewrite.base.printable import counted, few
from amp_rewrite.graph.added import SUFFIX
from amp_rewrite.graph.constants import stored_tensor
from amp_rewrite.graph.elements import element
from amp_rewrite.graph.flat import ABSENT, FlatGraph
from amp_rewrite.graph.infer import infer
from amp_rewrite.rewriting.reasons import plain_phrase

if TYPE_CHECKING:
    from amp_rewrite.rewriting.report.rewrite_report import Report

_WIDE = frozenset({TensorProto.FLOAT, TensorProto.DOUBLE})

_OTHER = "reads or makes float32"


def float32_left(flat: FlatGraph) -> dict[str, str]:
    """Return the names of the nodes that read or make float32 or float64 -> their operators."""
    left: dict[str, str] = {}
    wide = [element(t) in _WIDE if t is not None else False for t in infer(flat)]
    inputs, outputs = {*flat.main.inputs}, {*flat.main.outputs}
    for node, name in enumerate(flat.node_names):
        op, reads, results = flat.called(node).op_type, flat.inputs_of(node), flat.outputs_of(node)
        if op == "Constant" or flat.bodies_in(node):
            continue  # its readers count, or what is inside
        is_cast = op == "Cast"
        if is_cast and (reads[0] in inputs or results[0] in outputs):
            continue
        held = (v for v in reads if v != ABSENT and wide[v])
        settings = is_cast or any(v != ABSENT and wide[v] for v in results)
        counts = [v for v in held if settings or stored_tensor(flat, v) is None]
        if counts or any(v != ABSENT and wide[v] for v in results):
            left[name] = op
    return left


def lines_of_left(left: Mapping[str, str], why: Mapping[str, str], precision: str) -> list[str]:
    """Return one line for each operator and reason that keeps nodes from being in 16 bits.

    `left` has the operators of nodes, `why` the reasons of some. Nodes that were added count where
    there is nothing else.
    """
    nodes_of: dict[tuple[str, str], list[str]] = {}
    original = {node: op for node, op in left.items() if not node.endswith(SUFFIX)}
    for node, op in (original or left).items():
        nodes_of.setdefault((op, why.get(node, _OTHER)), []).append(node)
    named = sorted(nodes_of.items(), key=lambda item: item[0][1] == _OTHER)
    return [
        f"{counted(len(nodes), 'node')} of {op} cannot be {precision}: {few(nodes)}: {reason}"
        for (op, reason), nodes in named
    ]


def reasons_of(report: Report) -> dict[str, str]:
    """Return what a report says of each node of which something is float32."""
    return {
        node.name: plain_phrase(variable.reason, report.precision, report.target)
        for node in report.nodes
        for variable in reversed([*node.variables.values()])
        if variable.dtype not in (report.precision,)
    }
