"""Feeds of as many steps as time allows: a small error at each of 1,000 shows.

Evidence: a Butterworth filter (tests/numerics/compare/test_many_steps.py): of 16 steps it passes
with a state in 16 bits, of 1,000 it fails.
"""

from __future__ import annotations

import time

from amp_rewrite.errors import RunError
from amp_rewrite.numerics.compare.finite_feeds import lost_in
from amp_rewrite.numerics.compare.verification import Verification
from amp_rewrite.numerics.inputs.batches import Feeds
from amp_rewrite.numerics.inputs.free_sizes import FreeSizes
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
