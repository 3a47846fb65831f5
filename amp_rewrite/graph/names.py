"""Names: how errors call a node."""

from __future__ import annotations

import onnx_ir as ir


def place(node: ir.Node) -> str:
    """Return a node's name and operator, as `where` of an error."""
    operator = f"{node.domain}::{node.op_type}" if node.domain else node.op_type
    return f"node {node.name!r} ({operator})"
