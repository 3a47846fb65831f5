"""What a model computes in more bits than OpenVINO has: it computes int64 in 32 of them."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from amp_rewrite.errors import AmpWarning
from amp_rewrite.graph.names import place
from amp_rewrite.graph.traits import Trait, has, operator

NARROW = np.iinfo(np.int32)
"""What it holds of an integer."""

_INTEGERS = (ir.DataType.INT64, ir.DataType.UINT64, ir.DataType.UINT32)

# operators: those whose results are others where a number of theirs loses its upper bits. Bounds of
# a Slice may be as large as they like.
_ARITHMETIC = (
    "Add Sub Mul Div Mod Pow Min Max Clip Sum Equal Less Greater LessOrEqual GreaterOrEqual Where "
    "BitwiseAnd BitwiseOr BitwiseXor BitwiseNot BitShift CumSum ReduceSum Range"
)


def warn_of_wide_arithmetic(graph: ir.Graph, what: str) -> None:
    """Warn of the first node that computes otherwise on OpenVINO."""
    words = next(wide_arithmetic(graph), None)
    if words is not None:
        warnings.warn(
            f"OpenVINO computes int64 in 32 bits and float64 in float32, and of {what} {words}: "
            "results may differ from ONNX Runtime's",
            AmpWarning,
            stacklevel=3,
        )


def warn_of_wide_feeds(feeds: Mapping[str, object]) -> None:
    """Warn of an integer that loses its upper bits on its way to OpenVINO."""
    for name, value in feeds.items():
        if exceeds(np.asarray(value)):
            warnings.warn(
                f"OpenVINO computes int64 in 32 bits, and {name!r} is fed an integer beyond them: "
                "results may differ from ONNX Runtime's",
                AmpWarning,
                stacklevel=3,
            )


class FedIntegers:
    """What a model computes of the integers that it is fed, by sums, differences and products."""

    def __init__(self, graph: ir.Graph, what: str) -> None:
        """Find the nodes; `what` is the model as warnings call it."""
        self._what, self._nodes = what, list[ir.Node]()
        bounded = {value for value in graph.inputs if value.dtype in _INTEGERS}
        for node in graph:
            kind = operator(node) in _BOUNDS or _passes(node)
            if kind and all(v in bounded or _bounds(v) is not None for v in _read(node)):
                self._nodes.append(node)
                bounded.update(node.outputs)
        if all(_passes(node) for node in self._nodes):
            self._nodes = []

    def warn(self, feeds: Mapping[str, object]) -> None:
        """Warn of the first node whose results may be beyond 32 bits, going by what is fed."""
        if not self._nodes:
            return
        bounds = {name: _least_and_most(np.asarray(value)) for name, value in feeds.items()}
        for node in self._nodes:
            bounds_read = [
                bounds.get(str(v.name)) or _bounds(v) for v in _read(node) if v is not None
            ]
            bounds_there = [bound for bound in bounds_read if bound is not None]
            if len(bounds_there) == len(bounds_read):
                combined = (
                    bounds_there[0] if _passes(node) else _BOUNDS[operator(node)](*bounds_there)
                )
                bounds[str(node.outputs[0].name)] = combined
                if combined[0] < NARROW.min or combined[1] > NARROW.max:
                    warnings.warn(
                        f"OpenVINO computes int64 in 32 bits, and of {self._what} {place(node)} "
                        "may have results beyond them, going by what is fed: results may differ "
                        "from ONNX Runtime's",
                        AmpWarning,
                        stacklevel=3,
                    )
                    return


_Bounds = tuple[int, int]


def _times(a: _Bounds, b: _Bounds) -> _Bounds:
    corners = [x * y for x in a for y in b]
    return min(corners), max(corners)


_BOUNDS: Mapping[str, Callable[[_Bounds, _Bounds], _Bounds]] = {
    "Add": lambda a, b: (a[0] + b[0], a[1] + b[1]),
    "Sub": lambda a, b: (a[0] - b[1], a[1] - b[0]),
    "Mul": _times,
}


def _passes(node: ir.Node) -> bool:
    """Return whether a node hands on the integers of its first input."""
    is_cast = operator(node) == "Cast" and node.attributes.get_int("to", 0) in _INTEGERS
    return is_cast or (has(node, Trait.REARRANGES) and len(node.outputs) == 1)


def _read(node: ir.Node) -> Sequence[ir.Value | None]:
    return node.inputs[:1] if _passes(node) else node.inputs


def _bounds(value: ir.Value | None) -> _Bounds | None:
    """Return the least and the largest element of a constant of integers."""
    tensor = None if value is None else ir.convenience.get_const_tensor(value)
    return None if tensor is None else _least_and_most(tensor.numpy())


def _least_and_most(array: np.ndarray[Any, Any]) -> _Bounds | None:
    """Return them; None if there are none, or beyond 32 bits, which is said elsewhere."""
    if array.dtype.kind not in "iu" or not array.size or exceeds(array):
        return None
    return int(array.min()), int(array.max())


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
    return int(array.max()) > NARROW.max or int(array.min()) < NARROW.min
