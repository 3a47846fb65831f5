"""What a run has measured, in bounded room: steps are joined into longer points as it goes on."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, cast

from amp_rewrite.base.fields import NUMBER, kind, list_of, mapping_to, object_of, or_null, whole

MOST = 1000
"""Points beyond which each two of them are joined; half as many are always kept."""

_DIGITS = 6


@dataclass
class Mean:
    """A mean of the finite ones among numbers.

    Attributes:
        total: Their sum.
        count: How many there were.
    """

    total: float = 0.0
    count: int = 0

    def add(self, number: float) -> None:
        """Take a number, unless it is not finite."""
        if math.isfinite(number):
            self.total, self.count = self.total + number, self.count + 1

    def join(self, other: Mean) -> None:
        """Take the numbers of another mean."""
        self.total, self.count = self.total + other.total, self.count + other.count

    @property
    def value(self) -> float | None:
        """The mean, None of no numbers."""
        return self.total / self.count if self.count else None


@dataclass
class Point:
    """Some steps in a row.

    Attributes:
        step: The last of them.
        seconds: How long the run had gone on then.
        steps: How many they are.
        loss: The mean of their losses.
        gradient_norm: The mean of the norms of their gradients.
        zero: The mean share of their gradients' elements that are zero.
        small: The mean share of those that are subnormal.
        loss_scale: The loss scale of the last step, or None.
        learning_rate: The learning rate of the last step, or None.
        skipped: How many of them were skipped.
        examples: How many examples they took, as far as `busy` was measured.
        busy: How many seconds they took.
    """

    step: int
    seconds: float
    steps: int = 1
    loss: Mean = field(default_factory=Mean)
    gradient_norm: Mean = field(default_factory=Mean)
    zero: Mean = field(default_factory=Mean)
    small: Mean = field(default_factory=Mean)
    loss_scale: float | None = None
    learning_rate: float | None = None
    skipped: int = 0
    examples: int = 0
    busy: float = 0.0

    def join(self, later: Point) -> None:
        """Take the steps of the point that follows."""
        self.step, self.seconds = later.step, later.seconds
        self.steps += later.steps
        for mean in ("loss", "gradient_norm", "zero", "small"):
            getattr(self, mean).join(getattr(later, mean))
        self.loss_scale, self.learning_rate = later.loss_scale, later.learning_rate
        self.skipped += later.skipped
        self.examples += later.examples
        self.busy += later.busy


class History:
    """Points of equally many steps each, and what evaluations found.

    Attributes:
        points: The points; the last one may have fewer steps than the others.
        width: How many steps a point takes.
        evaluations: (step, what was found), the earlier ones thinned out like points.
    """

    def __init__(self) -> None:
        """Begin without a step."""
        self.points: list[Point] = []
        self.width = 1
        self.evaluations: list[tuple[int, dict[str, float]]] = []

    def add(self, point: Point) -> None:
        """Take a step."""
        if self.points and self.points[-1].steps < self.width:
            self.points[-1].join(point)
            return
        if len(self.points) >= MOST:
            self._halve()
        self.points.append(point)

    def _halve(self) -> None:
        """Join each two points."""
        pairs = zip(self.points[::2], self.points[1::2], strict=True)
        self.width *= 2
        self.points = [_joined(first, second) for first, second in pairs]

    def evaluated(self, step: int, found: Mapping[str, float]) -> None:
        """Take what an evaluation after a step found."""
        if len(self.evaluations) >= MOST:
            self.evaluations = self.evaluations[1::2]
        self.evaluations.append((step, dict(found)))

    def curves(self) -> dict[str, list[Any]]:
        """Return a column for each curve, a row for each point; None where nothing is known."""
        points = self.points
        return {
            "step": [p.step for p in points],
            "seconds": [short(p.seconds) for p in points],
            "loss": [short(p.loss.value) for p in points],
            "loss_scale": [short(p.loss_scale) for p in points],
            "skipped": [p.skipped for p in points],
            "learning_rate": [short(p.learning_rate) for p in points],
            "gradient_norm": [short(p.gradient_norm.value) for p in points],
            "throughput": [short(p.examples / p.busy if p.busy else None) for p in points],
            "zero": [short(p.zero.value) for p in points],
            "small": [short(p.small.value) for p in points],
        }

    def evaluation_curves(self) -> dict[str, list[Any]]:
        """Return the column "step" and one for each number that evaluations found."""
        names = dict.fromkeys(name for _, found in self.evaluations for name in found)
        return {
            "step": [step for step, _ in self.evaluations],
            **{name: [short(e.get(name)) for _, e in self.evaluations] for name in names},
        }

    def state(self) -> dict[str, Any]:
        """Return what `restored` makes the same history of: anything that JSON can hold."""
        return {
            "width": self.width,
            "points": [asdict(point) for point in self.points],
            "evaluations": [[step, _finite(found)] for step, found in self.evaluations],
        }

    @classmethod
    def restored(cls, state: Mapping[str, Any]) -> History:
        """Return the history of a state; an empty one of what is not a state."""
        history = cls()
        if _STORED(state, "") is None:
            history.points = [_point(found) for found in state["points"]]
            history.width = state["width"]
            history.evaluations = [(step, dict(found)) for step, found in state["evaluations"]]
        return history


_MEAN = object_of({"total": NUMBER, "count": whole(0)})
_POINT = object_of(
    {
        "step": whole(0),
        "seconds": NUMBER,
        "steps": whole(1),
        **dict.fromkeys(("loss", "gradient_norm", "zero", "small"), _MEAN),
        **dict.fromkeys(("loss_scale", "learning_rate"), or_null(NUMBER)),
        **dict.fromkeys(("skipped", "examples"), whole(0)),
        "busy": NUMBER,
    }
)
_FOUND = mapping_to(NUMBER)
_EVALUATION = kind(
    "a step and what was found",
    lambda found: (
        isinstance(found, list)
        and len(cast("list[Any]", found)) == 2
        and whole(0)(found[0], "") is None
        and _FOUND(found[1], "") is None
    ),
)
_STORED = object_of(
    {"width": whole(1), "points": list_of(_POINT), "evaluations": list_of(_EVALUATION)}
)


def short(number: float | None) -> float | None:
    """Return a number with as many digits as a page needs; None for what JSON has no number for."""
    if number is None or not math.isfinite(number):
        return None
    return float(f"{number:.{_DIGITS}g}")


def _joined(first: Point, second: Point) -> Point:
    first.join(second)
    return first


def _finite(found: Mapping[str, float]) -> dict[str, float]:
    return {name: value for name, value in found.items() if math.isfinite(value)}


def _point(found: Mapping[str, Any]) -> Point:
    """Return the point that `asdict` made a mapping of."""
    means = {f.name for f in fields(Point) if f.default_factory is Mean}
    given: dict[str, Any] = {n: Mean(**v) if n in means else v for n, v in found.items()}
    return Point(**given)


def mean_of(shares: Sequence[float], weights: Sequence[float]) -> float:
    """Return a mean of shares in which each counts as much as its weight; 0 of none."""
    total = sum(weights)
    return sum(s * w for s, w in zip(shares, weights, strict=True)) / total if total else 0.0
