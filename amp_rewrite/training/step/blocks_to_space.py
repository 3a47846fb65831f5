"""Blocks of four values put side by side by DepthToSpace, for an engine that does that fast.

`grad.rules.pooling` puts them side by side by three Concat, which is fastest on ONNX Runtime.
OpenVINO copies the elements of a Concat of columns one by one.
"""

from __future__ import annotations

import onnx_ir as ir

from amp_rewrite.graph.step_part import Part
from amp_rewrite.graph.traverse import remove_unused_nodes
from amp_rewrite.training.builder.builder import Builder
from amp_rewrite.training.builder.known import dims
from amp_rewrite.training.builder.replace import take_place

_APART = 6
"""The rank of values (N, C, H, 1, W, 1), of which two make columns and four make blocks."""


def move_blocks(model: ir.Model) -> None:
    """Replace Concat of columns and of rows, in place, in a step of known types and shapes."""
    b = Builder(model, scope="blocks", part=Part.GRADIENT)
    for node in list(model.graph):
        parts = _parts(node)
        if not parts or None in (dims(node.outputs[0]) or (None,)):
            continue
        joined = b.concat(parts, 1)
        space = b.op("DepthToSpace", joined, blocksize=2)
        take_place(b.reshape_like(space, node.outputs[0]), node.outputs[0])
    if b.added:
        model.graph.sort()
        remove_unused_nodes(model.graph)


def _parts(node: ir.Node) -> list[ir.Value]:
    """Return the four values (N, C, H, W) that a node puts side by side; none if it does not."""
    rows = _joined(node, 3)
    columns = [part for row in rows for part in _joined(row.producer(), 5)]
    apart = [value.producer() for value in columns]
    # operators: those that make a value one of rank 6.
    sources = [
        n.inputs[0] for n in apart if n is not None and n.op_type in ("Unsqueeze", "Reshape")
    ]
    parts = [value for value in sources if value is not None and len(dims(value) or ()) == 4]
    return parts if len(parts) == 4 else []


def _joined(node: ir.Node | None, axis: int) -> list[ir.Value]:
    """Return the two inputs of a Concat along an axis of values of rank 6, or none."""
    if node is None or node.op_type != "Concat" or node.attributes.get_int("axis", 0) != axis:
        return []
    values = [value for value in node.inputs if value is not None]
    return values if len(values) == 2 and len(dims(values[0]) or ()) == _APART else []
