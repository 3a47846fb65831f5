"""A model and its rewritten form, loaded once, run on one feed after the other and compared."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from functools import partial
from typing import Any

import numpy as np
import onnx_ir as ir

from amp_rewrite import dtypes, targets
from amp_rewrite.dtypes import FLOAT32, DType
from amp_rewrite.emulate.emulated_feeds import FeedSpec, widened
from amp_rewrite.emulate.evaluator import Evaluator
from amp_rewrite.emulate.low_sums import kept_low
from amp_rewrite.errors import OptionError
from amp_rewrite.graph import elements
from amp_rewrite.graph.infer import infer_types
from amp_rewrite.graph.names import names_in
from amp_rewrite.graph.rounding import to_low
from amp_rewrite.graph.sizes import Shape
from amp_rewrite.numerics.batches import Feeds
from amp_rewrite.numerics.compare.device_checks import DeviceChecks
from amp_rewrite.numerics.compare.distance import Comparer, OutputComparison, Tolerances
from amp_rewrite.numerics.compare.intermediates import IntermediateComparer
from amp_rewrite.numerics.compare.stress_report import StressReport
from amp_rewrite.numerics.compare.verify_report import VerifyReport
from amp_rewrite.numerics.raised_for_sums import raised_for_sums


class Verification:
    """One call of `verify`: models, one session for each, and running comparisons.

    Attributes:
        before: The original.
        low: The lowest precision of the rewritten model.
        outputs: A comparison for each output, over all feeds.
        inside: The comparison of the values inside, or None if none of them can be fetched.
        seconds: How long the two models took on the last feed, their outputs alone.
    """

    def __init__(
        self,
        before: ir.Model,
        after: ir.Model,
        tolerances: Tolerances,
        target: targets.Target,
        *,
        threads: int,
        inside: bool,
    ) -> None:
        """Load both models.

        Args:
            before: The original.
            after: The rewritten model.
            tolerances: What the outputs may differ by.
            target: Whose kernels are emulated.
            threads: Threads inside an operator; 0 is OMP_NUM_THREADS, or ONNX Runtime's choice.
            inside: Make the values inside fetchable.

        Raises:
            OptionError: The models have different inputs or outputs.
            RunError: ONNX Runtime cannot load one of them.
        """
        self.before, self.after, self.threads = before, after, threads
        self.low = lowest_precision(after)
        self.tolerances = tolerances
        names, found = _output_names(before), _output_names(after)
        _check_same("outputs", names, found)
        self.outputs = {name: Comparer(name, self.tolerances) for name in names}
        self.inside = IntermediateComparer(before, after) if inside else None
        pairs = {} if self.inside is None else self.inside.pairs
        self.original = Evaluator(before, outputs=[*names, *pairs.values()], threads=threads)
        fetched = [*names, *pairs]
        emulated = _raised_for_sums(after, fetched, target, self.low)
        self.rewritten = Evaluator(
            emulated,
            outputs=fetched,
            accumulate_low=kept_low(target, self.low, emulated.graph.opset_imports.get("", 0)),
            threads=threads,
        )
        _check_same("inputs", self.original.inputs, self.rewritten.inputs)
        self.on_device: DeviceChecks | None = None
        self.count = 0
        self.seconds = 0.0
        self._ends: dict[str, Shape] = {}

    def device(self, providers: tuple[str, ...], *, asked: bool = False) -> None:
        """Run the rewritten model itself on execution providers as well.

        Args:
            providers: The execution providers; none for no device.
            asked: The user wants it, so that the device must hold as well.
        """
        if providers:
            self.on_device = DeviceChecks(
                self.before,
                self.after,
                providers,
                self.tolerances,
                asked=asked,
                threads=self.threads,
            )

    @property
    def shapes(self) -> Mapping[str, Shape]:
        """The shapes of the values of the original for the first feed, by name."""
        return self._ends if self.inside is None else {**self.inside.shapes, **self._ends}

    def run_original(self, feeds: Feeds, names: Collection[str] | None = None) -> dict[str, Any]:
        """Return values of the original, its outputs by default."""
        return self.original.run(feeds, self.outputs if names is None else names)

    def run_rewritten(self, feeds: Feeds, names: Collection[str] | None = None) -> dict[str, Any]:
        """Return values of the rewritten model, its outputs by default, for the same feeds."""
        fitted = _fitted(feeds, self.rewritten.inputs)
        return self.rewritten.run(fitted, self.outputs if names is None else names)

    def add(self, feeds: Feeds, *, inside: bool) -> None:
        """Run everything on one feed.

        Args:
            feeds: The feed, of the original's types.
            inside: Compare the values inside as well.
        """
        self.count += 1
        start = time.perf_counter()
        expected, found = self.run_original(feeds), self.run_rewritten(feeds)
        self.seconds = time.perf_counter() - start
        self._note_shapes({**feeds, **expected})
        for name, comparer in self.outputs.items():
            comparer.add(expected[name], found[name])
        if inside and self.inside is not None:
            self.inside.add(partial(self.run_original, feeds), partial(self.run_rewritten, feeds))
        if self.on_device is not None:
            fitted = _fitted(feeds, self.rewritten.inputs)
            self.on_device.add(feeds, fitted, expected, found)

    def _note_shapes(self, ends: Mapping[str, Any]) -> None:
        """Remember the shapes of inputs and outputs; sequences have none."""
        for name, value in ends.items():
            if not isinstance(value, list):
                self._ends.setdefault(name, np.shape(value))

    def report(self, data: str, *, inside: bool, stress: StressReport | None) -> VerifyReport:
        """Return what was found over all feeds.

        Args:
            data: Where they came from.
            inside: Say what was found inside.
            stress: What was found on stress inputs.
        """
        comparer = self.inside if inside else None
        return VerifyReport(
            precision=self.low.name,
            feeds=self.count,
            data=data,
            tolerances=self.tolerances,
            outputs=_results(self.outputs),
            infinities=() if comparer is None else comparer.infinities(),
            growth=() if comparer is None else comparer.growth(self.low),
            device=None if self.on_device is None else self.on_device.report(),
            stress=stress,
            inside=() if comparer is None else comparer.distances(),
        )


def _raised_for_sums(
    model: ir.Model, fetched: Iterable[str], target: targets.Target, low: DType
) -> ir.Model:
    """Return a model in which the target's sums can be emulated; itself if that loses a fetch."""
    raised = raised_for_sums(model, target, low)
    return raised if set(names_in(raised.graph)).issuperset(fetched) else model


