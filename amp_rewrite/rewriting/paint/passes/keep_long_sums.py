"""Sums that a kernel keeps in 16 bits stay float32 where they have too many terms for that.

Added one by one in float16, 1,024 terms of random signs are off by 0.5 % of the sum's size, 4,096
positive ones by 11 %, and ones stop at 2,048. A mean overflows first: 64 elements of 1,000 are
64,000. Where the weights of a Conv nearly cancel on the way through each channel, 2,304 terms are
off by 0.7 %; so are columns of a matrix where a kernel rounds product and sum once (docs/arm.md).

Evidence: minilm_l3 in float16 for webgpu: error 0.54 % of the output's peak without the pass, 0.35
% with it.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence

import numpy as np

from amp_rewrite.graph.constants import stored_tensor
from amp_rewrite.graph.flat import Array, FlatGraph
from amp_rewrite.graph.traits import Trait, has
from amp_rewrite.rewriting.paint.keep import Ask, Keep, Kept, Match, Need, Reason, Stage, keep
from amp_rewrite.values.sum_lengths import count_terms

LONGEST_PRODUCT = 1024
"""At most this number of products is added in the low type."""

LONGEST_BALANCED = 4608
"""At most this number of products, if no more than LONGEST_PRODUCT of them have one sign: 512
channels of a 3 x 3 window."""

LONGEST_MEAN = 64
"""At most this number of elements is added in the low type, to be divided by their number."""

_SUGGESTED = 512
"""The length that is suggested for a free dimension."""

# operators: a Cast that was taken out is an Identity
_SAME = frozenset({"Cast", "Identity"})


@keep("keep-long-sums", Reason.LONG_SUM, Stage.GIVEN, 70, needs=Need.NOTHING)
def keep_long_sums(m: Match, ask: Ask) -> Kept:
    """Mark what adds up more terms than the low type can, or a number that is not known."""
    adds_low, flat = ask.context.adds_low, m.flat
    adding = [called[:2] in adds_low for called in flat.operators]
    for node in flat.nodes_calling(k for k, adds in enumerate(adding) if adds):
        terms = count_terms(flat, node)
        limit = _limit(m, ask, node, terms)
        if terms is None or (terms > limit and not _is_balanced(m, ask, node, terms)):
            counted = "an unknown number of" if terms is None else f"{terms:,}"
            held = f"which holds {limit:,} of them safely"
            names = flat.unknown_lengths if is_to_name(flat, node) else ()
            named = f"; name the length: {lengths_to_name(names)}" if names else ""
            yield Keep(f"{counted} terms, added in {m.low.name}, {held}{named}", [node])


def is_to_name(flat: FlatGraph, node: int) -> bool:
    """Tell whether a length that is not known may be short enough: that of a product."""
    return has(flat.called(node), Trait.CONTRACTS) and count_terms(flat, node) is None


def lengths_to_name(names: Sequence[str]) -> str:
    """Return the options that give free dimensions a length, to be changed by the user."""
    return " ".join(f"--dim {shlex.quote(f'{name}={_SUGGESTED}')}" for name in names)


def _limit(m: Match, ask: Ask, node: int, terms: int | None) -> int:
    """Return how many terms the sums of a node may have."""
    if m.has(node, Trait.CONTRACTS):
        return LONGEST_PRODUCT
    if terms is None or not ask.context.only_low:
        return LONGEST_MEAN
    estimate = m.facts.estimates[m.read(node)[0]] if ask.context.estimates_count else None
    reached = 0.0 if estimate is None else (abs(estimate.mean) + estimate.spread) * terms
    return LONGEST_PRODUCT if reached < m.low.overflow else LONGEST_MEAN


def _is_balanced(m: Match, ask: Ask, node: int, terms: int) -> bool:
    """Tell whether a node is a product whose weights nearly cancel in each partial sum."""
    rows_of = _ROWS.get(m.op(node))
    is_asked = m.is_a(node, "Conv") or m.flat.called(node)[:2] in ask.context.adds_fused
    if terms > LONGEST_BALANCED or rows_of is None or not is_asked:
        return False
    tensor = stored_tensor(m.flat, m.source(m.read(node)[1], _SAME))
    in_order = None if tensor is None else rows_of(m, node, tensor.numpy())
    if in_order is None or in_order.shape[1] != terms:
        return False
    partial = np.abs(np.cumsum(in_order, axis=1, dtype=np.float64)).max(axis=1)
    whole = np.abs(in_order).sum(axis=1, dtype=np.float64)
    return bool((partial * terms <= whole * LONGEST_PRODUCT).all())


def _windows(_: Match, __: int, weights: Array) -> Array:
    """Return the weights of a Conv, a row for each output channel, in the order of its kernels."""
    n_rows, channels = weights.shape[:2]
    return weights.reshape(n_rows, channels, -1).swapaxes(1, 2).reshape(n_rows, -1)


def _columns_of_gemm(m: Match, node: int, weights: Array) -> Array:
    transposed = m.flat.attributes(node).get("transB")
    return weights if transposed is not None and transposed.value else weights.T


_ROWS: dict[str, Callable[[Match, int, Array], Array | None]] = {
    "Conv": _windows,
    "Gemm": _columns_of_gemm,
    "MatMul": lambda m, node, weights: weights.T if weights.ndim == 2 else None,
}
"""Operator -> the weights that each element of its result is a sum with, in order."""
