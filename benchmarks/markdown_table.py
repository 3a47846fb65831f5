"""Cells and tables in Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median


def spread(numbers: Sequence[float], digits: int = 2) -> str:
    """Return a median with the least and the greatest: "1.02 (0.99 to 1.05)"."""
    if not numbers:
        return ""
    texts = [f"{number:.{digits}f}" for number in (median(numbers), min(numbers), max(numbers))]
    return "{} ({} to {})".format(*texts) if len(numbers) > 1 else texts[0]


def ratios(ours: Sequence[float], others: Sequence[float]) -> list[float]:
    """Return the ratio of every round that both took part in."""
    return [our / other for our, other in zip(ours, others, strict=False)]


def markdown(head: str, lines: Sequence[Sequence[object]]) -> str:
    """Return a table; the columns of `head` are divided by |, and numbers begin with a digit."""
    titles = [title.strip() for title in head.split("|")]
    sides = ["---:" if _is_number(lines, i) else "---" for i in range(len(titles))]
    rows = [titles, sides, *lines]
    return "\n".join(f"| {' | '.join(map(str, row))} |".replace("  ", " ") for row in rows)


def _is_number(lines: Sequence[Sequence[object]], column: int) -> bool:
    cells = [str(line[column]) for line in lines if line[column] != ""]
    return bool(cells) and all(cell[0].isdigit() for cell in cells)
