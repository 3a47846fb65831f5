"""The data between the steps of a conversion, and on which terms."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from amp_rewrite.base.progress import silent
from amp_rewrite.graph.flat import FlatGraph
from amp_rewrite.numerics.compare.verification import Verification
from amp_rewrite.numerics.convert.conversion import Conversion
from amp_rewrite.numerics.inputs.batches import Data
from amp_rewrite.numerics.ranges.calibrate import Calibration
from amp_rewrite.rewriting.paint.node_rules import NOTHING_FOUND, Findings
from amp_rewrite.rewriting.plan.options import RewriteOptions
from amp_rewrite.rewriting.scaling.scaling import Scaling, Unscaled

if TYPE_CHECKING:  # few conversions need the error budget
    from amp_rewrite.numerics.budget.tuning import Tuning

BUDGET = 600.0
"""Seconds for a conversion."""

Progress = Callable[[str], None]
"""Called with what is being done, in a few words."""


@dataclass(frozen=True)
class Terms:
    """The checks that are requested besides the rewrite, as for `convert`; the same for all steps.

    `started` is in seconds of `time.monotonic`.
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


@dataclass(frozen=True)
class Work:
    """A model, and what is known of it by now. A step returns another one.

    Attributes:
        flat: The model: the one given, or one that was scaled.
        given: The model before it was scaled by bounds; None if it was not.
        refused: Values that leave the range and were not scaled.
    """

    flat: FlatGraph
    options: RewriteOptions
    given: FlatGraph | None = None
    found: Findings = NOTHING_FOUND
    calibration: Calibration | None = None
    scaling: Scaling | None = None
    refused: tuple[Unscaled, ...] = ()
    kept: Tuning | None = None


class Trial(NamedTuple):
    """A rewrite with its verdict, and the models that were run; None if there was no time."""

    work: Work
    made: Conversion
    run: Verification | None
