"""A rewritten model itself on execution providers, and the original where their results differ.

A provider may be at fault in float32 as well: an operator that it computes wrong, or fails in. So
where the rewritten model fails, or its result differs from the original's, the original runs
there, too.

Evidence: https://github.com/openvinotoolkit/openvino/issues/38256, and a ConvTranspose that WebGPU
computes wrong (tests/numerics/compare/test_device_checks.py): with, the original is said to differ
there as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from amp_rewrite.errors import OutOfTimeError, RunError
from amp_rewrite.numerics.compare.distance import Comparer, OutputComparison, Tolerances
from amp_rewrite.numerics.compare.verify_records import DeviceComparison
from amp_rewrite.numerics.emulate.evaluator import Evaluator
from amp_rewrite.numerics.emulate.typed_model import TypedModel
from amp_rewrite.numerics.inputs.batches import Feeds
from amp_rewrite.runtimes.engines import notes_on

Outputs = Mapping[str, Any]


@dataclass
class Comparison:
    """A comparer for each output, by name."""

    names: Sequence[str]
    tolerances: Tolerances
    comparers: dict[str, Comparer] = field(init=False)

    def __post_init__(self) -> None:
        """Begin with no feed."""
        self.comparers = {name: Comparer(name, self.tolerances) for name in self.names}

    def add(self, expected: Outputs, outputs: Outputs) -> None:
        """Compare the outputs of a feed."""
        for name, comparer in self.comparers.items():
            comparer.add(expected[name], outputs[name])

    def results(self) -> tuple[OutputComparison, ...]:
        """Return what was found over all feeds."""
        return tuple(comparer.result() for comparer in self.comparers.values())

    def holds(self, expected: Outputs, outputs: Outputs) -> bool:
        """Tell whether the outputs of one feed hold, by themselves."""
        alone = Comparison(self.names, self.tolerances)
        alone.add(expected, outputs)
        return all(output.ok for output in alone.results())


class DeviceChecks:
    """The models on execution providers, feed by feed."""

    def __init__(
        self,
        before: TypedModel,
        after: TypedModel,
        providers: tuple[str, ...],
        tolerances: Tolerances,
        *,
        asked: bool,
        threads: int,
    ) -> None:
        """Load the rewritten model; a failure is part of the report.

        If the user `asked` for the device, it must hold as well. 0 `threads` are what
        OMP_NUM_THREADS says, or ONNX Runtime's choice.
        """
        self.providers, self.asked = providers, asked
        self._before = before
        self._options: dict[str, Any] = {
            "emulate": False,
            "providers": providers,
            "threads": threads,
        }
        names = [value.name or "" for value in before.model.graph.outputs]
        self._emulated = Comparison(names, tolerances)
        self._original = Comparison(names, tolerances)
        self._itself = Comparison(names, tolerances)
        self._departs = False
        self._itself_error: str | None = None
        self._error: str | None = None
        try:
            self._rewritten = Evaluator(after, **self._options)
        except OutOfTimeError:
            raise
        except RunError as error:
            self._error, self._departs = _reason(error), True

    def add(self, feeds: Feeds, fitted: Feeds, original: Outputs, emulated: Outputs) -> None:
        """Run a feed, unless one has failed before."""
        if self._error is None:
            self._run(fitted, original, emulated)
        if self._departs and self._itself_error is None:
            self._run_original(feeds, original)

    def _run(self, fitted: Feeds, original: Outputs, emulated: Outputs) -> None:
        try:
            real = self._rewritten.run(fitted)
        except OutOfTimeError:
            raise
        except RunError as error:
            self._error, self._departs = _reason(error), True
            return
        self._emulated.add(emulated, real)
        self._original.add(original, real)
        self._departs = not self._original.holds(original, real)

    def _run_original(self, feeds: Feeds, original: Outputs) -> None:
        try:
            self._itself.add(original, self._original_there.run(feeds))
        except OutOfTimeError:
            raise
        except RunError as error:
            self._itself_error = _reason(error)

    @cached_property
    def _original_there(self) -> Evaluator:
        return Evaluator(self._before, **self._options)

    def report(self) -> DeviceComparison:
        """Return what was found over all feeds."""
        ran = self._error is None
        return DeviceComparison(
            self.providers,
            self._emulated.results() if ran else (),
            self._error,
            self._original.results() if ran else (),
            asked=self.asked,
            itself=tuple(o for o in self._itself.results() if o.elements),
            itself_error=self._itself_error,
            notes=notes_on(self.providers[0], self._rewritten.precisions) if ran else (),
        )


def _reason(error: RunError) -> str:
    reason = error.found or error.what
    return f"{error.where}: {reason}" if error.where else reason
