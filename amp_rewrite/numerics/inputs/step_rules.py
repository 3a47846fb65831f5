"""Where a number of steps comes from, one operator back: an axis that is gone along, or a count."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
import onnx_ir as ir

from amp_rewrite.graph.traits import operator, row_of
from amp_rewrite.graph.traverse import subgraphs
from amp_rewrite.numerics.inputs.consumers import constant


@dataclass(frozen=True, slots=True)
class Place:
    """What is looked for behind a value.

    Attributes:
        value: The value.
        at: Its axis that is gone along or, where it `counts`, which of its elements counts; None
            is any of them.
        counts: Whether it holds a number of steps.
    """

    value: ir.Value | None
    at: int | None
    counts: bool = False


Rule = Callable[[ir.Node, Place], Iterator[Place]]
"""Yields the places among a node's inputs that a place of one of its outputs comes from."""


def _of_inputs(
    count: int | None, node: ir.Node, place: Place, *, anywhere: bool = False, counts: bool = False
) -> Iterator[Place]:
    """Yield the same place, or any, of the first `count` inputs; None is all of them."""
    at = None if anywhere else place.at
    yield from (Place(value, at, counts) for value in node.inputs[:count])


# From an axis of a result to axes of operands.


def _out_of_branches(node: ir.Node, place: Place) -> Iterator[Place]:
    if place.value is None:
        return
    index = list(node.outputs).index(place.value)
    for branch in subgraphs(node):
        yield Place(branch.outputs[index], place.at, place.counts)


def same_axis(node: ir.Node, place: Place) -> Iterator[Place]:
    """Yield the same axis of every operand, counted from the end where ranks differ."""
    rank, at = _rank(place.value), place.at
    for value in row_of(node).data_of(node):
        own = _rank(value)
        if at is None or at < 0 or rank is None or own is None or own == rank:
            yield Place(value, at)
        elif at >= rank - own:
            yield Place(value, at - (rank - own))


def _rank(value: ir.Value | None) -> int | None:
    return None if value is None or value.shape is None else value.shape.rank()


def _from_front(place: Place) -> int | None:
    """Return the axis of a result, counted from the first one; None if that is not known."""
    rank = _rank(place.value)
    if place.at is None or place.at >= 0:
        return place.at
    return None if rank is None else place.at + rank


def _before_transpose(node: ir.Node, place: Place) -> Iterator[Place]:
    order, at, rank = node.attributes.get_ints("perm"), _from_front(place), _rank(node.inputs[0])
    if order is None and rank is not None:
        order = range(rank - 1, -1, -1)
    if at is None or order is None or at >= len(order):
        yield Place(node.inputs[0], None)
    else:
        yield Place(node.inputs[0], order[at])


def _before_unsqueeze(node: ir.Node, place: Place) -> Iterator[Place]:
    added, at, rank = _numbers(node, "axes"), _from_front(place), _rank(place.value)
    if added is None or at is None or (rank is None and min(added, default=0) < 0):
        yield Place(node.inputs[0], None)
        return
    places = {a + (rank or 0) if a < 0 else a for a in added}
    if at not in places:
        yield Place(node.inputs[0], at - sum(a < at for a in places))


def _before_squeeze(node: ir.Node, place: Place) -> Iterator[Place]:
    removed, at, rank = _numbers(node, "axes"), _from_front(place), _rank(node.inputs[0])
    if removed is None or at is None or (rank is None and min(removed, default=0) < 0):
        yield Place(node.inputs[0], None)
        return
    for axis in sorted(a + (rank or 0) if a < 0 else a for a in removed):
        at += axis <= at
    yield Place(node.inputs[0], at)


def _before_reduction(node: ir.Node, place: Place) -> Iterator[Place]:
    if node.attributes.get_int("keepdims", 1):
        yield Place(node.inputs[0], place.at)
    else:
        yield from _before_squeeze(node, place)


def _before_reshape(node: ir.Node, place: Place) -> Iterator[Place]:
    """Yield any axis of the data, but the same one where it is copied, and what a shape says."""
    shape, at = _numbers(node, "shape"), _from_front(place)
    copied = shape is not None and at is not None and at < len(shape) and shape[at] == 0
    yield Place(node.inputs[0], at if copied else None)
    if shape is None and len(node.inputs) > 1:
        yield Place(node.inputs[1], at, counts=True)


def _before_product(node: ir.Node, place: Place) -> Iterator[Place]:
    """Yield rows of the first factor, columns of the second, and stacks of both."""
    rank, at = _rank(place.value), place.at
    if at is None or (rank is None and at >= 0):
        yield from (Place(value, at) for value in node.inputs)
        return
    from_end = at - (rank or 0) if at >= 0 else at
    if from_end != -1:
        yield Place(node.inputs[0], from_end)
    if from_end != -2:
        yield Place(node.inputs[1], from_end)


def _general_product(node: ir.Node, place: Place) -> Iterator[Place]:
    at = place.at
    if at in (None, 0, -2):
        yield Place(node.inputs[0], node.attributes.get_int("transA", 0))
    if at in (None, 1, -1):
        yield Place(node.inputs[1], 1 - node.attributes.get_int("transB", 0))


