"""The report of a rewrite: its records, their one JSON form (formats.md), and its text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from amp_rewrite.base.printable import aligned, counted, few, in_bytes, share
from amp_rewrite.rewriting.paint.passes.keep_long_sums import lengths_to_name
from amp_rewrite.rewriting.reasons import plain_phrase
from amp_rewrite.rewriting.report.gains import Sizes, headline
from amp_rewrite.rewriting.report.records import (
    CastRecord,
    NodeRecord,
    OpsetAdvice,
    RaisedOpset,
    RangeRecord,
    Shown,
    StoredRecord,
    Summary,
    UnmatchedRule,
    WeightsRecord,
)

if TYPE_CHECKING:
    from amp_rewrite.rewriting.report.recorder import Recorder
    from amp_rewrite.rewriting.scaling.scaling import Scaling

MOST_REASONS = 8
"""How many reasons the table shows, unless all are asked for."""


@dataclass(frozen=True, repr=False)
class Report(Shown):
    """The changes of a rewrite and their reasons.

    Attributes:
        kept: Reason -> operator -> how many nodes stay float32 for it, the most frequent first.
        details: Makes the records of each of them, and of every node.
        opset_advice: A newer opset that lets more of the model become 16-bit, or None.
        opset_raised: The upgrade of the opset that came first, or None.
        boundaries: Operators that no list knows and function calls, with how often each occurs.
        input_ranges: Graph input -> its range, as given by the user.
        wide_ends: Graph input or output that stays float32 though it might have given up its type
            -> why.
        likely_overflow: The first node that an estimate keeps float32, and why, or None.
        near_end: The 16-bit value that an estimate says to come within a quarter of the end of the
            type, in words; None if none does.
        unmatched_rules: Rules of the op lists about single nodes that match nothing in the model.
        unknown_lengths: Free dimensions of which a length would let sums become 16-bit.
        asked: The options that are not the default ones, each as words of a command.
        scaling: The values that were multiplied by powers of two, or None.
    """

    _beside = ("model", "nodes", "casts")

    precision: str
    target: str
    level: str
    opset: int = field(compare=False)
    weights: WeightsRecord
    summary: Summary
    kept: Mapping[str, Mapping[str, int]]
    details: Recorder = field(repr=False, compare=False)
    boundaries: Mapping[str, int] = field(default_factory=dict)
    functions: str = field(default="none", compare=False)
    input_ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    wide_ends: Mapping[str, str] = field(default_factory=dict)
    likely_overflow: str | None = None
    near_end: str | None = None
    unmatched_rules: tuple[UnmatchedRule, ...] = ()
    opset_advice: OpsetAdvice | None = None
    opset_raised: RaisedOpset | None = None
    unknown_lengths: tuple[str, ...] = ()
    asked: tuple[tuple[str, ...], ...] = ()
    scaling: Scaling | None = None

    def in_short(self) -> str:
        """Return the counts in one line."""
        summary = self.summary
        return (
            f"{summary.nodes_converted} of {summary.float_nodes} float32 nodes in "
            f"{self.precision} for {self.target}, {counted(summary.casts_added, 'cast')} added"
        )

    @cached_property
    def nodes(self) -> tuple[NodeRecord, ...]:
        """All nodes, in execution order; made when first asked for."""
        return self.details.nodes()

    @cached_property
    def casts(self) -> tuple[CastRecord, ...]:
        """The Casts that were added or given consumers; made when first asked for."""
        return self.details.casts()

    @property
    def model(self) -> dict[str, int | str]:
        """The facts about the model in the JSON form."""
        return {"opset": self.opset, "nodes": len(self.nodes), "functions": self.functions}

    def lines(
        self, sizes: Sizes | None = None, *, headed: bool = True, verbose: bool = True
    ) -> Iterator[str]:
        """Yield what was gained, what to know of it, and what stays float32.

        Args:
            sizes: How large the files are.
            headed: Whether to begin with the gain.
            verbose: Whether to include details: constants, bytes of casts.
        """
        if headed:
            yield headline(self.precision, self.summary, sizes)
        yield f"{self.in_short()}, {self.summary.casts_removed} removed"
        if sizes is not None and sizes.share > 1:
            yield _larger_line(self)
        yield from remarks(self)
        yield from _details(self) if verbose else ()
        if self.kept:
            yield from _reason_table(self.kept, self.precision, self.target, every=verbose)
        if self.boundaries:
            names = ", ".join(f"{name} x{count}" for name, count in self.boundaries.items())
            yield f"operators on no op list, left in float32: {names}"


def remarks(report: Report) -> Iterator[str]:
    """Yield what there is to say of some rewrites only."""
    yield from axes_lines(report.summary.operands_with_axes)
    if report.opset_raised is not None:
        after = report.summary.compute_converted
        yield from _raised_lines(report.opset_raised, report.opset, after)
    if report.opset_advice is not None:
        yield _opset_line(report.opset_advice, report.precision)
    large = [record for record in report.weights.overflow if record.action == "kept"]
    if large:
        yield _constants_line(large, f"too large for {report.precision}")
    if report.scaling is not None:
        yield from report.scaling.lines()
    for name, why in report.wide_ends.items():
        yield f"{name} stays float32: {why}"
    if report.unknown_lengths:
        lengths = lengths_to_name(report.unknown_lengths)
        yield f"sums of unknown length stay float32; name the largest length: {lengths}"


def _larger_line(report: Report) -> str:
    """Return why a file is larger than the original, and what to do."""
    weights, added = report.weights, report.summary.casts_added
    more = f"{counted(added, 'added cast')} take" if added else "metadata takes"
    saved = f"{counted(weights.converted, 'converted constant')} can save"
    twice = f"; {weights.twice} of them stored in both types" if weights.twice else ""
    return (
        f"the file is larger than the original: {more} more than {saved}{twice}; "
        "keep the original if size matters"
    )


def _details(report: Report) -> Iterator[str]:
    """Yield figures that few users need."""
    weights, unknown = report.weights, report.summary.casts_of_unknown_size
    yield f"constants: {weights.converted} converted, {weights.kept} kept float32"
    saturated = [record for record in weights.overflow if record.action != "kept"]
    if saturated:
        yield _constants_line(saturated, f"limited to the range of {report.precision}")
    if weights.underflow:
        yield _constants_line(weights.underflow, "partly rounded to zero")
    if report.summary.casts_added:
        but = f" ({unknown} of unknown size not counted)" if unknown else ""
        yield f"casts move {in_bytes(report.summary.cast_bytes)} per run{but}"
    if weights.stored:
        yield _stored_line(weights.stored)


def _raised_lines(raised: RaisedOpset, opset: int, compute_converted: float) -> Iterator[str]:
    """Yield how the model came to its opset, and how much more became 16-bit with it, if any."""
    checked = "the float32 outputs stayed the same"
    if raised.unverified is not None:
        checked = f"outputs were not compared: {raised.unverified}"
    before, after = share(raised.compute_before, 1), share(compute_converted, 1)
    gain = "" if before == after else f"; 16-bit arithmetic: {after}, before {before}"
    yield f"converted the model from opset {raised.before} to {opset}: {checked}{gain}"
    if raised.mended:
        verb, first = ("was", "") if len(raised.mended) == 1 else ("were", ", the first")
        yield (
            f"corrected: {counted(len(raised.mended), 'declared shape')} contradicted shape "
            f"inference and {verb} replaced{first}: {raised.mended[0]}"
        )


def axes_lines(count: int) -> Iterator[str]:
    """Yield how many operands of products got axes, if any, and why."""
    if count:
        products = counted(count, "matrix product")
        yield f"{products} got operands of equal rank, which ONNX Runtime needs to load the file"


def _opset_line(advice: OpsetAdvice, precision: str) -> str:
    gain = (
        f"opset {advice.opset} would allow up to {share(advice.compute_converted, 1)} of the "
        f"arithmetic in {precision}"
    )
    if not advice.lost:
        return f"{gain}: convert --opset {advice.opset}"
    return (
        f"{gain}, but the target has no kernel for {', '.join(advice.lost)} there, so it would run "
        f"on the CPU; force it with convert --opset {advice.opset}"
    )


def _stored_line(stored: Sequence[StoredRecord]) -> str:
    saved = sum(record.bytes_saved for record in stored)
    types = " or ".join(dict.fromkeys(record.dtype for record in stored))
    constants = f"{counted(len(stored), 'constant')} {'is' if len(stored) == 1 else 'are'}"
    return f"{constants} stored as {types} and computed in float32: {in_bytes(saved)} saved"


def _constants_line(records: Sequence[RangeRecord], what: str) -> str:
    verb = "is" if len(records) == 1 else "are"
    names = few([record.name for record in records])
    return f"{counted(len(records), 'constant')} {verb} {what}: {names}"


def _reason_table(
    kept: Mapping[str, Mapping[str, int]], precision: str, target: str, *, every: bool
) -> list[str]:
    """Return the table of what stays float32, a reason a row; only the first unless `every`."""
    rows = [
        (
            str(sum(operators.values())),
            few([*operators]),
            plain_phrase(reason, precision, target).removeprefix("is ") + f" ({reason})",
        )
        for reason, operators in kept.items()
    ]
    rest = [] if every else rows[MOST_REASONS:]
    if rest:
        count = sum(int(row[0]) for row in rest)
        rows[MOST_REASONS:] = [(str(count), "...", "--verbose shows every reason")]
    return ["stays float32", *aligned(("nodes", "operators", "reason"), rows, numbers=1)]
