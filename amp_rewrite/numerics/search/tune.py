"""Tune: the smallest set of nodes to keep float32 so that a tolerance holds.

The search follows localise's ranking. Prefixes of it grow by doubling until one holds, bisection
finds the shortest that does, and then members leave one by one as long as it still holds, the ones
that contribute least first. What is left is minimal: no member can go. In a small model every
smaller set is tried as well, so that it is a smallest one. Each trial is a real repainting, run in
one loaded model with gates (gates.py), so that a trial costs a forward pass and no loading.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations, product
from typing import Unpack, cast

from amp_rewrite.base import arguments
from amp_rewrite.errors import AmpError, DataError, OptionError, OutOfTimeError, SaveError
from amp_rewrite.graph.io.load import Source
from amp_rewrite.graph.io.paths import path_text
from amp_rewrite.numerics.compare.masked_rows import masked_outputs
from amp_rewrite.numerics.compare.moved_inputs import moved
from amp_rewrite.numerics.compare.weights_alone import WeightsAlone
from amp_rewrite.numerics.emulate.typed_model import TypedModel
from amp_rewrite.numerics.inputs.batches import Array, Data, Feeds, batches
from amp_rewrite.numerics.repaint.repaint import Repainter, Slot
from amp_rewrite.numerics.search.gates import GatedModel
from amp_rewrite.numerics.search.inner_overflows import count_nonfinite, overflows_inside
from amp_rewrite.numerics.search.localise import localise_slots
from amp_rewrite.numerics.search.rounding_estimates import Estimate, Estimates
from amp_rewrite.numerics.search.tolerance import SliceLosses, Tolerance
from amp_rewrite.numerics.search.tuning import Step, Tuning, beyond_control
from amp_rewrite.oplists import ListName, NodeRule
from amp_rewrite.rewriting.api import RewriteResult
from amp_rewrite.rewriting.plan.options import Changes, RewriteOptions, changed, with_option_names
from amp_rewrite.runtimes.ort.time_limit import time_limit

EXHAUSTIVE = 2000
"""How many smaller sets a search tries to see whether one of them holds."""

REALISATIONS = 2
"""On how many other realisations of the data a set has to pass: one loss may be small by chance."""

_RANKING_SHARE = 0.3
"""The share of the budget that ranking the nodes may take."""


Progress = Callable[[Step], None]
Warn = Callable[[str], None]


@with_option_names
def tune(
    model: Source,
    data: Data,
    tolerance: Tolerance,
    options: RewriteOptions | None = None,
    *,
    budget: float = 600.0,
    output: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
    warn: Warn | None = None,
    estimate: Estimate | None = None,
    **changes: Unpack[Changes],
) -> Tuning:
    """Find the smallest set of nodes to keep float32.

    Args:
        model: The float32 model.
        data: Batches as for `calibrate`, all of which are kept in memory and count.
        tolerance: What has to hold on every batch.
        options: How the model is to be rewritten, as for `rewrite`.
        budget: Seconds; the best set found by then is returned. What comes before the search
            counts, too.
        output: An op list file that always holds the best set so far.
        progress: Called after each trial.
        warn: Called first, if at all: with what the weights alone say of a tolerance that no
            choice of arithmetic meets.
        estimate: Ranks the nodes by one pass over the data in place of a run for each:
            `amp_rewrite.rounding_errors`. Where it cannot, runs do.
        **changes: Single options by name, as for `rewrite`.

    Raises:
        AmpError: The model, the data or an option is wrong.

    Examples:
        >>> data = [{"x": np.linspace(-1, 1, 16, dtype=np.float32).reshape(2, 8)}]
        >>> from amp_rewrite.numerics.search.tolerance import Tolerance
        >>> tuned = amp.tune("model.onnx", data, Tolerance("max-relative", 0.001))
        >>> tuned
        <Tuning: 0 nodes stay float32: max-relative ... of at most 0.001, 1 trials>
    """
    _check_tolerance(tolerance)
    budget = arguments.number("budget", budget, expected="a number of seconds")
    progress = arguments.function("progress", progress)
    warn = arguments.function("warn", warn)
    estimate = arguments.function("estimate", estimate)
    output = None if output is None else path_text(output, SaveError)
    painter = Repainter.of(model, changed(options, **changes))
    tuning = tune_painting(
        painter,
        data,
        tolerance,
        budget=budget,
        output=output,
        progress=progress,
        warn=warn,
        estimate=estimate,
        others=REALISATIONS,
    )
    if output is not None:
        tuning.save(output)
    return tuning


def tune_painting(
    painter: Repainter,
    data: Data,
    tolerance: Tolerance,
    *,
    budget: float,
    output: str | None = None,
    progress: Progress | None = None,
    warn: Warn | None = None,
    estimate: Estimate | None = None,
    others: int = 0,
) -> Tuning:
    """Do what `tune` does, beginning with what is known of a model.

    A set has to pass on as many `others`, the data moved by a rounding, as well.

    Raises:
        AmpError: The data are wrong.
    """
    feeds = list(batches(data, painter.model))
    if not feeds:
        raise DataError("the data hold no batch", remedy="pass at least one")
    for name, content in ((name, content) for each in feeds for name, content in each.items()):
        _check_numbers(name, content)
    given = (painter, feeds, tolerance, budget, output, progress, warn, estimate)
    return _Search(*given, realisations=others).run()


def _check_tolerance(tolerance: object) -> None:
    if not isinstance(tolerance, Tolerance):
        raise OptionError(
            "not a tolerance",
            found=f"an object of type {type(tolerance).__name__}",
            expected="a Tolerance of amp_rewrite.numerics.search.tolerance: a metric and its limit",
        )


def _check_numbers(name: str, content: object) -> None:
    """Refuse what is fed to an input if it is neither an array of numbers nor a list of them."""
    items = cast("list[object]", content) if isinstance(content, list) else [content]
    if any(arguments.array(name, item).dtype.hasobject for item in items):
        raise DataError("not an array of numbers", where=name)


@dataclass
class _Search:
    painter: Repainter
    data: Sequence[Feeds]
    tolerance: Tolerance
    budget: float
    output: str | os.PathLike[str] | None
    progress: Progress | None
    warn: Warn | None
    estimate: Estimate | None
    realisations: int = 0
    best: tuple[str, ...] | None = None
    paintable: frozenset[Slot] = frozenset()
    gated: GatedModel = field(init=False)
    nonfinite: dict[int, dict[str, int]] = field(default_factory=dict[int, dict[str, int]])
    references: list[dict[str, Array]] = field(default_factory=list[dict[str, Array]])
    losses: dict[frozenset[str], float] = field(default_factory=dict[frozenset[str], float])
    contributions: dict[str, float] = field(default_factory=dict[str, float])
    control: float | None = None
    started: float = field(default_factory=time.monotonic)
    by_painting: dict[frozenset[Slot], float] = field(default_factory=dict[frozenset[Slot], float])

    def run(self) -> Tuning:
        """Rank, grow, bisect, shrink; a budget that ends early ends with the best so far.

        What engines do stops with the budget. If no set is known to hold by then, it is that of all
        nodes.
        """
        result = self.painter.rewrite()
        low = self.painter.low_slots(result)
        try:
            with time_limit(self.started + self.budget):
                return self._search_painting(result, low)
        except OutOfTimeError:
            if self.best is None:
                nodes = sorted({slot.node for slot in low})
                self._note(tuple(self.painter.nodes[node].name or "" for node in nodes))
            return self._make_tuning(self.losses.get(frozenset(), math.nan))

    def _search_painting(self, result: RewriteResult, low: frozenset[Slot]) -> Tuning:
        """Search until the end; `low` is what the lists alone make low, in `result`."""
        self.paintable = self.painter.paintable(result) if low else frozenset[Slot]()
        self.gated = GatedModel.of(self.painter, self.paintable)
        self.references = [self.gated.run(feeds, ()) for feeds in self.data]
        before = self.loss(())
        if before > self.tolerance.limit:
            self._say_what_weights_bring(result)
        if before <= self.tolerance.limit:
            self._note(())
            return self._make_tuning(before, minimal=True, smallest=True)
        ranking = self._ranking(low)
        self._note(tuple(ranking))  # everything float32 always holds
        shortest = self._shortest_prefix(ranking)
        minimal = self._shrink(shortest)
        smallest = minimal and self._try_smaller(ranking)
        return self._make_tuning(before, minimal=minimal, smallest=smallest)

    @cached_property
    def estimates(self) -> Estimates | None:
        """What rounding each value brings on the worst batch; None if that cannot be estimated."""
        if self.estimate is None:
            return None
        batch = [self.data[self.worst]]
        try:
            with time_limit(time.monotonic() + self.left * _RANKING_SHARE):
                errors = self.estimate(self.painter.model, batch, self.painter.low.name)
        except AmpError:  # the opset is too old for gradients, or there is no room or time for them
            return None
        what = "a mapping from names of values to numbers"
        return Estimates(
            self.painter, arguments.mapping("what estimate returns", errors, what=what)
        )

    def _say_what_weights_bring(self, result: RewriteResult) -> None:
        """Measure the control, and say at once if the tolerance is beyond it."""
        control = WeightsAlone(TypedModel(self.painter.model), result.model, 0)
        losses: list[float] = []
        for batch, feeds in enumerate(self.data):
            outputs = control.run(feeds, tuple(self.references[batch]))
            if outputs is None:
                return
            losses.append(self._loss_of(batch, outputs))
        self.control = max(losses)
        beyond = beyond_control(self.control, self.tolerance, self.painter.options.precision)
        if beyond is not None and self.warn is not None:
            self.warn(beyond)

    @property
    def left(self) -> float:
        """Seconds left of the budget."""
        return self.budget - (time.monotonic() - self.started)

    def loss(self, keep: Iterable[str]) -> float:
        """Return the loss with these nodes in float32; each painting is run once."""
        names = frozenset(keep)
        loss_before = self.losses.get(names)
        if loss_before is None:
            low = self.painter.low_slots(self.painter.paint(self._rules(names)))
            loss_before = self.by_painting.get(low)
            if loss_before is None:
                loss_before = self._run(low)
                if loss_before <= self.tolerance.limit:
                    loss_before = max(loss_before, self._elsewhere(low))
                self.by_painting[low] = loss_before
            self.losses[names] = loss_before
        if self.progress is not None:
            size = None if self.best is None else len(self.best)
            self.progress(Step(len(self.losses), size, max(0.0, self.left)))
        return loss_before

    def holds(self, keep: Sequence[str]) -> bool:
        """Tell whether a set suffices; the best one is put on disk at once."""
        good = self.loss(keep) <= self.tolerance.limit
        if good and (self.best is None or len(keep) < len(self.best)):
            self._note(tuple(keep))
        return good

    def _elsewhere(self, low: frozenset[Slot]) -> float:
        """Return the loss on inputs that are off by a rounding: by chance one may be small."""
        worst = 0.0
        for batch, feeds, reference in self.others:
            outputs = self.gated.run(feeds, low)
            loss = self.tolerance.worst(reference, outputs)
            if loss > self.tolerance.limit and self.apart[batch]:
                loss = self.tolerance.worst(reference, outputs, self.apart[batch])
            worst = max(worst, loss)
        return worst

    @cached_property
    def others(self) -> list[tuple[int, Feeds, dict[str, Array]]]:
        """Other realisations of each batch, moved by a rounding, and the float32 outputs."""
        step = self.painter.low.epsilon
        pairs = product(range(len(self.data)), range(1, self.realisations + 1))
        held = ((batch, moved(self.data[batch], seed, step)) for batch, seed in pairs)
        return [(b, feeds, self.gated.run(feeds, ())) for b, feeds in held if feeds is not None]

    def _run(self, low: frozenset[Slot]) -> float:
        worst = 0.0
        scaled: list[dict[str, Array]] = []
        for batch, feeds in enumerate(self.data):
            outputs = self.gated.run(feeds, low)
            loss = self._loss_of(batch, outputs)
            if math.isinf(loss):
                return loss
            worst = worst if self.tolerance.metric == "error" else max(worst, loss)
            scaled.append({name: outputs[name] for name in self.slices.names})
        if scaled and self.slices.names:
            worst = max(worst, self.slices.loss(self.references, scaled))
        if worst <= self.tolerance.limit and self._absorbs(low):
            return math.inf
        return worst

    def _loss_of(self, batch: int, outputs: Mapping[str, Array]) -> float:
        """Return the loss of one batch; rows that are masked whole are looked for if it is over."""
        reference = self.references[batch]
        loss = self.tolerance.worst(reference, outputs)
        if loss <= self.tolerance.limit or not self.apart[batch]:
            return loss
        return self.tolerance.worst(reference, outputs, self.apart[batch])

    @cached_property
    def apart(self) -> list[dict[str, Array]]:
        """The rows of outputs that are masked whole, for each batch."""
        return masked_outputs(TypedModel(self.painter.model), self.data, self.references)

    @cached_property
    def slices(self) -> SliceLosses:
        """What the slices of outputs may differ by."""
        return SliceLosses.of(
            self.tolerance,
            self.painter.low,
            self.references,
            self._noises,
            lambda: self.apart,
        )

    def _noises(self) -> list[list[dict[str, Array]]]:
        """Return what moved inputs and rounded weights make of the outputs, for each batch."""
        pairs = list(enumerate(self.data, 1))
        moves = [self.gated.run(moved(feeds, number) or feeds, ()) for number, feeds in pairs]
        control = WeightsAlone(TypedModel(self.painter.model), self.painter.rewrite().model, 0)
        outputs = [control.run(feeds, tuple(self.references[0])) for feeds in self.data]
        rounded = [dict(each) for each in outputs if each is not None]
        return [moves, rounded] if len(rounded) == len(outputs) else [moves]

    def _absorbs(self, low: frozenset[Slot]) -> bool:
        """Tell whether a node overflows although the outputs hold.

        Counting is cheap; what else a mask fills by another choice is no overflow.
        """
        for batch, feeds in enumerate(self.data):
            if batch not in self.nonfinite:
                self.nonfinite[batch] = count_nonfinite(self.exposed, feeds, ())
            usual = self.nonfinite[batch]
            counts = count_nonfinite(self.exposed, feeds, low)
            more = any(count > usual[name] for name, count in counts.items())
            if more and overflows_inside(self.painter, self.exposed, feeds, low):
                return True
        return False

    @cached_property
    def exposed(self) -> GatedModel:
        """The model with gates whose inner values can be fetched; few searches need it."""
        return GatedModel.of(self.painter, self.paintable, expose_all=True)

    def _ranking(self, low: frozenset[Slot]) -> list[str]:
        if self.estimates is not None:
            self.contributions = dict(self.estimates.contributions(low))
            return sorted(self.contributions, key=lambda name: -self.contributions[name])
        localisation = localise_slots(
            self.painter,
            low,
            [self.data[self.worst]],
            budget=max(0.0, self.left * _RANKING_SHARE),
            gated=self.exposed,
        )
        self.contributions = {e.node: e.contribution for e in localisation.ranking}
        return list(dict.fromkeys(e.node for e in localisation.ranking))

    @cached_property
    def worst(self) -> int:
        """The batch on which the model is off most as the lists alone make it."""
        low = self.painter.low_slots(self.painter.paint(()))

        def loss(batch: int) -> float:
            outputs = self.gated.run(self.data[batch], low)
            return self._loss_of(batch, outputs)

        return max(range(len(self.data)), key=loss)

    def _shortest_prefix(self, ranking: list[str]) -> tuple[str, ...]:
        high = 1
        while high < len(ranking) and self.left > 0 and not self.holds(ranking[:high]):
            high *= 2
        low, high = high // 2, min(high, len(ranking))
        while high - low > 1 and self.left > 0:
            middle = (low + high) // 2
            if self.holds(ranking[:middle]):
                high = middle
            else:
                low = middle
        return self.best or tuple(ranking)

    def _shrink(self, keep: tuple[str, ...]) -> bool:
        """Leave out members, whole runs first; tell whether the end was reached in time."""
        current = list(keep)
        size = max(1, len(current) // 2)
        while size:
            at = len(current)
            while at > 0:
                if self.left <= 0:
                    return False
                start = max(0, at - size)
                without = current[:start] + current[at:]
                if self.holds(without):
                    current = without
                at = start
            size = size // 2 if size > 1 else 0
        return True

    def _try_smaller(self, ranking: list[str]) -> bool:
        """Try every smaller set if there are not too many; tell whether all were tried."""
        size = len(self.best or ())
        total = sum(math.comb(len(ranking), k) for k in range(1, size))
        if total > EXHAUSTIVE:
            return False
        for k in range(1, size):
            for keep in combinations(ranking, k):
                if self.left <= 0:
                    return False
                if self.holds(keep):
                    return True
        return True

    def _note(self, keep: tuple[str, ...]) -> None:
        self.best = keep
        if self.output is not None:
            self._make_tuning(self.losses.get(frozenset(), 0.0)).save(self.output)

    def _make_tuning(
        self, before: float, *, minimal: bool = False, smallest: bool = False
    ) -> Tuning:
        keep = self.best or ()
        chosen = set(keep)
        return Tuning(
            keep=keep,
            loss=self.losses.get(frozenset(keep), 0.0),
            before=before,
            tolerance=self.tolerance,
            minimal=minimal,
            smallest=smallest,
            trials=len(self.losses),
            rules=self._rules(keep),
            options=self.painter.options,
            control=self.control,
            seconds=self.budget,
            operators={n.name or "": n.op_type for n in self.painter.nodes if n.name in chosen},
        )

    def _rules(self, keep: Iterable[str]) -> tuple[NodeRule, ...]:
        return tuple(
            NodeRule(name, None, ListName.DENY, self._reason_of(name), "tune")
            for name in sorted(keep)
        )

    def _reason_of(self, name: str) -> str:
        alone = self.contributions.get(name, math.nan)
        if math.isnan(alone):
            return f"kept by tuning, for {self.tolerance.metric} at most {self.tolerance.limit:g}"
        about = "about " if "estimates" in self.__dict__ and self.estimates is not None else ""
        low = self.painter.low.name
        return f"kept by tuning: alone in {low} it changes the outputs by {about}{alone:.3g}"
