"""The least float32 with which the predicted error is within a limit.

Every type variable is 16-bit or float32. A 16-bit node rounds its result, and a float32 value is
rounded where 16-bit nodes read it: each of these has a price, the share of the error that it is
predicted to make. What stays float32 costs one for each type variable, and each cast a little. For
a given exchange rate between the two the best choice is a minimum cut (min_cut.py),
and the smallest rate at which the painting that follows from the choice is within the limit is
found by bisection.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from amp_rewrite.graph.flat import ABSENT
from amp_rewrite.numerics.budget.min_cut import Arcs, cheapest_set
from amp_rewrite.numerics.budget.roundings import COMPUTED, Rounding
from amp_rewrite.numerics.inputs.batches import Array
from amp_rewrite.numerics.repaint.repaint import Repainter

_UNIT = 1 << 20
"""The cost of a float32 type variable, in the whole numbers of the cut."""

_CAST = _UNIT // 8
"""The cost of a cast."""

_NEVER = 1 << 52
"""A cost that no choice has."""

_MOST = 1 << 44
"""The largest cost of a rounding."""

_STEPS = 24
"""How often a rate is tried for a share at most: made larger or smaller, and then bisected."""

_FACTOR = 8.0
"""How much larger or smaller a rate becomes as long as all of them fail, or hold."""

_FINE = 1.05
"""Two rates are not told apart further that are that close."""


@dataclass(frozen=True)
class Prices:
    """The price of each rounding: its part of the predicted error.

    Attributes:
        painter: The model.
        roundings: The roundings.
        shares: (constraints, roundings): the squared error by the squared limit, for each batch and
            each end; a choice holds if the sum over what it rounds is at most 1 in each row.
    """

    painter: Repainter
    roundings: tuple[Rounding, ...]
    shares: Array

    @cached_property
    def _writers(self) -> Array:
        graph = self.painter.type_graph
        return np.array([graph.source[r.value] for r in self.roundings], np.int64)

    @cached_property
    def _is_computed(self) -> Array:
        return np.array([r.kind == COMPUTED for r in self.roundings], np.bool_)

    @cached_property
    def _readers(self) -> list[list[int]]:
        graph, bodies = self.painter.type_graph, self.painter.flat.bodies
        taken: dict[int, list[int]] = {}  # what a body returns is read by its node
        for body, sinks in graph.sinks.items():
            for value, vertex in zip(bodies[body].outputs, sinks, strict=True):
                taken.setdefault(value, []).append(vertex)
        read = ((*graph.readers(r.value), *taken.get(r.value, ())) for r in self.roundings)
        return [[v for v in vertices if v != ABSENT] for vertices in read]

    def rounded(self, low: Array) -> Array:
        """Return which roundings a painting makes: a mask, from one of its 16-bit vertices."""
        padded = np.append(low, False)  # what nobody computes is float32
        by_writer, (readers, starts) = padded[self._writers], self._places_of_readers
        read = np.logical_or.reduceat(padded[readers], starts)
        return np.where(self._is_computed, by_writer, ~by_writer & read)

    @cached_property
    def _places_of_readers(self) -> tuple[Array, Array]:
        """The readers of all roundings, each with one that is float32, and where they begin."""
        rows = [[ABSENT, *readers] for readers in self._readers]
        lengths = [len(row) for row in rows]
        return np.array([v for row in rows for v in row]), np.cumsum([0, *lengths[:-1]])

    def predicted(self, low: Array) -> float:
        """Return the predicted error of a painting by the limit; at most 1 holds."""
        rounded = self.rounded(low)
        return float(np.sqrt(self.shares[:, rounded].sum(axis=1).max(initial=0.0)))

    @cached_property
    def worst(self) -> Array:
        """The largest share of each rounding over the constraints."""
        return self.shares.max(axis=0, initial=0.0)

    def float32(self, rate: float, fixed: Array) -> Array:
        """Return the type variables that are best float32 at an exchange rate, as a mask.

        Args:
            rate: How many float32 type variables the whole error that is allowed is worth.
            fixed: The type variables that are float32 in any case.
        """
        count = len(self.painter.type_graph)
        prices = np.minimum(self.worst * rate * _UNIT, _MOST).astype(np.int64)
        costs = np.full(count, _UNIT, np.int64)
        computed = self._is_computed & (self._writers != ABSENT)
        np.subtract.at(costs, self._writers[computed], prices[computed])
        costs[fixed] = -_NEVER
        arcs: list[tuple[int, int, int]] = []
        extra: list[int] = []  # costs of vertices of the cut that are no type variables
        for k in np.flatnonzero(~self._is_computed):
            readers, writer = self._readers[k], int(self._writers[k])
            if not readers:
                continue
            if writer == ABSENT:  # an input is float32
                writer = count + len(extra)
                extra.append(-_NEVER)
            down, up = count + len(extra), count + len(extra) + 1
            extra += [0, 0]
            arcs += [(writer, down, int(prices[k]) + _CAST), (up, writer, _CAST)]
            for reader in readers:
                if reader != writer:
                    arcs += [(down, reader, _NEVER), (reader, up, _NEVER)]
        columns = np.array(arcs, np.int64).reshape(-1, 3).T
        return cheapest_set(np.append(costs, np.array(extra, np.int64)), Arcs(*columns))[:count]


@dataclass
class Choices:
    """The best choices for a model, by the share of the limit that is allowed.

    A cut depends on the exchange rate alone, so that the cuts for one share serve the next.

    Attributes:
        prices: The prices.
        fixed: The type variables that are float32 whatever is chosen, as a mask.
        paint: Returns the 16-bit type variables of the painting that keeps some nodes float32.
    """

    prices: Prices
    fixed: Array
    paint: Callable[[Iterable[int]], Array]
    _cuts: dict[float, tuple[int, ...]] = field(default_factory=dict[float, tuple[int, ...]])
    _known: dict[tuple[int, ...], float] = field(default_factory=dict[tuple[int, ...], float])

    def within(self, share: float) -> tuple[tuple[int, ...], float]:
        """Return the nodes to keep float32 so that the prediction is within a share of the limit.

        With them comes what is predicted, by the limit.
        """
        if self._predicted(()) <= share:
            return (), self._predicted(())
        self._cut_around(share)
        holding = [nodes for nodes in self._cuts.values() if self._predicted(nodes) <= share]
        if not holding:
            every = _nodes(self.prices, self._low)
            return every, self._predicted(every)
        best = min(holding, key=len)
        fewer = _fewer(self.prices, best, self._low, share)
        best = fewer if self._predicted(fewer) <= share else best
        return best, self._predicted(best)

    def _cut_around(self, share: float) -> None:
        """Find the smallest exchange rate at which a share holds, if there is one."""
        within = {rate: self._predicted(nodes) <= share for rate, nodes in self._cuts.items()}
        holds = min((rate for rate, is_within in within.items() if is_within), default=math.inf)
        fails = max((rate for rate in within if rate < holds), default=0.0)
        for _ in range(_STEPS):
            if self._is_settled(holds, fails):
                break
            if holds == math.inf:
                rate = fails * _FACTOR or 1.0
            else:
                rate = (holds * fails) ** 0.5 or holds / _FACTOR
            self._cuts[rate] = self._cut(rate)
            if self._predicted(self._cuts[rate]) <= share:
                holds = rate
            else:
                fails = rate

    def _is_settled(self, holds: float, fails: float) -> bool:
        """Tell whether no other choice is between two rates: mostly each keeps what smaller do."""
        if holds == math.inf or not fails:
            return False
        return holds / fails < _FINE or len(self._cuts[holds]) - len(self._cuts[fails]) <= 1

    def _cut(self, rate: float) -> tuple[int, ...]:
        return _nodes(self.prices, self.prices.float32(rate, self.fixed) & self._low)

    @cached_property
    def _low(self) -> Array:
        return self.paint(())

    def _predicted(self, nodes: tuple[int, ...]) -> float:
        if nodes not in self._known:
            self._known[nodes] = self.prices.predicted(self.paint(nodes) if nodes else self._low)
        return self._known[nodes]


def _fewer(prices: Prices, nodes: tuple[int, ...], low: Array, share: float) -> tuple[int, ...]:
    """Leave out nodes, long runs first, as long as the prediction holds.

    The exchange rate gives the best choices for some errors, and between these there are gaps.
    """
    graph, kept, size = prices.painter.type_graph, list(nodes), max(1, len(nodes) // 2)

    def holds(rest: list[int]) -> bool:
        vertices = [v for node in rest for v in graph.vertices_of(node)]
        return prices.predicted(low & ~graph.mask(vertices)) <= share

    while size:
        for start in range(max(0, len(kept) - size), -size, -size):
            rest = kept[: max(0, start)] + kept[start + size :]
            if len(rest) < len(kept) and holds(rest):
                kept = rest
        size //= 2
    return tuple(kept)


def _nodes(prices: Prices, vertices: Array) -> tuple[int, ...]:
    graph = prices.painter.type_graph
    return tuple(sorted({int(graph.nodes[v]) for v in np.flatnonzero(vertices)}))
