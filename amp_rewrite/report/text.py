"""The report as a short table for a terminal or a log."""

from __future__ import annotations

import io

from rich.console import Console
from rich.table import Table

from amp_rewrite.report.explain import PHRASES
from amp_rewrite.report.records import Report

MOST_REASONS = 12
"""How many (reason, operator) rows the table shows."""


def report_text(report: Report, width: int = 100) -> str:
    """Return the summary and the reasons as plain text, `width` columns wide."""
    stream = io.StringIO()
    console = Console(
        file=stream, width=width, color_system=None, force_terminal=False, emoji=False
    )
    print_report(report, console)
    return stream.getvalue().rstrip("\n")


def print_report(report: Report, console: Console) -> None:
    """Print the summary and the reasons on a console."""
    summary, weights = report.summary, report.weights
    console.print(
        f"{summary.nodes_converted} of {summary.float_nodes} float32 nodes now compute in "
        f"{report.precision} (target {report.target}): "
        f"{summary.compute_converted:.1%} of the multiply-accumulates",
        highlight=False,
    )
    console.print(
        f"casts: {summary.casts_added} added, {summary.casts_removed} removed; "
        f"constants: {weights.converted} converted, {weights.kept} kept float32, "
        f"{len(weights.overflow)} out of range, {len(weights.underflow)} with elements that "
        "round to zero",
        highlight=False,
    )
    reasons = report.kept_reasons()
    if reasons:
        console.print(_reason_table(report, reasons))
    if report.boundaries:
        names = ", ".join(f"{name} x{count}" for name, count in report.boundaries.items())
        console.print(f"boundaries (no list knows them): {names}", highlight=False, markup=False)


def _reason_table(report: Report, reasons: dict[tuple[str, str], int]) -> Table:
    table = Table(title="stays float32", title_justify="left", box=None, pad_edge=False)
    table.add_column("nodes", justify="right")
    table.add_column("operator")
    table.add_column("because")
    for (reason, op), count in list(reasons.items())[:MOST_REASONS]:
        phrase = PHRASES.get(reason, reason).format(
            precision=report.precision, target=report.target
        )
        table.add_row(str(count), op, f"{phrase.removesuffix(' from').rstrip(',')} [dim]({reason})")
    rest = sum(list(reasons.values())[MOST_REASONS:])
    if rest:
        table.add_row(str(rest), "...", "the JSON report names every node")
    return table
