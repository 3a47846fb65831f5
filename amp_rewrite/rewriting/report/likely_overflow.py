"""Where an estimate first keeps something float32: what the user is warned of."""

from __future__ import annotations

from amp_rewrite.rewriting.paint.context import PaintContext
from amp_rewrite.rewriting.paint.painting import Reason


def first_likely_overflow(context: PaintContext) -> str | None:
    """Return the first node that stays float32 for an estimate, and why; None if none does."""
    kept = (v for v, m in context.excluded.items() if m.reason is Reason.LIKELY_OVERFLOW)
    first = min(kept, default=None)
    if first is None:
        return None
    name, detail = context.type_graph.node_name(first), context.excluded[first].detail
    return f"{name} stays float32: {detail}"
