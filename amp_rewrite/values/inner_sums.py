"""Sums inside operators: a residual stream goes through the normalization that adds to it.

SkipLayerNormalization(x, skip, gamma, beta, bias) normalizes x + skip + bias, and gives that sum as
well, which the next layer adds to. Kernels hold it in the type of x: where it leaves the range, the
result is NaN, whether or not anybody reads the sum.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from amp_rewrite.graph.flat import ABSENT, FlatGraph, Operator


class InnerSum(NamedTuple):
    """A sum inside an operator.

    Attributes:
        terms: The inputs that are added, those that are there.
        output: The output that gives the sum, where a node has it.
    """

    terms: tuple[int, ...]
    output: int


INNER_SUMS: Mapping[str, InnerSum] = {
    "SkipGroupNorm": InnerSum((0, 3, 4), 1),
    "SkipLayerNormalization": InnerSum((0, 1, 4), 3),
    "SkipSimplifiedLayerNormalization": InnerSum((0, 1, 3), 3),
}
"""Operator of com.microsoft -> the sum inside."""


def inner_sum(called: Operator) -> InnerSum | None:
    """Return the sum inside an operator; None if there is none."""
    return INNER_SUMS.get(called.op_type) if called.domain == "com.microsoft" else None


def terms_of(flat: FlatGraph, node: int, inner: InnerSum) -> list[int]:
    """Return the values that a node adds up."""
    inputs = flat.inputs_of(node)
    return [inputs[k] for k in inner.terms if k < len(inputs) and inputs[k] != ABSENT]
