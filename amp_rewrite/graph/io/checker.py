"""onnx's checker, which decides about a rewritten model before its file appears."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import onnx.checker

from amp_rewrite.errors import InvariantError
from amp_rewrite.graph.proto.shape_inference import ENDS_INFERENCE, FAILURES

if TYPE_CHECKING:
    import onnx_ir as ir


def checker_fault(content: bytes, *, types: bool = True) -> str | None:
    """Return what onnx's checker says against a serialized model; None for nothing.

    Large weights are graph inputs. Inferring `types` as well takes three times as long.
    """
    full = types and ENDS_INFERENCE.encode() not in content
    try:
        onnx.checker.check_model(content, full_check=full)
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
    """Return what onnx's checker says against a model, large weights aside; None for nothing."""
    from amp_rewrite.graph.io.write import slim_proto

    return checker_fault(slim_proto(model).SerializeToString())


def refuse_invalid(rewritten: ir.Model, source: Callable[[], ir.Model], where: object) -> None:
    """Refuse a model that onnx's checker refuses, where it accepts the one that it was made of."""
    refuse_faults(checker_error(rewritten), lambda: checker_error(source()), where)
