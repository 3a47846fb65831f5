"""Write what follows from the painting passes: the tables of docs/painting.md.

python tools/make_pass_table.py             writes the page
python tools/make_pass_table.py --check     exits with 1 if it is not what would be written

A pass is a file in amp_rewrite/rewriting/paint/passes with a function that is named like it. Its
decorator declares its places, and the reason that it alone gives.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from amp_rewrite.rewriting.paint.paint_pass import PaintPass, Place, Stage
from amp_rewrite.rewriting.paint.pass_table import PASSES
from amp_rewrite.rewriting.reasons import Reason

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "painting.md"
_BEGIN, _END = "<!-- made by tools/make_pass_table.py: {} -->\n", "<!-- end -->"


def page(text: str) -> str:
    """Return docs/painting.md with its tables made anew."""
    steps = [*PASSES]
    for name, lines in {
        "coloring": coloring(steps),
        "keeping": keeping(steps),
        "saving": saving(steps),
        "low": shared_reasons(low=True),
        "float32": shared_reasons(low=False),
        "reasons": reasons(steps),
    }.items():
        begin = _BEGIN.format(name)
        made = begin + "".join(f"{line}\n" for line in lines) + _END
        pattern = f"{re.escape(begin)}.*?{_END}"
        text, count = re.subn(pattern, lambda _, made=made: made, text, flags=re.DOTALL)
        if count != 1:
            raise SystemExit(f"{PAGE}: {count} tables begin with {begin.strip()}, not one")
    return text


def coloring(steps: list[PaintPass]) -> Iterator[str]:
    """Yield the lines of the table of what colors."""
    yield from ("| | pass | what it does |", "|---|---|---|")
    for step, place in _placed(steps, Stage.SEEDING, Stage.COLORING):
        yield f"| {place.label} | `{step.name}` | {place.row} |".replace("|  |", "| |")


def keeping(steps: list[PaintPass]) -> Iterator[str]:
    """Yield the lines of the table of what keeps vertices in float32."""
    yield from ("| keeping pass | what it keeps in float32 | given |", "|---|---|---|")
    judging = {step.name for step, _ in _placed(steps, Stage.HARMED, Stage.JUDGING)}
    stages = (Stage.GIVEN, Stage.KEEPING, Stage.HARMED, Stage.JUDGING)
    for step, place in _placed(steps, *stages):
        if place.row:
            given = " yes " if step.name in judging else " "
            yield f"| `{step.name}` | {place.row} |{given}|"


def saving(steps: list[PaintPass]) -> Iterator[str]:
    """Yield the lines of the table of what saves casts."""
    yield from ("| saving pass | what it does |", "|---|---|")
    for step, place in _placed(steps, Stage.SAVING):
        yield f"| `{step.name}` | {place.row} |"


def reasons(steps: list[PaintPass]) -> Iterator[str]:
    """Yield the lines of the table of reasons that one pass alone gives."""
    yield from ("| reason | pass | meaning |", "|---|---|---|")
    for step in steps:
        yield from (f"| `{reason}` | `{step.name}` | {reason.row} |" for reason in step.reasons)


def shared_reasons(*, low: bool) -> Iterator[str]:
    """Yield the lines of the table of the other reasons."""
    yield from ("| reason | meaning |", "|---|---|")
    yield from (f"| `{r}` | {r.row} |" for r in Reason if r.low is low)


def _placed(steps: list[PaintPass], *stages: Stage) -> Iterator[tuple[PaintPass, Place]]:
    """Yield the passes of stages in their order."""
    for stage in stages:
        placed = [(step, place) for step in steps for place in step.places if place.stage is stage]
        yield from sorted(placed, key=lambda pair: pair[1].order)


def main() -> None:
    """Write or check the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if stale")
    check = parser.parse_args().check
    before = PAGE.read_text("utf-8")
    after = page(before)
    if check and before != after:
        raise SystemExit(f"{PAGE}: stale; run python tools/make_pass_table.py")
    if before != after:
        PAGE.write_text(after, "utf-8")


if __name__ == "__main__":
    sys.exit(main())
