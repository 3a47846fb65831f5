"""A model and its rewritten form, loaded once, run on one feed after the other and compared.

Evidence: tests/corpus/test_broken_on_purpose.py: 17 of 17 deliberate faults are found.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from amp_rewrite import dtypes, targets
from amp_rewrite.dtypes import FLOAT32, DType
from amp_rewrite.errors import OptionError, OutOfTimeError, RunError
from amp_rewrite.graph import elements
from amp_rewrite.graph.infer import Types
from amp_rewrite.graph.names import names_in
from amp_rewrite.graph.rounding import to_low
from amp_rewrite.graph.sizes import Shape
from amp_rewrite.kernels.rounding_table import of_target as rounding_of
from amp_rewrite.numerics.compare.device_checks import DeviceChecks
from amp_rewrite.numerics.compare.distance import (
    Comparer,
    OutputSize,
    Tolerances,
    results,
)
from amp_rewrite.numerics.compare.intermediates import IntermediateComparer, Run, known_or
from amp_rewrite.numerics.compare.made_up_inputs import lost_in, nonfinite_input
from amp_rewrite.numerics.compare.masked_rows import MaskedRows, rows_of
from amp_rewrite.numerics.compare.misfits import Seen, misfits, other_inputs
from amp_rewrite.numerics.compare.moved_inputs import judged, moved
from amp_rewrite.numerics.compare.selections import SelectionComparison, Told, ToldModel
from amp_rewrite.numerics.compare.verify_records import FedBack, Inside, StressReport
from amp_rewrite.numerics.compare.verify_report import VerifyReport
from amp_rewrite.numerics.compare.weights_alone import WeightsAlone
from amp_rewrite.numerics.emulate.emulated_feeds import FeedSpec, widened
from amp_rewrite.numerics.emulate.evaluator import Evaluator
from amp_rewrite.numerics.emulate.low_sums import kept_low
from amp_rewrite.numerics.emulate.typed_model import TypedModel
from amp_rewrite.numerics.inputs.batches import Array, Feeds
from amp_rewrite.numerics.repaint.raised_for_sums import raised_for_sums


class Compared(NamedTuple):
    """The comparison of one feed, and the rows of outputs that are masked whole (`apart`).

    `told` is what the rewritten model gives for the original's selections, if that was compared.
    """

    outputs: dict[str, Comparer]
    apart: dict[str, Array]
    told: Told | None
    selections: list[SelectionComparison]


class Verification:
    """One call of `verify`: models, one session for each, and running comparisons.

    Attributes:
        low: The lowest precision of the rewritten model.
        outputs: A comparison for each output, over all feeds.
        inside: The comparison of the values inside, or None if none of them can be fetched.
        seconds: How long the two models took on the last feed, their outputs alone.
        control: The same comparisons for the rounded weights alone.
        moves: The same for the original where its inputs move by one part in a million.
        worst_feeds: The feed on which an output is furthest off; None before the first.
        left_out: Feeds that do not count, with the reasons.
    """

    def __init__(
        self,
        before: TypedModel,
        after: TypedModel,
        tolerances: Tolerances,
        target: targets.Target,
        *,
        threads: int,
        inside: bool,
        original: Evaluator | None = None,
    ) -> None:
        """Load both models; `inside` makes the values inside fetchable.

        `original` is one that another verification loaded, if it fetches enough.

        Raises:
            OptionError: The models have different inputs or outputs.
            RunError: ONNX Runtime cannot load one of them.
        """
        self.target = target.name
        self.before, self.after, self.threads = before, after, threads
        self.low = lowest_precision(after.types)
        self.tolerances = tolerances
        names, names_after = (
            [value.name or "" for value in typed.model.graph.outputs] for typed in (before, after)
        )
        _check_same("outputs", names, names_after)
        self.outputs, self.control, self.moves = (
            {name: Comparer(name, tolerances) for name in names} for _ in range(3)
        )
        self.inside = IntermediateComparer(before, after) if inside else None
        pairs = {} if self.inside is None else self.inside.pairs
        floats = () if self.inside is None else self.inside.names
        self._masked = MaskedRows(before.model, floats)
        fetched = [*names, *pairs]
        raised, emulated = raised_for_sums(after.model, target, self.low), after
        if raised is not after.model and set(names_in(raised.graph)).issuperset(fetched):
            emulated = TypedModel(raised)
        self.weights_alone = WeightsAlone(before, after.model, threads)

        sums = kept_low(target, self.low, emulated.model.graph.opset_imports.get("", 0))
        self._sums, self._others = sums, other_inputs(before, emulated) if inside else []

        def load(change: Callable[[TypedModel], TypedModel], more: list[str]) -> Evaluator:
            return Evaluator(
                change(emulated),
                outputs=list(dict.fromkeys((*fetched, *more, *self._others))),
                accumulate_low=sums,
                threads=threads,
                rounding=rounding_of(target),
            )

        self.told = ToldModel(before, emulated.model, tolerances, load)
        read = [*names, *floats, *self.told.names, *self.told.reads]
        if original is None or not set(read) <= set(original.outputs):
            original = Evaluator(before, outputs=read, threads=threads)
        self.original = original
        self.rewritten = load(lambda model: model, self.told.names)
        _check_same("inputs", self.original.inputs, self.rewritten.inputs)
        self.on_device: DeviceChecks | None = None
        self.worst_feeds: Feeds | None = None
        self._seen: Run | None = None
        self._worst_share = -1.0
        self.selections: dict[str, SelectionComparison] = {}
        self.left_out: list[str] = []
        self.count = 0
        self.seconds = 0.0

    def device(self, providers: tuple[str, ...]) -> None:
        """Run the rewritten model on execution providers too."""
        if providers:
            self.on_device = DeviceChecks(
                self.before, self.after, providers, self.tolerances, self.threads
            )

    @property
    def shapes(self) -> Mapping[str, Shape]:
        """The shapes of the values of the original for the first feed, by name."""
        return {} if self.inside is None else self.inside.shapes

    def run_original(self, feeds: Feeds, names: Collection[str] | None = None) -> dict[str, Any]:
        """Return values of the original, by default its outputs and selections."""
        return self.original.run(feeds, self._ends_of(names))

    def run_rewritten(self, feeds: Feeds, names: Collection[str] | None = None) -> dict[str, Any]:
        """Return the same of the rewritten model, for the same feeds."""
        fitted = _fit_feeds(feeds, self.rewritten.inputs)
        return self.rewritten.run(fitted, self._ends_of(names))

    def _ends_of(self, names: Collection[str] | None) -> Collection[str]:
        return [*self.outputs, *self.told.names] if names is None else names

    def run_at_once(self, feeds: Feeds) -> dict[str, Any]:
        """Return the outputs of the rewritten model, and what else can be held at once."""
        inner = () if self.inside is None else self.inside.at_once()
        return self.run_rewritten(feeds, {*self._ends_of(None), *inner})

    def add(self, feeds: Feeds, *, inside: bool, yardsticks: bool = True) -> None:
        """Run everything on one feed of the original's types, and compare the values `inside`.

        Without `yardsticks` nothing says what rounded weights or moved inputs make of it.
        """
        self.count += 1
        if inside and self.inside is not None:
            self.inside.measure(feeds, partial(self.run_original, feeds))
        start = time.perf_counter()
        expected = self.run_original(feeds)
        outputs = self.run_at_once(feeds) if inside else self.run_rewritten(feeds)
        self.seconds = time.perf_counter() - start
        compared, apart, told, selections = self.compare(feeds, expected, outputs)
        lost = lost_in({name: expected[name] for name in self.outputs}, apart)
        if lost is not None:
            cause = nonfinite_input(feeds)
            self.left_out.append(f"feed {self.count}: {lost}" + (f"; {cause}" if cause else ""))
            return
        share = max((c.result().share for c in compared.values()), default=0.0)
        if share > self._worst_share:
            self.worst_feeds, self._worst_share = feeds, share
        noises = [{}, {}]
        if told is None and yardsticks:
            noises = self._noises(feeds, expected, apart)
        merged = (self.outputs, compared), (self.control, noises[0]), (self.moves, noises[1])
        for comparers, found in merged:
            for name, comparer in found.items():
                comparers[name].merge(comparer)
        for each in selections:
            seen = self.selections.get(each.value)
            self.selections[each.value] = each if seen is None else seen.merged(each)
        if inside and self.inside is not None:
            self._seen = run = partial(self._run_told, feeds, told)
            known = outputs if told is None else {}
            self.inside.add(partial(self.run_original, feeds), known_or(known, run))
        if self.on_device is not None:
            fitted = _fit_feeds(feeds, self.rewritten.inputs)
            self.on_device.add(feeds, fitted, expected, outputs)

    def compare(
        self,
        feeds: Feeds,
        expected: Mapping[str, Any],
        made: Mapping[str, Any],
        usual: Mapping[str, OutputSize] | None = None,
    ) -> Compared:
        """Compare the outputs of one feed; `usual` is the size that they have on other feeds.

        If they fail, another selection of near ties is looked for, and rows that are masked whole.
        """
        usual, agreed, told = usual or {}, self.told.agreement(expected, made), None
        compared = self.compared(expected, made, usual, {})
        outputs = {name: expected[name] for name in self.outputs}
        if all(c.result([]).ok for c in compared.values()) and lost_in(outputs, {}) is None:
            return Compared(compared, {}, None, agreed)
        names = self.told.names
        if not all(np.array_equal(expected[name], made[name]) for name in names):
            read = self.run_original(feeds, [*names, *self.told.reads])
            fitted = _fit_feeds(feeds, self.rewritten.inputs)
            told = self.told.told(fitted, read, self.outputs, agreed)
        if told is not None:
            made, agreed = told.outputs, [replace(each, told=True) for each in agreed]
            compared = self.compared(expected, made, usual, {})
        masked = self._masked.find(partial(self.run_original, feeds))
        tensors = ((n, v) for n, v in outputs.items() if v is not None and not isinstance(v, list))
        apart = {n: rows for n, v in tensors if (rows := rows_of(v, masked)) is not None}
        if apart:
            compared = self.compared(expected, made, usual, apart)
        return Compared(compared, apart, told, agreed)

    def _run_told(self, feeds: Feeds, told: Told | None, names: Collection[str]) -> dict[str, Any]:
        """Return values of the rewritten model, with the original's selections if it is told."""
        session = self.told.session if told is not None else None
        if told is None or session is None:
            return self.run_rewritten(feeds, names)
        return session.run(told.feeds, names)

    def _noises(
        self, feeds: Feeds, expected: Mapping[str, Any], apart: Mapping[str, Array]
    ) -> list[dict[str, Comparer]]:
        """Compare what yardsticks make of a feed: the rounded weights alone, and moved inputs.

        Nothing is compared where one does not run.
        """
        moved_feeds = moved(feeds, self.count)
        noisy = [self.weights_alone.run(feeds, self.outputs), None]
        with suppress(RunError):
            noisy[1] = None if moved_feeds is None else self.run_original(moved_feeds)
        return [{} if n is None else self.compared(expected, n, {}, apart) for n in noisy]

    def compared(
        self,
        expected: Mapping[str, Any],
        outputs: Mapping[str, Any],
        usual: Mapping[str, OutputSize],
        apart: Mapping[str, Array],
    ) -> dict[str, Comparer]:
        """Compare the outputs of one feed; rows in `apart` must only stay finite."""
        comparers = {n: Comparer(n, self.tolerances, usual.get(n)) for n in self.outputs}
        for name, comparer in comparers.items():
            comparer.add(expected[name], outputs[name], apart.get(name))
        return comparers

    def report(
        self,
        data: str,
        *,
        inside: bool,
        stress: StressReport | None,
        fed_back: FedBack | None = None,
        unfinished: str | None = None,
    ) -> VerifyReport:
        """Return what was found over all feeds, or those that were compared in time."""
        comparer, rounds = self.inside if inside else None, self.weights_alone.rounds
        wrong: tuple[Inside, ...] = ()
        if comparer is not None and self._seen is not None and unfinished is None:
            seen = Seen(self._seen, self._others, self.low, self._sums)
            try:
                wrong = misfits(self.before, comparer, seen)
            except OutOfTimeError:
                unfinished = "the time was over before the nodes inside were compared one by one"
        return VerifyReport(
            precision=self.low.name,
            target=self.target,
            feeds=self.count - len(self.left_out),
            data=data,
            tolerances=self.tolerances,
            outputs=tuple(
                judged(
                    output_comparer,
                    self.control[name],
                    self.moves[name],
                    self.tolerances,
                    rounds=rounds,
                )
                for name, output_comparer in self.outputs.items()
            ),
            infinities=() if comparer is None else comparer.infinities(),
            misfits=wrong,
            device=None if self.on_device is None else self.on_device.report(),
            stress=stress,
            left_out=tuple(self.left_out),
            control=tuple(o for o in results(self.control) if o.elements),
            moves=tuple(o for o in results(self.moves) if o.elements),
            selections=tuple(self.selections.values()),
            unfinished=unfinished,
            fed_back=fed_back,
        )


