"""Errors of differentiation."""

from __future__ import annotations

import onnx_ir as ir

from amp_rewrite.errors import AmpError


class GradientError(AmpError):
    """A graph cannot be differentiated; `where` is the node concerned."""


def place(node: ir.Node) -> str:
    """Return a node's name and operator, as `where` of an error."""
    operator = f"{node.domain}::{node.op_type}" if node.domain else node.op_type
    return f"node {node.name!r} ({operator})"
