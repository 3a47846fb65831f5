"""Ranges on data, and the model scaled by them, with the proof that it computes the same."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import NamedTuple

from amp_rewrite.errors import AmpError, AmpWarning, OutOfTimeError
from amp_rewrite.graph.io.load import Source
from amp_rewrite.graph.io.read import shared_objects
from amp_rewrite.numerics.compare.made_up_inputs import make_inputs
from amp_rewrite.numerics.convert.upgrade import float32_distance
from amp_rewrite.numerics.convert.work import Terms, Work
from amp_rewrite.numerics.emulate.evaluator import Evaluator
from amp_rewrite.numerics.inputs.batches import Data, Feeds, batches
from amp_rewrite.numerics.ranges.calibrate import Calibration, calibrate
from amp_rewrite.rewriting.api import RewriteResult, rewrite, rewrite_freely, scaled_by_measures
from amp_rewrite.rewriting.plan.options import KEEP, RewriteOptions
from amp_rewrite.rewriting.scaling.needs import Measured
from amp_rewrite.rewriting.scaling.scale_model import NO_SAVING, saved_by_scaling
from amp_rewrite.rewriting.scaling.scaling import Proof, Scaling, Unscaled
from amp_rewrite.runtimes.ort.time_limit import time_limit

LARGEST_DIFFERENCE = 1e-6
"""The largest distance of an output of the scaled model from that of the original, both in float32,
by the output's largest magnitude: it is 0 unless a runtime computes a norm in another order."""

NO_PROOF = "no run showed that the scaled model computes the same"
"""Why nothing is scaled where the two differ in float32, or cannot be run."""

_SHARE = 0.5
"""The share of the budget that calibrating may take."""


def measured(work: Work, data: Data, terms: Terms) -> Work:
    """Return the work with what the data forbid, in the scaled model if there is to be one.

    It is the work given if the time ended before one batch was seen.
    """
    lenient = replace(work.options, strict=False)
    try:
        with time_limit(terms.ends(_SHARE)):
            calibration = calibrate(work.flat, data, lenient)
            options = replace(work.options, target=calibration.options.target)

            def painted(model: Source, of: Calibration) -> RewriteResult:
                kept = replace(_kept(options, of.ends), strict=False, overflow=KEEP)
                return rewrite_freely(model, kept, of.findings)

            scaled = _scaled(work.flat, data, lenient, calibration, painted)
            if isinstance(scaled, _Scaled):
                calibration, scaling = scaled
                work = replace(work, flat=scaling.flat, scaling=scaling)
            else:
                work = replace(work, refused=scaled)
    except OutOfTimeError:
        return work
    kept = _kept(options, calibration.ends)
    return replace(work, options=kept, found=calibration.findings, calibration=calibration)


def _kept(options: RewriteOptions, ends: Iterable[str]) -> RewriteOptions:
    """Return options with which the inputs and outputs that overflow keep their type."""
    kept = options.keep_io_types
    if kept is True:
        return options
    return replace(options, keep_io_types=(*(kept or ()), *ends) or False)


class _Scaled(NamedTuple):
    """A scaled model, and what data say of it."""

    calibration: Calibration
    scaling: Scaling


def _scaled(
    model: Source,
    data: Data,
    options: RewriteOptions,
    calibration: Calibration,
    painted: Callable[[Source, Calibration], RewriteResult],
) -> _Scaled | tuple[Unscaled, ...]:
    """Return a model scaled by the ranges of a calibration, else the values that leave the range.

    `painted` rewrites a model by what a calibration of it forbids.
    """
    measured = measured_by(calibration)
    if options.overflow == KEEP or measured.peak < options.low.max / 2:
        return ()
    scaling = scaled_by_measures(model, options, measured)
    if scaling is None or not scaling.sets:
        return () if scaling is None else scaling.unscaled
    proof = proof_of(model, scaling.flat, batches(data, shared_objects(scaling.flat).model))
    if proof.difference > LARGEST_DIFFERENCE:
        return scaling.refused(NO_PROOF)
    anew = calibrate(scaling.flat, data, options)
    with warnings.catch_warnings(action="ignore", category=AmpWarning):  # said of what is taken
        before, after = painted(model, calibration).painted, painted(scaling.flat, anew).painted
    saved = saved_by_scaling(scaling, before, after, adds_nodes=options.adds_nodes)
    if saved is None:
        return scaling.refused(NO_SAVING)
    return _Scaled(anew, replace(saved, proof=proof))


def has_outliers(result: RewriteResult, options: RewriteOptions) -> bool:
    """Tell whether weights make channels that leave the range, and options let them be scaled."""
    values = result.context.values
    if options.overflow == KEEP:
        return False
    return any(values.outliers.peak(v) >= values.low.overflow for v in values.beyond)


def measured_by(calibration: Calibration) -> Measured:
    """Return the magnitudes that a calibration met."""
    largest = {name: value_range.largest for name, value_range in calibration.ranges.items()}
    return Measured(largest, calibration.sums)


def proved_rewrite(model: Source, result: RewriteResult, options: RewriteOptions) -> RewriteResult:
    """Return a rewrite after its scaled model was run beside the original on made-up inputs.

    Where the two differ in float32, rewrite the model without scaling.

    Raises:
        AmpError: No inputs can be made up, or `only` refuses the model without scaling.
    """
    if result.scaling is None:
        return result
    scaled = result.scaling.flat
    feeds = make_inputs(scaled, ranges=options.ranges).batches
    proof = proof_of(model, scaled, feeds)
    if proof.difference > LARGEST_DIFFERENCE:
        refused = result.scaling.refused(NO_PROOF)
        return replace(rewrite(model, replace(options, overflow=KEEP)), refused=refused)
    return replace(result, scaling=replace(result.scaling, proof=proof))


def proof_of(model: Source, scaled: Source, feeds: Iterable[Feeds]) -> Proof:
    """Return how far a scaled model is from the original at most, both in float32.

    It is relative to the largest magnitude of an output; infinite where one is not finite or one of
    them cannot be run.
    """
    worst, count = 0.0, 0
    try:
        original, scaled_model = (Evaluator(each, emulate=False) for each in (model, scaled))
        for feed in feeds:
            expected, outputs, count = original.run(feed), scaled_model.run(feed), count + 1
            pairs = ((expected[name], outputs[name]) for name in expected)
            worst = max([worst, *(float32_distance(a, b) for a, b in pairs)])
    except AmpError:
        return Proof(math.inf, count)
    return Proof(worst, count)
