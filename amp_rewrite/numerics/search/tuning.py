"""What a search found, and what it reports on the way."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from amp_rewrite.base.printable import one_line
from amp_rewrite.numerics.repaint.overlay import overlay_text, write_overlay
from amp_rewrite.numerics.search.tolerance import Tolerance
from amp_rewrite.oplists import NodeRule
from amp_rewrite.rewriting.plan.options import RewriteOptions


@dataclass(frozen=True)
class Tuning:
    """What a search found.

    Attributes:
        keep: The nodes to keep float32, the one that contributes most first.
        loss: The loss with them in float32.
        before: The loss of the model as the lists alone would make it; NaN if the budget ended
            before it was known.
        tolerance: What had to hold.
        minimal: Whether no member can be left out; False if the budget ended before.
        smallest: Whether every smaller set was tried.
        trials: How many paintings were run.
        rules: `keep` as node rules, with reasons.
        options: The options of the rewrite that it is for.
        control: The loss that the rounded weights alone bring, computed in float32; None if that
            cannot be measured. If it is beyond the tolerance, only nodes whose weights stay
            float32 mend anything.
        seconds: The budget.
        operators: Name of a node in `keep` -> its operator.
    """

    keep: tuple[str, ...]
    loss: float
    before: float
    tolerance: Tolerance
    minimal: bool
    smallest: bool
    trials: int
    rules: tuple[NodeRule, ...]
    options: RewriteOptions
    control: float | None = None
    seconds: float = 0.0
    operators: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def without(self) -> str:
        """The loss without any node in float32, in words: the budget may have ended before it."""
        return "not measured" if math.isnan(self.before) else f"{self.before:.3g}"

    @property
    def kind(self) -> str:
        """What the set is, in a word or two."""
        if self.smallest or self.minimal:
            return "smallest" if self.smallest else "minimal"
        return "best so far"

    @property
    def unmet(self) -> str | None:
        """What the search did not reach, and what the weights alone say of it; None if it did."""
        if self.minimal:
            return None
        ended = (
            f"Time ran out after {self.seconds:g} s; more {self.options.precision} may be possible"
        )
        if self.control is None:
            return ended
        bring = weights_bring(self.control, self.tolerance, self.options.precision)
        return f"{ended}; {self.beyond or bring}"

    @property
    def beyond(self) -> str | None:
        """Why arithmetic in float32 alone cannot meet the tolerance; None if it might."""
        return beyond_control(self.control, self.tolerance, self.options.precision)

    def __repr__(self) -> str:
        """Return one line, for much is in it."""
        return one_line(
            self,
            f"{len(self.keep)} nodes stay float32: {self.tolerance.metric} {self.loss:.3g} of at "
            f"most {self.tolerance.limit:.3g}, {self.trials} trials",
        )

    def to_yaml(self) -> str:
        """Return an op list file for `rewrite(lists=...)` and `convert --lists`."""
        comments = [
            f"Made by `amp-rewrite tune`: {self.tolerance.metric} at most "
            f"{self.tolerance.limit:g}, {self.loss:.3g} reached ({self.without} without).",
            f"{len(self.keep)} nodes kept float32: the {self.kind} set.",
        ]
        return overlay_text(self.rules, self.options, comments)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write `to_yaml()` to a file, as a whole or not at all.

        Raises:
            SaveError: The file cannot be written.
        """
        write_overlay(path, self.to_yaml())


@dataclass(frozen=True, slots=True)
class Step:
    """What a search reports after each trial.

    Attributes:
        trials: How many paintings were run.
        best: The size of the smallest set that holds so far, or None.
        seconds_left: What is left of the budget.
    """

    trials: int
    best: int | None
    seconds_left: float

    def __str__(self) -> str:
        """Return how the search goes, for a line of progress."""
        best = "none passes yet" if self.best is None else f"best {self.best} nodes"
        return f"{self.trials} trials, {best}, {self.seconds_left:.0f} s left"


def beyond_control(control: float | None, tolerance: Tolerance, precision: str) -> str | None:
    """Return what to know before a search whose tolerance the rounded weights alone exceed."""
    if control is None or control <= tolerance.limit:
        return None
    return f"{weights_bring(control, tolerance, precision)}; only float32 weights can meet it"


def weights_bring(control: float, tolerance: Tolerance, precision: str) -> str:
    """Return the loss that rounding the weights alone gives, in words."""
    below = "rtol" if control > tolerance.limit else "for comparison, rtol"
    is_below = " is below the loss from" if control > tolerance.limit else "; the loss from"
    return (
        f"{below} {tolerance.limit:.3g}{is_below} rounding the weights alone to {precision} "
        f"({tolerance.metric} {control:.3g})"
    )
