"""Tune one model on batches: measure, choose by the budget, and run the choices."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from amp_rewrite import targets
from amp_rewrite.base.progress import silent
from amp_rewrite.errors import OutOfTimeError
from amp_rewrite.numerics.budget.budget import Budget
from amp_rewrite.numerics.budget.contributions import DRAWS, measure
from amp_rewrite.numerics.budget.fit import Choice, Fit, limits_of
from amp_rewrite.numerics.budget.tolerance import Tolerance
from amp_rewrite.numerics.budget.tuning import Tuning
from amp_rewrite.numerics.compare.distance import Tolerances
from amp_rewrite.numerics.compare.verification import Verification
from amp_rewrite.numerics.compare.verify_records import FedBack, with_device
from amp_rewrite.numerics.emulate.evaluator import Evaluator
from amp_rewrite.numerics.emulate.typed_model import TypedModel
from amp_rewrite.numerics.inputs.batches import Array, Feeds
from amp_rewrite.numerics.repaint.repaint import Repainter
from amp_rewrite.oplists import ListName, NodeRule
from amp_rewrite.rewriting.api import rewrite_as_found
from amp_rewrite.rewriting.plan.options import KEEP
from amp_rewrite.runtimes.ort.time_limit import time_limit

Progress = Callable[[str], None]
"""Called with what is being done, in a few words."""

_TINY, _ANY = 1e-30, 1e30
"""They stand for a limit of 0, and for none: infinity by infinity is no number."""


@dataclass
class Tuner:
    """A model, the batches to tune on, and what has to hold on them.

    Attributes:
        lifts: Whether the budget also decides what the rules keep float32 by estimates.
        providers: The execution providers on which the rewritten model has to be right, too.
        original: The original, where it is loaded; it is loaded for the first run otherwise.
    """

    painter: Repainter
    feeds: Sequence[Feeds]
    tolerance: Tolerance
    lifts: bool
    say: Progress = silent
    providers: tuple[str, ...] = ()
    original: Evaluator | None = None
    _losses: dict[bytes, float] = field(default_factory=dict[bytes, float])
    _fit: Fit | None = None
    _choice: Choice | None = None
    _before: float = math.nan

    def tuned(self, ends: float, draws: int = DRAWS, before: float | None = None) -> Tuning | None:
        """Return the best choice that is found by a time; None if it is over before.

        `before` is the loss of the model as the rules make it, if it is known.

        Raises:
            GradientError: The opset is too old for gradients, or no output is float32.
            AmpError: The model does not run on a batch.
        """
        painter, choice = self.painter, None
        try:
            with time_limit(ends):
                self.say("measuring what rounding adds")
                measured = measure(painter, self.feeds, draws, variants=self.lifts)
                if before is None:
                    self.say("running the model as the rules make it")
                else:
                    self._losses[self._painting(())] = before / self._limit
                self._before = self.loss(()) * self._limit
                limits = limits_of(measured, self.tolerance)
                choice = self._fitted(Fit(painter, measured, limits, self.loss, lifts=self.lifts))
                is_left = choice is not None and self._low(choice.rules).any()
                certain = np.array([row.end.saturates for row in measured.rows], np.bool_)
                if not is_left and certain.any():  # what a probability hides is let alone
                    limits = np.where(certain, _ANY, limits)
                    fit = Fit(painter, measured, limits, self.loss, lifts=self.lifts)
                    choice = self._fitted(fit) or choice
        except OutOfTimeError:
            return None
        return None if choice is None else self._tuning(choice)

    def for_calls(self, failed: FedBack) -> Iterator[Tuning]:
        """Yield choices for the error that the last one has after many calls."""
        assert self._fit is not None, "many calls are made of what was tuned"
        assert self._choice is not None
        yield from map(self._tuning, self._fit.for_calls(self._choice, failed))

    def _fitted(self, fit: Fit) -> Choice | None:
        self._fit = fit
        return fit.run()

    def untuned(self) -> Tuning:
        """Return the choice where the time is over: everything in float32."""
        nodes = tuple(range(len(self.painter.nodes)))
        names = (self.painter.nodes[i].name or "" for i in nodes)
        rules = tuple(NodeRule(name, None, ListName.DENY, "no time", "tune") for name in names)
        return self._tuning(Choice(nodes, rules, math.nan, math.nan, holds=False))

    @property
    def _limit(self) -> float:
        return max(self.tolerance.limit, _TINY)

    def _tuning(self, choice: Choice) -> Tuning:
        painter, fit, self._choice = self.painter, self._fit, choice
        names = [painter.nodes[i].name or "" for i in choice.keep]
        low = self._low(choice.rules)
        return Tuning(
            keep=tuple(names),
            allow=tuple(rule.node for rule in choice.rules if rule.list is ListName.ALLOW),
            loss=choice.loss * self._limit,
            before=self._before,
            predicted=choice.predicted,
            tolerance=self.tolerance,
            holds=choice.holds,
            runs=len(self._losses),
            rules=choice.rules,
            options=painter.options,
            budget=None if fit is None else Budget.of(painter, fit.measured, low),
            operators={painter.nodes[i].name or "": painter.nodes[i].op_type for i in choice.keep},
            is_low=bool(low.any()),
        )

    def loss(self, rules: tuple[NodeRule, ...]) -> float:
        """Return the loss over all batches, by the limit, of the model rewritten under rules."""
        key = self._painting(rules)
        if key not in self._losses:
            self.say(f"run {len(self._losses) + 1}")
            self._losses[key] = self._run(rules) / self._limit
        return self._losses[key]

    def _painting(self, rules: tuple[NodeRule, ...]) -> bytes:
        """Return the same for rules that give the same painting."""
        return self._low(rules).tobytes()

    def _low(self, rules: tuple[NodeRule, ...]) -> Array:
        return self.painter.paint(rules).painting.allow

    def _run(self, rules: tuple[NodeRule, ...]) -> float:
        painter, tolerance = self.painter, self.tolerance
        kept = replace(painter.options, overflow=KEEP, strict=False)
        result = rewrite_as_found(painter.flat, kept, painter.found.with_rules(rules))
        strict = tolerance.limit if tolerance.metric == "max-relative" else None
        run = Verification(
            TypedModel.of(painter.flat),
            TypedModel.of(result.rewritten),
            Tolerances.of(painter.low, strict),
            targets.find(painter.options.chosen_target),
            providers=self.providers,
            original=self.original,
        )
        self.original = run.original
        # without a tolerance, slices count by how far they move anyway
        yardsticks = tolerance.metric == "error"
        for each in self.feeds:
            run.add(each, inside=False, yardsticks=yardsticks)
        if yardsticks:
            outputs = run.report("", inside=False, stress=None).outputs
        else:
            outputs = tuple(comparer.result() for comparer in run.outputs.values())
        device = None if run.on_device is None else run.on_device.report()
        return tolerance.loss(with_device(outputs, device))
