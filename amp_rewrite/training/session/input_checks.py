"""Checks of what is fed: classes, rows and lone examples that a step can do nothing with, NaN."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from amp_rewrite.dtypes import BFLOAT16
from amp_rewrite.errors import FeedError
from amp_rewrite.grad.builder.known import dims, symbolic_dims
from amp_rewrite.graph.names import place
from amp_rewrite.graph.traits import Trait, has
from amp_rewrite.runtimes.ort.ort_values import copy_of, from_dlpack, is_ort_value

_TRAINS = "training_mode"


@dataclass(frozen=True)
class IndexRange:
    """The integers that an operator takes.

    Attributes:
        low: The lowest one.
        high: The lowest one that is too high; None if it is not known.
        ignored: One that is none of them and still allowed, or None.
        what: What they number: "class" or "row".
        where: The operator.
        averages: Whether the result is a mean over those that are not ignored.
    """

    low: int
    high: int | None
    ignored: int | None
    what: str
    where: str
    averages: bool = False


def index_ranges(value: ir.Value) -> Iterator[IndexRange]:
    """Yield the ranges of the operators that read all elements of a value as indices."""
    for use in value.uses():
        node = use.node
        if has(node, Trait.LOSS) and use.idx == 1:
            yield _classes(node)
        elif node.op_type == "Gather" and not node.domain and use.idx == 1:
            yield from _rows(node)
        elif use.idx == 0 and _keeps_all(node):
            yield from index_ranges(node.outputs[0])


def _keeps_all(node: ir.Node) -> bool:
    """Return whether all elements of the first input are in the output, with their values."""
    if node.op_type == "Cast" and not node.domain:
        return node.attributes.get_int("to", 0) in (ir.DataType.INT64, ir.DataType.INT32)
    return has(node, Trait.REARRANGES) and len(node.outputs) == 1


def _classes(node: ir.Node) -> IndexRange:
    """Return the class numbers that a loss takes; scores are (N, C, ...)."""
    scores = None if node.inputs[0] is None else dims(node.inputs[0])
    ignored = node.attributes.get("ignore_index")
    return IndexRange(
        low=0,
        high=scores[1] if scores is not None and len(scores) > 1 else None,
        ignored=None if ignored is None else ignored.as_int(),
        what="class",
        where=place(node),
        averages=node.attributes.get_string("reduction", "mean") == "mean",
    )


def _rows(node: ir.Node) -> Iterator[IndexRange]:
    """Yield the row numbers that a Gather takes; those below 0 count from the end."""
    table = None if node.inputs[0] is None else dims(node.inputs[0])
    length = table[node.attributes.get_int("axis", 0)] if table else None
    if length is not None:
        yield IndexRange(-length, length, None, "row", place(node))


def batches_normalized(graph: ir.Graph) -> Iterator[tuple[str, str]]:
    """Yield the length of the batch, and the node, of what normalizes over the batch alone."""
    for node in graph:
        if node.op_type != "BatchNormalization" or not node.attributes.get_int(_TRAINS, 0):
            continue
        lengths = None if node.inputs[0] is None else symbolic_dims(node.inputs[0])
        if lengths and isinstance(lengths[0], str) and all(n == 1 for n in lengths[2:]):
            yield lengths[0], place(node)


Array = np.ndarray[Any, Any]


def refuse_one(lengths: Mapping[str, int], normalized: Mapping[str, str]) -> None:
    """Refuse a batch of one example where the step normalizes over the batch alone."""
    for symbol, where in normalized.items():
        if lengths.get(symbol) == 1:
            raise FeedError(
                "a batch of one example cannot train a batch normalization: one number in each "
                "channel is its own mean, and its gradient is zero",
                where=where,
                found=f"{symbol} = 1",
                expected="at least 2 examples in a batch",
                remedy="choose another size of batches, or leave the last one out",
            )


def non_finite(tensors: Mapping[str, Any]) -> dict[str, int]:
    """Return input -> how many of its numbers are not finite, where there are any."""
    arrays = {name: on_host(tensor) for name, tensor in tensors.items()}
    counts = {
        name: int((~np.isfinite(array)).sum())
        for name, array in arrays.items()
        if _is_floating(array)
    }
    return {name: count for name, count in counts.items() if count}


def _is_floating(array: Array) -> bool:
    return array.dtype.kind == "f" or array.dtype == BFLOAT16.ir.numpy()


def on_host(fed: Any) -> Array:
    """Return what was fed, which may lie on a device, as an array."""
    if not isinstance(fed, np.ndarray) and hasattr(fed, "__dlpack__"):
        fed = from_dlpack(fed)
    return copy_of(fed) if is_ort_value(fed) else np.asarray(fed)


def check_range(name: str, array: Array, limits: IndexRange) -> None:
    """Refuse integers out of range."""
    if limits.averages and limits.ignored is not None and (array == limits.ignored).all():
        raise FeedError(
            f"the feed {name!r} holds no {limits.what} that counts: the mean of nothing is NaN",
            where=limits.where,
            found=f"{limits.ignored}, which is ignored, {array.size} times",
            remedy="leave such a batch out",
        )
    wrong = array < limits.low
    if limits.high is not None:
        wrong |= array >= limits.high
    if limits.ignored is not None:
        wrong &= array != limits.ignored
    if not wrong.any():
        return
    top = "" if limits.high is None else f" to {limits.high - 1}"
    other = "" if limits.ignored is None else f", or {limits.ignored}"
    remedy = "number the classes from 0, or let the loss ignore this number by ignore_index"
    raise FeedError(
        f"the feed {name!r} holds a {limits.what} that does not exist",
        where=limits.where,
        found=_first(array, wrong),
        expected=f"integers from {limits.low}{top}{other}",
        remedy=remedy if limits.what == "class" else "feed numbers of rows of the table",
    )


def _first(array: Array, wrong: Array) -> str:
    """Return the first wrong element, where it is, and how many there are."""
    index = tuple(int(i) for i in np.argwhere(wrong)[0])
    place = "" if not index else f" at {list(index)}"
    return f"{array[index]}{place}; {int(wrong.sum())} of {array.size} are wrong"
