"""The options of a rewrite, with what a calibration has found."""

from __future__ import annotations

from dataclasses import replace

from amp_rewrite.numerics.ranges.calibrate import Calibration
from amp_rewrite.numerics.repaint.repaint import read_lists
from amp_rewrite.rewriting.plan.options import RewriteOptions


def with_calibration(options: RewriteOptions, calibration: Calibration) -> RewriteOptions:
    """Return options whose lists keep in float32 what did not fit.

    Where every value was measured, the lists say so.
    """
    lists = read_lists(options)
    rules = (*lists.node_rules, *calibration.rules)
    return replace(
        options, lists=replace(lists, node_rules=rules, measured=not calibration.unmeasured)
    )
