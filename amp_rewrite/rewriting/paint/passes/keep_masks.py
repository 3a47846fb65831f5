"""Scores to which a mask is added stay float32, where the low type would spoil masked rows.

In a row that is masked as a whole the fill takes part in what the Softmax sees. Added to -1e4,
float32 keeps scores to 0.0005, float16 to 4 and bfloat16 to 32. Added to -3.4e38, float32 keeps
nothing of them, so that all elements of the row are equal; no fill of float16 does so: -65504, the
lowest, overflows, and next to those that leave room half a unit in the last place is 8 or 16, which
scores exceed. So no fill is right for every row. The sum stays float32, with the masks in front
and the Softmax behind it.

What is right stays low: a fill that Where puts in place of scores; masks of which every row has an
element that is not masked; and, in bfloat16, fills that swallow every score in both types. Masks
that were added to each other tell what both mask, which is minus infinity, from what one does. In
bfloat16 constants that end at half the range keep that; what the caller gives cannot.

Evidence: scores of which a row is masked as a whole, float16: error 2.2 of outputs of size 3
without the pass (tests/conformance/test_masks.py), below 0.04 with it.
"""

from __future__ import annotations

from amp_rewrite.dtypes import DType, may_leave_range
from amp_rewrite.graph.constants import constant_tensor
from amp_rewrite.graph.flat import ABSENT
from amp_rewrite.graph.traits import Trait, has
from amp_rewrite.rewriting.paint.context import PaintContext
from amp_rewrite.rewriting.paint.fills import Fills, FillSearch
from amp_rewrite.rewriting.paint.mask_casts import MaskCasts
from amp_rewrite.rewriting.paint.masks import softmaxes
from amp_rewrite.rewriting.paint.paint_pass import PaintPass, Place, Stage
from amp_rewrite.rewriting.paint.painting import Color, Mark, Painting, Reason

_SWALLOWING = 2.0**40
"""A fill from here on leaves nothing of scores below 2^15 in float32, nor in a type as wide."""


class KeepMasks(PaintPass):
    """Unpaint scores with a mask added, the mask, and the Softmax of both."""

    name = "keep-masks"
    places = (
        Place(
            Stage.KEEPING,
            70,
            "scores with a mask added, the mask, and the Softmax behind ([below](#masks))",
        ),
        Place(Stage.JUDGING, 50),
    )

    def run(self, context: PaintContext, painting: Painting) -> Painting:
        """Return the painting without such vertices; nodes that the user allows stay."""
        graph, marks = context.type_graph, dict[int, Mark]()
        search = FillSearch(graph, context.values.inputs)
        casts = MaskCasts(context, painting)
        for node, scores in softmaxes(graph):
            marks |= _marks(context, search, casts, node, scores)
        kept = {v: mark for v, mark in marks.items() if painting.is_allow(v)}
        return painting.with_marks(context.unless_allowed(kept))


def _marks(
    context: PaintContext, search: FillSearch, casts: MaskCasts, softmax: int, scores: int
) -> dict[int, Mark]:
    """Return the marks of a Softmax and all with fills in front of it, if a mask is added there."""
    graph, flat = context.type_graph, context.type_graph.flat
    masked = list(search.nodes_behind(scores))
    for node in masked:
        if not has(flat.called(node), Trait.ADDS) and flat.called(node)[:2] != ("", "Sub"):
            continue
        fills = [f for v in flat.inputs_of(node) if v != ABSENT and (f := search.of(v)) is not None]
        if all(f.is_given for f in fills) and not _adds_to_computed(context, search, node):
            continue
        sums = any(
            (f := search.of(v)) is not None and f.adds_given and casts.is_mask(v)
            for v in flat.inputs_of(node)
            if v != ABSENT
        )
        if sums or any(_spoils(f, context.low) for f in fills):
            detail = _detail(context, flat.node_names[node], fills, sums)
            mark = Mark(Color.NONE, Reason.MASK, None, detail)
            return {v: mark for n in (softmax, *masked) for v in graph.vertices_of(n)}
    return {}


def _adds_to_computed(context: PaintContext, search: FillSearch, node: int) -> bool:
    """Tell whether a node adds to something that the model computes, as a mask is to scores."""
    graph, flat = context.type_graph, context.type_graph.flat
    return any(
        flat.producer[v] != ABSENT and search.of(v) is None and constant_tensor(graph, v) is None
        for v in flat.inputs_of(node)
    )


def _detail(context: PaintContext, name: str, fills: list[Fills], sums: bool) -> str:
    """Return a sentence on a node that adds fills."""
    low = context.low.name
    if sums:
        return (
            f"{name} adds a sum of masks, of which the caller gives one; in {low} what both mask "
            "would be as high as what one does"
        )
    if all(f.is_given for f in fills):
        return (
            f"{name} adds an input that may be a mask; in {low} rows that it masks as a whole "
            "would come out differently (--input-range NAME=LOW:HIGH says that it is none)"
        )
    return (
        f"{name} adds {min(f.least for f in fills):.3g} where nothing is to be seen; in {low} rows "
        "without anything else would come out differently"
    )


def _spoils(fills: Fills, low: DType) -> bool:
    """Tell whether scores plus a mask are something else in a low type than in float32."""
    swallows = fills.least >= _SWALLOWING and not may_leave_range(low)
    return not (fills.is_open or swallows)
