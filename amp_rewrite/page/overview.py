"""The first screen of the page: the verdict, its figures, the causes, and what to try next."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from amp_rewrite.base.printable import counted, in_bytes, printable
from amp_rewrite.numerics.compare.verify_report import VerifyReport
from amp_rewrite.numerics.convert.file import FileConversion
from amp_rewrite.page.node_table import KEPT, cause_of, is_drawn, precision_of
from amp_rewrite.rewriting.reasons import plain_phrase
from amp_rewrite.rewriting.report.gains import Sizes, headline, sizes_of
from amp_rewrite.rewriting.report.next_steps import Names, next_steps
from amp_rewrite.rewriting.report.rewrite_report import Report, remarks

_MOST_OPERATORS = 4
_MOST_FAILURES = 5

Fact = dict[str, str]
"""A figure's name and its value."""


@dataclass(frozen=True)
class Evidence:
    """Evidence that the page shows besides the report, as far as it is known.

    `remarks` are lines about what was found on the way, `against` a reason against a model that
    passes, if there is one.
    """

    names: Names
    sizes: Sizes | None = None
    verification: VerifyReport | None = None
    remarks: tuple[str, ...] = ()
    against: str | None = None


def overview(report: Report, evidence: Evidence) -> dict[str, Any]:
    """Return what the first screen shows."""
    verification = evidence.verification
    verdict = None if verification is None else verification.verdict
    shown = () if verdict is None else verdict.failures[:_MOST_FAILURES]
    against = () if evidence.against is None else (evidence.against,)
    holds = None if verdict is None else verdict.decided
    notes = () if verification is None else verification.notes()
    doubts = () if verdict is None else (f"{verdict.status}: {line}" for line in verdict.doubts)
    return {
        "headline": evidence.against or headline(report.precision, report.summary, evidence.sizes),
        "holds": False if against else holds,
        "failures": [*map(printable, (*shown, *against))],
        "facts": [*_facts(report, evidence)],
        "doubts": [*_doubts(evidence)],
        "remarks": [
            *map(printable, (*evidence.remarks, *doubts, *notes, *remarks(report))),
        ],
        "causes": causes(report),
        "next": [
            {"why": printable(step.why), "command": printable(step.command)}
            for step in next_steps(report, evidence.names, holds)
        ],
    }


def causes(report: Report) -> list[dict[str, Any]]:
    """Return the reasons with what they say and how many nodes have each, the commonest first.

    What stays float32 comes before what is low.
    """
    counts: dict[tuple[bool, str], Counter[str]] = {}
    for node in report.nodes:
        cause = cause_of(node)
        if cause is not None and is_drawn(node):
            key = (precision_of(node) != KEPT, cause)
            counts.setdefault(key, Counter())[node.op] += 1
    order = sorted(counts.items(), key=lambda item: (item[0][0], -item[1].total(), item[0][1]))
    return [
        {
            "reason": reason,
            "low": low,
            "count": operators.total(),
            "said": plain_phrase(reason, report.precision, report.target),
            "operators": printable(
                ", ".join(f"{n} {op}" for op, n in operators.most_common(_MOST_OPERATORS))
                + (", ..." if len(operators) > _MOST_OPERATORS else "")
            ),
        }
        for (low, reason), operators in order
    ]


def _facts(report: Report, evidence: Evidence) -> Iterator[Fact]:
    verification, summary, sizes = evidence.verification, report.summary, evidence.sizes
    accuracy = ("Not verified", "run the first command below")
    if verification is not None:
        verdict, _, decided = str(verification.verdict).partition(": ")
        accuracy = verdict, f"{decided} ({verification.data})" if decided else verification.data
    facts = [
        ("Accuracy", *map(printable, accuracy)),
        (
            "Arithmetic",
            f"{summary.compute_converted:.1%} in {report.precision}",
            f"{summary.nodes_converted:,} of {counted(summary.float_nodes, 'float32 node')}",
        ),
    ]
    if sizes is not None:
        size = f"{'' if sizes.exact else 'about '}{in_bytes(sizes.after)}"
        facts.append(("Size", size, f"{sizes.share:.1%} of {in_bytes(sizes.before)}"))
    unknown, moved = summary.casts_of_unknown_size, f"{in_bytes(summary.cast_bytes)} per run"
    if unknown:
        left = f"{unknown:,} of unknown size"
        moved = f"{moved}, {left} left out" if summary.cast_bytes else left
    weights, casts = report.weights, f"{summary.casts_added:,} added"
    stored = f"{weights.kept:,} kept float32, {len(weights.stored):,} of them stored in 16 bits"
    facts.append(("Casts", f"{casts}, {summary.casts_removed:,} removed", moved))
    facts.append(("Constants", f"{weights.converted:,} converted", stored))
    for name, said, more in facts:
        yield {"name": name, "said": said, "more": more}


def _doubts(evidence: Evidence) -> Iterator[str]:
    """Say why the verdict may not hold where the model is used."""
    if evidence.verification is None:
        yield "Not verified: nothing was run, so the accuracy is unknown."
    elif evidence.verification.is_made_up:
        yield "Only made-up inputs were compared; your data may differ."


def evidence_of(conversion: FileConversion, output: Path, *, written: bool) -> Evidence:
    """Return what is known of a conversion."""
    model, result, outcome = conversion.model, conversion.result, conversion.made
    data, kept = conversion.asked.data, None if outcome is None else outcome.kept
    paths = tuple(path.name for path in data)
    lines = (
        () if kept is None or kept.budget is None else kept.budget.lines()
    )  # the largest contributions to the error
    return Evidence(
        names=Names(model.name, output.name, paths, written, conversion.asked.rtol),
        sizes=sizes_of(model, result.flat, result.plan, output if written else None),
        verification=None if outcome is None else outcome.verification,
        remarks=tuple(map(str.strip, lines)),
        against=None if outcome is None else outcome.nothing_left,
    )
