"""Feeds of many steps, and of the longest sequences that time and memory allow."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial

import numpy as np

from amp_rewrite.errors import RunError
from amp_rewrite.numerics.compare.finite_feeds import lost_in
from amp_rewrite.numerics.compare.intermediates import IntermediateComparer, in_bytes
from amp_rewrite.numerics.compare.verification import Verification
from amp_rewrite.numerics.inputs.batches import Feeds
from amp_rewrite.numerics.inputs.free_sizes import FEWEST_STEPS, FreeSizes
from amp_rewrite.numerics.inputs.lengths import Dimensions, Growth, candidate_lengths
from amp_rewrite.numerics.inputs.plausible import PlausibleInputs

MANY_STEPS = (60, 250, 1000)
"""How many steps stress inputs have, the most that fit: a small error at each of 1,000 shows."""

_RUNS = 15
"""How many runs of both models at that length are to fit the budget: a few for each kind."""


def many_steps(
    run: Verification, plausible: PlausibleInputs, attempt: int, feeds: Feeds, seconds: float
) -> Feeds:
    """Return feeds of as many steps as fit a budget; those given if no loop takes steps.

    Args:
        run: The models, which have run on the feeds.
        plausible: Makes the feeds.
        attempt: The attempt at sizes that made those given.
        feeds: What there is.
        seconds: The budget of all that will run on them.
    """
    before, per_run = FreeSizes(attempt).steps, run.seconds
    for steps in MANY_STEPS if plausible.links.steps else ():
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


def long_feeds(
    run: Verification,
    inside: IntermediateComparer,
    plausible: PlausibleInputs,
    attempt: int,
    seconds: float,
    memory: int,
) -> Iterator[Feeds]:
    """Yield feeds of ever shorter sequences that two models can run on in the time given.

    Args:
        run: The models.
        inside: The comparison of the values inside, which measures them.
        plausible: Makes the feeds.
        attempt: The attempt at sizes that runs.
        seconds: What one run of both models may take.
        memory: The bytes that the values of the original may take together.

    Raises:
        RunError: The original does not run on twice the length of that attempt.
    """
    short = FreeSizes(attempt).length
    if plausible.links.steps:
        short = max(short, FEWEST_STEPS)
    growth, taken = _measure_growth(run, inside, plausible, attempt, short)
    per_byte = taken / max(1.0, growth.nbytes(2 * short))
    per_step = taken / (2 * short) if plausible.links.steps else 0.0
    for length in candidate_lengths(run.before.model, above=short):
        held = growth.nbytes(length)
        if held <= memory and max(held * per_byte, length * per_step) <= seconds:
            yield plausible.feeds(FreeSizes(attempt, length))


def _measure_growth(
    run: Verification,
    inside: IntermediateComparer,
    plausible: PlausibleInputs,
    attempt: int,
    short: int,
) -> tuple[Growth, float]:
    """Return how the values grow with the length, and the seconds that twice the length takes."""
    sizes: list[dict[str, Dimensions]] = []
    seconds = 0.0
    for length in (short, 2 * short):
        feeds = plausible.feeds(FreeSizes(attempt, length))
        start = time.perf_counter()
        run.run_original(feeds)
        run.run_rewritten(feeds)
        seconds = time.perf_counter() - start
        fed = {name: in_bytes(a) for name, a in feeds.items() if isinstance(a, np.ndarray)}
        sizes.append({**fed, **inside.measured(partial(run.run_original, feeds))})
    return Growth.between(short, sizes[0], 2 * short, sizes[1]), seconds
