"""The report of a rewrite: its records, their one JSON form (formats.md), and its text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from amp_rewrite.base.printable import aligned, counted, in_bytes
from amp_rewrite.rewriting.paint.passes.keep_long_sums import lengths_to_name
from amp_rewrite.rewriting.reasons import plain_phrase
from amp_rewrite.rewriting.report.gains import Sizes, headline
from amp_rewrite.rewriting.report.records import (
    VERSION,
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
    json_form,
)

if TYPE_CHECKING:
    from amp_rewrite.rewriting.report.recorder import Recorder
    from amp_rewrite.rewriting.report.scaling_record import ScalingRecord

MOST_REASONS = 8
"""How many reasons the table shows, unless all are asked for."""

_NAMED = 3
"""How many operators of a reason, constants and rules a line names."""


@dataclass(frozen=True, repr=False)
class Report(Shown):
    """The changes of a rewrite and their reasons.

    Attributes:
        kept: (reason, operator) -> how many nodes stay float32 for it.
        n_casts: How many Casts were added or given consumers.
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

    precision: str
    target: str
    level: str
    opset: int
    weights: WeightsRecord
    summary: Summary
    kept: Mapping[tuple[str, str], int]
    n_casts: int
    details: Recorder = field(repr=False, compare=False)
    boundaries: Mapping[str, int] = field(default_factory=dict)
    functions: str = "none"
    input_ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    wide_ends: Mapping[str, str] = field(default_factory=dict)
    likely_overflow: str | None = None
    near_end: str | None = None
    unmatched_rules: tuple[UnmatchedRule, ...] = ()
    opset_advice: OpsetAdvice | None = None
    opset_raised: RaisedOpset | None = None
    unknown_lengths: tuple[str, ...] = ()
    asked: tuple[tuple[str, ...], ...] = ()
    scaling: ScalingRecord | None = None

    def in_short(self) -> str:
        """Return the counts in one line."""
        summary = self.summary
        return (
            f"{summary.nodes_converted} of {summary.float_nodes} float32 nodes in "
            f"{self.precision} for {self.target}, {summary.casts_added} casts added"
        )

    @cached_property
    def nodes(self) -> tuple[NodeRecord, ...]:
        """All nodes, in execution order; made when first asked for."""
        return self.details.nodes()

    @cached_property
    def casts(self) -> tuple[CastRecord, ...]:
        """The Casts that were added or given consumers; made when first asked for."""
        return self.details.casts()

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form, version 1."""
        head = {name: getattr(self, name) for name in ("precision", "target", "level")}
        model = {"opset": self.opset, "nodes": len(self.nodes), "functions": self.functions}
        names = (
            *("nodes", "casts", "weights", "boundaries", "input_ranges", "wide_ends"),
            *("likely_overflow", "near_end", "unmatched_rules", "opset_advice", "opset_raised"),
            *("scaling", "summary"),
        )
        only_if_any = {"wide_ends", "near_end", "scaling"}
        shown = [name for name in names if name not in only_if_any or getattr(self, name)]
        content = {name: json_form(getattr(self, name)) for name in shown}
        return {"version": VERSION, **head, "model": model, **content}

    def kept_reasons(self) -> dict[tuple[str, str], int]:
        """Return (reason, operator) -> how many nodes stay float32 for it, most frequent first."""
        return dict(sorted(self.kept.items(), key=lambda item: (-item[1], item[0])))

    def lines(
        self, sizes: Sizes | None = None, left: str | None = None, *, verbose: bool = True
    ) -> Iterator[str]:
        """Yield what was gained, what to know of it, and what stays float32.

        Args:
            sizes: How large the files are.
            left: Why nothing is in 16 bits, if more is known of it.
            verbose: Whether to include details: constants, bytes of casts.
        """
        summary, reasons = self.summary, self.kept_reasons()
        yield headline(self.precision, summary, sizes, left)
        yield (
            f"{summary.nodes_converted} of {summary.float_nodes} float32 nodes now compute in "
            f"{self.precision} (target {self.target}); casts: {summary.casts_added} added, "
            f"{summary.casts_removed} removed"
        )
        yield from remarks(self)
        yield from _details(self) if verbose else ()
        if reasons:
            yield from _reason_table(reasons, self.precision, self.target, every=verbose)
        if self.boundaries:
            names = ", ".join(f"{name} x{count}" for name, count in self.boundaries.items())
            yield f"operators on no op list, left in float32: {names}"


def remarks(report: Report) -> Iterator[str]:
    """Yield what there is to say of some rewrites only."""
    summary = report.summary
    if summary.operands_with_axes:
        yield axes_line(summary.operands_with_axes)
    if report.opset_raised is not None:
        yield from _raised_lines(report.opset_raised, report.opset, summary.compute_converted)
    if report.opset_advice is not None:
        yield _opset_line(report.opset_advice, report.precision)
    if report.unmatched_rules:
        yield unmatched_line(report.unmatched_rules)
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
    if report.likely_overflow:
        yield f"estimate: {report.likely_overflow}"


def _details(report: Report) -> Iterator[str]:
    """Yield figures that few users need."""
    weights, unknown = report.weights, report.summary.casts_of_unknown_size
    yield f"constants: {weights.converted} converted, {weights.kept} kept float32"
    saturated = [record for record in weights.overflow if record.action != "kept"]
    if saturated:
        yield _constants_line(saturated, f"limited to the range of {report.precision}")
    if weights.underflow:
        yield _constants_line(weights.underflow, "partly rounded to zero")
    if report.n_casts:
        but = f" ({unknown} of unknown size not counted)" if unknown else ""
        yield f"casts move {in_bytes(report.summary.cast_bytes)} per run{but}"
    if weights.stored:
        yield _stored_line(weights.stored)


def _raised_lines(raised: RaisedOpset, opset: int, compute_converted: float) -> Iterator[str]:
    """Yield how the model came to its opset, and how much more became 16-bit with it, if any."""
    checked = "the float32 outputs stayed the same"
    if raised.unverified is not None:
        checked = f"outputs were not compared: {raised.unverified}"
    before, after = f"{raised.compute_before:.1%}", f"{compute_converted:.1%}"
    gain = "" if before == after else f"; 16-bit arithmetic: {after}, before {before}"
    yield f"converted the model from opset {raised.before} to {opset}: {checked}{gain}"
    if raised.mended:
        verb, first = ("was", "") if len(raised.mended) == 1 else ("were", ", the first")
        yield (
            f"corrected: {counted(len(raised.mended), 'declared shape')} contradicted shape "
            f"inference and {verb} replaced{first}: {raised.mended[0]}"
        )


def axes_line(count: int) -> str:
    """Return how many operands of products got axes, without which a runtime loads no file."""
    return (
        f"{counted(count, 'matrix product')} got operands of equal rank, which ONNX Runtime 1.32 "
        "needs to load the file"
    )


def _opset_line(advice: OpsetAdvice, precision: str) -> str:
    gain = (
        f"opset {advice.opset} would allow up to {advice.compute_converted:.1%} of the arithmetic "
        f"in {precision}"
    )
    if not advice.lost:
        return f"{gain}: convert --opset {advice.opset}"
    return (
        f"{gain}, but the target has no kernel for {', '.join(advice.lost)} there, so it would run "
        f"on the CPU; force it with convert --opset {advice.opset}"
    )


def unmatched_line(rules: Sequence[UnmatchedRule]) -> str:
    """Return which rules about nodes match nothing in the model; there is at least one."""
    match = "matches" if len(rules) == 1 else "match"
    return f"{counted(len(rules), 'node rule')} {match} no node of the model: {_first(rules)}"


def _stored_line(stored: Sequence[StoredRecord]) -> str:
    saved = sum(record.bytes_saved for record in stored)
    types = " or ".join(dict.fromkeys(record.dtype for record in stored))
    constants = f"{counted(len(stored), 'constant')} {'is' if len(stored) == 1 else 'are'}"
    return f"{constants} stored as {types} and computed in float32: {in_bytes(saved)} saved"


def _constants_line(records: Sequence[RangeRecord], what: str) -> str:
    verb = "is" if len(records) == 1 else "are"
    names = _first([record.name for record in records])
    return f"{counted(len(records), 'constant')} {verb} {what}: {names}"


def _first(things: Sequence[object]) -> str:
    """Return the first few, and whether there are more."""
    return ", ".join([*map(str, things[:_NAMED]), *(["..."] if len(things) > _NAMED else [])])


def _reason_table(
    reasons: Mapping[tuple[str, str], int], precision: str, target: str, *, every: bool
) -> list[str]:
    """Return the table of what stays float32, a reason a row; only the first unless `every`."""
    by_reason: dict[str, dict[str, int]] = {}
    for (reason, op), count in reasons.items():
        by_reason.setdefault(reason, {})[op] = count
    sorted_rows = sorted(by_reason.items(), key=lambda row: -sum(row[1].values()))
    shown = len(sorted_rows) if every else MOST_REASONS
    rows: list[tuple[str, str, str]] = []
    for reason, operators in sorted_rows[:shown]:
        said = plain_phrase(reason, precision, target).removeprefix("is ") + f" ({reason})"
        rows.append((str(sum(operators.values())), _first([*operators]), said))
    rest = sum(sum(operators.values()) for _, operators in sorted_rows[shown:])
    if rest:
        rows.append((str(rest), "...", "--verbose or the JSON report shows every reason"))
    return ["stays float32", *aligned(("nodes", "operators", "reason"), rows, numbers=1)]
