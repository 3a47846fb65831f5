"""What stays float32, as notebooks show it."""

from __future__ import annotations

from collections.abc import Mapping

from amp_rewrite.html_table import HtmlTable
from amp_rewrite.report.phrases import plain_phrase


def kept_table(kept: Mapping[tuple[str, str], int], precision: str, target: str) -> HtmlTable:
    """Return how many nodes stay float32 and why, for (reason, operator) -> how many nodes."""
    rows = [
        (count, operator, plain_phrase(reason, precision, target), reason)
        for (reason, operator), count in kept.items()
    ]
    return HtmlTable(("stays float32", "operator", "because it", "reason"), rows)