def _output_names(model: ir.Model) -> list[str]:
    return [value.name or "" for value in model.graph.outputs]


def _results(comparers: Mapping[str, Comparer]) -> tuple[OutputComparison, ...]:
    return tuple(comparer.result() for comparer in comparers.values())


def lowest_precision(model: ir.Model) -> DType:
    """Return the type of a model's values with the largest epsilon: float32 if none is low."""
    members = {elements.element(type_) for type_ in infer_types(model).values()}
    used = [low for low in dtypes.LOW.values() if low.number in members]
    return max(used, key=lambda low: low.epsilon, default=FLOAT32)


def _check_same(what: str, before: Iterable[str], after: Iterable[str]) -> None:
    """Refuse models that do not correspond.

    Raises:
        OptionError: One has an input or output that the other lacks.
    """
    first, second = list(before), list(after)
    if set(first) != set(second):
        raise OptionError(
            f"the rewritten model has other {what} than the original",
            found=", ".join(second) or "none",
            expected=", ".join(first) or "none",
            remedy="compare a model with its own rewritten form",
        )


def _fitted(feeds: Feeds, specs: Mapping[str, FeedSpec]) -> Feeds:
    """Return the feeds in the float types that the rewritten model takes."""
    return {n: _fit(value, specs[n]) if n in specs else value for n, value in feeds.items()}


def _fit(value: Any, spec: FeedSpec) -> Any:
    wanted = spec.dtype
    if isinstance(value, list):
        return [_fit(item, spec) for item in value]
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
