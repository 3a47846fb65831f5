"""The front from fast to exact: paintings by their time, and by what their rounding brings.

On a target whose costs were measured the painting takes the least time (painting.md, section 10).
With a price on what rounding a value brings at the outputs, the same choice weighs both; each price
gives a painting that none beats in time and in estimated error at once (the method of Lagrange
multipliers: Everett, 1963). What a value brings was estimated for all of them in one pass, so that
a front costs as many runs as it has points.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir

from amp_rewrite.graph.constants import constant_tensor
from amp_rewrite.graph.flat import ABSENT, Array
from amp_rewrite.numerics.emulate.exact import is_exact
from amp_rewrite.numerics.inputs.batches import Feeds
from amp_rewrite.numerics.repaint.repaint import Repainter, Slot
from amp_rewrite.rewriting.paint.cheapest import CheapestRegions, Saved
from amp_rewrite.rewriting.paint.pipeline import PaintResult

Estimate = Callable[[ir.Model, Sequence[Feeds], str], Mapping[str, float]]
"""What estimates what rounding brings: (model, batches, precision) -> name of a value -> the mean
squared relative error of the outputs; `training.diagnosis.rounding_errors`, which no file here may
import.
"""

_POWERS = range(-3, 7)
"""Prices are powers of `_STEP` times the one at which what was saved is worth its error."""

_STEP = 4.0
_HALVINGS = 4
"""How often the gap between the last point that fails and the first that holds is halved."""

_DEAREST = 1 << 40
"""More than any value's time, in picoseconds, and little enough for sums of a million."""


@dataclass(frozen=True, slots=True)
class Point:
    """A painting of a front.

    Attributes:
        saved: The share of the predicted time in float32 that it saves.
        error: The estimated relative error of the outputs; infinity where a value overflows.
        loss: The loss that was measured.
        kept: The nodes that round, stay float32, and would be low by time alone.
    """

    saved: float
    error: float
    loss: float
    kept: tuple[str, ...] = field(repr=False)

    def __str__(self) -> str:
        """Return the point in words."""
        return (
            f"saves {self.saved:.1%} of the time, error about {self.error:.2g}, loss "
            f"{self.loss:.3g}, {len(self.kept)} more nodes in float32"
        )


class Estimates:
    """What rounding each value of a model brings at its outputs."""

    def __init__(self, painter: Repainter, by_name: Mapping[str, float]) -> None:
        """Take the estimates of a painter's model."""
        self._painter, flat = painter, painter.flat
        names = (value.name or "" for value in flat.values)
        self.by_value = np.array([by_name.get(name, 0.0) for name in names], np.float64)

    def contributions(self, low: Collection[Slot]) -> dict[str, float]:
        """Return, by node with a low slot, the relative error that rounding in it alone brings."""
        errors: dict[str, float] = {}
        for node in sorted({slot.node for slot in low}):
            error = sum(float(self.by_value[value]) for value in self._rounded_values(node))
            errors[self._painter.nodes[node].name or ""] = math.sqrt(error)
        return errors

    def error(self, low: Collection[Slot]) -> float:
        """Return the relative error that rounding in all these slots brings."""
        values = {value for slot in low for value in self._rounded_values(slot.node)}
        return math.sqrt(sum(float(self.by_value[value]) for value in values))

    def prices(self, price: float) -> Array:
        """Return, by value, what rounding it counts, for a price of a squared relative error."""
        with np.errstate(invalid="ignore"):
            prices = np.nan_to_num(self.by_value * price, nan=0.0, posinf=_DEAREST)
        return np.rint(np.minimum(prices, _DEAREST)).astype(np.int64)

    def _rounded_values(self, node: int) -> Iterator[int]:
        """Yield the values that a low node rounds: its results, and the constants that it reads."""
        flat, graph = self._painter.flat, self._painter.type_graph
        yield from (v for v in flat.outputs_of(node) if v != ABSENT)
        read = {value for value in flat.inputs_of(node) if value != ABSENT}
        yield from (value for value in read if constant_tensor(graph, value) is not None)


def front(
    painter: Repainter,
    estimates: Estimates,
    run: Callable[[frozenset[Slot]], float],
    limit: float,
    is_over: Callable[[], bool],
) -> list[Point]:
    """Return the points of a front, the fastest first.

    There are more points near `limit`, the loss that holds; the painter is for a target whose costs
    were measured.
    """
    maker = _Maker(painter, estimates, run)
    for power in _POWERS:
        if is_over():
            break
        maker.add(power)
    for _ in range(_HALVINGS):
        gap = maker.gap(limit)
        if gap is None or is_over():
            break
        maker.add(sum(gap) / 2)
    return maker.points()


@dataclass
class _Maker:
    """Paints at prices, and runs each painting once."""

    painter: Repainter
    estimates: Estimates
    run: Callable[[frozenset[Slot]], float]
    _made: dict[float, Point] = field(default_factory=dict[float, Point])

    def __post_init__(self) -> None:
        """Look at the painting that time alone chooses."""
        fastest = self.painter.paint(())
        self._fastest = self.painter.low_slots(fastest)
        error = self.estimates.error(self._fastest)
        self._unit = max(_saved_time(fastest).time, 1) / max(min(error, 1.0), 1e-9) ** 2
        self._losses: dict[frozenset[Slot], float] = {}

    def add(self, power: float) -> None:
        """Paint at a price, and measure what that brings."""
        prices = self.estimates.prices(self._unit * _STEP**power)
        painted = self.painter.paint((), prices)
        low = self.painter.low_slots(painted)
        if low not in self._losses:
            self._losses[low] = self.run(low)
        nodes = [self.painter.nodes[n] for n in sorted({s.node for s in self._fastest - low})]
        kept = tuple(node.name or "" for node in nodes if not is_exact(node))
        error, loss = self.estimates.error(low), self._losses[low]
        self._made[power] = Point(_saved_time(painted).share, error, loss, kept)

    def gap(self, limit: float) -> tuple[float, float] | None:
        """Return the price of the last point that fails, and that of the next, which holds."""
        powers = sorted(self._made)
        for below, above in zip(powers[-2::-1], powers[:0:-1], strict=True):
            if self._made[above].loss > limit:
                return None
            if self._made[below].loss > limit:
                same = self._made[below].kept == self._made[above].kept
                return None if same else (below, above)
        return None

    def points(self) -> list[Point]:
        """Return what was found, each painting once."""
        return list(dict.fromkeys(self._made[power] for power in sorted(self._made)))


def _saved_time(painted: PaintResult) -> Saved:
    """Return what a painting saves of the model's predicted time."""
    context, painting = painted.context, painted.painting
    assert context.weighing is not None, "the target's costs were measured"
    return CheapestRegions(context, context.weighing, painting).saved(painting.allow)
