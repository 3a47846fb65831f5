"""Forms of one model, timed end to end in turn: which of them is the fastest here?"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

RUNS = 40
"""How often a model runs at most in all its forms, runs in which nodes are timed included."""

_TURN = 2
"""How often a form runs before the next one does: behind another one it finds cold caches."""

_FIRST_ROUNDS = 1
_FAR = 1.08
"""How many times as long as the fastest a form may take after the first rounds to stay in."""

_CERTAIN = 1.25
"""From how many times as long on it is certain after two runs that a form is slower."""

_SHORT = 0.002
"""Seconds below which two runs make nothing certain: what is cold takes longer than the model."""

Run = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Times:
    """How long the runs of a form took.

    Attributes:
        seconds: Of each, in order.
    """

    seconds: tuple[float, ...]

    @property
    def typical(self) -> float:
        """The median of the faster half, in seconds: the rest found cold caches, or other work."""
        return statistics.median(sorted(self.seconds)[: -(-len(self.seconds) // 2)])

    def __str__(self) -> str:
        """Return what they took, their number and their spread, in words."""
        if not self.seconds:
            return "not timed"
        least, most = 1000 * min(self.seconds), 1000 * max(self.seconds)
        count = len(self.seconds)
        return (
            f"{1000 * self.typical:.3g} ms (faster half of {count}, {least:.3g} to {most:.3g})"
            if count > 1
            else f"{1000 * self.typical:.3g} ms"
        )


@dataclass
class Budget:
    """How many runs are left.

    Attributes:
        left: Their number.
        progress: Told before each of them.
        taken: How many were taken.
    """

    left: int = RUNS
    progress: Callable[[str], None] = field(default=lambda _: None)
    taken: int = 0

    def take(self, run: Run) -> float:
        """Run once, and return the seconds."""
        self.left, self.taken = self.left - 1, self.taken + 1
        self.progress(f"measuring: run {self.taken} of {RUNS}")
        start = time.perf_counter()
        run()
        return time.perf_counter() - start


def timed_in_turn(
    forms: Mapping[str, Run],
    budget: Budget,
    full: str,
    beside: Collection[str] = (),
    favoured: str = "",
) -> dict[str, Times]:
    """Run forms one after the other, twice each, in rounds that begin with another one each.

    After the first round those stay that may yet be the fastest. All have run before.

    Args:
        forms: Name -> what runs it.
        budget: How many runs are left.
        full: The form in float32, which stays unless it is certainly slower.
        beside: Forms that cannot be chosen, and are timed in the first round only.
        favoured: A form that stays as well unless it is certainly slower.
    """
    taken: dict[str, list[float]] = {name: [] for name in forms}
    running, number = [*forms], 0
    while budget.left >= _TURN * len(running) and (len(running) > 1 or number < _FIRST_ROUNDS):
        shift = number % len(running)
        for name in (*running[shift:], *running[:shift]):
            taken[name] += [budget.take(forms[name]) for _ in range(_TURN)]
        number += 1
        if number >= _FIRST_ROUNDS:
            running = [name for name in running if name not in beside]
            running = _still_running(taken, running, full, favoured)
    return {name: Times(tuple(times)) for name, times in taken.items()}


def _still_running(
    taken: Mapping[str, Sequence[float]], running: Sequence[str], full: str, favoured: str
) -> list[str]:
    """Return which forms run once more; what stood in the way of a run counts for none of them."""
    least = {name: min(taken[name]) for name in running}
    chosen = [name for name in running if name != full]
    best = min((least[name] for name in chosen), default=0.0)
    compared = {full, favoured}
    return [
        name
        for name in running
        if not chosen
        or (name in compared and best < _SHORT)
        or least[name] <= (_CERTAIN if name in compared else _FAR) * best
    ]
