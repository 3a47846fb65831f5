"""The third yardstick: the original itself, in float32, where its inputs move by next to nothing.

Some models have no one answer: an input that is one part in a million larger swaps a near tie,
changes the scale of a dynamic quantisation, or takes a long simulation elsewhere. What moves by 2 %
so cannot be right to 1 % in any arithmetic, that of the original on another machine included.

Evidence: a chaotic map, and numbers rounded to one of 256
(tests/numerics/compare/test_moved_inputs.py): without, what no arithmetic can hold fails; with, it
is judged against the original itself.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from amp_rewrite.numerics.compare.chances import slack_of
from amp_rewrite.numerics.compare.distance import (
    DISTANCE,
    ROUNDINGS,
    Comparer,
    OutputComparison,
    Tolerances,
)
from amp_rewrite.numerics.compare.weights_alone import is_as_far
from amp_rewrite.numerics.inputs.batches import Feeds

STEP = 1e-6
"""How far inputs move, relative to themselves: some eight units in the last place of float32."""

_SIZES = (2 / 3, 3 / 2)
"""Between how many times the norm of the original that of a rewritten output has to lie.

An output that is as unsteady as it can be moves by 1.4 of its size; zeros would be nearer."""

_SIZE_BY_CHANCE, _NEARLY_NONE = (2.0, 8.0), 4
"""By how much more the norms of few numbers may differ, and of fewer than that many numbers."""


def moved(feeds: Feeds, seed: int = 0) -> Feeds | None:
    """Return feeds whose floats are off by one part in a million; None where there are none.

    Whole numbers stay: they may count, choose or switch, and truncating one that is a little less
    is another choice, not a rounding.
    """
    rng = np.random.default_rng(seed)
    moved_feeds = {name: _move_value(value, rng) for name, value in feeds.items()}
    return None if all(moved_feeds[name] is value for name, value in feeds.items()) else moved_feeds


def _move_value(value: Any, rng: np.random.Generator) -> Any:
    if isinstance(value, list):
        items = [_move_value(item, rng) for item in value]
        return value if all(a is b for a, b in zip(items, value, strict=True)) else items
    if not isinstance(value, np.ndarray) or value.dtype not in (np.float32, np.float64):
        return value
    finite = np.isfinite(value)
    if not value.size or np.array_equal(np.trunc(value[finite]), value[finite]):
        return value
    with np.errstate(over="ignore", invalid="ignore"):
        steps = value.astype(np.float64) * (1 + STEP * rng.choice([-1.0, 1.0], value.shape))
        moved_value = steps.astype(value.dtype)
    return np.where(np.isfinite(moved_value), moved_value, value)


def judged(
    comparer: Comparer,
    control: Comparer,
    moves: Comparer,
    limits: Tolerances,
    *,
    rounds: bool = True,
) -> OutputComparison:
    """Return an output's comparison, held against what moves the original itself.

    Args:
        comparer: The rewritten model on all feeds.
        control: The rounded weights alone on them.
        moves: The original on moved inputs.
        limits: The tolerances.
        rounds: Whether the control's weights are others than the original's.
    """
    yardsticks = (control, moves) if rounds else (_stands_in(moves, limits),)
    output = comparer.result([other for other in yardsticks if other.elements])
    if output.ok or not moves.elements:
        return output
    itself = moves.result()
    is_far = itself.distance is not None and itself.distance > DISTANCE
    slack = float(slack_of(output.elements)) if is_far else 1.0
    as_far = is_as_far(output, itself, limits, ceiling=math.inf, slack=slack)
    by_chance = _SIZE_BY_CHANCE[output.elements < _NEARLY_NONE]
    excused = as_far and _is_as_large(comparer, min(slack, by_chance))
    return replace(output, ok=True, fault="", as_original=True) if excused else output


def _stands_in(moves: Comparer, limits: Tolerances) -> Comparer:
    """Return how far the original moves, as if its inputs were rounded.

    Where the weights were low already, or have other names, the control rounds nothing: what it
    moves a number by is float32's own noise. One part in a million is no rounding of 16 bits.
    """
    times = 1.0 if limits.strict else limits.rtol / ROUNDINGS / STEP
    return replace(moves, slices=replace(moves.slices, times=times, stands_in=True))


def _is_as_large(comparer: Comparer, slack: float) -> bool:
    least, most = _SIZES[0] / slack, _SIZES[1] * slack
    size = comparer.size.mean_square * comparer.finite
    return least**2 * size <= comparer.norm**2 <= most**2 * size
