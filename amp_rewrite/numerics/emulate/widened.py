"""`widened`: a mixed model as the float32 model that it was made from."""

from __future__ import annotations

import onnx_ir as ir

from amp_rewrite.dtypes import FLOAT32
from amp_rewrite.graph.clone import clone
from amp_rewrite.graph.elements import set_element
from amp_rewrite.graph.infer import infer_types
from amp_rewrite.graph.io.functions import inline
from amp_rewrite.numerics.emulate.model import low_values
from amp_rewrite.numerics.emulate.type_attributes import (
    LOW_MEMBERS,
    is_low_tensor,
    make_float32,
    widen,
)


def widened(model: ir.Model) -> ir.Model:
    """Return a mixed model in which every float16 and bfloat16 value is float32; none is rounded.

    Values keep their names. Weights and constants keep the numbers that they were rounded to.

    Args:
        model: Made from a float32 model, so that every operator takes float32; not modified.
            Functions are inlined in the result.

    Raises:
        GraphError: A function cannot be inlined.
    """
    wide = clone(model)
    inline(wide)
    low = low_values(infer_types(wide))
    for node in wide.graph.all_nodes():
        make_float32(node)
        if node.domain == "" and node.op_type == "Cast" and _casts_low(node):
            node.attributes["to"] = ir.AttrInt64("to", FLOAT32.number)
    for graph in (wide.graph, *wide.graph.subgraphs()):
        for value in graph.initializers.values():
            if value.const_value is not None and is_low_tensor(value.const_value):
                value.const_value = widen(value.const_value)
    for value in low:
        if value is not None:
            set_element(value, FLOAT32)
    return wide


def _casts_low(node: ir.Node) -> bool:
    return node.attributes.get_int("to", FLOAT32.number) in {low.value for low in LOW_MEMBERS}
