"""Write what follows from the painting passes: their table and the documentation.

python tools/make_pass_table.py             writes pass_table.py and the tables of docs/painting.md
python tools/make_pass_table.py --check     exits with 1 if they are not what would be written

A pass is a file in amp_rewrite/rewriting/paint/passes with a function that is named like it. Its
decorator declares its places, and the reason that it alone gives.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

from amp_rewrite.rewriting.paint.paint_pass import PaintPass, Place, Stage
from amp_rewrite.rewriting.reasons import Reason

ROOT = Path(__file__).resolve().parent.parent
PASSES = "amp_rewrite.rewriting.paint.passes"
TABLE = ROOT / "amp_rewrite" / "rewriting" / "paint" / "pass_table.py"
PAGE = ROOT / "docs" / "painting.md"
HEAD = '''\
"""All painting passes: made by `python tools/make_pass_table.py`, not edited by hand."""

from __future__ import annotations

from amp_rewrite.rewriting.paint.paint_pass import PaintPass
'''
_BEGIN, _END = "<!-- made by tools/make_pass_table.py: {} -->\n", "<!-- end -->"


def passes() -> list[str]:
    """Return the modules of the passes; each has a pass of its name."""
    folder = ROOT / PASSES.replace(".", "/")
    return sorted(path.stem for path in folder.glob("[a-z]*.py"))


def table() -> str:
    """Return the program with the table."""
    found = passes()
    imports = (f"from {PASSES}.{name} import {name}\n" for name in found)
    rows = (f"    {name},\n" for name in found)
    return f"{HEAD}{''.join(imports)}\nPASSES: tuple[PaintPass, ...] = (\n{''.join(rows)})\n"


def page(text: str) -> str:
    """Return docs/painting.md with its tables made anew."""
    steps: list[PaintPass] = [getattr(import_module(f"{PASSES}.{m}"), m) for m in passes()]
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
    """Write or check both files."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if stale")
    check = parser.parse_args().check
    for path, make in ((TABLE, lambda _: table()), (PAGE, page)):
        before = path.read_text("utf-8") if path.exists() else ""
        after = make(before)
        if before == after:
            continue
        if check:
            raise SystemExit(f"{path}: stale; run python tools/make_pass_table.py")
        path.write_text(after, "utf-8")


if __name__ == "__main__":
    sys.exit(main())
