"""The painting as a whole: the passes in order, and the rounds until they agree.

The algorithm, pass by pass: painting.md, section 3; the rounds: painting.md, section 4.

A round colors the model, and then the keeping passes look at what became low: a constant that does
not fit, an epsilon that would vanish, the gradient of what is float32. The rounds that follow
exclude what they keep and color the model from the start, because a vertex that goes may take
others with it: what followed it, and what lay between it and another one. Each round but the last
excludes vertices that no earlier one did, and none comes back, so there are at most as many rounds
as vertices, and one; the models of the corpus need one or two.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain

from amp_rewrite.graph.dataflow import vertices_in
from amp_rewrite.rewriting.paint.context import PaintContext
from amp_rewrite.rewriting.paint.paint_pass import PaintPass, Stage
from amp_rewrite.rewriting.paint.painting import Color, Mark, Painting, Reason
from amp_rewrite.rewriting.paint.pass_table import PASSES
from amp_rewrite.rewriting.paint.passes.spread_deny import SpreadDeny
from amp_rewrite.rewriting.paint.weighing import Weighing


def passes_of(stage: Stage) -> tuple[PaintPass, ...]:
    """Return the passes of a stage in their order."""
    placed = ((p.order, step) for step in PASSES for p in step.places if p.stage is stage)
    return tuple(step for _, step in sorted(placed, key=lambda pair: pair[0]))


GIVEN, SEEDING, COLORING = map(passes_of, (Stage.GIVEN, Stage.SEEDING, Stage.COLORING))
KEEPING, SAVING = map(passes_of, (Stage.KEEPING, Stage.SAVING))
HARMED, JUDGING = map(passes_of, (Stage.HARMED, Stage.JUDGING))


@dataclass(frozen=True)
class PaintResult:
    """A finished painting.

    Attributes:
        context: What the passes of the last round knew: the context given and what was excluded.
        painting: The color of every vertex and why, what was excluded included.
    """

    context: PaintContext
    painting: Painting


def paint(context: PaintContext) -> PaintResult:
    """Paint a model: rounds of `paint_once` until nothing is left to exclude, then fewer casts.

    Where costs choose, a node that a list keeps by name is kept at the choice: what stands around
    it is weighed as if it were not there, and not left out because nothing next to it is low.
    """
    ruled = dict[int, Mark]()
    if context.given is None and context.weighing is not None:
        ruled, context = context.ruled(), context.without_node_rules()
    always, color, keeping, saving = GIVEN, paint_once, KEEPING, SAVING
    if context.given is not None:
        always, color, keeping, saving = HARMED, keep_given, JUDGING, ()
    blank = Painting.blank(context.type_graph)
    for step in always:
        context = context.excluding(step.run(context, blank).marks)
    painting = color(context)
    while kept := _kept(context, painting, keeping):
        joined = {v: m for v, m in kept.items() if m.color is Color.ALLOW}
        excluded = {v: m for v, m in kept.items() if v not in joined}
        context = context.excluding(excluded).joining(joined)
        painting = color(context)
    if context.given is None and context.weighing is not None and painting.allow.any():
        context, painting = _cheapest(context.excluding(ruled), context.weighing, painting)
    context = context.excluding(ruled)
    for step in saving:
        painting = step.run(context, painting)
    return PaintResult(context, painting.with_marks(context.excluded))


def _cheapest(
    context: PaintContext, weighing: Weighing, painted: Painting
) -> tuple[PaintContext, Painting]:
    """Return the cheapest part of a painting that the keeping passes have nothing to say against.

    What they keep in float32 there is kept, and so are tails without which a normalization has no
    kernel, in the low type. Then the choice is made again: at most as often as there are vertices,
    and one. That a group or a factor would rather be low than between low ones is left to the cost.
    """
    # imported here: most targets have no table of costs
    from amp_rewrite.rewriting.paint.cheapest import CheapestRegions

    regions, wanted = CheapestRegions(context, weighing, painted), set[int]()
    tails = {v for fused in context.groups for v in fused.tail if painted.is_allow(v)}
    while True:
        marks = regions.marks(context.excluded, wanted - {*context.excluded})
        painting = painted.with_marks(marks).with_marks(context.excluded)
        if not marks or not painting.allow.any():
            return context, painting
        kept = _kept(context, painting, KEEPING)
        joined = {v for v, m in kept.items() if m.color is Color.ALLOW and v in tails}
        excluded = {v: m for v, m in kept.items() if m.color is not Color.ALLOW}
        if not excluded and joined <= wanted:
            return context, painting
        wanted |= joined
        context = context.excluding(excluded)


def paint_once(context: PaintContext) -> Painting:
    """Return the colors of one round; nothing is painted if no allow operator is there."""
    painting = Painting.blank(context.type_graph)
    for step in SEEDING:
        painting = step.run(context, painting)
    if not painting.allow.any():
        return painting
    for step in COLORING:
        painting = step.run(context, painting)
    return painting


def keep_given(context: PaintContext) -> Painting:
    """Return the colors that were given, without what is denied or excluded.

    No operator is painted that was not, and none is dropped because it gains nothing. Nothing is
    denied inside a group that is low as a whole and that the target computes as one operator, nor
    in the tail that a normalization with a low input has no kernel without.
    """
    if context.given is None:
        return SpreadDeny().run(context, Painting.blank(context.type_graph))
    mark, low = Mark(Color.ALLOW, Reason.GIVEN), context.low
    given = context.given & context.processable
    whole = chain.from_iterable(
        fused.core
        for fused in context.groups
        if not fused.tail and context.fuses(fused, low, low) and given[[*fused.results]].all()
    )
    fused = dict.fromkeys((v for v in whole if given[v]), mark)
    fused |= {v: joined for v, joined in context.joined.items() if given[v]}
    painting = SpreadDeny().run(context, Painting.blank(context.type_graph).with_marks(fused))
    return painting.with_marks(dict.fromkeys(vertices_in(given & ~painting.deny), mark))


def _kept(
    context: PaintContext, painting: Painting, keeping: tuple[PaintPass, ...]
) -> dict[int, Mark]:
    """Return the marks of the vertices that the next round excludes or joins to their group."""
    found: dict[int, Mark] = {}
    for step in keeping:
        found |= step.run(context, painting).changes(painting)
    return {
        vertex: mark
        for vertex, mark in found.items()
        if vertex not in context.excluded
        and (mark.color is not Color.ALLOW or vertex not in context.joined)
    }
