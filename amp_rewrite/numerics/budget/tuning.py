"""The result of tuning: a record, and the op list that says it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from amp_rewrite.base.printable import counted
from amp_rewrite.numerics.budget.budget import Budget
from amp_rewrite.numerics.budget.tolerance import Tolerance
from amp_rewrite.numerics.repaint.overlay import OpListFile, overlay_text
from amp_rewrite.oplists import NodeRule
from amp_rewrite.rewriting.plan.options import RewriteOptions
from amp_rewrite.rewriting.report.records import Shown

_SHOWN = 10
"""How many nodes the text has."""


@dataclass(frozen=True, repr=False)
class Tuning(OpListFile, Shown):
    """The nodes that have to stay float32 so that a tolerance holds.

    Attributes:
        keep: The nodes to keep float32, beside those that the rules keep.
        allow: The nodes that the rules keep float32 and that need not be.
        loss: The loss that was measured with them.
        before: The loss of the model as the rules alone make it.
        predicted: The predicted error by the one that is allowed; at most 1 holds.
        tolerance: What had to hold.
        holds: Whether the loss and the prediction hold.
        runs: How many choices were run.
        rules: `keep` and `allow` as node rules, with reasons.
        options: The options of the rewrite that it is for.
        budget: What each rounding adds to the error of the outputs, of the model as chosen; None
            if the model needs nothing.
        operators: Name of a node in `keep` -> its operator.
        is_low: Whether anything is in 16 bits.
    """

    _apart = ("options",)

    keep: tuple[str, ...]
    allow: tuple[str, ...]
    loss: float
    before: float
    predicted: float
    tolerance: Tolerance
    holds: bool
    runs: int
    rules: tuple[NodeRule, ...]
    options: RewriteOptions
    budget: Budget | None = None
    operators: Mapping[str, str] = field(default_factory=dict[str, str])
    is_low: bool = True

    def lines(self) -> Iterator[str]:
        """Yield whether it passes, what stays float32 and why, and the error budget."""
        if not self.is_low:
            yield "FAILED: nothing is left in 16 bits"
        yield (
            f"{'Passed' if self.holds and self.is_low else 'FAILED'}: {self.tolerance.metric} "
            f"{self.loss:.3g}, at most {self.tolerance.limit:.3g}; without tuning {self.before:.3g}"
        )
        counts = Counter(self.operators.values()).most_common()
        operators = f": {', '.join(f'{op} x{count}' for op, count in counts)}" if counts else ""
        kept = f"{counted(len(self.keep), 'node')} kept float32{operators}"
        yield f"{kept}; {len(self.allow)} allowed against the lists ({counted(self.runs, 'run')})"
        why = {rule.node: rule.why for rule in self.rules}
        yield from (f"  {name}: {why[name]}" for name in self.keep[:_SHOWN])
        if len(self.keep) > _SHOWN:
            yield f"  and {len(self.keep) - _SHOWN} more; the op list has all of them"
        yield from () if self.budget is None else self.budget.lines()

    def to_yaml(self) -> str:
        """Return an op list file for `rewrite(lists=...)` and `convert --lists`."""
        comments = [
            f"Made by `amp-rewrite tune`: {self.tolerance.metric} at most "
            f"{self.tolerance.limit:g}, {self.loss:.3g} reached ({self.before:.3g} without).",
            f"{counted(len(self.keep), 'node')} kept float32, {len(self.allow)} allowed against "
            "the lists.",
        ]
        return overlay_text(self.rules, self.options, comments)
