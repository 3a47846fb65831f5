"""Last step of a conversion: keep in float32 what a model that fails needs, and no more.

First what made-up inputs show of a model that overflows on them, then what reads constants whose
rounding alone does harm, then the smallest set of nodes that a search finds.
"""

from __future__ import annotations

import math
from dataclasses import replace

from amp_rewrite.numerics.compare.distance import ERROR, OutputComparison
from amp_rewrite.numerics.compare.made_up_inputs import make_inputs
from amp_rewrite.numerics.compare.verify_report import VerifyReport
from amp_rewrite.numerics.compare.verify_texts import weights_beyond
from amp_rewrite.numerics.convert.judge import compared_outputs, fails_on_data, tried
from amp_rewrite.numerics.convert.measure import measured
from amp_rewrite.numerics.convert.scale import has_outliers
from amp_rewrite.numerics.convert.work import Terms, Trial
from amp_rewrite.numerics.inputs.batches import Data
from amp_rewrite.numerics.repaint.repaint import Repainter
from amp_rewrite.numerics.search.harmful_constants import harmful_constants, rules_for
from amp_rewrite.numerics.search.tolerance import Tolerance
from amp_rewrite.numerics.search.tune import tune_painting

_CONSTANTS_SHARE = 0.3
"""The share of the budget that the search for harmful constants may take."""

_MORE_SEARCHES = 2
"""How often the search runs again at most, told by how much its trial was better than the file."""


def fit_to_made_up(first: Trial, terms: Terms) -> Trial | None:
    """Return what is made of a model that overflows on made-up inputs by what these reach.

    A model whose weights have outliers that leave the range is one, too, if it can be scaled. None
    if nothing overflows on them, or the result does not pass either.
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
    """Return a conversion that holds on the data, if there is one, else the best that was found.

    Without data that is done on the made-up inputs, where the rounded weights are to blame.
    """
    verification = first.made.verification
    is_beyond = any(not output.ok for output in verification.control)
    blames = is_beyond or any(output.fault == "slice" for output in verification.outputs)
    if (
        verification.unfinished is not None  # nor is there time for a search
        or _is_unsteady(verification)
        or first.work.options.only is not None  # nothing may become float32
        or not fails_on_data(verification)
        or not (blames or terms.data is not None)
    ):
        return first
    if is_beyond:
        precision, limits = verification.precision, verification.tolerances
        terms.warn(weights_beyond(verification.control, limits, precision))
    spared = spare_constants(first, terms) if blames else first
    if not fails_on_data(spared.made.verification):
        return _in_vain(first) if not spared.made.is_low and _doubts(first, terms) else spared
    found = search(spared, terms)
    doubtful = spared if spared.made.is_low and _doubts(spared, terms) else first
    is_better = found.made.is_low and (found.made.ok or _doubts(found, terms))
    if is_better or not _doubts(doubtful, terms):
        return found
    made = replace(doubtful.made, vain=True, vain_search=found.made.tuning)
    return doubtful._replace(made=made)


def _doubts(trial: Trial, terms: Terms) -> bool:
    """Tell whether a trial is in doubt; a tolerance that was asked for is met by a search."""
    return terms.rtol is None and trial.made.verdict.status == "in doubt"


def _is_unsteady(verification: VerifyReport) -> bool:
    """Tell whether the original is as unsteady where outputs fail: no search mends that."""
    failed = [output for output in verification.outputs if not output.ok]
    return bool(failed) and all(output.excuse == "original" for output in failed)


def _in_vain(trial: Trial) -> Trial:
    return trial._replace(made=replace(trial.made, vain=True))


def spare_constants(first: Trial, terms: Terms) -> Trial:
    """Keep float32 what reads constants whose rounding alone does harm, and verify again."""
    if first.run is None or first.run.worst_feeds is None:
        return first
    terms.progress("looking for constants that rounding spoils")
    seconds = min(terms.budget * _CONSTANTS_SHARE, terms.seconds_left(first.seconds))
    if seconds <= 0:
        return first
    constants = harmful_constants(first.run, first.run.worst_feeds, seconds)
    if not constants:
        return first
    work = first.work
    rules = rules_for(Repainter.of(work.flat, work.options, work.found), constants)
    return tried(work.with_constants(rules), terms)


def search(before: Trial, terms: Terms) -> Trial:
    """Tune and verify; a trial rounds value by value, the written file by fused groups.

    A device rounds in its own way. What the file is further off than its trial is asked of the next
    search.
    """
    if terms.rtol is None:
        tolerance = Tolerance.default("error", before.work.options.low.rtol)
    else:
        tolerance = Tolerance("max-relative", terms.rtol)
    limit = tolerance.limit
    trial = _tuned(before, tolerance, terms)
    for _ in range(_MORE_SEARCHES):
        loss = 0.0 if trial.made.tuning is None else trial.made.tuning.loss
        error = _error(compared_outputs(trial.made.verification), terms.rtol)
        is_over = terms.seconds_left(trial.seconds) <= 0
        if is_over or not 0 < loss <= limit < error < math.inf:
            break
        tolerance = replace(tolerance, limit=limit * loss / error)
        trial = _tuned(before, tolerance, terms, trial.seconds)
    return trial


def _error(outputs: tuple[OutputComparison, ...], rtol: float | None) -> float:
    """Return how far outputs are off, in the measure of the search."""
    if rtol is None:
        return ERROR * max((output.share for output in outputs), default=0.0)
    return max((output.scaled_error for output in outputs), default=0.0)


def _tuned(
    before: Trial, tolerance: Tolerance, terms: Terms, verifying: float | None = None
) -> Trial:
    """Search once, and verify what was found."""
    terms.progress("tuning")
    assert before.run is not None, "it was verified"
    work, run = before.work, before.run
    data: Data = [run.worst_feeds or {}] if terms.data is None else terms.data
    tuning = tune_painting(
        Repainter.of(work.flat, replace(work.options, strict=False), work.found),
        data,
        tolerance,
        budget=terms.seconds_left(before.seconds if verifying is None else verifying),
        progress=lambda step: terms.progress(f"tuning: {step.trials} trials"),
        warn=terms.progress,
        estimate=terms.estimate,
    )
    tuning = replace(tuning, seconds=terms.budget)  # of which a part was left
    return tried(work.with_tuning(tuning), terms)
