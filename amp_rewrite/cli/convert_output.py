"""What `convert` prints: the gain, what stayed and why, the verdict, and what to try next."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from amp_rewrite.cli import common
from amp_rewrite.cli.streams import STREAM, shown
from amp_rewrite.rewriting.report.cast_table import explain_casts as cast_table
from amp_rewrite.rewriting.report.gains import Sizes
from amp_rewrite.rewriting.report.next_steps import Names, next_steps
from amp_rewrite.rewriting.report.rewrite_report import Report, print_report

if TYPE_CHECKING:
    from amp_rewrite.numerics.conversion import Conversion

_VERIFY = "amp-rewrite verify "
_STEPS = 3
"""How many next steps are printed; the page has all of them."""


def print_rewrite(report: Report, sizes: Sizes, *, explain_casts: bool) -> None:
    """Print what was gained, the figures, the reasons and, if asked for, the dearest casts."""
    out = common.console()
    print_report(report, out, sizes)
    if explain_casts:
        out.print_lines(cast_table(report))


def print_outcome(made: Conversion | None, output: Path, *, written: bool) -> None:
    """Print the verdict if there is one, and what was written."""
    out = common.console()
    fails = made is not None and not made.writable
    if made is not None:
        for line in made.verification.notes():
            out.print(line)
        out.print(made.verdict)
    if written:
        in_doubt = made is not None and made.doubt is not None
        note = ", though it does not hold" if fails else ", in doubt" if in_doubt else ""
        out.print(f"wrote {shown(output)}{note}")
    else:
        note = "; --write-failed writes it all the same" if fails else ""
        out.print(f"nothing was written{note}")


def print_next(
    report: Report, made: Conversion | None, model: Path, output: Path, *, written: bool
) -> None:
    """Print what to try next: the most useful steps; a file that is not there is not verified."""
    out = common.console()
    if STREAM in (shown(model), shown(output)):  # which no further command can read
        return
    names = Names(str(model), str(output))
    steps = next_steps(report, names, None if made is None else made.verification.holds)
    useful = [step for step in steps if written or not step.command.startswith(_VERIFY)]
    for step in useful[:_STEPS]:
        out.print(f"next: {step.why}")
        out.print(f"  {step.command}")
