"""Whether ONNX Runtime has any kernel for a node as it is, so that a file loads at all.

A node without a kernel on its provider goes to the CPU provider. Where that has none in float16,
ONNX Runtime puts casts around its float32 kernel; of no other type. A bfloat16 MatMul amid float32
so ends the loading of a file for the CPU: "Could not find an implementation"
(https://github.com/microsoft/onnxruntime/issues/26311).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx

from amp_rewrite.dtypes import FLOAT16, FLOAT32, DType
from amp_rewrite.graph.elements import with_element
from amp_rewrite.kernels.kernel_table import KernelTable, table_of
from amp_rewrite.targets import ARM64, CPU, OPENVINO, TENSORRT, Target


def can_run(
    target: Target,
    operator: tuple[str, str, int],
    low: DType,
    variables: Sequence[tuple[str, str]],
) -> bool:
    """Tell whether ONNX Runtime runs an operator for a target with some variables in a 16-bit type.

    The answer is yes for another engine, and for an operator that no table has.

    Args:
        target: The target; it may stand for several.
        operator: Domain, name and opset.
        low: The type.
        variables: The schema's name of each variable that has it, and its type in float32.
    """
    return all(_runs(part, operator, low, variables) for part in target.parts or (target,))


def _runs(
    target: Target,
    operator: tuple[str, str, int],
    low: DType,
    variables: Sequence[tuple[str, str]],
) -> bool:
    table = table_of(target)
    if table is None or target.provider is None or target.kernels in (OPENVINO, TENSORRT):
        return True
    domain, op, opset = operator
    fallback = table if target.provider == ARM64 else KernelTable.load(CPU)
    if (domain, op) not in table.kernels and (domain, op) not in fallback.kernels:
        return True  # a custom operator, or one that is taken out before kernels are looked for

    def has(kernels: KernelTable, dtype: DType) -> bool:
        return all(
            kernels.has_kernel(domain, op, opset, {name: with_element(type_, dtype)})
            for name, type_ in variables
        )

    types = [with_element(type_, low) for _, type_ in variables]
    if not table.loads(domain, op, opset, types):
        return False
    if has(table, low) or has(fallback, low):
        return True
    if low is FLOAT16 and has(fallback, FLOAT32):
        return True
    return target.provider not in (CPU, ARM64) and _is_function(domain, op, opset)


def _is_function(domain: str, op: str, opset: int) -> bool:
    """Tell whether ONNX defines an operator by others, for which a provider may have kernels.

    The CPU provider has none for arithmetic in bfloat16.
    """
    try:
        schema: Any = onnx.defs.get_schema(op, opset, domain)
    except onnx.defs.SchemaError:
        return False
    return bool(schema.has_function or schema.has_context_dependent_function)
