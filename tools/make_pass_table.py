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
from functools import reduce
from importlib import import_module
from pathlib import Path

from amp_rewrite.rewriting.paint.paint_pass import PaintPass, Place, Stage
from amp_rewrite.rewriting.paint.pass_table import PASSES
from amp_rewrite.rewriting.reasons import REASONS, PassReason

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "painting.md"
_WHEN = {
    Stage.GIVEN: "before the first round",
    Stage.KEEPING: "each round",
    Stage.HARMED: "before the first round of a given painting",
    Stage.JUDGING: "each round of a given painting",
}
_BEGIN, _END = "<!-- made by tools/make_pass_table.py: {} -->\n", "<!-- end -->"


def page(text: str) -> str:
    """Return docs/painting.md with its tables made anew."""
    steps = [*PASSES]
    for name, lines in {
        "keeping": keeping(steps),
        "saving": saving(steps),
        "low": shared_reasons(low=True),
        "float32": shared_reasons(low=False),
    }.items():
        begin = _BEGIN.format(name)
        made = begin + "".join(f"{line}\n" for line in lines) + _END
        pattern = f"{re.escape(begin)}.*?{_END}"
        text, count = re.subn(pattern, lambda _, made=made: made, text, flags=re.DOTALL)
        if count != 1:
            raise SystemExit(f"{PAGE}: {count} tables begin with {begin.strip()}, not one")
    return text


def keeping(steps: list[PaintPass]) -> Iterator[str]:
    """Yield the lines of the table of what keeps vertices in float32."""
    yield from ("| pass | when | rule | given |", "|---|---|---|---|")
    judging = {step.name for step, _ in _placed(steps, Stage.HARMED, Stage.JUDGING)}
    for step, place in _placed(steps, *_WHEN):
        if place is step.places[0]:
            given = " yes " if step.name in judging else " "
            yield f"| `{step.name}` | {_WHEN[place.stage]} | {_title(step)} |{given}|"


def saving(steps: list[PaintPass]) -> Iterator[str]:
    """Yield the lines of the table of what saves casts."""
    yield from ("| saving pass | rule |", "|---|---|")
    for step, _ in _placed(steps, Stage.SAVING):
        yield f"| `{step.name}` | {_title(step)} |"


def _title(step: PaintPass) -> str:
    """Return the first line of a pass's file."""
    return str(import_module(step.__module__).__doc__).partition("\n")[0].rstrip(".")


def shared_reasons(*, low: bool) -> Iterator[str]:
    """Yield the lines of the table of reasons."""
    yield from ("| reason | meaning: the node |", "|---|---|")
    yield from (f"| `{r}` | {_meaning(r)} |" for r in REASONS if r.low is low)


def _meaning(reason: PassReason) -> str:
    """Return what a reason says of a node, of any rewrite."""
    words = {"{precision}": "16 bits", "target {target}": "the target", "{exact}": "2,048 or 256"}
    return reduce(lambda said, word: said.replace(word, words[word]), words, reason.plain)


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