def lowest_precision(types: Types) -> DType:
    """Return the type among those of values with the largest epsilon: float32 if none is low."""
    members = {elements.element(type_) for type_ in types.values()}
    used = [low for low in dtypes.LOW.values() if low.number in members]
    return max(used, key=lambda low: low.epsilon, default=FLOAT32)


def _check_same(what: str, before: Iterable[str], after: Iterable[str]) -> None:
    """Refuse models that do not correspond."""
    first, second = list(before), list(after)
    if set(first) != set(second):
        raise OptionError(
            f"the rewritten model has other {what} than the original",
            found=", ".join(second) or "none",
            expected=", ".join(first) or "none",
            remedy="compare a model with its own rewritten form",
        )


def _fit_feeds(feeds: Feeds, specs: Mapping[str, FeedSpec]) -> Feeds:
    """Return the feeds in the float types that the rewritten model takes."""
    return {n: _fit_value(value, specs[n]) if n in specs else value for n, value in feeds.items()}


def _fit_value(value: Any, spec: FeedSpec) -> Any:
    wanted = spec.dtype
    if isinstance(value, list):
        return [_fit_value(item, spec) for item in value]
    array = np.asarray(value)
    if wanted is None or array.dtype == wanted:
        return array
    single = widened(array)
    if single.dtype != FLOAT32.numpy:
        return array
    low = next((t for t in dtypes.LOW.values() if t.numpy == wanted), None)
    if low is not None:
        return to_low(single, low)
    return single if wanted == FLOAT32.numpy else array
