"""What a step can do nothing useful with: classes and rows that do not exist, lone examples."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import onnx_ir as ir

from amp_rewrite.graph.names import place
from amp_rewrite.graph.traits import Trait, has
from amp_rewrite.training.builder.known import dims, symbolic_dims

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


@dataclass(frozen=True)
class InputLimits:
    """What the data inputs of a step may hold.

    Attributes:
        ranges: Input of integers -> the ranges that its elements must be in.
        normalized: Name of a length -> the BatchNormalization that has one number per channel to
            normalize if that length is 1.
    """

    ranges: Mapping[str, tuple[IndexRange, ...]]
    normalized: Mapping[str, str]


def input_limits(graph: ir.Graph, inputs: Iterable[str]) -> InputLimits:
    """Return what the data inputs of a step may hold, as far as its operators tell."""
    names = set(inputs)
    values = [value for value in graph.inputs if value.name in names]
    ranges_of = {str(v.name): tuple(_ranges(v)) for v in values if v.dtype and v.dtype.is_integer()}
    lengths = {dim for v in values for dim in (symbolic_dims(v) or ())[:1] if isinstance(dim, str)}
    lone = {str(length): where for length, where in _batches_normalized(graph)}
    return InputLimits(
        {name: ranges for name, ranges in ranges_of.items() if ranges},
        {length: where for length, where in lone.items() if length in lengths},
    )


def _ranges(value: ir.Value) -> Iterator[IndexRange]:
    """Yield the ranges of the operators that read all elements of a value as indices."""
    for use in value.uses():
        node = use.node
        if has(node, Trait.LOSS) and use.idx == 1:
            yield _classes(node)
        elif node.op_type == "Gather" and not node.domain and use.idx == 1:
            yield from _rows(node)
        elif use.idx == 0 and _keeps_all(node):
            yield from _ranges(node.outputs[0])


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


def _batches_normalized(graph: ir.Graph) -> Iterator[tuple[str, str]]:
    """Yield the length of the batch, and the node, of what normalizes over the batch alone."""
    for node in graph:
        if node.op_type != "BatchNormalization" or not node.attributes.get_int(_TRAINS, 0):
            continue
        lengths = None if node.inputs[0] is None else symbolic_dims(node.inputs[0])
        if lengths and isinstance(lengths[0], str) and all(n == 1 for n in lengths[2:]):
            yield lengths[0], place(node)
