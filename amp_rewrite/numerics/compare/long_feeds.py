"""Feeds of long sequences, as long as memory and time allow by measurements of short ones."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial

from amp_rewrite.numerics.compare.intermediates import IntermediateComparer
from amp_rewrite.numerics.compare.verification import Verification
from amp_rewrite.numerics.inputs.batches import Feeds
from amp_rewrite.numerics.inputs.free_sizes import FreeSizes
from amp_rewrite.numerics.inputs.lengths import Growth, candidate_lengths
from amp_rewrite.numerics.inputs.plausible import PlausibleInputs

MEMORY_BYTES = 1 << 29
"""What the values of the original may take together; those of the emulation take about twice that.
"""


def long_feeds(
    run: Verification,
    inside: IntermediateComparer,
    plausible: PlausibleInputs,
    attempt: int,
    seconds: float,
) -> Iterator[Feeds]:
    """Yield feeds of ever shorter sequences that two models can run on in the time given.

    Args:
        run: The models.
        inside: The comparison of the values inside, which measures them.
        plausible: Makes the feeds.
        attempt: The attempt at sizes that runs.
        seconds: What one run of both models may take.

    Raises:
        RunError: The original does not run on twice the length of that attempt.
    """
    short = FreeSizes(attempt).length
    growth, per_byte = _measured(run, inside, plausible, attempt, short)
    for length in candidate_lengths(run.before.model, above=short):
        held = growth.nbytes(length)
        if held <= MEMORY_BYTES and held * per_byte <= seconds:
            yield plausible.feeds(FreeSizes(attempt, length))


def _measured(
    run: Verification,
    inside: IntermediateComparer,
    plausible: PlausibleInputs,
    attempt: int,
    short: int,
) -> tuple[Growth, float]:
    """Return how the values grow with the length, and the seconds that a byte of them costs."""
    sizes: list[dict[str, int]] = []
    seconds = 0.0
    for length in (short, 2 * short):
        feeds = plausible.feeds(FreeSizes(attempt, length))
        start = time.perf_counter()
        run.run_original(feeds)
        run.run_rewritten(feeds)
        seconds = time.perf_counter() - start
        sizes.append(inside.measured(partial(run.run_original, feeds)))
    growth = Growth.between(short, sizes[0], 2 * short, sizes[1])
    return growth, seconds / max(1.0, growth.nbytes(2 * short))
