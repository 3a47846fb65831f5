"""How much of a model's arithmetic becomes low precision."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from amp_rewrite.graph.constants import moved_from
from amp_rewrite.graph.dataflow import TypeGraph
from amp_rewrite.graph.flat import ABSENT, FlatGraph, Operator
from amp_rewrite.graph.sizes import Shape
from amp_rewrite.graph.traits import operator, row_of
from amp_rewrite.rewriting.paint.painting import Painting
from amp_rewrite.values.sum_lengths import count_terms

FREE_LENGTH = 128
"""How many keys a query sees where their number is free."""

_OF_DATA = ("MatMul", "com.microsoft::FusedMatMul")
"""Operators that multiply queries by keys, and shares by values."""


def multiply_accumulates(flat: FlatGraph, node: int) -> float:
    """Estimate the multiply-accumulates of a matrix product, a convolution or an attention.

    The elements of the output times the length of the sums, where recorded shapes tell; a free
    dimension counts as 1: one image, one token. It sees `FREE_LENGTH` others, where their number is
    free: queries times keys, and their shares times values. Without shapes, the elements of the
    largest constant operand.
    """
    inputs, outputs = flat.inputs_of(node), flat.outputs_of(node)
    shapes = [None if v == ABSENT else flat.shape(v) for v in inputs]
    weight = max((_elements(s) for s in shapes[1:] if s is not None), default=1.0)
    output, called = (flat.shape(outputs[0]) if outputs else None), flat.called(node)
    if row_of(called).masks and shapes:
        return _attention(called, shapes, output)
    name = operator(called)
    if name == "ConvTranspose" and shapes[0]:  # each element meets the weights of its channel
        return _elements(shapes[0]) * _elements((shapes[1] or (1,))[1:])
    if not output:
        return weight
    if name in ("Conv", "com.microsoft::FusedConv") and len(output) > 2:
        return weight * _elements([output[0], *output[2:]])
    length = count_terms(flat, node)
    if name in _OF_DATA and not any(_is_constant(flat, v) for v in inputs[:2]):
        return _elements([*output[:-1], output[-1] or FREE_LENGTH]) * (length or FREE_LENGTH)
    return max(weight if length is None else 1.0, _elements(output) * (length or 1))


def _is_constant(flat: FlatGraph, value: int) -> bool:
    """Tell whether a value is a constant, or one that was moved or cast."""
    return moved_from(flat, value) != ABSENT


def _attention(called: Operator, shapes: Sequence[Shape | None], output: Shape | None) -> float:
    """Estimate queries times keys and shares times values, and a product with weights in front.

    Queries are the first input, keys the second, except where that is weights (com.microsoft's
    Attention and PackedAttention), whose first input has as many rows as keys.
    """
    queries = shapes[0] or output
    rows = 1.0 if queries is None else _elements(queries)
    # operators: those that multiply by weights themselves.
    weighted = called.domain != "" and called.op_type in ("Attention", "PackedAttention")
    weights = shapes[1] if weighted else None
    keys = shapes[0] if weighted else (*shapes, None)[1]
    length = None if not keys or len(keys) < 3 else keys[-2]
    product = 2 * rows * (length or FREE_LENGTH)
    width = (queries or [None])[-1]
    return product + (0.0 if weights is None else rows * _elements(weights) / (width or 1))


def compute_share(type_graph: TypeGraph, painting: Painting, listed: Collection[int]) -> float:
    """Return the share of the listed nodes' multiply-accumulates that becomes low, from 0 to 1."""
    is_low = [any(painting.is_allow(v) for v in type_graph.vertices_of(node)) for node in listed]
    if not any(is_low) or all(is_low):
        return float(any(is_low))  # without shapes, which may have to be inferred
    work = [multiply_accumulates(type_graph.flat, node) for node in listed]
    total = sum(work)
    return sum(w for w, low in zip(work, is_low, strict=True) if low) / total if total else 0.0


def _elements(shape: Sequence[int | None]) -> float:
    return float(math.prod(1 if d is None else d for d in shape))
