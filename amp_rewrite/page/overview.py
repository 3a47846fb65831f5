"""The first screen of the page: the verdict, its figures, the causes, and what to try next."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from amp_rewrite.base.printable import counted, in_bytes, printable
from amp_rewrite.numerics.budget.budget import Budget
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


def overview(report: Report, evidence: Evidence) -> dict[str, Any]:
    """Return what the first screen shows."""
    verification = evidence.verification
    verdict = None if verification is None else verification.verdict
    shown = () if verdict is None else verdict.failures[:_MOST_FAILURES]
    against = () if evidence.against is None else (evidence.against,)
    holds = None if verdict is None else verdict.decided
    return {
        "headline": headline(report.precision, report.summary, evidence.sizes, evidence.against),
        "holds": False if against else holds,
        "failures": _texts((*shown, *against)),
        "facts": [*_facts(report, evidence)],
        "doubts": _texts((*_doubts(evidence),)),
        "remarks": _texts((*evidence.remarks, *_notes(verification), *remarks(report))),
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
            "operators": printable(_operators(operators)),
        }
        for (low, reason), operators in order
    ]


def _operators(counts: Counter[str]) -> str:
    shown = [f"{n} {op}" for op, n in counts.most_common(_MOST_OPERATORS)]
    return ", ".join(shown + (["..."] if len(counts) > _MOST_OPERATORS else []))


def _facts(report: Report, evidence: Evidence) -> Iterator[Fact]:
    yield _accuracy(evidence)
    summary = report.summary
    yield _fact(
        "Arithmetic",
        f"{summary.compute_converted:.1%} in {report.precision}",
        f"{summary.nodes_converted:,} of {counted(summary.float_nodes, 'float32 node')}",
    )
    if evidence.sizes is not None:
        yield _size(evidence.sizes)
    weights = report.weights
    yield _fact(
        "Casts",
        f"{summary.casts_added:,} added, {summary.casts_removed:,} removed",
        _movement(report),
    )
    yield _fact(
        "Constants",
        f"{weights.converted:,} converted",
        f"{weights.kept:,} kept float32, {len(weights.stored):,} of them stored in 16 bits",
    )


def _size(sizes: Sizes) -> Fact:
    about = "" if sizes.exact else "about "
    return _fact(
        "Size",
        f"{about}{in_bytes(sizes.after)}",
        f"{sizes.share:.1%} of {in_bytes(sizes.before)}",
    )


def _movement(report: Report) -> str:
    summary = report.summary
    unknown = summary.casts_of_unknown_size
    if unknown and not summary.cast_bytes:
        return f"{unknown:,} of unknown size"
    moved = f"{in_bytes(summary.cast_bytes)} per run"
    return f"{moved}, {unknown:,} of unknown size left out" if unknown else moved


def _accuracy(evidence: Evidence) -> Fact:
    verification = evidence.verification
    if verification is None:
        return _fact("Accuracy", "Not verified", "run the first command below")
    verdict, _, decided = str(verification.verdict).partition(": ")
    more = f"{decided} ({verification.data})" if decided else verification.data
    return _fact("Accuracy", printable(verdict), printable(more))


def _doubts(evidence: Evidence) -> Iterator[str]:
    """Say why the verdict may not hold where the model is used."""
    if evidence.verification is None:
        yield "Not verified: nothing was run, so the accuracy is unknown."
    elif evidence.verification.is_made_up:
        yield "Only made-up inputs were compared; your data may differ."


def _notes(verification: VerifyReport | None) -> tuple[str, ...]:
    """Return what a verification says besides its headline."""
    if verification is None:
        return ()
    verdict = verification.verdict
    return (*(f"{verdict.status}: {line}" for line in verdict.doubts), *verification.notes())


def _fact(name: str, said: str, more: str) -> Fact:
    return {"name": name, "said": said, "more": more}


def _texts(lines: tuple[str, ...]) -> list[str]:
    return [printable(line) for line in lines]


@dataclass(frozen=True)
class Evidence:
    """Evidence that the page shows besides the report, as far as it is known.

    Attributes:
        names: What the files are called.
        sizes: How large the model is before and after.
        verification: How far it is from the original.
        remarks: Lines about what was found on the way.
        against: What speaks against a model that holds, if anything.
    """

    names: Names
    sizes: Sizes | None = None
    verification: VerifyReport | None = None
    remarks: tuple[str, ...] = ()
    against: str | None = None


def _said(budget: Budget) -> tuple[str, ...]:
    """Return the largest contributions to the error, one line each."""
    return tuple(line.strip() for line in budget.lines())


def evidence_of(conversion: FileConversion, output: Path, *, written: bool) -> Evidence:
    """Return what is known of a conversion."""
    model, result, outcome = conversion.model, conversion.result, conversion.made
    data = conversion.asked.data
    return Evidence(
        names=Names(model.name, output.name, tuple(path.name for path in data), written),
        sizes=sizes_of(model, result.flat, result.plan, output if written else None),
        verification=None if outcome is None else outcome.verification,
        remarks=() if outcome is None or outcome.kept is None else _said(outcome.kept.budget),
        against=None if outcome is None else outcome.nothing_left,
    )
