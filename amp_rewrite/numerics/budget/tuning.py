"""The result of tuning: a record, and the op list that says it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from amp_rewrite.base.printable import one_line
from amp_rewrite.numerics.budget.budget import Budget
from amp_rewrite.numerics.budget.tolerance import Tolerance
from amp_rewrite.numerics.repaint.overlay import OpListFile, overlay_text
from amp_rewrite.oplists import NodeRule
from amp_rewrite.rewriting.plan.options import RewriteOptions


@dataclass(frozen=True)
class Tuning(OpListFile):
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

    def __repr__(self) -> str:
        """Return one line, for much is in it."""
        return one_line(
            self,
            f"{len(self.keep)} nodes stay float32: {self.tolerance.metric} {self.loss:.3g} of at "
            f"most {self.tolerance.limit:.3g}, {self.runs} runs",
        )

    def to_yaml(self) -> str:
        """Return an op list file for `rewrite(lists=...)` and `convert --lists`."""
        comments = [
            f"Made by `amp-rewrite tune`: {self.tolerance.metric} at most "
            f"{self.tolerance.limit:g}, {self.loss:.3g} reached ({self.before:.3g} without).",
            f"{len(self.keep)} nodes kept float32, {len(self.allow)} allowed against the lists.",
        ]
        return overlay_text(self.rules, self.options, comments)
