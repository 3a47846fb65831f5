"""Choose by the budget what stays float32, and hold the choice against a run of the model.

The prediction says what to keep for a given error; a run of the rewritten model says what its error
is. Where that is too large, as where ties turn, the choice is made for a smaller error, at most
eight times. A choice is accepted only if both hold.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from amp_rewrite.base.printable import percent
from amp_rewrite.errors import OutOfTimeError
from amp_rewrite.graph.flat import ABSENT
from amp_rewrite.numerics.budget.choose import Choices, Prices
from amp_rewrite.numerics.budget.contributions import Measured
from amp_rewrite.numerics.budget.tolerance import Tolerance
from amp_rewrite.numerics.compare.distance import ERROR
from amp_rewrite.numerics.compare.verify_records import FedBack
from amp_rewrite.numerics.inputs.batches import Array
from amp_rewrite.numerics.repaint.repaint import Repainter
from amp_rewrite.oplists import ListName, NodeRule
from amp_rewrite.rewriting.paint.painting import OVERFLOWS, Mark, Reason

RUNS = 8
"""How many choices are run at most."""

_ROUNDS = 3 * RUNS
"""How often is chosen at most; a choice that was made before is not run again."""

_VARIANT = 10.0
"""How many times as far off as usual the outputs may be for unusual inputs."""

_MARGIN = 0.9
"""A choice that was too far off is made again for that share of what would have been right."""

_AIM = 0.7
"""The share of the limit that is aimed at.

Evidence: 12 models of the corpus, 6 feeds each that nothing was chosen on, and a limit of 1 %: with
all of it used up 9 of 72 feeds are above it, so 5."""

_CLOSE = 1.4
"""Two errors are not told apart further that are that close.

Evidence: with 1.2 five choices for minilm_l3 and oww_embedding take a run more each, and keep as
many nodes."""

_NEAR = 1.05
"""The same as long as nothing in 16 bits is found."""

_ROOM = 8.0
"""How far below the largest number of the type a value stays that the rules kept float32.

