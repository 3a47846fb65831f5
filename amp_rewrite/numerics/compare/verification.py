"""A model and its rewritten form, loaded once, run on one feed after the other and compared.

Evidence: tests/corpus/test_broken_on_purpose.py: 17 of 17 deliberate faults are found.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
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
    Tolerances,
    add_feed,
    results,
)
from amp_rewrite.numerics.compare.intermediates import IntermediateComparer, known_or
from amp_rewrite.numerics.compare.made_up_inputs import lost_in, nonfinite_input
from amp_rewrite.numerics.compare.masked_rows import MaskedRows, rows_of
from amp_rewrite.numerics.compare.misfits import Seen, misfits, other_inputs
from amp_rewrite.numerics.compare.moved_inputs import judged, moved
from amp_rewrite.numerics.compare.selections import ToldModel
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
    """The comparison of one feed.

    Attributes:
        outputs: A comparison for each output.
        made: The outputs of the rewritten model that were compared.
        apart: The rows of outputs that are masked whole.
        told: The feeds with the original's selections, if the rewritten model was told these.
    """

    outputs: dict[str, Comparer]
    made: Mapping[str, Any]
    apart: dict[str, Array]
    told: Feeds | None


class Verification:
    """One call of `verify`: models, one session for each, and running comparisons.

    Attributes:
        low: The lowest precision of the rewritten model.
        outputs: A comparison for each output, over all feeds.
        inside: The comparison of the values inside.
        on_device: That of the outputs on execution providers; None if there are none.
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
        threads: int = 0,
        providers: tuple[str, ...] = (),
        original: Evaluator | None = None,
    ) -> None:
        """Load both models; the rewritten one runs on execution `providers` too.

        `original` is one that another verification loaded, if it fetches enough.

        Raises:
            OptionError: The models have different inputs or outputs.
            RunError: ONNX Runtime cannot load one of them.
        """
        self.target = target.name
        self.before = before
        self.low = lowest_precision(after.types)
        self.tolerances = tolerances
        names, names_after = (
            [value.name or "" for value in typed.model.graph.outputs] for typed in (before, after)
        )
        _check_same("outputs", names, names_after)
        self.outputs, self.control, self.moves = (
            {name: Comparer(name, tolerances) for name in names} for _ in range(3)
        )
        self.inside = IntermediateComparer(before, after)
        floats = self.inside.names
        self._masked = MaskedRows(before.model, floats)
        fetched = [*names, *self.inside.pairs]
        raised, emulated = raised_for_sums(after.model, target, self.low), after
        if raised is not after.model and set(names_in(raised.graph)).issuperset(fetched):
            emulated = TypedModel(raised)
        self.weights_alone = WeightsAlone(before, after.model, threads)

        sums = kept_low(target, self.low, emulated.model.graph.opset_imports.get("", 0))
        self._sums, self._others = sums, (others := other_inputs(before, emulated))

        def load(change: Callable[[TypedModel], TypedModel], more: list[str]) -> Evaluator:
            return Evaluator(
                change(emulated),
                outputs=list(dict.fromkeys((*fetched, *more, *others))),
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
        if providers:
            self.on_device = DeviceChecks(before, after, providers, tolerances, threads)
        self.worst_feeds: Feeds | None = None
        self._seen: tuple[Feeds, Feeds | None] | None = None
        self._worst_share = -1.0
        self.selections: dict[str, None] = {}
        self.left_out: list[str] = []
        self.count = 0
        self.seconds = 0.0

    @property
    def shapes(self) -> Mapping[str, Shape]:
        """The shapes of the values of the original for the first feed, by name."""
        return self.inside.shapes

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
        return self.run_rewritten(feeds, {*self._ends_of(None), *self.inside.at_once()})

    def add(self, feeds: Feeds, *, inside: bool, yardsticks: bool = True) -> None:
        """Run everything on one feed of the original's types, and compare the values `inside`.

        What rounded weights and moved inputs make of it is found where that may decide, for no
        measure fails over all feeds that passes on each; never without `yardsticks`.
        """
        self.count += 1
        if inside:
            self.inside.measure(feeds, partial(self.run_original, feeds))
        start = time.perf_counter()
        expected = self.run_original(feeds)
        outputs = self.run_at_once(feeds) if inside else self.run_rewritten(feeds)
        self.seconds = time.perf_counter() - start
        compared, made, apart, told = self.compare(feeds, expected, outputs)
        lost = lost_in({name: expected[name] for name in self.outputs}, apart)
        if lost is not None:
            cause = nonfinite_input(feeds)
            self.left_out.append(f"feed {self.count}: {lost}" + (f"; {cause}" if cause else ""))
            return
        share = max((c.result(all_measures=False).share for c in compared.values()), default=0.0)
        if share > self._worst_share:
            self.worst_feeds, self._worst_share = feeds, share
        add_feed(self.outputs, expected, made, apart)
        if told is not None:
            self.selections |= dict.fromkeys(self.told.differing(expected, outputs))
        elif yardsticks and any(comparer.asks_yardsticks for comparer in compared.values()):
            self._add_yardsticks(feeds, expected, apart)
        if inside:
            self._seen = feeds, told
            run = partial(self._run_told, feeds, told)
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
        usual: Mapping[str, Comparer] | None = None,
    ) -> Compared:
        """Compare the outputs of one feed; `usual` is the comparison on other feeds.

        If they fail, another selection of near ties is looked for, and rows that are masked whole.
        """
        compared, told = self.compared(expected, made, usual), None
        outputs = {name: expected[name] for name in self.outputs}
        if all(c.result().ok for c in compared.values()) and lost_in(outputs, {}) is None:
            return Compared(compared, made, {}, None)
        if self.told.differing(expected, made):
            read = self.run_original(feeds, [*self.told.names, *self.told.reads])
            fitted = _fit_feeds(feeds, self.rewritten.inputs)
            told, found = self.told.run(fitted, read, self.outputs)
            if told is not None:
                made, compared = found, self.compared(expected, found, usual)
        masked = self._masked.find(partial(self.run_original, feeds))
        tensors = ((n, v) for n, v in outputs.items() if v is not None and not isinstance(v, list))
        apart = {n: rows for n, v in tensors if (rows := rows_of(v, masked)) is not None}
        if apart:
            compared = self.compared(expected, made, usual, apart)
        return Compared(compared, made, apart, told)

    def _run_told(self, feeds: Feeds, told: Feeds | None, names: Collection[str]) -> dict[str, Any]:
        """Return values of the rewritten model, with the original's selections if it is told."""
        if told is None or self.told.session is None:
            return self.run_rewritten(feeds, names)
        return self.told.session.run(told, names)

    def _add_yardsticks(
        self, feeds: Feeds, expected: Mapping[str, Any], apart: Mapping[str, Array]
    ) -> None:
        """Compare what rounded weights alone and moved inputs make of a feed, where they run."""
        rounded = self.weights_alone.run(feeds, self.outputs)
        if rounded is not None:
            add_feed(self.control, expected, rounded, apart)
        moved_feeds = moved(feeds, self.count)
        if moved_feeds is not None:
            with suppress(RunError):
                add_feed(self.moves, expected, self.run_original(moved_feeds), apart)

    def compared(
        self,
        expected: Mapping[str, Any],
        outputs: Mapping[str, Any],
        usual: Mapping[str, Comparer] | None,
        apart: Mapping[str, Array] | None = None,
    ) -> dict[str, Comparer]:
        """Compare the outputs of one feed; rows in `apart` must only stay finite."""
        comparers = {n: Comparer(n, self.tolerances, (usual or {}).get(n)) for n in self.outputs}
        add_feed(comparers, expected, outputs, apart)
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
        wrong: tuple[Inside, ...] = ()
        if inside and self._seen is not None and unfinished is None:
            seen = Seen(partial(self._run_told, *self._seen), self._others, self.low, self._sums)
            try:
                wrong = misfits(self.before, self.inside, seen)
            except OutOfTimeError:
                unfinished = "the time was over before the nodes inside were compared one by one"
        return VerifyReport(
            precision=self.low.name,
            target=self.target,
            feeds=self.count - len(self.left_out),
            data=data,
            tolerances=self.tolerances,
            outputs=tuple(
                judged(comparer, self.control[name], self.moves[name])
                for name, comparer in self.outputs.items()
            ),
            infinities=self.inside.infinities() if inside else (),
            misfits=wrong,
            device=None if self.on_device is None else self.on_device.report(),
            stress=stress,
            left_out=tuple(self.left_out),
            control=tuple(o for o in results(self.control) if o.elements),
            moves=tuple(o for o in results(self.moves) if o.elements),
            selections=tuple(self.selections),
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
    if isinstance(value, list):
        return [_fit_value(item, spec) for item in value]
    array, wanted = np.asarray(value), spec.dtype
    single = widened(array)
    low = next((t for t in dtypes.LOW.values() if t.numpy == wanted), None)
    if low is not None and single.dtype == FLOAT32.numpy:
        return to_low(single, low)
    return single if wanted == FLOAT32.numpy else array
