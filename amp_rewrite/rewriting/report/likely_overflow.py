"""Where numbers may leave the range by an estimate: what the user is warned of."""

from __future__ import annotations

from amp_rewrite.rewriting.paint.context import PaintContext
from amp_rewrite.rewriting.paint.painting import Painting, Reason
from amp_rewrite.rewriting.report.activation_products import unbounded_product


def first_likely_overflow(context: PaintContext, painting: Painting) -> str | None:
    """Return the first node that an estimate keeps float32, or that may overflow, and why."""
    kept = (v for v, m in context.excluded.items() if m.reason is Reason.LIKELY_OVERFLOW)
    first = min(kept, default=None)
    if first is None:
        return unbounded_product(context, painting)
    name, detail = context.type_graph.node_name(first), context.excluded[first].detail
    return f"{name} stays float32: {detail}"
