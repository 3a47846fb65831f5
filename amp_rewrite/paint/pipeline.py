"""The painting passes in order (painting.md, section 3)."""

from __future__ import annotations

from typing import ClassVar, Protocol

from amp_rewrite.paint.context import PaintContext
from amp_rewrite.paint.painting import Painting
from amp_rewrite.paint.passes.drop_islands import DropIslands
from amp_rewrite.paint.passes.drop_unsupported import DropUnsupported
from amp_rewrite.paint.passes.fill_between import FillBetween
from amp_rewrite.paint.passes.follow_allow import FollowAllow
from amp_rewrite.paint.passes.grow_clear import GrowClear
from amp_rewrite.paint.passes.match_sequences import (
    MatchSequences,
    deny_opaque_clusters,
    sequence_clusters,
)
from amp_rewrite.paint.passes.retarget_casts import RetargetCasts
from amp_rewrite.paint.passes.seed_allow import SeedAllow
from amp_rewrite.paint.passes.spread_deny import SpreadDeny


class PaintPass(Protocol):
    """A step of the painting: pure, without state between calls."""

    name: ClassVar[str]

    def run(self, context: PaintContext, painting: Painting) -> Painting:
        """Return the new painting."""
        ...


def paint(context: PaintContext) -> Painting:
    """Return the painting of a model; nothing is painted if no allow operator is there."""
    clusters = tuple(sequence_clusters(context.type_graph))
    painting = deny_opaque_clusters(context, clusters, Painting())
    painting = SeedAllow().run(context, painting)
    if next(painting.allowed(), None) is None:
        return painting
    match = MatchSequences(clusters)
    passes: tuple[PaintPass, ...] = (
        *(() if context.lists.force_all else (SpreadDeny(),)),
        match,
        FillBetween(),
        FollowAllow(),
        GrowClear(),
        DropUnsupported(),
        match,
        DropIslands(),
        RetargetCasts(),
    )
    for step in passes:
        painting = step.run(context, painting)
    return painting
