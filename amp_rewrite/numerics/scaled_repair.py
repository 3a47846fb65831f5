"""A model in 16 bits, scaled by what its float32 form reaches: less of it has to be float32.

Evidence: low models on their data, for cuda: gemma has 36 float32 nodes and 25 Casts without,
35 and 20 with; nanochat 39 and 31 without, 35 and 25 with.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace

from amp_rewrite.errors import AmpWarning
from amp_rewrite.graph.io.read import shared_objects
from amp_rewrite.numerics.convert.scale import NO_PROOF, measured_by, proof_of
from amp_rewrite.numerics.inputs.batches import Data, batches
from amp_rewrite.numerics.ranges.calibrate import Calibration, calibrate
from amp_rewrite.rewriting.api import RewriteResult, rewrite_freely
from amp_rewrite.rewriting.paint.node_rules import NOTHING_FOUND
from amp_rewrite.rewriting.paint.painting import overflows
from amp_rewrite.rewriting.plan.options import KEEP, SCALE, RewriteOptions
from amp_rewrite.rewriting.plan.raising import raising_context
from amp_rewrite.rewriting.raise_dangers import form_of
from amp_rewrite.rewriting.scaling.scale_model import NO_SAVING, saved_by_scaling, scale_given
from amp_rewrite.rewriting.scaling.scaling import Scaling, Unscaled
from amp_rewrite.rewriting.widen import WideForm

_LOST_DIGITS = 0.25
"""How far, in epsilons of the 16-bit type, outputs may be from those before the scaling.

Elements of weights that become subnormal are rounded once more: half an epsilon is what every
element has been rounded by already."""


@dataclass(frozen=True)
class ScaledForm:
    """A scaled model in 16 bits.

    Attributes:
        form: The model and its float32 form.
        scaling: What was scaled, and what that saves.
    """

    form: WideForm
    scaling: Scaling


def scaled_form(
    form: WideForm, options: RewriteOptions, data: Data | None
) -> ScaledForm | tuple[Unscaled, ...]:
    """Return a model scaled so that more of it can stay in 16 bits, else what cannot be, and why.

    Args:
        form: The model and its float32 form.
        options: For which target, and lists and rules; the precision is that of the model.
        data: What tells the magnitudes of the form's values; None asks bounds and constants.
    """
    if options.overflow == KEEP or (
        data is None and not (options.overflow == SCALE or options.adds_nodes)
    ):
        return ()
    calibration = None if data is None else calibrate(form.flat, data, options)
    before = _judge_form(form, options, calibration)
    measured = None if calibration is None else measured_by(calibration)
    if measured is None and not overflows(before.painting):
        return ()
    plain = before if calibration is None else _judge_form(form, options, None)
    own = raising_context(form.given, [options.low]).type_graph
    scaling = scale_given(form.given, own, plain.context, measured, adds_nodes=options.adds_nodes)
    if scaling is None or not scaling.sets:
        return () if scaling is None else scaling.unscaled
    scaled = form_of(scaling.flat, options.low)
    proof = None
    if data is not None:
        proof = proof_of(form.flat, scaled.flat, batches(data, shared_objects(form.flat).model))
        if proof.difference > _LOST_DIGITS * options.low.epsilon:
            return scaling.refused(NO_PROOF)
    anew = None if data is None else calibrate(scaled.flat, data, options)
    after = _judge_form(scaled, options, anew)
    adds_nodes = options.adds_nodes
    saved = saved_by_scaling(scaling, before.painted, after.painted, adds_nodes=adds_nodes)
    if saved is None:
        return scaling.refused(NO_SAVING)
    return ScaledForm(scaled, replace(saved, proof=proof))


def _judge_form(
    form: WideForm, options: RewriteOptions, calibration: Calibration | None
) -> RewriteResult:
    """Return what rules, and ranges that were measured, leave of the painting of a form."""
    found = NOTHING_FOUND if calibration is None else calibration.findings
    with warnings.catch_warnings(action="ignore", category=AmpWarning):  # said of what is taken
        return rewrite_freely(form.flat, replace(options, overflow=KEEP), found)
