"""Excuses of an output that fails: the rounded weights alone, or an unsteady original.

Some models have no one answer: an input that is one part in a million larger swaps a near tie,
changes the scale of a dynamic quantisation, or takes a long simulation elsewhere. What moves so by
10 % cannot be right to 1 % in any arithmetic. Others amplify what is rounded in their weights. Of
both nobody can tell whether the arithmetic is right: the verdict is "in doubt".

Evidence: a chaotic map, and numbers rounded to one of 256
(tests/numerics/compare/test_moved_inputs.py): without, what no arithmetic can compute fails.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from amp_rewrite.numerics.compare.distance import (
    ERROR,
    Comparer,
    Excuse,
    OutputComparison,
)
from amp_rewrite.numerics.inputs.batches import Array, Feeds

STEP = 1e-6
"""How far inputs move, relative to themselves: some eight units in the last place of float32."""

AS_FAR = 2.0
"""How many times as far as a yardstick a rewritten model may be off to be called as far off."""

CEILING = 0.25
"""The largest error, relative to the spread of an output, that the weights may excuse.

With a quarter of it the cosine is 0.97: the numbers are not those of the model any more."""


def moved(feeds: Feeds, seed: int = 0) -> Feeds | None:
    """Return feeds whose floats are off by one part in a million; None if there are none.

    Whole numbers stay: they may count, choose or switch.
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
    return stepped(value, STEP * value.astype(np.float64), rng)


def stepped(array: Array, steps: Array, rng: np.random.Generator) -> Array:
    """Return floats that are off by steps, up or down; what would not stay finite stays."""
    with np.errstate(over="ignore", invalid="ignore"):
        moved_array = (array + steps * rng.choice([-1.0, 1.0], array.shape)).astype(array.dtype)
    return np.where(np.isfinite(moved_array), moved_array, array)


def judged(comparer: Comparer, control: Comparer, moves: Comparer) -> OutputComparison:
    """Return an output's comparison; if it fails, with the yardstick that excuses it.

    Where a tolerance was asked for, rounded weights excuse nothing, for float32 weights may meet
    it; the original does only if it moves by more than the usual limit.

    Args:
        comparer: The rewritten model on all feeds.
        control: The same for the rounded weights alone.
        moves: The same for the original on moved inputs.
    """
    output, strict = comparer.result(control), comparer.tolerances.strict
    if output.ok:
        return output
    held: list[tuple[Excuse, Comparer]] = [("original", moves)]
    if strict and (moves.result().error or 0.0) <= ERROR:
        held = []
    if not strict and (output.error or 0.0) <= CEILING:
        held = [("weights", control), *held]
    as_far = (name for name, y in held if y.elements and is_as_far(output, y.result()))
    return replace(output, excuse=next(as_far, ""))


def is_as_far(output: OutputComparison, other: OutputComparison) -> bool:
    """Tell whether a yardstick fails, too, by about as much in every measure that fails."""
    if other.ok or output.fault in ("shape", "lost"):
        return False
    return all(
        share <= max(1.0, AS_FAR * other.shares.get(name, 0.0))
        for name, share in output.shares.items()
    )
