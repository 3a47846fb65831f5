"""What `convert` prints: the gain, what stayed and why, the verdict, and what to try next."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from amp_rewrite.api import RewriteResult
from amp_rewrite.cli import common
from amp_rewrite.graph.proto.flat_proto import FlatProto
from amp_rewrite.report.cast_table import explain_casts as cast_table
from amp_rewrite.report.gains import Sizes, planned_size
from amp_rewrite.report.next_steps import Names, next_steps
from amp_rewrite.report.rewrite_report import Report, print_report

if TYPE_CHECKING:
    from amp_rewrite.numerics.conversion import Conversion

_STEPS = 2
"""How many next steps are printed; the page has all of them."""


def planned(model: Path, result: RewriteResult) -> Sizes | None:
    """Return how large the model is and will be; None if it was rewritten in memory."""
    if not isinstance(result.flat, FlatProto):
        return None
    return planned_size(model.stat().st_size + result.flat.files.total, result.plan)


def print_rewrite(report: Report, sizes: Sizes | None, *, explain_casts: bool) -> None:
    """Print what was gained, the figures, the reasons and, if asked for, the dearest casts."""
    out = common.console()
    print_report(report, out, sizes)
    if explain_casts:
        out.print_lines(cast_table(report))


def print_outcome(made: Conversion | None, output: Path, *, written: bool) -> None:
    """Print the verdict if there is one, and what was written."""
    out = common.console()
    fails = made is not None and not made.ok
    if made is not None:
        stress = made.verification.stress
        for line in () if stress is None else stress.lines():
            out.print(line)
        out.print(made.verdict)
    if written:
        note = ", though it does not hold" if fails else ""
        out.print(f"wrote {output}{note}")
    else:
        note = "; --write-failed writes it all the same" if fails else ""
        out.print(f"nothing was written{note}")


def print_next(report: Report, made: Conversion | None, model: Path, output: Path) -> None:
    """Print what to try next: the most useful steps."""
    out = common.console()
    names = Names(str(model), str(output))
    for step in next_steps(report, names, None if made is None else made.ok)[:_STEPS]:
        out.print(f"next: {step.why}")
        out.print(f"  {step.command}")