def _before_gather(node: ir.Node, place: Place) -> Iterator[Place]:
    axis, at, rank = node.attributes.get_int("axis", 0), _from_front(place), _rank(node.inputs[1])
    if at is None or axis < 0:
        yield from (Place(value, None) for value in node.inputs)
        return
    rank = 1 if rank is None else rank
    if axis <= at < axis + rank:
        yield Place(node.inputs[1], at - axis)
    else:
        yield Place(node.inputs[0], at if at < axis else at - rank + 1)


def _before_expand(node: ir.Node, place: Place) -> Iterator[Place]:
    yield from same_axis(node, place)
    yield Place(node.inputs[1], _from_front(place), counts=True)


def _before_fill(node: ir.Node, place: Place) -> Iterator[Place]:
    yield Place(node.inputs[0], _from_front(place), counts=True)


def _numbers(node: ir.Node, name: str) -> list[int] | None:
    """Return integers that are an attribute or, in later opsets, the second input."""
    integers = node.attributes.get_ints(name)
    if integers is not None:
        return list(integers)
    return _integers(node.inputs[1]) if len(node.inputs) > 1 else None


def _integers(value: ir.Value | None) -> list[int] | None:
    tensor = constant(value)
    return None if tensor is None else [int(n) for n in tensor.numpy().reshape(-1)]


# operators: those whose axes are not those of all their operands
ALONG: Mapping[str, Rule] = {
    "Transpose": _before_transpose,
    "Unsqueeze": _before_unsqueeze,
    "Squeeze": _before_squeeze,
    "Reshape": _before_reshape,
    "Flatten": _before_reshape,
    "MatMul": _before_product,
    "Gemm": _general_product,
    "Gather": _before_gather,
    "Expand": _before_expand,
    "ConstantOfShape": _before_fill,
    "Range": partial(_of_inputs, None, anywhere=True, counts=True),
    "If": _out_of_branches,
    **dict.fromkeys(
        (
            *("ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceL1", "ReduceL2"),
            *("ReduceSumSquare", "ReduceProd", "ReduceLogSum", "ReduceLogSumExp"),
            *("ArgMax", "ArgMin"),
        ),
        _before_reduction,
    ),
    **dict.fromkeys(("Conv", "ConvTranspose", "LSTM", "GRU", "RNN"), partial(_of_inputs, 1)),
    **dict.fromkeys(("Shape", "Size", "NonZero", "OneHot", "TopK"), partial(_of_inputs, 0)),
}


# From a number of steps to what it is computed of.


def _shape(node: ir.Node, place: Place) -> Iterator[Place]:
    start, end = node.attributes.get_int("start", 0), node.attributes.get_int("end")
    if place.at is not None:
        yield Place(node.inputs[0], place.at + start if start >= 0 else None)
    else:
        yield Place(node.inputs[0], start if end is not None and end - start == 1 else None)


def _element_taken(node: ir.Node, place: Place) -> Iterator[Place]:
    """Yield the element that is taken: which one is a constant, mostly."""
    numbers = constant(node.inputs[1])
    flat = np.zeros(0) if numbers is None else numbers.numpy().reshape(-1)
    at = 0 if place.at is None or flat.size == 1 else place.at
    is_constant = flat.size == 1 or (place.at is not None and at < flat.size)
    yield Place(node.inputs[0], int(flat[at]) if is_constant else None, counts=True)


def _before_slice(node: ir.Node, place: Place) -> Iterator[Place]:
    starts, ends = _numbers(node, "starts"), node.attributes.get_ints("ends")
    if ends is None and len(node.inputs) > 2:
        ends = _integers(node.inputs[2])
    at = None
    if starts and place.at is not None:
        at = starts[0] + place.at
    elif starts and ends and ends[0] - starts[0] == 1:
        at = starts[0]
    yield Place(node.inputs[0], at, counts=True)


def _before_concat(node: ir.Node, place: Place) -> Iterator[Place]:
    """Yield the piece that is the element: those of shapes have one each."""
    pieces, at = list(node.inputs), place.at
    if at is not None and -len(pieces) <= at < len(pieces):
        pieces, at = [pieces[at]], None
    yield from (Place(value, at, counts=True) for value in pieces)


def _items(node: ir.Node, place: Place) -> Iterator[Place]:
    """Yield the axis along which a tensor was split into the items that are counted."""
    split = None if node.inputs[0] is None else node.inputs[0].producer()
    if split is not None and operator(split) == "SplitToSequence":
        yield Place(split.inputs[0], split.attributes.get_int("axis", 0))


# operators: those of which numbers of steps are computed
COUNTING: Mapping[str, Rule] = {
    "Shape": _shape,
    "Size": partial(_of_inputs, 1, anywhere=True),
    "Gather": _element_taken,
    "Slice": _before_slice,
    "Concat": _before_concat,
    "SequenceLength": _items,
    "ReduceSum": partial(_of_inputs, 1, anywhere=True),  # a mask is as long as what it masks
    "If": _out_of_branches,
    **dict.fromkeys(
        (
            *("Cast", "Identity", "Squeeze", "Unsqueeze", "Reshape", "Clip", "Ceil", "Floor"),
            *("Round", "Abs", "Neg", "Relu"),
        ),
        partial(_of_inputs, 1, counts=True),
    ),
    **dict.fromkeys(
        ("ReduceMax", "ReduceMin", "ReduceProd"),
        partial(_of_inputs, 1, anywhere=True, counts=True),
    ),
    **dict.fromkeys(
        ("Add", "Sub", "Mul", "Div", "Min", "Max", "Where"), partial(_of_inputs, None, counts=True)
    ),
}
