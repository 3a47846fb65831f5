"""Last step of a conversion: keep in float32 what a model that fails needs, and no more.

First what made-up inputs show of a model that overflows on them, then what the error budget says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

from amp_rewrite.errors import AmpError, GradientError, OutOfTimeError, warn
from amp_rewrite.numerics.budget.tolerance import Tolerance
from amp_rewrite.numerics.budget.tuner import Tuner
from amp_rewrite.numerics.budget.tuning import Tuning
from amp_rewrite.numerics.compare.made_up_inputs import make_inputs
from amp_rewrite.numerics.compare.verify_records import with_device
from amp_rewrite.numerics.compare.verify_report import VerifyReport
from amp_rewrite.numerics.convert.judge import fails_on_data, tried
from amp_rewrite.numerics.convert.scale import has_outliers, measured
from amp_rewrite.numerics.convert.work import Terms, Trial, Work
from amp_rewrite.numerics.inputs.batches import batches
from amp_rewrite.numerics.repaint.repaint import Repainter
from amp_rewrite.runtimes.ort.time_limit import time_limit

_CHOICES_FOR_CALLS = 4
"""How often is chosen where many calls fail with states fed back: the budget is one of one call."""


def fit_to_made_up(first: Trial, terms: Terms) -> Trial | None:
    """Return a conversion calibrated on made-up inputs, for a model that overflows on them.

    So for a model whose weights have outliers that leave the range, if it can be scaled. None
    otherwise, or if the result does not pass.
    """
    work, verification = first.work, first.made.verification
    is_infinite = bool(verification.infinities)
    if verification.unfinished is not None or work.options.only is not None:
        return None
    is_scalable = has_outliers(first.made.result, work.options)
    if not is_infinite and not is_scalable:
        return None
    terms.progress("calibrating on made-up inputs")
    if work.given is not None:  # bounds may scale too little
        work = replace(work, flat=work.given, given=None, scaling=None)
    batches = make_inputs(work.flat, ranges=work.options.ranges).batches
    work = measured(work, batches, terms)
    if work.calibration is None:
        return None
    trial = tried(work, terms)
    helps = is_infinite or work.scaling is not None
    return trial if trial.made.ok and trial.made.is_low and helps else None


def mend(first: Trial, terms: Terms) -> Trial:
    """Return a conversion that passes on the data, if there is one, else the best that was found.

    Without data, use the made-up inputs, and only if the rounded weights are to blame.
    """
    verification = first.made.verification
    is_beyond = any(not output.ok for output in verification.control)
    blames = is_beyond or any(output.fault == "slice" for output in verification.outputs)
    if (
        verification.unfinished is not None  # nor is there time for more
        or _is_unsteady(verification)
        or first.work.options.only is not None  # nothing may become float32
        or not fails_on_data(verification)
        or not (blames or terms.data is not None)
    ):
        return first
    found = _by_budget(first, terms)
    if found is None:
        return first
    is_better = found.made.is_low and (found.made.ok or _doubts(found, terms))
    if is_better or not _doubts(first, terms):
        return found
    return first._replace(made=replace(first.made, vain=True))


def _doubts(trial: Trial, terms: Terms) -> bool:
    """Tell whether a trial is in doubt; not with a tolerance of the user, which a choice meets."""
    return terms.rtol is None and trial.made.verdict.status == "in doubt"


def _is_unsteady(verification: VerifyReport) -> bool:
    """Tell whether the original is as unsteady where outputs fail: float32 does not help."""
    failed = [output for output in verification.outputs if not output.ok]
    return bool(failed) and all(output.excuse == "original" for output in failed)


def _by_budget(before: Trial, terms: Terms) -> Trial | None:
    """Keep float32 what the error budget chooses, and verify; None without a choice in time."""
    assert before.run is not None, "it was verified"
    work = before.work
    data = [before.run.worst_feeds or {}] if terms.data is None else terms.data
    painter = Repainter.of(work.flat, replace(work.options, strict=False), work.found)
    tolerance = Tolerance.default("error", 0.0)
    if terms.rtol is not None:
        tolerance = Tolerance("max-relative", terms.rtol)
    feeds = list(batches(data, painter.model))
    tuner = Tuner(
        painter,
        feeds,
        tolerance,
        lifts=False,
        providers=terms.providers,
        original=before.run.original,
    )
    terms.progress("measuring what rounding adds")
    report = before.made.verification
    loss = tolerance.loss(with_device(report.outputs, report.device))
    kept = _tuned(partial(tuner.tuned, terms.ends(), before=loss))
    if kept is None:
        return None
    first = _kept(work, terms, kept, tuner) if kept.rules else before
    failed = first.made.verification.fed_back
    if failed is None or not failed.failures:
        return first
    others = tuner.for_calls(failed)
    for _ in range(_CHOICES_FOR_CALLS):
        terms.progress("choosing for many calls")
        kept = _tuned(partial(_next, others, terms))
        if kept is None:
            break
        found = _kept(work, terms, kept, tuner)
        if found.made.ok:
            return found
    return first


def _next(choices: Iterator[Tuning], terms: Terms) -> Tuning | None:
    with time_limit(terms.ends()):
        return next(choices, None)


def _tuned(choose: Callable[[], Tuning | None]) -> Tuning | None:
    """Return what is chosen; None where nothing can be, as without gradients, or in time."""
    try:
        return choose()
    except (GradientError, OutOfTimeError):
        return None
    except AmpError as error:
        warn(f"the error budget did not choose: {error}")
        return None


def _kept(work: Work, terms: Terms, kept: Tuning, tuner: Tuner) -> Trial:
    """Return the conversion with a choice, without the models that were run."""
    work = replace(work, found=work.found.with_rules(kept.rules), kept=kept)
    return tried(work, terms, tuner.original)._replace(run=None)
