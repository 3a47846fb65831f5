"""onnx's checker, which decides about a rewritten model before its file appears."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import onnx.checker

from amp_rewrite.errors import InvariantError
from amp_rewrite.graph.io.content import Content
from amp_rewrite.graph.proto.shape_inference import ENDS_INFERENCE, FAILURES

if TYPE_CHECKING:
    import onnx_ir as ir

MANY_NODES = 2_000
"""Of more nodes types are not inferred, which takes three times as long as all else."""


def checker_fault(content: Content) -> str | None:
    """Return what onnx's checker says against a model, large weights aside; None for nothing."""
    if content.refers:
        return None
    slim = content.slim()
    full = content.n_nodes <= MANY_NODES and ENDS_INFERENCE.encode() not in slim
    try:
        onnx.checker.check_model(slim, full_check=full)
    except (onnx.checker.ValidationError, *FAILURES) as error:
        return " ".join(str(error).split()) or type(error).__name__
    return None


def refuse_faults(fault: str | None, of_source: Callable[[], str | None], where: object) -> None:
    """Refuse a rewritten model that has a fault where the model that was given has none."""
    if fault is not None and of_source() is None:
        raise InvariantError(
            f"the rewritten model is not valid: {fault}",
            where=where,
            remedy="please report this with the model; nothing was written",
        )


def checker_error(model: ir.Model) -> str | None:
    """Return what onnx's checker says against an object; None for nothing."""
    from amp_rewrite.graph.io.read_object import messages_of

    return checker_fault(Content(*messages_of(model)))
