"""Errors of the standard's training format."""

from __future__ import annotations

import onnx_ir as ir

from amp_rewrite.errors import AmpError


class TrainingInfoError(AmpError):
    """A model's training_info, or an operator of ai.onnx.preview.training, is not usable."""


def place(node: ir.Node) -> str:
    """Return a node's name and operator, as `where` of an error."""
    return f"node {node.name!r} ({node.domain}::{node.op_type})"
