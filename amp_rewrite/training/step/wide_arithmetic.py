"""What a step computes in more bits than an engine has."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx_ir as ir

from amp_rewrite.errors import StepError
from amp_rewrite.graph.names import place
from amp_rewrite.graph.traits import operator
from amp_rewrite.training.builder.known import constant_tensor
from amp_rewrite.training.step.step_info import StepInfo

NARROW = np.iinfo(np.int32)
"""What an engine holds that computes int64 in 32 bits."""

_INTEGERS = (ir.DataType.INT64, ir.DataType.UINT64, ir.DataType.UINT32)

# operators: those whose results are others where a number of theirs loses its upper bits. Bounds of
# a Slice may be as large as they like.
_ARITHMETIC = (
    "Add Sub Mul Div Mod Pow Min Max Clip Sum Equal Less Greater LessOrEqual GreaterOrEqual Where "
    "BitwiseAnd BitwiseOr BitwiseXor BitwiseNot BitShift CumSum ReduceSum Range"
)


def check_narrow_states(info: StepInfo, engine: str) -> None:
    """Refuse tensors among the states that an engine would compute in fewer bits.

    Args:
        info: The step.
        engine: What it is called.

    Raises:
        StepError: One is float64. Single numbers are computed by ONNX Runtime, whatever the engine.
    """
    for state in info.states:
        if state.dtype == "double" and state.shape not in ((), (1,)):
            raise StepError(
                f"{engine} computes float64 in float32",
                where=f"state {state.name!r}",
                found="float64",
                expected="float32 or lower",
                remedy="train it with CPUExecutionProvider, or store the model in float32",
            )


def wide_arithmetic(graph: ir.Graph) -> Iterator[str]:
    """Yield in words the nodes that compute in float64, or with integers beyond 32 bits."""
    for node in graph.all_nodes():
        if any(value.dtype is ir.DataType.DOUBLE for value in node.outputs):
            yield f"{place(node)} computes in float64"
        elif operator(node) in _ARITHMETIC.split() and any(map(_is_beyond, node.inputs)):
            yield f"{place(node)} has an integer beyond 32 bits"


def _is_beyond(value: ir.Value | None) -> bool:
    """Return whether a value is a constant that 32 bits do not hold."""
    if value is None or value.dtype not in _INTEGERS:
        return False
    tensor = constant_tensor(value)
    return tensor is not None and exceeds(tensor.numpy())


def exceeds(array: np.ndarray[tuple[int, ...], np.dtype[np.generic]]) -> bool:
    """Return whether an array holds an integer that int32 does not."""
    if array.dtype.kind not in "iu" or array.dtype.itemsize < 4 or not array.size:
        return False
    return int(array.max()) > NARROW.max or int(array.min()) < NARROW.min
