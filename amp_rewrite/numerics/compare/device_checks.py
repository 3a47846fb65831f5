"""A rewritten model itself on execution providers, and the original where their results differ.

A provider may be at fault in float32 as well. So where the rewritten model fails, or its result
differs from the original's, the original runs there, too.

Evidence: https://github.com/openvinotoolkit/openvino/issues/38256, and a ConvTranspose that WebGPU
computes wrong (tests/numerics/compare/test_device_checks.py): with, the original is said to differ
there as well.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

from amp_rewrite.errors import OutOfTimeError, RunError
from amp_rewrite.numerics.compare.distance import Comparer, Tolerances, add_feed, results
from amp_rewrite.numerics.compare.verify_records import DeviceComparison
from amp_rewrite.numerics.emulate.evaluator import Evaluator
from amp_rewrite.numerics.emulate.typed_model import TypedModel
from amp_rewrite.numerics.inputs.batches import Feeds
from amp_rewrite.runtimes.engines import notes_on

Outputs = Mapping[str, Any]


class DeviceChecks:
    """The models on execution providers, feed by feed."""

    def __init__(
        self,
        before: TypedModel,
        after: TypedModel,
        providers: tuple[str, ...],
        tolerances: Tolerances,
        threads: int,
    ) -> None:
        """Take the models; that one cannot be loaded or run is part of the report."""
        self.providers = providers
        self._before, self._after, self._tolerances = before, after, tolerances
        self._options: Any = {"emulate": False, "providers": providers, "threads": threads}
        self._emulated, self._original, self._itself = (self._comparers() for _ in range(3))
        self._error: str | None = None
        self._itself_error: str | None = None

    def _comparers(self) -> dict[str, Comparer]:
        names = [value.name or "" for value in self._before.model.graph.outputs]
        return {name: Comparer(name, self._tolerances) for name in names}

    def add(self, feeds: Feeds, fitted: Feeds, original: Outputs, emulated: Outputs) -> None:
        """Run a feed, unless one has failed before."""
        if self._error is None:
            real, self._error = _run(lambda: self._rewritten.run(fitted))
            if real is not None:
                add_feed(self._emulated, emulated, real)
                add_feed(self._original, original, real)
                if all(output.ok for output in results(self._original)):
                    return
        if self._itself_error is None:
            there, self._itself_error = _run(lambda: self._original_there.run(feeds))
            if there is not None:
                add_feed(self._itself, original, there)

    @cached_property
    def _rewritten(self) -> Evaluator:
        return Evaluator(self._after, **self._options)

    @cached_property
    def _original_there(self) -> Evaluator:
        return Evaluator(self._before, **self._options)

    def report(self) -> DeviceComparison:
        """Return what was found over all feeds."""
        ran = self._error is None and "_rewritten" in vars(self)  # nothing, if no feed counts
        return DeviceComparison(
            self.providers,
            results(self._emulated) if ran else (),
            self._error,
            results(self._original) if ran else (),
            itself=tuple(o for o in results(self._itself) if o.elements),
            itself_error=self._itself_error,
            notes=notes_on(self.providers[0], self._rewritten.precisions) if ran else (),
        )


def _run(run: Callable[[], Outputs]) -> tuple[Outputs, None] | tuple[None, str]:
    """Return the outputs of a run, or why there are none."""
    try:
        return run(), None
    except OutOfTimeError:
        raise
    except RunError as error:
        reason = error.found or error.what
        return None, f"{error.where}: {reason}" if error.where else reason
