"""C: the operators that handle one sequence share one color.

A sequence has one element type, so everything that a handle edge connects is low or nothing is.

Evidence: the case TensorListSetGet: without the pass the elements of one sequence have two types,
which is not valid.
"""

from __future__ import annotations

from amp_rewrite.rewriting.paint.context import PaintContext
from amp_rewrite.rewriting.paint.paint_pass import Place, Stage, paints
from amp_rewrite.rewriting.paint.painting import Color, Mark, Marks, Painting, Reason


@paints("match-sequences", Place(Stage.COLORING, 20), Place(Stage.COLORING, 70))
def match_sequences(context: PaintContext, painting: Painting) -> Marks:
    """Deny a cluster with a denied member; otherwise paint one with a painted member."""
    marks: dict[int, Mark] = {}
    for cluster in context.clusters:
        denied = next((v for v in cluster if painting.is_deny(v)), None)
        allowed = next((v for v in cluster if painting.is_allow(v)), None)
        if denied is not None:
            mark = Mark(Color.DENY, Reason.SEQUENCE_DENIED, denied)
            marks |= {v: mark for v in cluster if not painting.is_deny(v)}
        elif allowed is not None:
            mark = Mark(Color.ALLOW, Reason.SEQUENCE_CLUSTER, allowed)
            marks |= {v: mark for v in cluster if not painting.is_allow(v)}
    return marks