Evidence: in magika, six files reach 14,000 behind a cube, and one of 24 others 223,000."""

_LARGEST = 2.0
"""Errors of single numbers by their deviation, in 95 % of the cases."""

_DOUBT = 2.0
"""The error of the operand of a Softmax or a Sigmoid by that of a probability of 1/2."""

_LEAST = 0.1
"""The smallest share of the last error that a choice is made for next."""

_PART = 0.3
"""The part of an error that a choice is made for next where many calls fail."""

_INFINITE = 1e12
"""The square of an error that nothing is worth."""


LossOf = Callable[[tuple[NodeRule, ...]], float]
"""Runs the model under node rules: its error by the limit, at most 1 if it holds."""


@dataclass(frozen=True)
class Choice:
    """A choice.

    Attributes:
        keep: The indices of the nodes that stay float32 by the budget.
        rules: They as node rules, and the nodes that it allows against the rules, with reasons.
        predicted: The predicted error by the limit.
        loss: The measured error by the limit.
        holds: Whether both are at most 1.
        share: The share of the limit that it was made for.
    """

    keep: tuple[int, ...]
    rules: tuple[NodeRule, ...]
    predicted: float
    loss: float
    holds: bool
    share: float = 1.0


@dataclass
class Fit:
    """Chooses for one model.

    Attributes:
        painter: The model.
        measured: Its roundings.
        limits: By row of what was measured, the largest root mean square error, relative to the
            spread of the output.
        loss_of: Runs a choice.
        lifts: Whether the budget also decides what the rules keep float32 by estimates.
    """

    painter: Repainter
    measured: Measured
    limits: Array
    loss_of: LossOf
    lifts: bool = False
    runs: int = 0
    _made: dict[bytes, Choice] = field(default_factory=dict[bytes, Choice])

    def run(self) -> Choice | None:
        """Choose, run, and choose for less until both hold; then for more while there are runs.

        The error on other data may be larger, so that less than the limit is aimed at; what only
        just holds is the answer where nothing else in 16 bits is found. None if the time is over
        before.
        """
        best: Choice | None = None
        fair: Choice | None = None
        none: Choice | None = None
        choice: Choice | None = None
        share, holds, fails = 1.0, 0.0, 0.0
        for _ in range(_ROUNDS):
            try:
                choice = self.choose(share)
            except OutOfTimeError:
                break
            is_low = self._low(choice.rules).any()
            none = none if is_low else choice
            if choice.holds and choice.loss <= _AIM:
                holds = share
                if is_low and (best is None or len(choice.keep) <= len(best.keep)):
                    best = choice
            else:
                fails = share
                if choice.holds and (fair is None or choice.loss < fair.loss):
                    fair = choice
                if not is_low:
                    break
            close = _NEAR if best is None and fair is None else _CLOSE
            is_close = bool(holds and (not fails or fails / holds < close))
            if is_close or self.runs >= RUNS:
                break
            if holds:
                share = (holds * fails) ** 0.5
            else:
                better = max(_LEAST, _MARGIN * _AIM / choice.loss if choice.loss else 1.0)
                share = min(share * _MARGIN, choice.predicted * better)
        return best or fair or none or choice

    def choose(self, share: float) -> Choice:
        """Return the choice for a share of the limit, and run it."""
        return self._chosen(self._choices.within(share)[0], share)

    def for_calls(self, choice: Choice, failed: FedBack) -> Iterator[Choice]:
        """Yield choices with less and less error than one where it fails after many calls.

        First in the states that fail, since they carry errors on, or else in the outputs that do;
        then in all states, and in both. Where nothing would be in 16 bits, less of the limit is
        left for other data.
        """
        before = self._low(choice.rules)
        squares = self.measured.squares[:, self._choices.prices.rounded(before)]
        errors = np.sqrt(squares.sum(axis=1))
        rows = [row.end.name for row in self.measured.rows]
        states = {*failed.states} & {*rows}
        worse = {output.name for output in failed.outputs if not output.ok}
        first = worse & states or worse
        made = {before.tobytes()}
        sets = [*dict.fromkeys(map(frozenset, (first, states, first | states)))]
        for part in (_PART, _PART**2, _PART**3):
            for names in [*sets]:
                most = np.where([name in names for name in rows], part * errors, np.inf)
                found = self._within(most, choice.share)
                low = self._low(found.rules)
                if not low.any():
                    sets.remove(names)
                elif low.tobytes() not in made:
                    made.add(low.tobytes())
                    yield found

    def _within(self, most: Array, share: float) -> Choice:
        """Return a choice with at most some errors, and within a share of the limits if it can."""
        for part in (share, share**0.5):
            limits = np.minimum(self.limits * part, most)
            found = self._chosen(self._choices_within(limits).within(1.0)[0], part)
            if found.holds and self._low(found.rules).any():
                return found
        limits = np.minimum(self.limits, most)
        return self._chosen(self._choices_within(limits).within(1.0)[0], 1.0)

    def _chosen(self, keep: tuple[int, ...], share: float) -> Choice:
        """Return a choice, with what is predicted and measured of it."""
        rules = self._rules(keep)
        low = self._low(rules)
        key = low.tobytes()
        if key not in self._made:  # other rules may give a painting that was run
            loss, predicted = self.loss_of(rules), self._choices.prices.predicted(low)
            holds = loss <= 1 and predicted <= 1
            self._made[key] = Choice(keep, rules, predicted, loss, holds, share)
            self.runs += 1
        return self._made[key]

    @cached_property
    def _choices(self) -> Choices:
        return self._choices_within(self.limits)

    def _choices_within(self, limits: Array) -> Choices:
        squares = self.measured.squares.copy()
        unusual = np.array([row.batch < 0 for row in self.measured.rows], np.bool_)
        squares[np.ix_(unusual, ~self._is_lifted)] = 0  # rules look after those
        squares[unusual] /= _VARIANT**2
        allowed = np.maximum(limits**2, np.finfo(np.float64).tiny)
        shares = np.minimum(squares / allowed[:, None], _INFINITE)
        prices = Prices(self.painter, self.measured.roundings, shares)
        fixed = ~self._low(self._rules(()))
        return Choices(prices, fixed, lambda nodes: self._low(self._rules(nodes)))

    def _low(self, rules: tuple[NodeRule, ...]) -> Array:
        return self.painter.paint(rules).painting.allow

    def _rules(self, keep: Iterable[int]) -> tuple[NodeRule, ...]:
        """Return the rules that keep some nodes float32, and allow the others that may be."""
        kept, nodes = set(keep), self.painter.nodes
        denied = [
            NodeRule(nodes[i].name or "", None, ListName.DENY, self._why(i), "error budget")
            for i in sorted(kept)
        ]
        why = "its rounding was measured, and adds little"
        allowed = [
            NodeRule(nodes[i].name or "", None, ListName.ALLOW, why, "error budget")
            for i in self._liftable
            if i not in kept
        ]
        return (*denied, *allowed)

    def _why(self, node: int) -> str:
        made = self.painter.flat.outputs_of(node)
        largest = max((self._worst.get(value, 0.0) for value in made), default=0.0)
        adds = f": rounding it adds {percent(largest)} to an output" if largest else ""
        return f"kept by the error budget{adds}"

    @cached_property
    def _worst(self) -> dict[int, float]:
        """By value, the largest error that rounding it adds."""
        worst = np.sqrt(self.measured.squares.max(axis=0, initial=0.0))
        found: dict[int, float] = {}
        for rounding, error in zip(self.measured.roundings, worst, strict=True):
            found[rounding.value] = max(float(error), found.get(rounding.value, 0.0))
        return found

    @cached_property
    def _is_lifted(self) -> Array:
        """By rounding, whether a node makes its value that the budget alone decides about."""
        outputs = (self.painter.flat.outputs_of(node) for node in self._liftable)
        values = {value for each in outputs for value in each}
        return np.array([r.value in values for r in self.measured.roundings], np.bool_)

    @cached_property
    def _liftable(self) -> tuple[int, ...]:
        """The nodes that rules keep float32 by an estimate, and whose rounding was measured."""
        if not self.lifts:
            return ()
        painter, graph = self.painter, self.painter.type_graph
        marks = painter.paint(()).painting.marks
        nodes = {graph.nodes[v] for v, mark in marks.items() if _is_estimate(mark)}
        return tuple(sorted(node for node in nodes if self._is_measured(node)))

    def _is_measured(self, node: int) -> bool:
        """Tell whether the rounding of all results was measured, and none is near overflow."""
        graph, largest = self.painter.type_graph, self.painter.low.max
        results = [v for v in self.painter.flat.outputs_of(node) if v != ABSENT]
        results = [v for v in results if graph.is_float32(v)]
        peaks = self.measured.peaks
        return bool(results) and all(
            v in self._worst and peaks.get(v, math.inf) * _ROOM < largest for v in results
        )


def limits_of(measured: Measured, tolerance: Tolerance) -> Array:
    """Return, by row, the root mean square error that keeps a tolerance, relative to the spread.

    The largest error of an output is that of a single number at least; what it is the run says.
    1 - cosine is half the square of the error relative to the norm. No error keeps all classes: the
    limit of `verify` is the first to be tried. An error of e in the operand of Softmax or Sigmoid
    is one of e / 2 of a probability of 1/2.
    """
    limit = tolerance.limit
    usual = {"error": limit, "cosine": math.sqrt(2 * limit)}.get(tolerance.metric, ERROR)
    limits = np.full(len(measured.rows), usual)
    if tolerance.metric == "max-relative":
        usual, limits = limit, measured.heights * limit / _LARGEST
    return np.where([row.end.saturates for row in measured.rows], _DOUBT * usual, limits)


def _is_estimate(mark: Mark) -> bool:
    """Tell whether a mark is about accuracy, which was measured, and by no wish of the user."""
    reason = mark.reason
    is_wish = reason in (Reason.DENY_OP, Reason.DENIED) or str(reason).startswith("rule:")
    is_of_calls = reason is Reason.CARRIED_OVER_CALLS  # of which one was measured
    return reason.danger and not is_wish and not is_of_calls and reason not in OVERFLOWS
