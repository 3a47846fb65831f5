"""The opset that gradient rules need, and an older model brought to it."""

from __future__ import annotations

import onnx_ir as ir

from amp_rewrite.errors import GradientError
from amp_rewrite.graph.io.convert_opset import CANNOT_CONVERT, converted_proto
from amp_rewrite.graph.io.load import load
from amp_rewrite.graph.io.save import to_proto

OLDEST = 16
"""Gradient rules hold from this opset on, from which a scatter can add."""

INITIALIZERS_ALONE = 4
"""The IR version from which an initializer need not be a graph input; ONNX Runtime never minds."""

_TARGET = 17
"""What older models are converted to: 18 moves the axes of every reduction."""


def modernise(model: ir.Model) -> None:
    """Bring a model of an opset that the gradient rules do not know up to one that they do."""
    opset = model.graph.opset_imports.get("", OLDEST)
    if opset >= OLDEST:
        return
    external = [
        v.const_value
        for v in model.graph.initializers.values()
        if isinstance(v.const_value, ir.ExternalTensor)
    ]
    try:
        old = to_proto(model)
        old.ir_version = max(old.ir_version, INITIALIZERS_ALONE)
        proto = converted_proto(old, _TARGET)
        new = load(proto, base_dir=external[0].base_dir if external else None)
    except CANNOT_CONVERT as error:
        reason = str(error).rsplit(" failed: ", 1)[-1]  # without the place in the C++ source
        raise GradientError(
            "a model of this opset has no gradients",
            found=f"opset {opset}, which the converter of onnx cannot raise to {_TARGET}: {reason}",
            expected=f"opset {OLDEST} or later",
            remedy="export the model with a later opset",
        ) from error
    model.graph, model.ir_version = new.graph, new.ir_version
