"""Products of a transposed tensor whose operands get one rank, so that ONNX Runtime loads them.

MatmulTransposeFusion of ONNX Runtime 1.32.0 moves a Cast between a Transpose and a MatMul before it
knows whether it will fuse these. Where the Transpose moves the first axis and the operands differ
in rank it does not, and a later transformer ends the process. An Unsqueeze of the operand with
fewer axes lets it fuse; a vector becomes a matrix of one row or column, which a Squeeze takes out
of the product. Casts are also those that the CPU provider adds to a float16 product.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from amp_rewrite.dtypes import BFLOAT16, FLOAT16
from amp_rewrite.graph.added import AddedNames
from amp_rewrite.graph.constants import stored_tensor
from amp_rewrite.graph.dataflow import TypeGraph
from amp_rewrite.graph.elements import element
from amp_rewrite.graph.flat import ABSENT, Array, FlatGraph
from amp_rewrite.rewriting.paint.context import PaintContext

_OPERANDS = 2
_MATRIX = 2
"""The rank from which on an operand has rows and columns."""

_PRODUCTS = frozenset({("", "MatMul"), ("com.microsoft", "FusedMatMul")})
"""The operators that the runtime fuses a Transpose into."""

# operators: those that the runtime removes, or sees through, between a Transpose and a MatMul.
_SEEN_THROUGH = ("Cast", "Identity", "Transpose")


@dataclass(frozen=True, slots=True)
class PlannedRank:
    """An operand of a product that gets axes of length 1.

    Attributes:
        axes: Which axes, of the operand as it is then.
        names: The names of the Unsqueeze, and of the constant with its axes.
        product_axes: The axis that the product has too many then; none if the operand has rows and
            columns as it is.
        product_names: The names of the product with that axis, of the Squeeze that takes it away,
            and of the constant with it.
    """

    node: int
    index: int
    axes: tuple[int, ...]
    names: tuple[str, str]
    product_axes: tuple[int, ...] = ()
    product_names: tuple[str, ...] = ()


def equal_ranks(
    context: PaintContext, allowed: Array, names: AddedNames
) -> tuple[PlannedRank, ...]:
    """Return what gives the operands of such products one rank, where a runtime needs it."""
    flat, ranks_planned = context.type_graph.flat, list[PlannedRank]()
    if context.target is None or not context.target.meets_onnx_runtime:
        return ()
    if not flat.nodes_of("Transpose"):
        return ()

    def after(vertex: int, value: int) -> int | None:
        is_low = vertex != ABSENT and allowed[vertex]
        return context.low.number if is_low else element(context.type_graph.types[value] or "")

    wanted = {number for number, op in enumerate(flat.operators) if op[:2] in _PRODUCTS}
    for node in flat.nodes_calling(wanted):
        if len(flat.inputs_of(node)) < _OPERANDS or not flat.outputs_of(node):
            continue  # the file is wrong, and nothing is said of it here
        if not any(_is_reordered(context.type_graph, after, node, index) for index in (0, 1)):
            continue
        ranks = [_rank(flat, value) for value in flat.inputs_of(node)[:2]]
        if None not in ranks and ranks[0] != ranks[1]:
            ranks_planned.append(_planned(flat, node, [rank or 0 for rank in ranks], names))
    return tuple(ranks_planned)


def _planned(flat: FlatGraph, node: int, ranks: list[int], names: AddedNames) -> PlannedRank:
    """Return what gives a product of operands of two ranks operands of one."""
    index = 0 if ranks[0] < ranks[1] else 1
    value = flat.value_names[flat.inputs_of(node)[index]]
    added = names.part(value, "Unsqueeze"), names.part(value, "UnsqueezeAxes")
    few, many = min(ranks), max(ranks)
    if few >= _MATRIX:
        return PlannedRank(node, index, tuple(range(many - few)), added)
    ahead = tuple(range(many - _MATRIX))
    one = many - 1 if index == 1 else many - _MATRIX
    product = flat.value_names[flat.outputs_of(node)[0]]
    behind = tuple(names.part(product, op) for op in ("Wide", "Squeeze", "SqueezeAxes"))
    return PlannedRank(node, index, (*ahead, one), added, (one,), behind)


def _is_reordered(
    graph: TypeGraph, after: Callable[[int, int], int | None], node: int, index: int
) -> bool:
    """Tell whether the runtime finds a Cast between an operand and a Transpose of its batches.

    `after` is the element type of a vertex and its value after the rewrite, as an onnx number.
    """
    flat, slot = graph.flat, graph.flat.input_start[node] + index
    turned = _turned(flat, node, index)
    if turned is None:
        return False
    value, is_cast = turned
    made, read = after(graph.source[value], value), after(graph.reads[slot], flat.inputs[slot])
    if is_cast:
        return bool({made, read} & {FLOAT16.number, BFLOAT16.number})
    return made != read or read == FLOAT16.number


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
        permutation = flat.attributes(maker).get("perm")
        if permutation is None or flat.is_output(value):
            return None  # all axes the other way round, or a value that stays: neither is moved
        own = [int(axis) for axis in permutation.value]
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
        read = flat.inputs_of(maker)
        if not read or not flat.outputs_of(maker):
            return
        yield maker
        value = read[0]


def _moves_batches(perm: list[int]) -> bool:
    """Tell whether batches come first: (1, ..., r-2, 0, r-1), or with the last two exchanged."""
    rank = len(perm)
    batches = list(range(1, rank - 1))
    return rank > _MATRIX and perm[:-2] == batches and sorted(perm[-2:]) == [0, rank - 1]


def _rank(flat: FlatGraph, value: int) -> int | None:
    """Return how many axes a value has; None if the file does not tell."""
    while value != ABSENT:
        tensor = stored_tensor(flat, value)
        shape = flat.shape(value) if tensor is None else tensor.dims
        if shape is not None:
            return len(shape)
        maker = flat.producer[value]
        if maker == ABSENT or flat.called(maker)[:2] not in {("", op) for op in _SEEN_THROUGH}:
            return None
        permutation = flat.attributes(maker).get("perm")
        if permutation is not None:
            return len(permutation.value)
        read = flat.inputs_of(maker)
        value = read[0] if read else ABSENT
    return None
