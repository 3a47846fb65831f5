"""Rewrite a model by what is known of it, and compare the result with the original."""

from __future__ import annotations

from dataclasses import replace

from amp_rewrite import targets
from amp_rewrite.errors import OutOfTimeError
from amp_rewrite.numerics.compare.distance import Tolerances
from amp_rewrite.numerics.compare.verification import Verification
from amp_rewrite.numerics.compare.verify import origin_of, unfinished_after, verified
from amp_rewrite.numerics.compare.verify_records import with_device
from amp_rewrite.numerics.compare.verify_report import VerifyReport
from amp_rewrite.numerics.convert.conversion import Conversion
from amp_rewrite.numerics.convert.work import Terms, Trial, Work
from amp_rewrite.numerics.emulate.evaluator import Evaluator
from amp_rewrite.numerics.emulate.typed_model import TypedModel
from amp_rewrite.rewriting.api import RewriteResult, rewrite_as_found
from amp_rewrite.rewriting.plan.options import KEEP
from amp_rewrite.runtimes.ort.time_limit import time_limit


def tried(work: Work, terms: Terms, original: Evaluator | None = None) -> Trial:
    """Rewrite and verify; what is to be scaled was scaled before.

    `original` is the model before, where it is loaded.
    """
    terms.progress("rewriting")
    options = replace(work.options, overflow=KEEP)
    rewritten = rewrite_as_found(work.flat, options, work.found)
    scaled = {"scaling": work.scaling, "refused": work.refused}
    return judged(work, replace(rewritten, options=work.options, **scaled), terms, original)


def judged(
    work: Work, result: RewriteResult, terms: Terms, original: Evaluator | None = None
) -> Trial:
    """Verify what was rewritten."""
    terms.progress("verifying")
    run, shapes = None, {}
    tolerances = Tolerances.of(work.options.low, terms.rtol)
    try:
        with time_limit(terms.ends()):
            target = targets.find(result.options.chosen_target)
            before, after = TypedModel.of(work.flat), TypedModel.of(result.rewritten)
            run = Verification(
                before, after, tolerances, target, providers=terms.providers, original=original
            )
            ranges = work.options.ranges
            report = verified(
                run,
                terms.data,
                stress=terms.stress,
                input_ranges=ranges,
                progress=terms.progress,
            )
            shapes = run.shapes
    except OutOfTimeError:  # no model was loaded
        report, run = _unverified(work, tolerances, terms), None
    made = Conversion(result, report, work.calibration, work.kept, shapes)
    return Trial(work, made, run)


def _unverified(work: Work, tolerances: Tolerances, terms: Terms) -> VerifyReport:
    """Return the report on a model for whose verification no time was left."""
    return VerifyReport(
        work.options.low.name,
        0,
        origin_of(terms.data, 0),
        tolerances,
        (),
        target=work.options.chosen_target,
        unfinished=unfinished_after(0, terms.data),
    )


def fails_on_data(report: VerifyReport) -> bool:
    """Tell whether more in float32 could help, which is chosen on data and not on stress inputs."""
    over_calls = () if report.fed_back is None else report.fed_back.failures
    return bool(report.infinities or over_calls) or not all(
        output.ok for output in with_device(report.outputs, report.device)
    )
