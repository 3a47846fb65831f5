"""Ask a forward node for more of its outputs, so that nothing is computed twice."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from amp_rewrite.training.builder.builder import Builder
from amp_rewrite.training.builder.known import Length


def extra_output(
    b: Builder, node: ir.Node, index: int, dtype: ir.DataType, dims: Sequence[Length] | None
) -> ir.Value:
    """Return an optional output of a forward node, which gets it if it has none."""
    if len(node.outputs) <= index:
        node.resize_outputs(index + 1)
    for value in node.outputs[1:]:
        # An output without a name is one that is not computed.
        if not value.name and value is node.outputs[index]:
            value.name = b.free_name(f"{node.outputs[0].name}:{index}")
    value = node.outputs[index]
    if value.type is None:
        value.type = ir.TensorType(dtype)
        value.shape = None if dims is None else ir.Shape(dims)
    return value
