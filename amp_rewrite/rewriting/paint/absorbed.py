"""Fills that end in a Softmax: numbers of which only matters that they lie below all others.

What is out of range because of them does no harm: a painting lets them end where the low type does,
as constants (plan/saturation.py) or in front of a Cast (mask_casts.py). Who measures a model in
float32 still sees 3.4e38, and has to count it out.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from amp_rewrite.graph.flat import ABSENT
from amp_rewrite.rewriting.paint.context import PaintContext
from amp_rewrite.rewriting.paint.fills import FillSearch
from amp_rewrite.rewriting.paint.mask_casts import MaskCasts
from amp_rewrite.rewriting.paint.masks import ends_in_ordering
from amp_rewrite.rewriting.paint.painting import Painting


class Absorbed(NamedTuple):
    """Which elements of a value count for nothing.

    Attributes:
        beyond: Those from this magnitude on; half of the smallest fill, for scores are added.
        either_sign: Whether positive ones count for nothing as well: a mask that is subtracted.
    """

    beyond: float
    either_sign: bool


def absorbed_fills(
    context: PaintContext, painting: Painting, values: Iterable[int]
) -> dict[int, Absorbed]:
    """Return, for values with fills out of range that nothing but orderings reads, which these are.

    Scores and a mask have both signs, so that positive elements of them are no fills. A mask alone
    may be positive, before it is subtracted.
    """
    graph, search = context.type_graph, FillSearch(context.type_graph, context.values.inputs)
    casts, fills_of = MaskCasts(context, painting), dict[int, Absorbed]()
    for value in values:
        fills = search.of(value)
        if fills is None or fills.least < context.low.overflow or graph.flat.is_output(value):
            continue
        readers = dict.fromkeys(graph.readers(value))
        if readers and all(v != ABSENT and ends_in_ordering(graph, v, value) for v in readers):
            fills_of[value] = Absorbed(fills.least / 2, casts.is_mask(value))
    return fills_of
