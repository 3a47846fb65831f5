"""Run stress inputs through a verification, as many as a budget of seconds allows.

Evidence: late positions, lowest numbers in masks and bytes of images
(tests/numerics/compare/test_stress_checks.py): without, models that fail there pass. A Butterworth
filter with a state in 16 bits (same file): of 16 steps it passes, of 1,000 it fails.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import Any

import numpy as np

from amp_rewrite.errors import RunError
from amp_rewrite.numerics.compare.distance import is_float, results
from amp_rewrite.numerics.compare.intermediates import known_or
from amp_rewrite.numerics.compare.made_up_inputs import lost_in
from amp_rewrite.numerics.compare.moved_inputs import is_as_far, stepped
from amp_rewrite.numerics.compare.verification import Compared, Verification
from amp_rewrite.numerics.compare.verify_records import (
    UNNORMALISED,
    Inside,
    StressReport,
    StressResult,
    failure_of,
)
from amp_rewrite.numerics.inputs.batches import Feeds
from amp_rewrite.numerics.inputs.free_sizes import FreeSizes
from amp_rewrite.numerics.inputs.plausible import PlausibleInputs
from amp_rewrite.numerics.inputs.stress_inputs import KINDS, StressInputs, root_mean_square

MANY_STEPS = (60, 250, 1000)
"""How many steps stress inputs have, the most that fit: a small error at each of 1,000 shows."""

_RUNS = 15
"""How many runs of both models at that length are to fit the budget: a few for each kind."""

_SCALES = {
    UNNORMALISED: "large constants",
    "normalised image": "image 0..255",
    "image 0..255": "normalised image",
    "sound -1..1": "sound of 16 bits",
    "sound of 16 bits": "sound -1..1",
}
"""An input in two scales: both are made where the model does not show which is its own."""


def many_steps(
    run: Verification, plausible: PlausibleInputs, attempt: int, feeds: Feeds, seconds: float
) -> Feeds:
    """Return feeds of as many steps as fit a budget; those given if no loop takes steps.

    `attempt` is that at sizes which made those given, `seconds` the budget of all that will run.
    """
    sizes, per_run = FreeSizes(attempt), run.seconds
    before, follows = sizes.steps, plausible.links.steps and sizes.follows_loops
    for steps in MANY_STEPS if follows else ():
        if steps <= before:
            continue
        if per_run * _RUNS * steps / before > seconds:
            break
        longer = plausible.feeds(FreeSizes(attempt, steps))
        start = time.perf_counter()
        try:
            outputs = run.run_original(longer)
        except RunError:
            break
        if lost_in(outputs, {}) is not None:
            break
        before, per_run, feeds = steps, 2 * (time.perf_counter() - start), longer
    return feeds


@dataclass
class StressChecks:
    """The stress inputs of one verification, whose models have seen a feed; `budget` in seconds."""

    run: Verification
    inputs: StressInputs
    plausible: PlausibleInputs
    budget: float
    progress: Callable[[str], None]
    started: float = field(default_factory=time.perf_counter)

    def report(self) -> StressReport:
        """Run every kind that concerns the model.

        A failure on one scale of a signal is doubtful if the other one was made and passed.
        """
        found = [result for kind in KINDS if (result := self._kind(kind)) is not None]
        outcomes = {result.name: result.outcome for result in found}
        results = tuple(
            replace(result, outcome="doubtful")
            if result.outcome == "failed"
            and outcomes.get(_SCALES.get(result.name, ""), "failed") != "failed"
            else result
            for result in found
        )
        return StressReport(results, time.perf_counter() - self.started, self.budget)

    def _kind(self, kind: str) -> StressResult | None:
        alternatives = iter(self.inputs.alternatives(kind))
        first = next(alternatives, None)
        if first is None:
            return None
        left = self.budget - (time.perf_counter() - self.started)
        if self.run.inside.runs * self.run.seconds > left:
            return StressResult(kind, (), "left out", "the time is used up")
        self.progress(f"verifying: stress inputs, {kind}")
        why = ""
        for feeds in chain([first], alternatives):  # the first that the original runs on
            try:
                expected = self.run.run_original(feeds)
            except RunError as error:
                why = f"the original cannot run on it: {error.found or error.what}"
                continue
            if not _has_nan(expected):
                return self._compare_kind(kind, feeds, expected)
            why = "the original gives NaN"
        return StressResult(kind, (), "left out", why)

    def _compare_kind(self, kind: str, feeds: Feeds, expected: Mapping[str, Any]) -> StressResult:
        made = self.run.run_at_once(feeds)
        found = self.run.compare(feeds, expected, made, self.run.outputs)
        outputs = results(found.outputs)
        failures = [failure_of(output) for output in outputs if not output.ok]
        base, counts = self.inputs.base, self.plausible.links.steps.counts
        changed = tuple(
            _describe_input(n, a) for n, a in feeds.items() if a is not base.get(n) or n in counts
        )
        if failures and self._is_sensitive(feeds, expected, found):
            why = "the original itself changes as much when its inputs are rounded"
            return StressResult(kind, changed, "left out", why, outputs)
        first, overflows = self._look_inside(feeds, made)
        if not failures and not overflows:
            return StressResult(kind, changed, "held", "", outputs)
        why = "; ".join(failures) or "values inside overflow, though the outputs do not show it"
        return StressResult(kind, changed, "failed", why, outputs, first)

    def _is_sensitive(self, feeds: Feeds, expected: Mapping[str, Any], found: Compared) -> bool:
        """Tell whether the original itself is off as far if its inputs are off by the tolerance.

        A spectrum of a constant is one line and the rest next to nothing: nothing that rounds can
        be right there.
        """
        rng, base, step = np.random.default_rng(self.inputs.seed), self.inputs.base, self.run.low
        rounded = {n: _move_floats(rng, v, base.get(n), step.rtol) for n, v in feeds.items()}
        moved_outputs = self.run.run_original(rounded)
        there = self.run.compared(expected, moved_outputs, self.run.outputs, found.apart)
        pairs = zip(results(found.outputs), results(there), strict=True)
        return all(here.ok or is_as_far(here, moved) for here, moved in pairs)

    def _look_inside(self, feeds: Feeds, known: Mapping[str, Any]) -> tuple[Inside | None, bool]:
        """Return the first value that went wrong, and whether any overflows."""
        comparer = self.run.inside.fresh()
        run = known_or(known, partial(self.run.run_rewritten, feeds))
        comparer.add(partial(self.run.run_original, feeds), run)
        return comparer.departure(), bool(comparer.infinities())


def _move_floats(rng: np.random.Generator, array: Any, usual: Any, step: float) -> Any:
    """Return floats that are off by a relative step; zeros by the same step of their usual size.

    By a factor a zero stays one, and what divides by the deviation of an image of zeros would seem
    to be exact.
    """
    if not isinstance(array, np.ndarray) or not is_float(array):
        return array
    mean = root_mean_square(usual) if isinstance(usual, np.ndarray) else 0.0
    return stepped(array, step * np.where(array == 0, mean, np.abs(array)), rng)


def _has_nan(values: Mapping[str, Any]) -> bool:
    arrays = (np.asarray(v) for v in values.values() if not isinstance(v, list))
    return any(np.isnan(array).any() for array in arrays if is_float(array))


def _describe_input(name: str, array: Any) -> str:
    """Return an input as "ids [1, 16] 0..30521"."""
    shape = list(np.shape(array))
    if not isinstance(array, np.ndarray) or not array.size or array.dtype.kind not in "iuf":
        return f"{name} {shape}"
    return f"{name} {shape} {array.min():.6g}..{array.max():.6g}"
