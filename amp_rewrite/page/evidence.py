"""What is known of a rewrite besides its report: sizes, a verification, what speaks against it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from amp_rewrite.numerics.compare.verify_report import VerifyReport
from amp_rewrite.numerics.convert.file import FileConversion
from amp_rewrite.rewriting.report.file_sizes import sizes_of
from amp_rewrite.rewriting.report.gains import Sizes
from amp_rewrite.rewriting.report.next_steps import Names


@dataclass(frozen=True)
class Evidence:
    """What the page shows besides the report, as far as it is known.

    Attributes:
        names: What the files are called.
        sizes: How large the model is before and after.
        verification: How far it is from the original.
        remarks: What a reader has to know to read the page rightly.
        against: What speaks against a model that holds, if anything.
    """

    names: Names
    sizes: Sizes | None = None
    verification: VerifyReport | None = None
    remarks: tuple[str, ...] = ()
    against: str | None = None


def evidence_of(conversion: FileConversion, output: Path, *, written: bool) -> Evidence:
    """Return what is known of a conversion."""
    model, result, outcome = conversion.model, conversion.result, conversion.made
    data = conversion.asked.data
    return Evidence(
        names=Names(model.name, output.name, tuple(path.name for path in data), written),
        sizes=sizes_of(model, result.flat, result.plan, output if written else None),
        verification=None if outcome is None else outcome.verification,
        remarks=() if outcome is None or outcome.unmet is None else (outcome.unmet,),
        against=None if outcome is None else outcome.nothing_left,
    )
