"""The states of a training step, as notebooks show them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod
from typing import Protocol

from amp_rewrite.base.html_table import HtmlTable


class Described(Protocol):
    """What a state is, wherever it is described."""

    @property
    def role(self) -> str:
        """What it is for."""
        ...

    @property
    def shape(self) -> Sequence[int]:
        """Its shape."""
        ...


def states_table(states: Iterable[Described]) -> HtmlTable:
    """Return how many states have each role, and how many numbers they hold."""
    counts: dict[str, tuple[int, int]] = {}
    for state in states:
        tensors, numbers = counts.get(state.role, (0, 0))
        counts[state.role] = tensors + 1, numbers + prod(state.shape)
    rows = [(role, *count) for role, count in counts.items()]
    return HtmlTable(("states", "tensors", "numbers"), rows)
