"""Whether a painting keeps something in float32 because it leaves the range of the low type."""

from __future__ import annotations

from amp_rewrite.rewriting.paint.painting import Painting, Reason

OVERFLOWS = frozenset({Reason.CERTAIN_OVERFLOW, Reason.CONSTANT_OVERFLOW})
"""The reasons for float32 that scaling may take away. An estimate is none: where it is too large,
what was scaled by it would become subnormal."""


def overflows(painting: Painting) -> bool:
    """Tell whether something stays float32 because it leaves the range."""
    return any(mark.reason in OVERFLOWS for mark in painting.marks.values())
