"""onnx's checker, which decides about a rewritten model before its file appears.

It takes 3 to 4 ms for MiniLM and ResNet-50, which is 0.7 % of what converting them takes.
"""

from __future__ import annotations

from collections.abc import Callable

import onnx.checker
import onnx.shape_inference

from amp_rewrite.errors import InvariantError
from amp_rewrite.graph.proto.missing_shapes import ENDS_INFERENCE


def checker_fault(content: bytes) -> str | None:
    """Return what onnx's checker, with inference of shapes, says against a model; None for nothing.

    Args:
        content: A serialized ModelProto, in which large weights are graph inputs.
    """
    try:
        onnx.checker.check_model(content, full_check=ENDS_INFERENCE.encode() not in content)
    except (
        onnx.checker.ValidationError,
        onnx.shape_inference.InferenceError,
        RuntimeError,
        ValueError,
    ) as error:
        return " ".join(str(error).split()) or type(error).__name__
    return None


def refuse_faults(fault: str | None, of_source: Callable[[], str | None], where: object) -> None:
    """Refuse a rewritten model that has a fault where the model that was given has none.

    Args:
        fault: What the checker says against the rewritten model.
        of_source: Returns what it says against the other one; called if there is a fault.
        where: The file that was to be written.

    Raises:
        InvariantError: The rewrite made the fault.
    """
    if fault is not None and of_source() is None:
        raise InvariantError(
            f"the rewritten model is not valid: {fault}",
            where=where,
            remedy="please report this with the model; nothing was written",
        )
