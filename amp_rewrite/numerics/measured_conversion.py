"""The fastest form of a model on a device, among some whose types were chosen in different ways.

The float32 model and the one with as much in 16 bits as rules allow run with their nodes timed.
Their times are the costs of the minimum cut (docs/painting.md, section 10). The cut runs so, too,
and is made again with what its nodes took in it. In one more form only that rounds which saves much
by it. Then all forms run in turn, end to end, and the fastest that holds is taken.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from amp_rewrite.dtypes import FLOAT32, LOW
from amp_rewrite.errors import OptionError, RunError
from amp_rewrite.graph.flat import ABSENT
from amp_rewrite.graph.io.load import Source
from amp_rewrite.kernels.costs import UNKNOWN, CostTable
from amp_rewrite.numerics.conversion_report import Conversion
from amp_rewrite.numerics.emulate.emulated_feeds import FeedSpec
from amp_rewrite.numerics.emulate.evaluator import Evaluator
from amp_rewrite.numerics.inputs.batches import Feeds
from amp_rewrite.numerics.measure.choice import LEAST_FASTER, ORIGINAL, Choice, Form
from amp_rewrite.numerics.measure.contest import Budget, Times, timed_in_turn
from amp_rewrite.numerics.measure.measured_costs import as_ran, table_of
from amp_rewrite.numerics.measure.traced_run import (
    TracedModel,
    TracedRun,
    traced_original,
    traced_result,
)
from amp_rewrite.rewriting.api import RewriteResult, rewrite
from amp_rewrite.rewriting.plan.options import KEEP, RewriteOptions
from amp_rewrite.runtimes.engines import notes_on, own_choices, times_mean_nothing
from amp_rewrite.runtimes.facts import facts_of
from amp_rewrite.targets import find, of_provider

DEFAULT, LOWEST, CUT = "the default", "as much as rules allow", "cut by measured costs"
AGAIN, SPARING = "cut again by its own times", "rounding only what saves much"

_TRACED_RUNS = 2
_SPARING = 0.3
"""What share of a mean operator's time one that rounds has to save in `SPARING`: of ten networks on
OpenVINO seven take at most 3.3 % longer with it, and six have a fifth to two fifths less error."""

_AS_FAST, _FAST_ENOUGH = 1.02, 1.06
"""How many times as long as the fastest a form may take that is chosen since it is more exact: the
latter if it is no slower than what the engine would choose itself."""

_WORTH = 0.05
"""What exactness is worth: the form is chosen whose time, multiplied by this power of its error, is
least. For half the error a form may take 3.5 % longer, for a third 5.6 %."""

_LEAST_ERROR = 1e-5
"""An error that is as good as none."""

_AHEAD = 1.04
"""How many times as long as another form the default may take and be chosen: a smaller lead of
a handful of runs is more often chance than not."""

_TICK = 2e-5
"""Seconds by which two forms of a short model differ by chance: counted as no difference."""

_MOST_OTHERWISE = 5


def with_measured_target(options: RewriteOptions, provider: str | None) -> RewriteOptions:
    """Return options whose target runs on the provider that is measured, checked.

    Raises:
        OptionError: The target runs on another provider, none is named, or times say nothing here.
    """
    if provider is None:
        raise OptionError(
            "measuring needs a provider", remedy="name a provider: --provider PROVIDER"
        )
    runner = of_provider(provider)
    if options.target is None and runner is not None:
        options = replace(options, target=runner.name)
    target = find(options.chosen_target)
    if target.provider not in (None, provider):
        raise OptionError(
            f"target {target.name} does not run on the provider that is measured",
            found=provider,
            expected=target.provider,
            remedy="name the target of that provider",
        )
    reason = times_mean_nothing(provider, options.low.name)
    if reason is not None:
        raise OptionError("times would mean nothing here", where=provider, found=reason)
    return options


@dataclass
class Measurement:
    """One search for the fastest form.

    Attributes:
        model: The model that is rewritten.
        first: Its conversion by the options, with the rules that data brought.
        feeds: What it runs on.
        provider: Where it runs.
        judge: Gives a rewrite its verdict.
        progress: Told what is being done.
    """

    model: Source
    first: Conversion
    feeds: Feeds
    provider: str
    judge: Callable[[RewriteResult], Conversion]
    progress: Callable[[str], None]
    _results: dict[str, RewriteResult] = field(default_factory=dict[str, RewriteResult])
    _runs: dict[str, Callable[[], object]] = field(default_factory=dict[str, Callable[[], object]])
    _traces: dict[str, TracedRun] = field(default_factory=dict[str, TracedRun])
    _failed: dict[str, str] = field(default_factory=dict[str, str])

    def __post_init__(self) -> None:
        """Begin with all runs left."""
        self._budget = Budget(progress=self.progress)

    def fastest(self) -> Conversion:
        """Return the conversion of the fastest form that holds, with what was measured.

        Raises:
            AmpError: The float32 model does not run on the provider.
        """
        costs = self._prepare()
        self._load_others()
        self._budget.left -= 1  # what is chosen may have to run once more, with its nodes timed
        beside = [name for name in self._runs if name not in {ORIGINAL, *self._results}]
        favoured = DEFAULT if self.first.writable else ""
        times = timed_in_turn(self._runs, self._budget, ORIGINAL, beside, favoured)
        self._runs.clear()  # and their sessions with them
        return self._choose_fastest(times, costs)

    def _prepare(self) -> CostTable:
        """Make the forms whose nodes are timed, and by these the others; return the costs."""
        first = self.first.result
        original = traced_original(first, self.provider)
        full = self._trace(ORIGINAL, original)
        self._results[DEFAULT] = first
        lowest = self._rewrite_by_costs(UNKNOWN)
        if not lowest.plan.computes_low:
            return replace(UNKNOWN, provider=self.provider)
        run = self._add_traced(LOWEST, lowest)
        if run is None:
            return replace(UNKNOWN, provider=self.provider)
        costs = table_of(self.provider, lowest, first.options.cost_table, full, run)
        cut = self._rewrite_by_costs(costs)
        if self._is_new(cut):
            own = self._add_traced(CUT, cut)
            if own is not None:
                self._add(AGAIN, self._rewrite_by_costs(as_ran(costs, cut, own)))
        known = first.options.cost_table or costs
        self._add(SPARING, self._rewrite_by_costs(replace(known, least_rounding=_SPARING)))
        return costs

    def _rewrite_by_costs(self, costs: CostTable) -> RewriteResult:
        self.progress("rewriting by measured costs")
        options = self.first.result.options
        store = options.chosen_store
        options = replace(options, strict=False, costs=costs, prefer="default", store=store)
        result = rewrite(self.model, options, overflow=KEEP)
        return replace(result, options=options, scaling=self.first.result.scaling)

    def _is_new(self, result: RewriteResult) -> bool:
        """Tell whether a form has something low, and other types than all before it."""
        return result.plan.computes_low and all(
            not np.array_equal(result.painting.allow, other.painting.allow)
            for other in self._results.values()
        )

    def _add(self, name: str, result: RewriteResult) -> None:
        if self._is_new(result):
            self._results[name] = result

    def _add_traced(self, name: str, result: RewriteResult) -> TracedRun | None:
        """Run a form with its nodes timed; None if the provider cannot.

        The default form may be the same; then it is told of under its own name.
        """
        name = name if self._is_new(result) else DEFAULT
        self._results.setdefault(name, result)
        try:
            return self._trace(name, traced_result(result, self.provider))
        except RunError as error:
            self._failed[name] = error.what if error.found is None else error.found
            return None

    def _trace(self, name: str, model: TracedModel) -> TracedRun:
        feeds = _feed_inputs(self.feeds, model.evaluator.inputs)
        for _ in range(_TRACED_RUNS):
            self._budget.take(lambda: model.run(feeds))
        trace = self._traces[name] = model.traced()
        self._budget.take(lambda: model.evaluator.run(feeds))  # some engines load it anew for this
        self._runs[name] = lambda: model.evaluator.run(feeds)
        return trace

    def _load_others(self) -> None:
        """Load the forms whose nodes are not timed, and what the engine would choose itself."""
        models: dict[str, tuple[Any, Any]] = {
            name: (result.model, self.provider)
            for name, result in self._results.items()
            if name not in self._runs and name not in self._failed and result.plan.computes_low
        }
        for name, provider in own_choices(self.provider).items():
            models[name] = self.model, provider
        for name, (model, provider) in models.items():
            try:
                evaluator = Evaluator(model, emulate=False, providers=[provider])
                feeds = _feed_inputs(self.feeds, evaluator.inputs)
                run = _runner(evaluator, feeds)
                self._budget.take(run)
            except RunError as error:
                self._failed[name] = error.what if error.found is None else error.found
            else:
                self._runs[name] = run

    def _choose_fastest(self, times: Mapping[str, Times], costs: CostTable) -> Conversion:
        """Return the fastest form that holds, or the first conversion if none does."""
        full, says, held = times[ORIGINAL].typical, dict[str, str](), dict[str, Conversion]()
        ranks = self._ranks(times)
        limit = math.inf
        for name in sorted(ranks, key=lambda name: (ranks[name], times[name].typical)):
            typical, first = times[name].typical, next(iter(held), None)
            if first is not None and (typical > limit or not self._rounds_less(name, first)):
                continue
            conversion = self.first if name == DEFAULT else self.judge(self._results[name])
            says[name] = "holds" if conversion.writable else conversion.verdict
            if conversion.writable:
                limit = self._limit(typical, times) if first is None else limit
                held[name] = conversion
        chosen = min(held, key=lambda name: ranks[name] * _weight(held[name]), default=None)
        fastest = self.first if chosen is None else held[chosen]
        saved = 0.0 if chosen is None else 1 - times[chosen].typical / full
        if chosen is not None and saved >= LEAST_FASTER:
            says[chosen] = "holds, chosen"
        facts = facts_of(self.provider)
        choice = Choice(
            self.provider,
            f"{facts.device}{f', {facts.driver}' if facts.driver else ''}",
            facts.runtime,
            tuple(self._form(name, taken, says) for name, taken in _by_time(times))
            + tuple(Form(name, Times(()), says=why) for name, why in self._failed.items()),
            chosen,
            saved,
            costs,
            self.first.result.flat.n_nodes,
            () if chosen is None else self._nodes_otherwise(chosen),
            notes_on(self.provider, (self.first.result.options.low.name,)),
        )
        return replace(fastest, choice=choice)

    def _ranks(self, times: Mapping[str, Times]) -> dict[str, float]:
        """Return form -> its seconds, of the default less than it took, if that is fast enough."""
        ranks = {name: taken.typical for name, taken in times.items() if name in self._results}
        if DEFAULT in ranks and ranks[DEFAULT] <= times[ORIGINAL].typical * (1 - LEAST_FASTER):
            ranks[DEFAULT] = (ranks[DEFAULT] - _TICK) / _AHEAD
        return ranks

    def _limit(self, fastest: float, times: Mapping[str, Times]) -> float:
        """Return what a form may take that is chosen in place of the fastest: it saves enough."""
        enough = times[ORIGINAL].typical * (1 - LEAST_FASTER)
        others = (times[name].typical for name in own_choices(self.provider) if name in times)
        free = min(_FAST_ENOUGH * fastest, min(others, default=0.0))
        return max(fastest, min(max(_AS_FAST * fastest + _TICK, free), enough))

    def _rounds_less(self, name: str, chosen: str) -> bool:
        low, least = (self._results[n].report.summary.nodes_converted for n in (name, chosen))
        return low < least

    def _form(self, name: str, taken: Times, says: Mapping[str, str]) -> Form:
        result = self._results.get(name)
        if result is None:
            return Form(name, taken)
        summary = result.report.summary
        low, casts = summary.nodes_converted, summary.casts_added
        return Form(name, taken, low, casts, says.get(name, ""))

    def _nodes_otherwise(self, name: str) -> tuple[str, ...]:
        """Return which nodes the engine computes in another type than a form says."""
        result = self._results[name]
        if name not in self._traces:
            model = traced_result(result, self.provider)
            feeds = _feed_inputs(self.feeds, model.evaluator.inputs)
            self._budget.left += 1
            self._budget.take(lambda: model.run(feeds))
            self._traces[name] = model.traced()
        return computed_otherwise(result, self._traces[name])


def _weight(conversion: Conversion) -> float:
    """Return by what the time of a form is multiplied for its error."""
    return float(max(_error(conversion), _LEAST_ERROR) ** _WORTH)


def _error(conversion: Conversion) -> float:
    """Return the largest error of an output, on the device where it was compared there."""
    report = conversion.verification
    on_device = None if report.device is None else report.device.original
    return max((output.scaled_error for output in on_device or report.outputs), default=0.0)


def computed_otherwise(result: RewriteResult, run: TracedRun) -> tuple[str, ...]:
    """Return lines about the nodes that an engine computed in another type than a model says."""
    flat, low = result.flat, set(result.plan.retyped)
    types = {FLOAT32.name, *LOW}
    nodes_of: dict[tuple[str, str], list[int]] = {}
    for owner, nodes in run.groups.items():
        last = nodes[-1]
        value = next(iter(flat.outputs_of(last)), ABSENT)
        ran = run.nodes[owner].type
        if value == ABSENT or not result.context.type_graph.vertices_of(last) or ran not in types:
            continue
        said = result.options.low.name if value in low else FLOAT32.name
        if said != ran:
            nodes_of.setdefault((said, ran), []).append(last)
    return tuple(
        f"the file says {said}, the engine computed in {ran}: {_in_words(result, nodes)}"
        for (said, ran), nodes in nodes_of.items()
    )


def _in_words(result: RewriteResult, nodes: list[int]) -> str:
    flat = result.flat
    operators = Counter(flat.called(node).op_type for node in nodes)
    counted = ", ".join(f"{count} {op}" for op, count in operators.most_common())
    names = [flat.node_names[node] for node in nodes if flat.node_names[node]]
    named = ", ".join(names[:_MOST_OTHERWISE]) + (" ..." if len(names) > _MOST_OTHERWISE else "")
    return f"{counted} ({named})" if named else counted


def _by_time(times: Mapping[str, Times]) -> list[tuple[str, Times]]:
    return sorted(times.items(), key=lambda item: item[1].typical)


def _runner(evaluator: Evaluator, feeds: Mapping[str, Any]) -> Callable[[], object]:
    return lambda: evaluator.run(feeds)


def _feed_inputs(feeds: Mapping[str, Any], inputs: Mapping[str, FeedSpec]) -> dict[str, Any]:
    """Return what inputs are fed, floats in the type that they have."""
    return {
        name: _type_value(value, inputs[name]) for name, value in feeds.items() if name in inputs
    }


def _type_value(value: Any, spec: FeedSpec) -> Any:
    is_array = isinstance(value, np.ndarray) and spec.dtype is not None
    return value.astype(spec.dtype, copy=False) if is_array and value.dtype.kind in "fV" else value
