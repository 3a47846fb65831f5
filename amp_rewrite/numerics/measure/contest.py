"""Forms of one model, timed end to end in turn: which of them is the fastest here?"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

RUNS = 40
"""How often a model runs at most in all its forms, runs in which nodes are timed included."""

_FIRST_ROUNDS = 2
_FAR = 1.08
"""How many times as long as the fastest a form may take after the first rounds to stay in."""

Run = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Times:
    """How long the runs of a form took.

    Attributes:
        seconds: Of each, in order.
    """

    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        """The median, in seconds."""
        return statistics.median(self.seconds)

    def __str__(self) -> str:
        """Return median, spread and number in words."""
        if not self.seconds:
            return "not timed"
        least, most = 1000 * min(self.seconds), 1000 * max(self.seconds)
        count = len(self.seconds)
        return (
            f"{1000 * self.median:.3g} ms (median of {count}, {least:.3g} to {most:.3g})"
            if count > 1
            else f"{1000 * self.median:.3g} ms"
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


def timed_in_turn(forms: Mapping[str, Run], budget: Budget, always: str) -> dict[str, Times]:
    """Run forms one after the other, in rounds, each of which begins with another one.

    What is clearly slower than the fastest after two rounds is left out of the later ones; `always`
    stays in, and the fastest of the others. All have run before.
    """
    taken: dict[str, list[float]] = {name: [] for name in forms}
    running, number = [*forms], 0
    while budget.left >= len(running) and (len(running) > 1 or number < _FIRST_ROUNDS):
        shift = number % len(running)
        for name in (*running[shift:], *running[:shift]):
            taken[name].append(budget.take(forms[name]))
        number += 1
        if number >= _FIRST_ROUNDS:
            medians = {name: statistics.median(taken[name]) for name in running}
            least = min(medians.values())
            others = [name for name in running if name != always]
            stay = {always, min(others, key=medians.__getitem__, default=always)}
            running = [n for n in running if n in stay or medians[n] <= _FAR * least]
    return {name: Times(tuple(times)) for name, times in taken.items()}
