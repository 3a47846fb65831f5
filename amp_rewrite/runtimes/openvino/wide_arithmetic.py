"""Values that a model computes in more bits than OpenVINO has: it computes int64 in 32 of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import onnx_ir as ir

from amp_rewrite.errors import warn
from amp_rewrite.graph.names import place
from amp_rewrite.graph.traits import operator

_NARROW = np.iinfo(np.int32)
_INTEGERS = (ir.DataType.INT64, ir.DataType.UINT64, ir.DataType.UINT32)

# operators: those whose results are others where a number of theirs loses its upper bits. Bounds of
# a Slice may be as large as they like.
_ARITHMETIC = (
    "Add Sub Mul Div Mod Pow Min Max Clip Sum Equal Less Greater LessOrEqual GreaterOrEqual Where "
    "BitwiseAnd BitwiseOr BitwiseXor BitwiseNot BitShift CumSum ReduceSum Range"
)


def warn_of_wide_arithmetic(graph: ir.Graph, what: str) -> None:
    """Warn of the first node that OpenVINO computes with less precision."""
    words = next(wide_arithmetic(graph), None)
    if words is not None:
        _warn(f"of {what} {words}")


def warn_of_wide_feeds(feeds: Mapping[str, object]) -> None:
    """Warn of an integer that loses its upper bits on its way to OpenVINO."""
    for name, value in feeds.items():
        if exceeds(np.asarray(value)):
            _warn(f"{name!r} is fed an integer beyond them")


def _warn(what: str) -> None:
    limits = "OpenVINO computes int64 in 32 bits and float64 in float32"
    warn(f"{limits}, and {what}: results may differ from ONNX Runtime's")


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
    tensor = ir.convenience.get_const_tensor(value)
    return tensor is not None and exceeds(tensor.numpy())


def exceeds(array: np.ndarray[tuple[int, ...], np.dtype[np.generic]]) -> bool:
    """Return whether an array holds an integer that int32 does not."""
    if array.dtype.kind not in "iu" or array.dtype.itemsize < 4 or not array.size:
        return False
    return int(array.max()) > _NARROW.max or int(array.min()) < _NARROW.min
