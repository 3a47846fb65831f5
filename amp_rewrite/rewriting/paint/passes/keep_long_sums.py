"""Sums that a kernel keeps in the low type stay float32 where they have too many terms for it.

In float16 a running sum of ones stops at 2,048, where the next one is half a unit in the last
place. Added one by one, 1,024 terms of random signs are off by 0.5 % of the sum's size, and 1,024
positive ones (magnitudes of a normal distribution) by 1.8 % at worst; 4,096 positive ones by 11 %,
and equal ones by half. A mean overflows before it loses digits: the sum of 64 elements of 1,000 is
64,000. Where nothing may be float32, a mean may have as many elements as a product, if its
sum is not likely to overflow: calibrate keeps those in float32 whose sums do so on data.

The kernels of Conv keep one running sum over the whole window as well (docs/arithmetic.md), but
their weights are in the file. Where they nearly cancel on the way through each output channel,
partial sums walk about zero whatever sign the data have, and the error grows with the root of the
number of terms: 0.4 % of the size of a result for 1,008 terms, 0.7 % for 2,304 and 0.9 % for 4,608.
The same holds for each column of a constant matrix, which is asked where a kernel rounds a product
and the sum that it joins once (docs/arm.md).

Evidence: minilm_l3 in float16 for webgpu: error 0.54 % of the output's peak without the pass, 0.35
% with it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from amp_rewrite.graph.constants import stored_tensor
from amp_rewrite.graph.flat import ABSENT, FlatGraph
from amp_rewrite.graph.proto.stored import StoredTensor
from amp_rewrite.graph.traits import Trait, has, is_one
from amp_rewrite.rewriting.paint.context import PaintContext
from amp_rewrite.rewriting.paint.paint_pass import PaintPass, Place, Stage
from amp_rewrite.rewriting.paint.painting import Color, Mark, Painting, Reason
from amp_rewrite.values.sum_lengths import count_terms

Array = np.ndarray[Any, np.dtype[Any]]

LONGEST_PRODUCT = 1024
"""At most this number of products is added in the low type."""

LONGEST_BALANCED = 4608
"""At most this number of products, if no more than LONGEST_PRODUCT of them have one sign: 512
channels of a 3 x 3 window."""

LONGEST_MEAN = 64
"""At most this number of elements is added in the low type, to be divided by their number."""

_SAME = ("Cast", "Identity")  # operators: a Cast that was taken out is an Identity


class KeepLongSums(PaintPass):
    """Mark what adds up more terms than the low type can, or a number that is not known.

    A node that the user allows by name is left alone: whoever names it has looked at it.
    """

    name = "keep-long-sums"
    places = (
        Place(
            Stage.GIVEN,
            70,
            "sums of too many terms, where the target's kernels add in the low type, before "
            "the first round",
        ),
        Place(Stage.HARMED, 60),
    )

    def run(self, context: PaintContext, painting: Painting) -> Painting:
        """Return the painting with such vertices marked; the same if kernels add in float32."""
        if not context.adds_low:
            return painting
        graph, flat = context.type_graph, context.type_graph.flat
        marks: dict[int, Mark] = {}
        for node, operator in enumerate(flat.operator):
            called = flat.operators[operator]
            if called[:2] not in context.adds_low or context.rules.allowed_by(
                flat.node_names[node]
            ):
                continue
            terms = count_terms(flat, node)
            limit = _limit(context, node, terms)
            if terms is None or (terms > limit and not _is_balanced(context, node, terms)):
                mark = _mark(context, terms, limit)
                marks |= dict.fromkeys(graph.vertices_of(node), mark)
        return painting.with_marks(marks)


def _limit(context: PaintContext, node: int, terms: int | None) -> int:
    """Return how many terms the sums of a node may have."""
    flat = context.type_graph.flat
    if has(flat.called(node), Trait.CONTRACTS):
        return LONGEST_PRODUCT
    if terms is None or not context.only_low:
        return LONGEST_MEAN
    estimates_count = context.estimates_count
    estimate = context.values.estimates[flat.inputs_of(node)[0]] if estimates_count else None
    reached = 0.0 if estimate is None else (abs(estimate.mean) + estimate.spread) * terms
    return LONGEST_PRODUCT if reached < context.low.overflow else LONGEST_MEAN


def _is_balanced(context: PaintContext, node: int, terms: int) -> bool:
    """Tell whether a node is a product whose weights nearly cancel in each partial sum."""
    flat = context.type_graph.flat
    operator = flat.called(node)[:2]
    is_asked = operator == ("", "Conv") or operator in context.adds_fused
    if terms > LONGEST_BALANCED or operator not in _ROWS or not is_asked:
        return False
    tensor = _weights(flat, flat.inputs_of(node)[1])
    in_order = None if tensor is None else _ROWS[operator](context, node, tensor.numpy())
    if in_order is None or in_order.shape[1] != terms:
        return False
    partial = np.abs(np.cumsum(in_order, axis=1, dtype=np.float64)).max(axis=1)
    whole = np.abs(in_order).sum(axis=1, dtype=np.float64)
    return bool((partial * terms <= whole * LONGEST_PRODUCT).all())


def _weights(flat: FlatGraph, value: int) -> StoredTensor | None:
    """Return the constant that a value is, or that becomes it by Casts; None for others."""
    while (node := flat.producer[value]) != ABSENT and is_one(flat.called(node), *_SAME):
        value = flat.inputs_of(node)[0]
    return stored_tensor(flat, value)


def _windows(_: PaintContext, __: int, weights: Array) -> Array:
    """Return the weights of a Conv, a row for each output channel, as its kernels go through them.

    They go through the window, and through the channels at each of its places.
    """
    n_rows, channels = weights.shape[:2]
    return weights.reshape(n_rows, channels, -1).swapaxes(1, 2).reshape(n_rows, -1)


def _columns(_: PaintContext, __: int, weights: Array) -> Array | None:
    """Return the columns of a matrix as rows."""
    return weights.T if weights.ndim == 2 else None


def _columns_of_gemm(context: PaintContext, node: int, weights: Array) -> Array:
    transposed = context.type_graph.flat.attributes(node).get("transB")
    return weights if transposed is not None and transposed.value else weights.T


_ROWS: dict[tuple[str, str], Callable[[PaintContext, int, Array], Array | None]] = {
    ("", "Conv"): _windows,
    ("", "Gemm"): _columns_of_gemm,
    ("", "MatMul"): _columns,
}
"""Operator -> the weights that each element of its result is a sum with, in order."""


def _mark(context: PaintContext, terms: int | None, limit: int) -> Mark:
    counted = "an unknown number of" if terms is None else f"{terms:,}"
    detail = f"{counted} terms, added in {context.low.name}, which holds {limit:,} of them safely"
    return Mark(Color.NONE, Reason.LONG_SUM, None, detail)
