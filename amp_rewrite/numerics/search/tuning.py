"""What a search found, and what it reports on the way."""

from __future__ import annotations

import os
from dataclasses import dataclass

from amp_rewrite.numerics.overlay import overlay_text, write_overlay
from amp_rewrite.numerics.search.tolerance import Tolerance
from amp_rewrite.oplists import NodeRule
from amp_rewrite.rewriting.options import RewriteOptions


@dataclass(frozen=True)
class Tuning:
    """What a search found.

    Attributes:
        keep: The nodes to keep float32, the one that contributes most first.
        loss: The loss with them in float32.
        before: The loss of the model as the lists alone would make it.
        tolerance: What had to hold.
        minimal: Whether no member can be left out; False if the budget ended before.
        smallest: Whether every smaller set was tried.
        trials: How many paintings were run.
        rules: `keep` as node rules, with reasons.
        options: The options of the rewrite that it is for.
        tried: What was run: how many nodes were kept float32, and the loss.
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
    tried: tuple[tuple[int, float], ...] = ()

    def to_yaml(self) -> str:
        """Return an op list file for `rewrite(lists=...)` and `convert --lists`."""
        kind = "smallest" if self.smallest else "minimal" if self.minimal else "best so far"
        comments = [
            f"Made by `amp-rewrite tune`: {self.tolerance.metric} at most "
            f"{self.tolerance.limit:g}, {self.loss:.3g} reached ({self.before:.3g} without).",
            f"{len(self.keep)} nodes kept float32: the {kind} set.",
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
