"""What keeps a rewrite from being complete."""

from __future__ import annotations

from amp_rewrite.rewriting.paint.painting import Reason
from amp_rewrite.rewriting.report.rewrite_report import Report


def shortcomings(report: Report) -> tuple[str, ...]:
    """Return one line for everything that keeps a rewrite from being complete, as `strict` asks."""
    lines: list[str] = []
    if not report.summary.nodes_converted:
        lines.append("nothing was converted: the model has no allow-list operator that could be")
    lines += [
        f"no op list knows {name} ({count} nodes); put it on a list, or on `unlisted` with a reason"
        for name, count in report.boundaries.items()
    ]
    missing = sorted(
        {
            node.op
            for node in report.nodes
            if node.list == "allow"
            and any(v.reason == Reason.NO_KERNEL for v in node.variables.values())
        }
    )
    lines += [f"target {report.target} has no {report.precision} kernel for {op}" for op in missing]
    return tuple(lines)
