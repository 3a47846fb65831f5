"""How many products a matrix product or convolution adds up for each element of its result."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from amp_rewrite.graph.einsum_terms import einsum_terms
from amp_rewrite.graph.flat import ABSENT, FlatGraph
from amp_rewrite.graph.traits import Trait, has

Shape = Sequence[int | None]


def terms_added(flat: FlatGraph, node: int) -> int | None:
    """Return the number of terms, or None if shapes do not tell or the operator has no sums."""
    count = _COUNTS.get(flat.called(node).op_type)
    return None if count is None or flat.called(node).domain != "" else count(flat, node)


def _of_matmul(flat: FlatGraph, node: int) -> int | None:
    """(..., M, K) x (..., K, N): K, by either operand."""
    first, second = (shape_of(flat, v) for v in flat.inputs_of(node)[:2])
    length = None if not first else first[-1]
    if length is None and second:
        length = second[-2] if len(second) > 1 else second[0]
    return length


def _of_gemm(flat: FlatGraph, node: int) -> int | None:
    first, second = (shape_of(flat, v) for v in flat.inputs_of(node)[:2])
    attributes = flat.attributes(node)
    turned = [attributes[n].value if n in attributes else 0 for n in ("transA", "transB")]
    if first is not None and len(first) == 2 and first[0 if turned[0] else 1] is not None:
        return first[0 if turned[0] else 1]
    return None if second is None or len(second) != 2 else second[1 if turned[1] else 0]


def _of_conv(flat: FlatGraph, node: int) -> int | None:
    """Weights (M, C / group, k...): all but M."""
    return _product(shape_of(flat, flat.inputs_of(node)[1]), left_out=0)


def _of_conv_transpose(flat: FlatGraph, node: int) -> int | None:
    """Weights (C, M / group, k...): all but M, which counts each group's."""
    return _product(shape_of(flat, flat.inputs_of(node)[1]), left_out=1)


def _product(shape: Shape | None, left_out: int) -> int | None:
    lengths = [d for i, d in enumerate(shape or ()) if i != left_out]
    known = [d for d in lengths if d is not None]
    return math.prod(known) if lengths and len(known) == len(lengths) else None


def _of_einsum(flat: FlatGraph, node: int) -> int | None:
    equation = flat.attributes(node).get("equation")
    text = "" if equation is None or equation.value is None else str(equation.value)
    return einsum_terms(text, [shape_of(flat, value) for value in flat.inputs_of(node)])


def shape_of(flat: FlatGraph, value: int) -> Shape | None:
    """Return the recorded shape of a value, or of what it is a cast of."""
    while value != ABSENT:
        shape, node = flat.shape(value), flat.producer[value]
        if shape is not None or node == ABSENT or not has(flat.called(node), Trait.CASTS):
            return shape
        value = flat.inputs_of(node)[0]
    return None


_COUNTS: Mapping[str, Callable[[FlatGraph, int], int | None]] = {
    "Conv": _of_conv,
    "ConvTranspose": _of_conv_transpose,
    "Einsum": _of_einsum,
    "Gemm": _of_gemm,
    "MatMul": _of_matmul,
}
