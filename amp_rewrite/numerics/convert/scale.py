"""A model scaled by what was measured of it, and the proof that it still computes the same."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from amp_rewrite.errors import AmpError, AmpWarning
from amp_rewrite.graph.io.read import shared_objects
from amp_rewrite.numerics.compare.made_up_inputs import make_inputs
from amp_rewrite.numerics.convert.float32_distance import float32_distance
from amp_rewrite.numerics.emulate.evaluator import Evaluator
from amp_rewrite.numerics.inputs.batches import Data, Feeds, batches
from amp_rewrite.numerics.ranges.calibrate import Calibration, calibrate
from amp_rewrite.rewriting.api import RewriteResult, rewrite, rewrite_freely, scaled_by_measures
from amp_rewrite.rewriting.paint.node_rules import Findings
from amp_rewrite.rewriting.plan.options import KEEP, RewriteOptions
from amp_rewrite.rewriting.scaling.needs import Measured
from amp_rewrite.rewriting.scaling.scale_model import NO_SAVING, saved_by_scaling
from amp_rewrite.rewriting.scaling.scaling import Proof, Scaling, Unscaled

if TYPE_CHECKING:
    from amp_rewrite.graph.io.load import Source

LARGEST_DIFFERENCE = 1e-6
"""How far outputs of the scaled model may be from those of the original, both in float32, relative
to the largest of an output: none, where no runtime computes a norm in another order."""

NO_PROOF = "no run showed that the scaled model computes the same"
"""Why nothing is scaled where the two differ in float32, or cannot be run."""

Ruled = Callable[[Calibration], tuple[RewriteOptions, Findings]]
"""Gives the options of a rewrite with what a calibration forbids, and what it found."""


@dataclass(frozen=True)
class ScaledConversion:
    """A scaled model, and what data say of it.

    Attributes:
        calibration: What its ranges forbid.
        scaling: What was scaled, with what that saves.
    """

    calibration: Calibration
    scaling: Scaling


def scaled_conversion(
    model: Source,
    data: Data,
    options: RewriteOptions,
    calibration: Calibration,
    ruled: Ruled,
) -> ScaledConversion | tuple[Unscaled, ...]:
    """Return a model scaled by the ranges of a calibration, else what leaves the range and why.

    Args:
        model: The model.
        data: What it was calibrated on.
        options: The options of the rewrite.
        calibration: What was measured.
        ruled: Gives options with rules.
    """
    low = options.low
    measured = measured_by(calibration)
    if options.overflow == KEEP or measured.peak < low.max / 2:
        return ()
    scaling = scaled_by_measures(model, options, measured)
    if scaling is None or not scaling.sets:
        return () if scaling is None else scaling.unscaled
    proof = proof_of(model, scaling.flat, batches(data, shared_objects(scaling.flat).model))
    if proof.difference > LARGEST_DIFFERENCE:
        return scaling.refused(NO_PROOF)
    anew = calibrate(scaling.flat, data, options)
    with warnings.catch_warnings(action="ignore", category=AmpWarning):  # said of what is taken
        before = _rewrite_plainly(model, *ruled(calibration)).painted
        after = _rewrite_plainly(scaling.flat, *ruled(anew)).painted
    saved = saved_by_scaling(scaling, before, after, adds_nodes=options.adds_nodes)
    if saved is None:
        return scaling.refused(NO_SAVING)
    return ScaledConversion(anew, replace(saved, proof=proof))


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
    """Return a rewrite whose scaled model was run beside the original on made-up inputs.

    Where the two differ in float32 it is one without scaling. A rewrite that scaled nothing is
    returned as it is.

    Args:
        model: The model.
        result: Its rewrite.
        options: How it was made.

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


def _rewrite_plainly(model: Source, options: RewriteOptions, found: Findings) -> RewriteResult:
    return rewrite_freely(model, replace(options, strict=False, overflow=KEEP), found)


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
