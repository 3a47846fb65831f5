"""Sums that a kernel keeps in the low type stay float32 where they have too many terms for it.

In float16 a running sum of ones stops at 2,048, where the next one is half a unit in the last
place. Added one by one, 1,024 terms of random signs are off by 0.5 % of the sum's size, and 1,024
positive ones (magnitudes of a normal distribution) by 1.8 % at worst; 4,096 positive ones by 11 %,
and equal ones by half. A mean overflows before it loses digits: the sum of 64 elements of 1,000 is
64,000.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from amp_rewrite.graph.sum_lengths import count_terms
from amp_rewrite.graph.traits import Trait, has
from amp_rewrite.paint.context import PaintContext
from amp_rewrite.paint.painting import Color, Mark, Painting, Reason

LONGEST_PRODUCT = 1024
"""Up to so many products are added in the low type."""

LONGEST_MEAN = 64
"""Up to so many elements are added in the low type, to be divided by their number."""


@dataclass(frozen=True)
class KeepLongSums:
    """Mark what adds up more terms than the low type can, or a number that is not known.

    A node that the user allows by name is left alone: whoever names it has looked at it.
    """

    name: ClassVar[str] = "keep-long-sums"

    def run(self, context: PaintContext, painting: Painting) -> Painting:
        """Return the painting with such vertices marked; the same if kernels add in float32."""
        if not context.adds_low:
            return painting
        graph, flat = context.type_graph, context.type_graph.flat
        marks: dict[int, Mark] = {}
        for node, operator in enumerate(flat.operator):
            called = flat.operators[operator]
            if called[:2] not in context.adds_low or self._allowed(context, node):
                continue
            limit = LONGEST_PRODUCT if has(called, Trait.CONTRACTS) else LONGEST_MEAN
            terms = count_terms(flat, node)
            if terms is None or terms > limit:
                mark = _mark(context, terms, limit)
                marks |= dict.fromkeys(graph.vertices_of(node), mark)
        return painting.with_marks(marks)

    @staticmethod
    def _allowed(context: PaintContext, node: int) -> bool:
        name = context.type_graph.flat.node_names[node]
        return bool(context.rules.allow) and context.rules.allowed_by(name) is not None


def _mark(context: PaintContext, terms: int | None, limit: int) -> Mark:
    counted = "an unknown number of" if terms is None else f"{terms:,}"
    detail = f"{counted} terms, added in {context.low.name}, which holds {limit:,} of them safely"
    return Mark(Color.NONE, Reason.LONG_SUM, None, detail)
