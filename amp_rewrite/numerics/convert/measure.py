"""First step of a conversion: what data reach, and whether the model is scaled for it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from amp_rewrite.errors import OutOfTimeError
from amp_rewrite.numerics.convert.scale import scaled_conversion
from amp_rewrite.numerics.convert.work import Terms, Work
from amp_rewrite.numerics.inputs.batches import Data
from amp_rewrite.numerics.ranges.calibrate import Calibration, calibrate
from amp_rewrite.rewriting.paint.node_rules import Findings
from amp_rewrite.rewriting.plan.options import RewriteOptions
from amp_rewrite.runtimes.ort.time_limit import time_limit

_SHARE = 0.5
"""The share of the budget that calibrating may take."""


def measured(work: Work, data: Data, terms: Terms) -> Work:
    """Return what the data forbid, in the scaled model if there is to be one.

    It is the work given if the time for that was over before one batch was seen.
    """
    lenient = replace(work.options, strict=False)
    try:
        with time_limit(terms.ends(_SHARE)):
            calibration = calibrate(work.flat, data, lenient)
            options = replace(work.options, target=calibration.options.target)

            def ruled(calibration: Calibration) -> tuple[RewriteOptions, Findings]:
                return _kept(options, calibration.ends), calibration.findings

            scaled = scaled_conversion(work.flat, data, lenient, calibration, ruled)
            if isinstance(scaled, tuple):
                work = replace(work, refused=scaled)
            else:
                calibration, scaling = scaled.calibration, scaled.scaling
                work = replace(work, flat=scaling.flat, scaling=scaling)
    except OutOfTimeError:
        return work
    kept, found = ruled(calibration)
    return replace(work, options=kept, found=found, calibration=calibration)


def _kept(options: RewriteOptions, ends: Iterable[str]) -> RewriteOptions:
    """Return options with which the inputs and outputs that overflow keep their type."""
    kept = options.keep_io_types
    if kept is True:
        return options
    return replace(options, keep_io_types=(*(kept or ()), *ends) or False)
