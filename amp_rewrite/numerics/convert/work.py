"""The data between the steps of a conversion, and on which terms."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from amp_rewrite.base.progress import silent
from amp_rewrite.graph.flat import FlatGraph
from amp_rewrite.numerics.compare.verification import Verification
from amp_rewrite.numerics.convert.conversion import Conversion, Kept
from amp_rewrite.numerics.inputs.batches import Data
from amp_rewrite.numerics.ranges.calibrate import Calibration
from amp_rewrite.rewriting.paint.node_rules import NOTHING_FOUND, Findings
from amp_rewrite.rewriting.plan.options import RewriteOptions
from amp_rewrite.rewriting.scaling.scaling import Scaling, Unscaled

BUDGET = 600.0
"""Seconds for a conversion."""

Progress = Callable[[str], None]
"""Called with what is being done, in a few words."""


@dataclass(frozen=True)
class Terms:
    """The checks that are requested besides the rewrite; it is the same for all steps.

    Attributes:
        data: What the model is run on; None makes inputs up.
        rtol: The largest error of an output, or None; see `convert`.
        budget: Seconds for everything.
        stress: Whether stress inputs are tried.
        progress: Called at the beginning of each step and of its parts.
        providers: The execution providers that the result is run on as well.
        started: When it began, in seconds of `time.monotonic`.
    """

    data: Data | None
    rtol: float | None = None
    budget: float = BUDGET
    stress: bool = True
    progress: Progress = silent
    providers: tuple[str, ...] = ()
    started: float = field(default_factory=time.monotonic)

    def ends(self, share: float = 1.0) -> float:
        """Return when a share of the budget is over."""
        return self.started + self.budget * share

    def seconds_left(self, verifying: float) -> float:
        """Return the seconds that are left if verifying is to end within the budget.

        `verifying` is how long that takes.
        """
        return max(0.0, self.ends() - verifying - time.monotonic())


@dataclass(frozen=True)
class Work:
    """A model, and what is known of it by now. A step returns another one.

    Attributes:
        flat: The model: the one given, or one that was scaled.
        given: The model before it was scaled by what bounds say; None if it was not.
        options: How it is rewritten.
        found: What has to stay float32.
        calibration: What the data's ranges forbid; None if nobody measured.
        scaling: What was scaled in `flat`, if anything.
        refused: What leaves the range and was not scaled.
        kept: What the error budget keeps float32, if it was asked.
    """

    flat: FlatGraph
    options: RewriteOptions
    given: FlatGraph | None = None
    found: Findings = NOTHING_FOUND
    calibration: Calibration | None = None
    scaling: Scaling | None = None
    refused: tuple[Unscaled, ...] = ()
    kept: Kept | None = None

    def with_kept(self, kept: Kept) -> Work:
        """Return the work under the rules of the error budget."""
        return replace(self, found=self.found.with_rules(kept.rules), kept=kept)


class Trial(NamedTuple):
    """A rewrite that was judged.

    Attributes:
        work: What was rewritten.
        made: The rewrite and its verdict.
        run: The models that were run; None if there was no time to load them.
        seconds: How long that took.
    """

    work: Work
    made: Conversion
    run: Verification | None
    seconds: float
