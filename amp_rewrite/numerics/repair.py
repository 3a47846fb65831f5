"""`repair`: a model in 16 bits with what is dangerous in float32, and no more.

What leaves the range is scaled where that lets more of the model stay in 16 bits. Evidence: low
models on their data, for cuda: gemma has 36 float32 nodes and 25 Casts without, 35 and 20 with;
nanochat 39 and 31 without, 35 and 25 with.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

import numpy as np

from amp_rewrite.base import arguments
from amp_rewrite.dtypes import FLOAT32
from amp_rewrite.errors import AmpWarning, OnlyError, OptionError, SaveError
from amp_rewrite.graph.added import SUFFIX
from amp_rewrite.graph.io.model_files import Path
from amp_rewrite.graph.io.paths import path_text
from amp_rewrite.graph.io.read import shared_objects
from amp_rewrite.numerics.convert.scale import NO_PROOF, has_outliers, measured_by, proof_of
from amp_rewrite.numerics.inputs.batches import batches
from amp_rewrite.numerics.lost_weights import lost_weights
from amp_rewrite.numerics.ranges.calibrate import Calibration, calibrate
from amp_rewrite.numerics.repair_report import Repair
from amp_rewrite.numerics.safety_check import (
    Progress,
    compared,
    judged,
    low_nodes,
    name_of,
)
from amp_rewrite.oplists import ListName
from amp_rewrite.rewriting.api import (
    RewriteResult,
    rewrite,
    rewrite_freely,
    untold_estimates,
    warn_of_estimate,
)
from amp_rewrite.rewriting.apply.written_metadata import for_model
from amp_rewrite.rewriting.dangers import form_dangers, odd_types
from amp_rewrite.rewriting.mend import Mended, mend_types
from amp_rewrite.rewriting.paint.node_rules import NOTHING_FOUND
from amp_rewrite.rewriting.paint.painting import overflows
from amp_rewrite.rewriting.plan.options import (
    KEEP,
    SCALE,
    RewriteOptions,
    Weights,
    changed,
    with_option_names,
)
from amp_rewrite.rewriting.plan.paint_context import lists_of
from amp_rewrite.rewriting.plan.raising import raising_context
from amp_rewrite.rewriting.raise_dangers import (
    form_of,
    lost_in,
    low_of,
    low_types,
    nothing_raised,
    repaired,
)
from amp_rewrite.rewriting.read_source import read_source
from amp_rewrite.rewriting.report.arithmetic_share import compute_share
from amp_rewrite.rewriting.scaling.scale_model import NO_SAVING, saved_by_scaling, scale_given
from amp_rewrite.rewriting.scaling.scaling import Scaling, Unscaled
from amp_rewrite.rewriting.widen import WideForm, wide_form, with_float32_ends

if TYPE_CHECKING:
    from amp_rewrite.graph.flat import FlatGraph
    from amp_rewrite.graph.io.load import Source
    from amp_rewrite.numerics.compare.verify_report import VerifyReport
    from amp_rewrite.numerics.inputs.batches import Data

KeepIO = Literal["given", "float32"]
"""Which types graph inputs and outputs have afterwards."""

BUDGET = 600.0
"""Seconds for tuning."""

_RULES, _DATA, _MADE_UP = "the rules", "data", "made-up inputs"

_LOST_DIGITS = 0.25
"""How far, in epsilons of the 16-bit type, outputs may be from those before the scaling.

