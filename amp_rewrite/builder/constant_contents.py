"""The content of constants."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

_NUMBERS = {
    "value_float": np.float32,
    "value_floats": np.float32,
    "value_int": np.int64,
    "value_ints": np.int64,
}


def constant_tensor(value: ir.Value) -> ir.TensorProtocol | None:
    """Return the tensor of an initializer or of a Constant node; None for what is neither.

    `onnx_ir.convenience.get_const_tensor` names the tensor of a node, which clones share, anew. An
    initializer that is a graph input too can be fed, hence is no constant.
    """
    if value.is_graph_input():
        return None
    node = value.producer()
    if node is None:
        return value.const_value
    if node.op_type != "Constant" or node.domain not in ("", "ai.onnx"):
        return None
    for attribute in node.attributes.values():
        if attribute.is_ref():
            return None
        if attribute.name == "value":
            return attribute.as_tensor()
        if attribute.name in _NUMBERS:
            return ir.Tensor(np.array(attribute.value, _NUMBERS[attribute.name]))
    return None
