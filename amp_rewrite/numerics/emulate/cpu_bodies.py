"""Functions behind operators that ONNX Runtime's CPU lacks: it would refuse the model."""

from __future__ import annotations

import onnx_ir as ir

from amp_rewrite import targets
from amp_rewrite.graph.io.functions import inline
from amp_rewrite.kernels.kernel_table import table_of
from amp_rewrite.numerics.emulate.typed_model import TypedModel


def with_cpu_bodies(typed: TypedModel) -> TypedModel:
    """Return a model in which such functions stand in place of their calls.

    The kernel runs wherever there is one; com.microsoft::PackedMultiHeadAttention, say, is one of
    CUDA alone. The model itself is changed.

    Raises:
        GraphError: A function cannot be inlined.
    """
    model, cpu = typed.model, targets.of_provider(targets.CPU)
    table = None if cpu is None else table_of(cpu)
    if not model.functions or table is None:
        return typed

    def lacks_kernel(function: ir.Function) -> bool:
        opset = model.graph.opset_imports.get(function.domain, 1)
        return not table.matching(function.domain, function.name, opset)

    if not any(lacks_kernel(function) for function in model.functions.values()):
        return typed
    inline(model, lacks_kernel)
    return TypedModel(model, spare=typed.spare)