Elements of weights that become subnormal are rounded once more: half an epsilon is what every
element has been rounded by already."""


@with_option_names
def repair(
    model: Source,
    data: Data | None = None,
    options: RewriteOptions | None = None,
    *,
    original: Source | None = None,
    keep_io: KeepIO = "given",
    weights: Weights = "cast",
    verify: bool = False,
    rtol: float | None = None,
    budget: float = BUDGET,
    stress: bool | None = None,
    output: Path | None = None,
    progress: Progress | None = None,
    **changes: Any,
) -> Repair:
    """Raise to float32 what is dangerous in a model in 16 bits, and no more.

    What overflows is scaled by a power of two where that keeps it in 16 bits (`overflow="auto"`).
    With data, what overflows on them is raised as well; the result, emulated, is compared with the
    model's own float32 form, which has the same weights, and more is raised until it passes. With
    the original the result is compared with that in the end. A model with both 16-bit types keeps
    the one that most results have; the other becomes float32.

    Args:
        model: A path, an onnx_ir model or a ModelProto; never modified.
        data: Batches, .npz or .csv files or folders of .npz files; None asks the rules alone.
        options: For which target, and lists and rules.
        original: The float32 model that it was made of. Without it, weights that look clipped leave
            the verdict in doubt.
        keep_io: "float32" gives float32 to the 16-bit inputs and outputs of the model.
        weights: The weights of what is raised: "cast" leaves them stored as they are and adds a
            Cast; "convert" stores float32.
        verify: Verify the result without data, too, on made-up and stress inputs.
        rtol: The largest error of an output, as for `convert`.
        budget: Seconds for tuning.
        stress: Verify with stress inputs; None does so without data.
        output: Where to write the result if it passes.
        progress: Called with what begins.
        **changes: Single options by name, as for `rewrite`.

    Raises:
        VerdictError: It is to be written, and does not pass.
        OptionError: The model has nothing in 16 bits.
        AmpError: The model, the data or an option is wrong, or ONNX Runtime is not installed.

    Examples:
        >>> data = [{"x": np.linspace(-1, 1, 16, dtype=np.float32).reshape(2, 8)}]
        >>> unsafe = amp.rewrite("model.onnx", allow_nodes=["exp"]).model
        >>> mended = amp.repair(unsafe, data)
        >>> mended.changed, mended.ok
        (True, True)
        >>> loaded = mended.save("mended.onnx")
    """
    chosen = replace(changed(options, **changes), strict=False)
    arguments.one_of("weights", weights, get_args(Weights))
    arguments.one_of("keep_io", keep_io, get_args(KeepIO))
    verify = arguments.switch("verify", verify)
    progress = arguments.function("progress", progress)
    flat = read_source(model, inline_functions=True)
    mended = mend_types(flat)
    flat = mended.flat
    low = low_of(flat)
    if low is not None and keep_io == FLOAT32.name:  # numbers that come in are not rounded yet
        flat = with_float32_ends(flat)[0]
    if low is None and mended.odd:
        return _mended_only(mended, for_model(chosen, flat), output)
    if low is None:
        raise OptionError(
            "the model computes nothing in 16 bits: there is nothing to repair",
            remedy="convert makes a mixed model of it",
        )
    flat, widened = _in_one_type(flat)
    chosen = for_model(replace(chosen, precision=low.name), flat)
    flat.customs = lists_of(chosen).customs
    work = _Work(
        form_of(flat, low), mended, chosen, keep_io, weights, rtol, budget, progress, original
    )
    lost = lost_weights(flat)
    with untold_estimates():
        work = work.scaled(data)
        if data is None:
            outcome = work.repaired(judged(work.form, chosen), _RULES)
        else:
            outcome = work.repaired(work.tuned(data), _DATA)
        if verify or data is not None:
            outcome = work.verified(outcome, data, stress)
        is_open = chosen.only is None  # more may become float32
        if is_open and outcome.verification is not None and data is None:
            outcome = work.shown_by_made_up(outcome, outcome.verification, stress)
    warn_of_estimate(outcome.result)
    outcome = replace(outcome, against=name_of(original), weights=lost, widened=widened)
    if chosen.only is not None:
        outcome = replace(outcome, left=_lines_left(outcome))
    if output is not None:
        outcome.save(path_text(output, SaveError))
    return outcome


def _in_one_type(flat: FlatGraph) -> tuple[FlatGraph, dict[str, int]]:
    """Return a model with its first 16-bit type alone, and how many values of others it had."""
    low, *others = before = low_types(flat)
    form = wide_form(flat, others) if others else None
    if form is None:
        return flat, {}
    after = low_types(form.flat)
    counts = {t.name: count - after.get(t, 0) for t, count in before.items() if t != low}
    counts = {name: count for name, count in counts.items() if count}  # an output keeps its type
    return form.flat if counts else flat, counts


def _lines_left(outcome: Repair) -> tuple[str, ...]:
    """Return what of a repaired model is not in 16 bits, one line each."""
    from amp_rewrite.rewriting.report.float32_left import float32_left, lines_of_left

    left = float32_left(read_source(outcome.model, inline_functions=True))
    why = {danger.node: danger.words for danger in (*outcome.dangers, *outcome.stay)}
    measured = f"needs float32: {outcome.shown_by} showed it"
    why = dict.fromkeys(outcome.measured, measured) | why
    return tuple(lines_of_left(left, why, outcome.precision)) if left else ()


def _mended_only(mended: Mended, options: RewriteOptions, output: Path | None) -> Repair:
    """Return a model whose types were at odds, and that computes in float32 now that they agree."""
    raised = nothing_raised(mended, options.low)
    odd, target = odd_types(mended.odd), options.chosen_target
    result = rewrite(mended.flat, changed(options, deny_nodes=("*",)))
    outcome = Repair(options.low.name, target, raised, odd, (), (), _RULES, 0, 0.0, None, result)
    if output is not None:
        outcome.save(path_text(output, SaveError))
    return outcome


class _Work(NamedTuple):
    """One call of `repair`: the model, its float32 form, and what was asked for."""

    form: WideForm
    mended: Mended
    options: RewriteOptions
    keep_io: KeepIO
    weights: Weights
    rtol: float | None
    budget: float
    progress: Callable[[str], None] | None
    original: Source | None = None
    scaling: Scaling | None = None
    refused: tuple[Unscaled, ...] = ()

    def scaled(self, data: Data | None) -> _Work:
        """Return the work on a scaled model, if scaling lets more of this one stay in 16 bits."""
        if self.scaling is not None:
            return self
        form, scaling = _scaled_form(self.form, self.options, data)
        if form is None:
            return self._replace(refused=scaling or self.refused)
        mended = replace(self.mended, flat=form.given)
        return self._replace(form=form, mended=mended, scaling=scaling)

    def tuned(self, data: Data) -> RewriteResult:
        """Return the painting that is left of the one that was given, so that it passes on data."""
        from amp_rewrite.numerics.convert.convert import convert

        try:
            return convert(
                self.form.flat,
                data,
                replace(self.options, overflow=KEEP),
                rtol=self.rtol,
                budget=self.budget,
                stress=False,
                progress=self.progress,
            ).result
        except OnlyError as error:  # said of what is repaired
            return error.result

    def shown_by_made_up(
        self, outcome: Repair, verification: VerifyReport, stress: bool | None
    ) -> Repair:
        """Return a repair by what made-up inputs show, if it failed, or outliers can be scaled."""
        from amp_rewrite.numerics.compare.made_up_inputs import make_inputs

        outputs = verification.outputs
        has_failed = bool(verification.infinities) or not all(output.ok for output in outputs)
        is_wrong = has_failed and any(output.compared for output in outputs)
        is_open = self.scaling is None and has_outliers(outcome.result, self.options)
        if not is_wrong and not is_open:
            return outcome
        made_up = make_inputs(self.form.flat, ranges=self.options.ranges).batches
        work = self.scaled(made_up)
        if not is_wrong and work.scaling is None:
            return outcome
        return work.verified(work.repaired(work.tuned(made_up), _MADE_UP), None, stress)

    def repaired(self, result: RewriteResult, shown_by: str) -> Repair:
        """Return the model in which is float32 what a painting of the form has lost."""
        wide_ends = self.keep_io == FLOAT32.name
        raised = repaired(
            self.form,
            lost_in(self.form, result.painting, result.context, wide_ends=wide_ends),
            target=result.context.target,
            wide_ends=wide_ends,
            weights=self.weights,
            mended=self.mended,
        )
        form, context, graph = self.form, result.context, result.context.type_graph
        low, target = context.given, result.options.chosen_target
        assert low is not None, "the form is noted"
        found = form_dangers(form, result.painting, context, target, wide_ends=wide_ends)
        names_raised = {danger.node for danger in found.raised}
        of_model = raised.context.type_graph
        names = dict.fromkeys(of_model.node_name(vertex) for vertex in raised.plan.vertices)
        products = np.unique(graph.node[context.on(ListName.ALLOW) & low]).tolist()
        low_now = compute_share(graph, result.painting, products)
        is_scaled = self.scaling is not None  # by Mul nodes, which are no danger of the model
        unscaled = Scaling(form.given, (), self.refused) if self.refused else None
        return Repair(
            result.options.precision,
            target,
            raised,
            (
                *odd_types(raised.mended.odd),
                *(d for d in found.raised if not (is_scaled and d.node.endswith(SUFFIX))),
            ),
            found.stay,
            tuple(name for name in names if name not in names_raised),
            shown_by,
            low_nodes(result),
            1 - low_now if products else 0.0,
            None,
            result,
            scaling=self.scaling or unscaled,
        )

    def verified(self, outcome: Repair, data: Data | None, stress: bool | None) -> Repair:
        """Return a repair with its verdict."""
        verification = compared(
            self.form,
            outcome.raised.model,
            data,
            self.options,
            original=self.original,
            rtol=self.rtol,
            stress=stress,
            progress=self.progress,
        )
        return replace(outcome, verification=verification)


def _scaled_form(
    form: WideForm, options: RewriteOptions, data: Data | None
) -> tuple[WideForm, Scaling] | tuple[None, tuple[Unscaled, ...]]:
    """Return a model scaled so that more of it can stay in 16 bits, else what cannot be, and why.

    `data` tell the magnitudes of the form's values; without them bounds and constants do.
    """
    adds_nodes = options.adds_nodes
    if options.overflow == KEEP or (data is None and not (options.overflow == SCALE or adds_nodes)):
        return None, ()
    calibration = None if data is None else calibrate(form.flat, data, options)
    before = _judge_form(form, options, calibration)
    measured = None if calibration is None else measured_by(calibration)
    if measured is None and not overflows(before.painting):
        return None, ()
    plain = before if calibration is None else _judge_form(form, options, None)
    own = raising_context(form.given, [options.low]).type_graph
    scaling = scale_given(form.given, own, plain.context, measured, adds_nodes=adds_nodes)
    if scaling is None or not scaling.sets:
        return None, () if scaling is None else scaling.unscaled
    scaled = form_of(scaling.flat, options.low)
    proof = None
    if data is not None:
        proof = proof_of(form.flat, scaled.flat, batches(data, shared_objects(form.flat).model))
        if proof.difference > _LOST_DIGITS * options.low.epsilon:
            return None, scaling.refused(NO_PROOF)
    anew = None if data is None else calibrate(scaled.flat, data, options)
    after = _judge_form(scaled, options, anew)
    saved = saved_by_scaling(scaling, before.painted, after.painted, adds_nodes=adds_nodes)
    if saved is None:
        return None, scaling.refused(NO_SAVING)
    return scaled, replace(saved, proof=proof)


def _judge_form(
    form: WideForm, options: RewriteOptions, calibration: Calibration | None
) -> RewriteResult:
    """Return what rules, and ranges that were measured, leave of the painting of a form."""
    found = NOTHING_FOUND if calibration is None else calibration.findings
    with warnings.catch_warnings(action="ignore", category=AmpWarning):  # said of what is taken
        return rewrite_freely(form.flat, replace(options, overflow=KEEP), found)
