"""`verify`: is a rewritten model as good as the original?"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import onnx_ir as ir

from amp_rewrite import dtypes, targets
from amp_rewrite.dtypes import FLOAT32, DType
from amp_rewrite.emulate.emulated_feeds import FeedSpec, widened
from amp_rewrite.emulate.evaluator import Evaluator
from amp_rewrite.emulate.low_sums import kept_low
from amp_rewrite.errors import OptionError, RunError
from amp_rewrite.graph import elements
from amp_rewrite.graph.infer import infer_types
from amp_rewrite.graph.io.load import Source, load
from amp_rewrite.graph.rounding import to_low
from amp_rewrite.numerics.batches import Data, Feeds, batches
from amp_rewrite.numerics.compare.distance import Comparer, OutputComparison, Tolerances
from amp_rewrite.numerics.compare.inputs import runnable_feeds
from amp_rewrite.numerics.compare.intermediates import IntermediateComparer
from amp_rewrite.numerics.compare.verify_report import DeviceComparison, VerifyReport
from amp_rewrite.ort.providers import available_providers, has_provider
from amp_rewrite.targets import CUDA


def verify(
    original: Source,
    rewritten: Source,
    data: Data | None = None,
    rtol: float | None = None,
    atol: float | None = None,
    *,
    seed: int = 0,
    intermediates: bool = True,
    providers: Sequence[str] | None = None,
    threads: int = 0,
    target: str = targets.DEFAULT,
) -> VerifyReport:
    """Run a model and its rewritten form on the same data and compare.

    The original runs in float32 (a low-precision part of it is emulated), the rewritten model is
    emulated: rounded wherever it is low, on a CPU. It holds if every output does and no value
    inside becomes infinite or NaN that is finite in the original, even if the outputs do not show
    it. With a tolerance every element of an output must be within `atol + rtol * |original|`;
    without one an output holds if its Euclidean distance is at most 4.5 % of its size (cosine
    0.999) and, for class scores, 99 % of the rows have the same top-1 class.

    Args:
        original: The model before: a path, an onnx_ir model or a ModelProto.
        rewritten: The model after; inputs and outputs of the same names, of any float type.
        data: One feed (input name -> array), several of them, .npz files (one feed each, one array
            per input) or folders of such files; None makes up plausible inputs.
        rtol: Relative tolerance; without it the share of elements within is reported for that of
            the lowest precision in the rewritten model.
        atol: Absolute tolerance; without it that precision's, times the largest magnitude of the
            output.
        seed: For made-up inputs.
        intermediates: Compare the values inside the models as well; costs some more runs.
        providers: Also run the rewritten model itself on these execution providers and report how
            far the emulation was from them; None does so on CUDA where ONNX Runtime has it.
        threads: Threads inside an operator; 0 leaves the choice to ONNX Runtime.
        target: Whose kernels the emulation is of: it keeps partial sums in the type that they do.

    Raises:
        AmpError: A model, the data or the target are wrong, they do not fit together, or ONNX
            Runtime is not installed.
    """
    before, after = load(original), load(rewritten)
    kernels = targets.find(target)
    run = _Verification(before, after, rtol, atol, kernels, threads=threads, inside=intermediates)
    run.device(_device_providers(providers))
    for feeds in _feeds(run, data, seed):
        run.add(feeds)
    if not run.count:
        raise OptionError("there is no data", expected="at least one feed")
    return run.report(_origin(data, seed))


class _Verification:
    """One call of `verify`: models, one session for each, and running comparisons."""

    def __init__(
        self,
        before: ir.Model,
        after: ir.Model,
        rtol: float | None,
        atol: float | None,
        target: targets.Target,
        *,
        threads: int,
        inside: bool,
    ) -> None:
        self.before, self.after, self.threads = before, after, threads
        self.low = lowest_precision(after)
        self.tolerances = Tolerances.of(self.low, rtol, atol)
        names, found = _output_names(before), _output_names(after)
        _check_same("outputs", names, found)
        self.outputs = {name: Comparer(name, self.tolerances) for name in names}
        self.device_outputs = {name: Comparer(name, self.tolerances) for name in names}
        self.inside = IntermediateComparer(before, after) if inside else None
        pairs = {} if self.inside is None else self.inside.pairs
        self.original = Evaluator(before, outputs=[*names, *pairs.values()], threads=threads)
        self.rewritten = Evaluator(
            after,
            outputs=[*names, *pairs],
            accumulate_low=kept_low(target, self.low),
            threads=threads,
        )
        _check_same("inputs", self.original.inputs, self.rewritten.inputs)
        self.providers: tuple[str, ...] = ()
        self.on_device: Evaluator | None = None
        self.device_error: str | None = None
        self.count = 0

    def device(self, providers: tuple[str, ...]) -> None:
        """Load the rewritten model itself on execution providers."""
        self.providers = providers
        if not providers:
            return
        try:
            self.on_device = Evaluator(
                self.after, emulate=False, providers=providers, threads=self.threads
            )
        except RunError as error:
            self.device_error = error.found or error.what

    def add(self, feeds: Feeds) -> None:
        """Run everything on one feed."""
        self.count += 1
        low_feeds = _fitted(feeds, self.rewritten.inputs)
        expected = self.original.run(feeds, self.outputs)
        found = self.rewritten.run(low_feeds, self.outputs)
        for name, comparer in self.outputs.items():
            comparer.add(expected[name], found[name])
        if self.inside is not None:
            self.inside.add(
                partial(self.original.run, feeds), partial(self.rewritten.run, low_feeds)
            )
        if self.on_device is not None and self.device_error is None:
            self._add_device(self.on_device, low_feeds, found)

    def _add_device(self, device: Evaluator, feeds: Feeds, emulated: Mapping[str, Any]) -> None:
        try:
            real = device.run(feeds)
        except RunError as error:
            self.device_error = error.found or error.what
            return
        for name, comparer in self.device_outputs.items():
            comparer.add(emulated[name], real[name])

    def report(self, data: str) -> VerifyReport:
        """Return what was found over all feeds."""
        inside = self.inside
        return VerifyReport(
            precision=self.low.name,
            feeds=self.count,
            data=data,
            tolerances=self.tolerances,
            outputs=_results(self.outputs),
            infinities=() if inside is None else inside.infinities(),
            growth=() if inside is None else inside.growth(self.low),
            device=self._device_report(),
        )

    def _device_report(self) -> DeviceComparison | None:
        if not self.providers:
            return None
        outputs = () if self.device_error is not None else _results(self.device_outputs)
        return DeviceComparison(self.providers, outputs, self.device_error)


def _output_names(model: ir.Model) -> list[str]:
    return [value.name or "" for value in model.graph.outputs]


def _results(comparers: Mapping[str, Comparer]) -> tuple[OutputComparison, ...]:
    return tuple(comparer.result() for comparer in comparers.values())


def lowest_precision(model: ir.Model) -> DType:
    """Return the type of a model's values with the largest epsilon: float32 if none is low."""
    members = {elements.element(type_) for type_ in infer_types(model).values()}
    used = [low for low in dtypes.LOW.values() if low.number in members]
    return max(used, key=lambda low: low.epsilon, default=FLOAT32)


def _device_providers(given: Sequence[str] | None) -> tuple[str, ...]:
    """Return the providers to compare with.

    Raises:
        OptionError: ONNX Runtime lacks one of those asked for.
    """
    if given is None:
        return (CUDA,) if has_provider(CUDA) else ()
    for name in given:
        if not has_provider(name):
            raise OptionError(
                "the execution provider is not available",
                found=repr(name),
                expected=", ".join(available_providers()),
            )
    return tuple(given)


def _feeds(run: _Verification, data: Data | None, seed: int) -> Iterator[Feeds]:
    if data is None:
        yield runnable_feeds(run.before, partial(run.original.run, outputs=run.outputs), seed)
    else:
        yield from batches(data)


def _origin(data: Data | None, seed: int) -> str:
    if data is None:
        return f"made-up inputs, seed {seed}"
    return os.fspath(data) if isinstance(data, str | os.PathLike) else "given data"


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
