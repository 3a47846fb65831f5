"""Give a low-precision model float32 inputs and outputs: ONNX Runtime has no numpy bfloat16."""

from __future__ import annotations

import onnx_ir as ir

from amp_rewrite import dtypes
from amp_rewrite.dtypes import FLOAT32, DType
from amp_rewrite.emulate.insert import Inserter
from amp_rewrite.graph import elements
from amp_rewrite.graph.constants import FIRST_IR_WITH_OVERRIDES
from amp_rewrite.graph.infer import Types
from amp_rewrite.rewrite.retype import retype_value


def widen_boundary(model: ir.Model, types: Types) -> None:
    """Cast low inputs and outputs of the main graph inside it; the model is modified.

    A fed number that the low type has, and any result, are the same numbers in float32.
    """
    low = {v: t for v in (*model.graph.inputs, *model.graph.outputs) if (t := _low(types.get(v)))}
    if not low:
        return
    insert = Inserter(model)
    for index, value in enumerate(list(model.graph.outputs)):
        if value in low:
            wide = insert.narrow_output(value, types[value], FLOAT32)
            model.graph.outputs[index] = wide
    for value in model.graph.inputs:
        constant = value.is_initializer()
        if value in low and not (constant and model.ir_version < FIRST_IR_WITH_OVERRIDES):
            insert.low_input(value, types[value], low[value])
            retype_value(value, FLOAT32)


def _low(type_: str | None) -> DType | None:
    member = None if type_ is None else elements.element(type_)
    return None if member is None else dtypes.LOW.get(dtypes.dtype_name(member))
