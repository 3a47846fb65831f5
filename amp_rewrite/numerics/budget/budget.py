"""The error budget of a model: records that say what each rounding adds, with a JSON form."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from amp_rewrite.base.printable import counted, percent
from amp_rewrite.graph.flat import ABSENT
from amp_rewrite.numerics.budget.choose import Prices
from amp_rewrite.numerics.budget.contributions import Measured
from amp_rewrite.numerics.inputs.batches import Array
from amp_rewrite.numerics.repaint.repaint import Repainter
from amp_rewrite.rewriting.report.records import Shown

_SHOWN = 10
"""How many contributions the text has."""

_LEAST = 0.005
"""Shares of an output's error below that are not in the text."""


@dataclass(frozen=True, slots=True)
class Contribution:
    """The errors of the outputs that rounding one value adds.

    Attributes:
        value: The name of the value.
        node: The node that computes it; "" for an input.
        op: That node's operator; "" for an input.
        errors: Output -> the root mean square error that it adds, relative to the output's spread;
            the largest over the batches. Infinity where it is not finite.
        decisions: The same relative to the gaps by which nodes decide (ArgMax, TopK, Greater), and
            in the operand of the Softmax or Sigmoid that an output is.
        peak: The largest magnitude of the value; NaN where it was not measured.
        rounded: Whether the model rounds it.
    """

    value: str
    node: str
    op: str
    errors: Mapping[str, float]
    decisions: float
    peak: float
    rounded: bool

    @property
    def largest(self) -> float:
        """The largest of its errors."""
        return max(self.errors.values(), default=0.0)

    def __str__(self) -> str:
        """Return what rounds, as a report names it."""
        return f"{self.node} ({self.op})" if self.node else f"input {self.value}"

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form; what is not finite is text."""
        return {
            "value": self.value,
            "node": self.node,
            "op": self.op,
            "errors": {name: _number(error) for name, error in self.errors.items()},
            "decisions": _number(self.decisions),
            "peak": _number(self.peak),
            "rounded": self.rounded,
        }


@dataclass(frozen=True, repr=False)
class Budget(Shown):
    """The part of each rounding in the error of a model's outputs.

    Attributes:
        precision: The 16-bit type.
        target: The target whose arithmetic counts.
        predicted: Output -> the error that is predicted of the model, relative to the output's
            spread: the root of the sum of the squared contributions of what it rounds.
        contributions: Of each value, the one that adds most first.
        unreached: Value -> why its rounding could not be measured.
    """

    precision: str
    target: str
    predicted: Mapping[str, float]
    contributions: tuple[Contribution, ...]
    unreached: Mapping[str, str]

    @staticmethod
    def of(painter: Repainter, measured: Measured, low: Array) -> Budget:
        """Return the budget of a painting, from the mask of its 16-bit type variables."""
        flat, nodes = painter.flat, painter.nodes
        prices = Prices(painter, measured.roundings, measured.squares)
        rounded = prices.rounded(low)
        makers = {v: i for i in range(len(nodes)) for v in flat.outputs_of(i) if v != ABSENT}
        ends = dict.fromkeys(row.end for row in measured.rows if row.batch >= 0)
        worst = {
            end: measured.squares[
                [k for k, row in enumerate(measured.rows) if row.end == end and row.batch >= 0]
            ]
            for end in ends
        }
        by_value: dict[int, list[int]] = {}
        for k, rounding in enumerate(measured.roundings):
            by_value.setdefault(rounding.value, []).append(k)
        found: list[Contribution] = []
        for value, places in by_value.items():
            active = [k for k in places if rounded[k]]
            used = active or places
            errors = {end: math.sqrt(rows[:, used].max()) for end, rows in worst.items()}
            maker = makers.get(value)
            node = None if maker is None else nodes[maker]
            found.append(
                Contribution(
                    flat.value_names[value],
                    "" if node is None else node.name or "",
                    "" if node is None else node.op_type,
                    {end.name: error for end, error in errors.items() if not end.decides},
                    max((e for end, e in errors.items() if end.decides), default=0.0),
                    measured.peaks.get(value, math.nan),
                    bool(active),
                )
            )
        found.sort(key=lambda each: (not each.rounded, -each.largest))
        predicted = {
            end.name: float(np.sqrt(rows[:, rounded].sum(axis=1).max(initial=0.0)))
            for end, rows in worst.items()
            if not end.decides
        }
        unreached = {flat.value_names[v]: why for v, why in measured.unreached.items()}
        options = painter.options
        return Budget(painter.low.name, options.chosen_target, predicted, tuple(found), unreached)

    def shares(self) -> Iterator[tuple[float, str, Contribution]]:
        """Yield what each rounding is of the error of the output that it moves most.

        The largest first: the share of the squared error, the output, and the contribution.
        """
        found: list[tuple[float, str, Contribution]] = []
        for each in self.contributions:
            if each.rounded:
                parts = [(self._share(error, name), name) for name, error in each.errors.items()]
                found += [(*max(parts), each)] if parts else []
        yield from sorted(found, key=lambda row: -row[0])

    def _share(self, error: float, output: str) -> float:
        total = self.predicted[output]
        if math.isinf(error):
            return 1.0
        return (error / total) ** 2 if total and math.isfinite(total) else 0.0

    def lines(self, top: int = _SHOWN) -> list[str]:
        """Return the budget as text: the outputs, and what adds most to their errors."""
        lines = [
            f"output {name}: predicted error {percent(error)} of its spread"
            for name, error in self.predicted.items()
        ]
        for share, output, each in list(self.shares())[:top]:
            if share >= _LEAST:
                lines.append(f"  {each}: {percent(share)} of the error of output {output}")
        if self.unreached:
            reasons = ", ".join(sorted(set(self.unreached.values()))[:3])
            lines.append(f"{counted(len(self.unreached), 'value')} not measured: {reasons}")
        return lines

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form; what is not finite is text."""
        return {
            "version": 1,
            "precision": self.precision,
            "target": self.target,
            "predicted": {name: _number(error) for name, error in self.predicted.items()},
            "contributions": [each.to_dict() for each in self.contributions],
            "unreached": dict(self.unreached),
        }


def _number(number: float) -> float | str:
    return number if math.isfinite(number) else str(number)
