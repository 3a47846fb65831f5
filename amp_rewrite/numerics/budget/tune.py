"""Tune: the least float32 with which a tolerance holds on data, by the error budget."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Unpack

from amp_rewrite import targets
from amp_rewrite.base import arguments
from amp_rewrite.base.progress import silent
from amp_rewrite.errors import OptionError, OutOfTimeError, SaveError
from amp_rewrite.graph.io.load import Source
from amp_rewrite.graph.io.paths import path_text
from amp_rewrite.numerics.budget.budget import Budget
from amp_rewrite.numerics.budget.contributions import DRAWS, measure
from amp_rewrite.numerics.budget.error_budget import fed
from amp_rewrite.numerics.budget.fit import Choice, Fit, limits_of
from amp_rewrite.numerics.budget.tolerance import Tolerance
from amp_rewrite.numerics.budget.tuning import Tuning
from amp_rewrite.numerics.compare.distance import Tolerances
from amp_rewrite.numerics.compare.verification import Verification
from amp_rewrite.numerics.emulate.typed_model import TypedModel
from amp_rewrite.numerics.inputs.batches import Data, Feeds
from amp_rewrite.numerics.repaint.repaint import Repainter
from amp_rewrite.oplists import ListName, NodeRule
from amp_rewrite.rewriting.api import rewrite_as_found
from amp_rewrite.rewriting.plan.options import (
    KEEP,
    Changes,
    RewriteOptions,
    changed,
    with_option_names,
)
from amp_rewrite.runtimes.ort.time_limit import time_limit

Progress = Callable[[str], None]
"""Called with what is being done, in a few words."""


@with_option_names
def tune(
    model: Source,
    data: Data,
    tolerance: Tolerance,
    options: RewriteOptions | None = None,
    *,
    draws: int = DRAWS,
    budget: float = 600.0,
    output: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
    **changes: Unpack[Changes],
) -> Tuning:
    """Find the least float32 with which a model is within a tolerance on data.

    The error budget says what each rounding adds; a minimum cut chooses what stays float32, and up
    to eight runs of the rewritten model hold the choice against its error. What rules keep float32
    by an estimate is decided by the budget too, where it was measured.

    Args:
        model: The float32 model.
        data: Batches as for `calibrate`, all of which are kept in memory.
        tolerance: What has to hold over all batches.
        options: How the model is to be rewritten, as for `rewrite`.
        draws: How many directions are tried with each batch, as for `error_budget`.
        budget: Seconds for all of it; the best choice found by then is returned.
        output: Where to write the op list.
        progress: Called with what is being done.
        **changes: Single options by name, as for `rewrite`.

    Returns:
        What stays float32; `holds` says whether the tolerance and the prediction do.

    Raises:
        GradientError: The opset is too old for gradients and cannot be raised, or no output is
            float32.
        AmpError: The model, the data or an option is wrong.

    Examples:
        >>> data = [{"x": np.linspace(-1, 1, 16, dtype=np.float32).reshape(2, 8)}]
        >>> from amp_rewrite.numerics.budget.tolerance import Tolerance
        >>> tuned = amp.tune("model.onnx", data, Tolerance("max-relative", 0.001))
        >>> tuned
        <Tuning: 2 nodes stay float32: max-relative ... of at most 0.001, 2 runs>
    """
    _check_tolerance(tolerance)
    draws = arguments.integer("draws", draws, low=1)
    seconds = arguments.number("budget", budget, expected="a number of seconds")
    say = arguments.function("progress", progress) or silent
    output = None if output is None else path_text(output, SaveError)
    painter = Repainter.of(model, changed(options, **changes))
    tuned = _Tune(painter, fed(painter, data), tolerance, say).run(draws, seconds)
    if output is not None:
        tuned.save(output)
    return tuned


def _check_tolerance(tolerance: object) -> None:
    if not isinstance(tolerance, Tolerance):
        raise OptionError(
            "not a tolerance",
            found=f"an object of type {type(tolerance).__name__}",
            expected="a Tolerance of amp_rewrite.numerics.budget.tolerance: a metric and its limit",
        )


class _Tune:
    """One call of `tune`."""

    def __init__(
        self, painter: Repainter, feeds: Sequence[Feeds], tolerance: Tolerance, say: Progress
    ) -> None:
        self.painter, self.feeds, self.tolerance, self.say = painter, feeds, tolerance, say
        self.losses: dict[tuple[NodeRule, ...], float] = {}

    def run(self, draws: int, seconds: float) -> Tuning:
        painter, tolerance = self.painter, self.tolerance
        painter.rewrite()  # what `strict` refuses is refused before anything is run
        choice: Choice | None = None
        measured, before = None, math.nan
        try:
            with time_limit(time.monotonic() + seconds):
                self.say("measuring what rounding adds")
                measured = measure(painter, self.feeds, draws, variants=True)
                self.say("running the model as the rules make it")
                before = self.loss(())
                fit = Fit(
                    painter, measured, limits_of(measured, tolerance), self._share, lifts=True
                )
                choice = fit.run()
        except OutOfTimeError:
            pass
        if choice is None:
            nodes = tuple(range(len(painter.nodes)))
            rules = tuple(
                NodeRule(painter.nodes[i].name or "", None, ListName.DENY, "no time", "tune")
                for i in nodes
            )
            choice = Choice(nodes, rules, math.nan, math.nan, holds=False)
        names = [painter.nodes[i].name or "" for i in choice.keep]
        painted = painter.paint(choice.rules).painting.allow
        return Tuning(
            keep=tuple(names),
            allow=tuple(rule.node for rule in choice.rules if rule.list is ListName.ALLOW),
            loss=choice.loss * tolerance.limit if tolerance.limit else choice.loss,
            before=before,
            predicted=choice.predicted,
            tolerance=tolerance,
            holds=choice.holds,
            runs=len(self.losses),
            rules=choice.rules,
            options=painter.options,
            budget=None if measured is None else Budget.of(painter, measured, painted),
            operators={painter.nodes[i].name or "": painter.nodes[i].op_type for i in choice.keep},
            is_low=bool(painted.any()),
        )

    def _share(self, rules: tuple[NodeRule, ...]) -> float:
        """Return the loss under some rules by the limit."""
        loss, limit = self.loss(rules), self.tolerance.limit
        if limit:
            return loss / limit
        return math.inf if loss else 0.0

    def loss(self, rules: tuple[NodeRule, ...]) -> float:
        """Return the loss of the model that is rewritten under some rules, over all batches."""
        if rules not in self.losses:
            self.say(f"run {len(self.losses) + 1}")
            self.losses[rules] = self._run(rules)
        return self.losses[rules]

    def _run(self, rules: tuple[NodeRule, ...]) -> float:
        painter, tolerance = self.painter, self.tolerance
        kept = replace(painter.options, overflow=KEEP, strict=False)
        result = rewrite_as_found(painter.flat, kept, painter.found.with_rules(rules))
        strict = tolerance.limit if tolerance.metric == "max-relative" else None
        verification = Verification(
            TypedModel.of(painter.flat),
            TypedModel.of(result.rewritten),
            Tolerances.of(painter.low, strict),
            targets.find(painter.options.chosen_target),
            threads=0,
            inside=True,  # rows that attention masks whole show inside
        )
        for each in self.feeds:
            verification.add(each, inside=False, yardsticks=False)
        report = verification.report("", inside=False, stress=None)
        return tolerance.loss(report.outputs)
