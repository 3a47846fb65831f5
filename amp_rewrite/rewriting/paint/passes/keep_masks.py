"""Scores to which a mask is added stay float32 where 16 bits would spoil masked rows.

In a row that is masked as a whole the fill takes part in what the Softmax sees. Added to -1e4,
float32 keeps scores to 0.0005, float16 to 4; added to -3.4e38, float32 keeps nothing of them, and
no fill of float16 does so. So the sum stays float32, with the masks in front and the Softmax behind
it. What is right stays low: a fill that Where puts in place of scores; masks of which every row has
an element that is not masked; and, in bfloat16, fills that swallow every score in both types
(docs/painting.md, Masks).

Evidence: scores of which a row is masked as a whole, float16: error 2.2 of outputs of size 3
without the pass (tests/conformance/test_masks.py), below 0.04 with it.
"""

from __future__ import annotations

from amp_rewrite.dtypes import DType, may_leave_range
from amp_rewrite.graph.flat import ABSENT
from amp_rewrite.rewriting.paint.keep import Ask, Keep, Kept, Match, Need, Reason, Stage, keep
from amp_rewrite.rewriting.paint.masks import Fills, softmaxes
from amp_rewrite.rewriting.paint.match import ADDED

_SWALLOWING = 2.0**40
"""A fill from here on leaves nothing of scores below 2^15 in float32, nor in a type as wide."""


@keep("keep-masks", Reason.MASK, Stage.KEEPING, 70, needs=Need.NOTHING)
def keep_masks(m: Match, _: Ask) -> Kept:
    """Unpaint scores with a mask added, the mask, and the Softmax of both."""
    for softmax, scores in reversed([*softmaxes(m)]):  # the last one is told
        nodes = m.facts.masks.makers(scores)
        details = (_spoilt(m, node) for node in nodes if m.op(node) in ADDED)
        detail = next((detail for detail in details if detail), "")
        if detail:
            yield Keep(detail, [softmax, *nodes])


def _spoilt(m: Match, node: int) -> str:
    """Return how the low type spoils what a node adds fills to, "" if it does not."""
    read, name, low = [v for v in m.read(node) if v != ABSENT], m.name(node), m.low.name
    masks = m.facts.masks
    fills_of = {v: fills for v in read if (fills := masks.fills[v]) is not None}
    fills, others = fills_of.values(), [v for v in read if v not in fills_of]
    is_given = all(f.is_given for f in fills)
    if is_given and all(m.maker(v) == ABSENT or m.is_constant(v) for v in others):
        return ""  # nothing that the model computes, as scores
    if any(f.adds_given and masks.reach[v] is not None for v, f in fills_of.items()):
        return (
            f"{name} adds a sum of masks, of which the caller gives one; in {low} what both mask "
            "would be as high as what one does"
        )
    if not any(_is_spoilt(f, m.low) for f in fills):
        return ""
    if is_given:
        return (
            f"{name} adds an input that may be a mask; in {low}, rows that it masks as a whole "
            "would come out differently (--input-range NAME=LOW:HIGH says that it is no mask)"
        )
    return (
        f"{name} masks with numbers of size {min(f.least for f in fills):.3g}; in {low}, rows that "
        "it masks as a whole would come out differently"
    )


def _is_spoilt(fills: Fills, low: DType) -> bool:
    """Tell whether scores plus a mask are something else in a low type than in float32."""
    swallows = fills.least >= _SWALLOWING and not may_leave_range(low)
    return not (fills.is_open or swallows)
