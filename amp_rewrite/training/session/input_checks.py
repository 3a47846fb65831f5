"""Checks of numbers that are fed: classes and rows that do not exist, and NaN."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from amp_rewrite.dtypes import BFLOAT16
from amp_rewrite.errors import FeedError
from amp_rewrite.grad.builder.known import dims
from amp_rewrite.graph.names import place
from amp_rewrite.graph.traits import Trait, has
from amp_rewrite.runtimes.ort.ort_values import copy_of, from_dlpack, is_ort_value


@dataclass(frozen=True)
class IndexRange:
    """The integers that an operator takes: from low to below high, which None leaves open.

    `ignored` is allowed besides. They number a `what`: a class or a row. The result `averages` over
    those that are not ignored, or it does not.
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


Array = np.ndarray[Any, Any]


def non_finite(tensors: Mapping[str, Any]) -> dict[str, int]:
    """Return input -> how many of its numbers are not finite, where there are any."""
    counts: dict[str, int] = {}
    for name, array in ((name, on_host(tensor)) for name, tensor in tensors.items()):
        if array.dtype.kind == "f" or array.dtype == BFLOAT16.ir.numpy():
            counts[name] = int((~np.isfinite(array)).sum())
    return {name: count for name, count in counts.items() if count}


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
    index = tuple(int(i) for i in np.argwhere(wrong)[0])
    place_of_first = f" at {list(index)}" if index else ""
    raise FeedError(
        f"the feed {name!r} holds a {limits.what} that does not exist",
        where=limits.where,
        found=f"{array[index]}{place_of_first}; {int(wrong.sum())} of {array.size} are wrong",
        expected=f"integers from {limits.low}{top}{other}",
        remedy=remedy if limits.what == "class" else "feed numbers of rows of the table",
    )
