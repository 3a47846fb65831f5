"""The report of a rewrite: its records, their one JSON form (formats.md), and its text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from amp_rewrite.rewriting.paint.passes.keep_long_sums import lengths_to_name
from amp_rewrite.rewriting.report import report_lines
from amp_rewrite.rewriting.report.gains import Sizes, headline
from amp_rewrite.rewriting.report.records import (
    VERSION,
    CastRecord,
    NodeRecord,
    OpsetAdvice,
    RaisedOpset,
    Shown,
    Summary,
    UnmatchedRule,
    WeightsRecord,
    json_form,
)

if TYPE_CHECKING:
    from amp_rewrite.rewriting.report.recorder import Recorder
    from amp_rewrite.rewriting.report.scaling_record import ScalingRecord


@dataclass(frozen=True, repr=False)
class Report(Shown):
    """The changes of a rewrite and their reasons.

    Attributes:
        kept: (reason, operator) -> how many nodes stay float32 for it.
        n_casts: How many Casts were added or given consumers.
        details: What is said of each of them, and of every node.
        opset_advice: A newer opset that lets more of the model become low, or None.
        opset_raised: How the model came to its opset, if that was raised first.
        boundaries: Operators that no list knows and function calls, with how often each occurs.
        input_ranges: Graph input -> what the user said of the numbers that it holds.
        wide_ends: Graph input or output that stays float32 though it might have given up its type
            -> why.
        likely_overflow: Where an estimate first keeps something float32, and why; None if nowhere.
        near_end: The 16-bit value that an estimate says to come within a quarter of the end of the
            type, in words; None if none does.
        unmatched_rules: Rules of the op lists about single nodes that match nothing in the model.
        unknown_lengths: Free dimensions of which a length would let sums become 16-bit.
        asked: The options that are not the default ones, each as words of a command.
        scaling: What was multiplied by powers of two, or None.
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
        """Return what was converted in one line."""
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
        return {
            "version": VERSION,
            "precision": self.precision,
            "target": self.target,
            "level": self.level,
            "model": {"opset": self.opset, "nodes": len(self.nodes), "functions": self.functions},
            "nodes": json_form(self.nodes),
            "casts": json_form(self.casts),
            "weights": json_form(self.weights),
            "boundaries": dict(self.boundaries),
            "input_ranges": json_form(self.input_ranges),
            **({"wide_ends": dict(self.wide_ends)} if self.wide_ends else {}),
            "likely_overflow": self.likely_overflow,
            **({"near_end": self.near_end} if self.near_end else {}),
            "unmatched_rules": json_form(self.unmatched_rules),
            "opset_advice": json_form(self.opset_advice),
            "opset_raised": json_form(self.opset_raised),
            **({} if self.scaling is None else {"scaling": json_form(self.scaling)}),
            "summary": json_form(self.summary),
        }

    def kept_reasons(self) -> dict[tuple[str, str], int]:
        """Return (reason, operator) -> how many nodes stay float32 for it, most frequent first."""
        return dict(sorted(self.kept.items(), key=lambda item: (-item[1], item[0])))

    def lines(
        self, sizes: Sizes | None = None, left: str | None = None, *, verbose: bool = True
    ) -> Iterator[str]:
        """Yield what was gained, what to know of it, and what stays float32.

        Args:
            sizes: How large the files are.
            left: That of `headline`.
            verbose: Whether details are told: constants, bytes of casts.
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
            lines = report_lines.reason_table(reasons, self.precision, self.target, every=verbose)
            yield from lines
        if self.boundaries:
            names = ", ".join(f"{name} x{count}" for name, count in self.boundaries.items())
            yield f"operators on no op list, left in float32: {names}"


def remarks(report: Report) -> Iterator[str]:
    """Yield what there is to say of some rewrites only."""
    if report.summary.operands_with_axes:
        yield report_lines.axes_line(report.summary.operands_with_axes)
    yield from _of_opset(report)
    if report.unmatched_rules:
        yield report_lines.unmatched_line(report.unmatched_rules)
    large = [record for record in report.weights.overflow if record.action == "kept"]
    if large:
        yield report_lines.constants_line(large, f"too large for {report.precision}")
    if report.scaling is not None:
        yield from report.scaling.lines()
    for name, why in report.wide_ends.items():
        yield f"{name} stays float32: {why}"
    if report.unknown_lengths:
        lengths = lengths_to_name(report.unknown_lengths)
        yield f"sums of unknown length stay float32; name the largest length: {lengths}"
    if report.likely_overflow:
        yield f"estimate: {report.likely_overflow}"


def _of_opset(report: Report) -> Iterator[str]:
    """Yield how the model came to its opset, and which other one is better."""
    if report.opset_raised is not None:
        compute = report.summary.compute_converted
        yield report_lines.raised_line(report.opset_raised, report.opset, compute)
        if report.opset_raised.mended:
            yield report_lines.mended_shapes_line(report.opset_raised.mended)
    if report.opset_advice is not None:
        yield report_lines.opset_line(report.opset_advice, report.precision)


def _details(report: Report) -> Iterator[str]:
    """Yield figures that few users need."""
    weights = report.weights
    yield f"constants: {weights.converted} converted, {weights.kept} kept float32"
    saturated = [record for record in weights.overflow if record.action != "kept"]
    if saturated:
        yield report_lines.constants_line(saturated, f"limited to the range of {report.precision}")
    if weights.underflow:
        yield report_lines.constants_line(weights.underflow, "partly rounded to zero")
    if report.n_casts:
        yield report_lines.cast_line(report.summary)
    if weights.stored:
        yield report_lines.stored_line(weights.stored)
