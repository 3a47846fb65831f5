"""Lines and the table of a report's text, each from the records that it is about."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from amp_rewrite.base.printable import aligned, counted, in_bytes, percent
from amp_rewrite.rewriting.reasons import plain_phrase
from amp_rewrite.rewriting.report.records import (
    OpsetAdvice,
    RaisedOpset,
    RangeRecord,
    StoredRecord,
    Summary,
    UnmatchedRule,
)

MOST_REASONS = 8
"""How many reasons the table shows, unless all are asked for."""

_MOST_OPERATORS = 3
"""How many operators of a reason the table names."""

_MOST_CONSTANTS = 3
"""How many constants that do not fit the text names."""

_MOST_RULES = 3
"""How many rules that match nothing the text shows."""


def raised_line(raised: RaisedOpset, opset: int, compute_converted: float) -> str:
    """Return how the model came to its opset, and how much more became 16-bit with it, if any."""
    checked = "the float32 outputs stayed the same"
    if raised.unverified is not None:
        checked = f"outputs were not compared: {raised.unverified}"
    before, after = f"{raised.compute_before:.1%}", f"{compute_converted:.1%}"
    gain = "" if before == after else f"; 16-bit arithmetic: {after}, before {before}"
    return f"converted the model from opset {raised.before} to {opset}: {checked}{gain}"


def mended_shapes_line(names: Sequence[str]) -> str:
    """Return which declared shapes were wrong; there is at least one."""
    first = "" if len(names) == 1 else ", the first"
    return (
        f"corrected: {counted(len(names), 'declared shape')} contradicted shape inference and "
        f"{'was' if len(names) == 1 else 'were'} replaced{first}: {names[0]}"
    )


def axes_line(count: int) -> str:
    """Return how many operands of products got axes, without which a runtime loads no file."""
    return (
        f"{counted(count, 'matrix product')} got operands of equal rank, which ONNX Runtime 1.32 "
        "needs to load the file"
    )


def opset_line(advice: OpsetAdvice, precision: str) -> str:
    """Return what a newer opset would gain, and which operators would lose their kernels."""
    gain = (
        f"opset {advice.opset} would allow up to {advice.compute_converted:.1%} of the arithmetic "
        f"in {precision}"
    )
    if not advice.lost:
        return f"{gain}: convert --opset {advice.opset}"
    lost = ", ".join(advice.lost)
    return (
        f"{gain}, but the target has no kernel for {lost} there, so it would run on the CPU; "
        f"force it with convert --opset {advice.opset}"
    )


def cast_line(summary: Summary) -> str:
    """Return how many bytes casts move."""
    moved, unknown = (
        f"casts move {in_bytes(summary.cast_bytes)} per run",
        summary.casts_of_unknown_size,
    )
    if not unknown:
        return moved
    return f"{moved} ({unknown} of unknown size not counted)"


def unmatched_line(rules: Sequence[UnmatchedRule]) -> str:
    """Return which rules about nodes match nothing in the model; there is at least one."""
    more = ["..."] if len(rules) > _MOST_RULES else []
    shown = ", ".join([*map(str, rules[:_MOST_RULES]), *more])
    match = "matches" if len(rules) == 1 else "match"
    return f"{counted(len(rules), 'node rule')} {match} no node of the model: {shown}"


def stored_line(stored: Sequence[StoredRecord]) -> str:
    """Return what storing float32 constants in 16 bits saves and loses; there is at least one."""
    saved = sum(record.bytes_saved for record in stored)
    small = sum(record.small for record in stored)
    worst = max(record.largest_relative for record in stored)
    types = " or ".join(dict.fromkeys(record.dtype for record in stored))
    constants = f"{counted(len(stored), 'constant')} {'is' if len(stored) == 1 else 'are'}"
    subnormal = f", {counted(small, 'element')} subnormal" if small else ""
    return (
        f"{constants} stored as {types} and computed in float32: {in_bytes(saved)} saved; largest "
        f"relative error {percent(worst)}{subnormal}"
    )


def constants_line(records: Sequence[RangeRecord], what: str) -> str:
    """Return which constants the low type cannot hold, and why; there is at least one."""
    names = ", ".join(record.name for record in records[:_MOST_CONSTANTS])
    more = ", ..." if len(records) > _MOST_CONSTANTS else ""
    verb = "is" if len(records) == 1 else "are"
    return f"{counted(len(records), 'constant')} {verb} {what}: {names}{more}"


def reason_table(
    reasons: Mapping[tuple[str, str], int], precision: str, target: str, *, every: bool
) -> list[str]:
    """Return the table of what stays float32, a reason a row.

    Args:
        reasons: (reason, operator) -> how many nodes, most frequent first.
        precision: The low type.
        target: The target's name.
        every: Whether every reason has a row.
    """
    by_reason: dict[str, dict[str, int]] = {}
    for (reason, op), count in reasons.items():
        by_reason.setdefault(reason, {})[op] = count
    sorted_rows = sorted(by_reason.items(), key=lambda row: -sum(row[1].values()))
    shown = len(sorted_rows) if every else MOST_REASONS
    rows: list[tuple[str, str, str]] = []
    for reason, operators in sorted_rows[:shown]:
        said = plain_phrase(reason, precision, target).removeprefix("is ") + f" ({reason})"
        rows.append((str(sum(operators.values())), _operators(operators), said))
    rest = sum(sum(operators.values()) for _, operators in sorted_rows[shown:])
    if rest:
        rows.append((str(rest), "...", "--verbose or the JSON report shows every reason"))
    return ["stays float32", *aligned(("nodes", "operators", "reason"), rows, numbers=1)]


def _operators(operators: Mapping[str, int]) -> str:
    """Return the most frequent operators of a reason."""
    names = list(operators)
    more = ["..."] if len(names) > _MOST_OPERATORS else []
    return ", ".join([*names[:_MOST_OPERATORS], *more])
