"""Products of a transposed tensor whose operands get the same rank.

ONNX Runtime 1.32.0 has a transformer, MatmulTransposeFusion, that moves a Cast between a Transpose
and a MatMul in front of the Transpose before it knows whether it will fuse the two. Where the
Transpose moves the first axis behind the batches and the operands differ in rank, it does not fuse,
and leaves a graph without edges: a later transformer ends the process with a segmentation fault.
The Cast may be one of the model, one between two types of a mixed model, or one that the CPU
provider needs in front of a float16 product. An Unsqueeze of the operand with fewer axes lets the
runtime fuse both; of a weight, it is folded when the model is loaded.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from amp_rewrite.dtypes import FLOAT16
from amp_rewrite.graph.added import AddedNames
from amp_rewrite.graph.constants import stored_tensor
from amp_rewrite.graph.flat import ABSENT, Array, FlatGraph
from amp_rewrite.graph.proto.stored import StoredTensor
from amp_rewrite.rewriting.paint.context import PaintContext

_MATRIX = 2
"""The rank from which on an operand has rows and columns; with a vector the product loses one."""

# operators: those that the runtime removes, or sees through, between a Transpose and a MatMul.
_SEEN_THROUGH = ("Cast", "Identity", "Transpose")


@dataclass(frozen=True, slots=True)
class PlannedRank:
    """An operand of a product that gets axes of length 1 in front.

    Attributes:
        node: The MatMul.
        index: Which of its operands.
        count: How many axes.
        names: The names of the Unsqueeze, and of the constant with its axes.
    """

    node: int
    index: int
    count: int
    names: tuple[str, str]


def equal_ranks(
    context: PaintContext, allowed: Array, names: AddedNames
) -> tuple[PlannedRank, ...]:
    """Return what gives the operands of such products one rank, where a runtime needs it.

    Ranks that the file does not tell are left as they are, and so are vectors.

    Args:
        context: What is known of the model and the target.
        allowed: A mask of the vertices that become low.
        names: The names in use.
    """
    if context.target is None or not context.target.meets_onnx_runtime:
        return ()
    flat, found = context.type_graph.flat, list[PlannedRank]()
    for node in flat.nodes_of("MatMul"):
        if not any(_is_reordered(context, allowed, node, index) for index in (0, 1)):
            continue
        first, second = (_rank(flat, value) or 0 for value in flat.inputs_of(node))
        if min(first, second) < _MATRIX or first == second:
            continue
        index = 0 if first < second else 1
        value = flat.value_names[flat.inputs_of(node)[index]]
        added = names.part(value, "Unsqueeze"), names.part(value, "UnsqueezeAxes")
        found.append(PlannedRank(node, index, abs(first - second), added))
    return tuple(found)


def _is_reordered(context: PaintContext, allowed: Array, node: int, index: int) -> bool:
    """Tell whether the runtime finds a Cast between an operand and a Transpose of its batches."""
    graph = context.type_graph
    reader = graph.reads[graph.flat.input_start[node] + index]
    turned = _turned(graph.flat, node, index)
    if turned is None or reader == ABSENT:
        return False
    value, is_cast = turned
    writer = graph.source[value]
    reads_low, is_low = bool(allowed[reader]), writer != ABSENT and bool(allowed[writer])
    if is_cast:
        return reads_low or is_low
    return reads_low != is_low or (is_low and context.low is FLOAT16)


def _turned(flat: FlatGraph, node: int, index: int) -> tuple[int, bool] | None:
    """Return what the last Transpose before an operand makes, and whether it is cast behind that.

    None if no Transpose before it, alone or with those in front of it, moves the first axis behind
    the batches.
    """
    last, is_cast, perm = ABSENT, False, list[int]()
    for maker in _chain(flat, node, index):
        op, value = flat.called(maker).op_type, flat.outputs_of(maker)[0]
        if op != "Transpose":
            is_cast |= op == "Cast" and last == ABSENT
            continue
        given = flat.attributes(maker).get("perm")
        if given is None or flat.is_output(value):
            return None  # all axes the other way round, or a value that stays: neither is moved
        own = [int(axis) for axis in given.value]
        if perm and len(perm) != len(own):
            return None
        perm, last = (
            [own[axis] for axis in perm] if perm else own,
            value if last == ABSENT else last,
        )
        if _moves_batches(perm):
            return last, is_cast
    return None


def _chain(flat: FlatGraph, node: int, index: int) -> Iterator[int]:
    """Yield the nodes in front of an operand that are seen through, from the operand on."""
    value = flat.inputs_of(node)[index]
    while (maker := flat.producer[value] if value != ABSENT else ABSENT) != ABSENT:
        called = flat.called(maker)
        is_plain = called.domain == "" and called.op_type in _SEEN_THROUGH
        if not is_plain or flat.body_of[maker] != flat.body_of[node]:
            return
        yield maker
        value = flat.inputs_of(maker)[0]


def _moves_batches(perm: list[int]) -> bool:
    """Tell whether batches come first: (1, ..., r-2, 0, r-1), or with the last two exchanged."""
    rank = len(perm)
    batches = list(range(1, rank - 1))
    return rank > _MATRIX and perm[:-2] == batches and sorted(perm[-2:]) == [0, rank - 1]


def _rank(flat: FlatGraph, value: int) -> int | None:
    """Return how many axes a value has; None if the file does not tell."""
    while value != ABSENT:
        tensor = stored_tensor(flat, value)
        if isinstance(tensor, StoredTensor):
            return len(tensor.dims)
        shape = flat.shape(value) if tensor is None else tensor.numpy().shape
        if shape is not None:
            return len(shape)
        maker = flat.producer[value]
        if maker == ABSENT or flat.called(maker)[:2] not in {("", op) for op in _SEEN_THROUGH}:
            return None
        given = flat.attributes(maker).get("perm")
        if given is not None:
            return len(given.value)
        value = flat.inputs_of(maker)[0]
    return None
