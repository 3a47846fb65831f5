"""The findings of `verify`: frozen records, and the sentences about them and about outputs.

Evidence: that of intermediates.py, misfits.py, fed_back.py, stress_checks.py and device_checks.py,
whose records these are.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from amp_rewrite.base.printable import percent, printable, share
from amp_rewrite.numerics.compare.distance import (
    AGREEMENT,
    ERROR,
    LARGEST,
    OutputComparison,
)
from amp_rewrite.numerics.compare.slices import SLICE_ERROR, Tolerances

UNNORMALISED = "unnormalised numbers"
"""Hundreds, of which nothing says that a model is fed with them, as pictures may be bytes."""

_EXCLUDED = "If your inputs are like that, pass --data; if not, --input-range NAME=LOW:HIGH"

UNEXPLAINED = 5.0
"""An error that many times the predicted one points at a fault that is no rounding."""


def failure_of(output: OutputComparison) -> str:
    """Return why an output fails, in one line: by the first measure that does."""
    return f"output {output.name}{': ' if output.fault != 'shape' else ' '}{_fault_of(output)}"


def _fault_of(output: OutputComparison) -> str:
    outside = output.elements - round(output.within * output.elements)
    said = {
        "shape": "has another shape",
        "lost": f"{output.inf + output.nan} elements are infinite or NaN, finite in the original",
        "error": f"error {percent(output.error or 0)} of its spread, at most {percent(ERROR)} "
        "passes",
        "largest": f"error of single elements up to {percent(output.largest or 0)} of its "
        f"spread, at most {percent(LARGEST)} passes",
        "slice": str(output.slice),
        "classes": f"only {share(output.top1 or 0, 1)} of the rows have the same top-1 class",
    }
    return said.get(
        output.fault,
        f"{outside} of {output.elements} elements exceed the tolerance, "
        f"largest absolute error {output.max_abs:.3g}",
    )


def doubt_of(output: OutputComparison, alone: Sequence[OutputComparison], precision: str) -> str:
    """Return why nobody can tell whether an output that a yardstick excuses is right.

    `alone` is how far that yardstick moves outputs.
    """
    far = next((f" ({_fault_of(o)})" for o in alone if o.name == output.name and not o.ok), "")
    if output.excuse == "weights":
        weights = f"rounding the weights alone to {precision} gives the same error"
        return f"{failure_of(output)}; {weights}{far}"
    changes = "so does the float32 original when its inputs change by one part in 1,000,000"
    return f"{failure_of(output)}; {changes}{far}"


def error_of(output: OutputComparison, *, strict: bool = False) -> str:
    """Return how far an output is off, and relative to what."""
    if output.error is None:
        return f"{share(1 - output.within)} of the elements of output {output.name} differ"
    if strict:
        return f"error {percent(output.scaled_error)} of the peak of output {output.name}"
    return f"error {percent(output.error)} of the spread of output {output.name}"


def worst_of(outputs: Sequence[OutputComparison]) -> OutputComparison | None:
    """Return the output that is nearest to its limits, or furthest beyond them."""
    compared = [output for output in outputs if output.compared]
    return max(compared, key=lambda o: (o.share, o.error or 0.0), default=None)


def test_of(limits: Tolerances) -> str:
    """Return the test that each output has to pass."""
    if limits.strict:
        bounds = [f"{limits.rtol:.3g} of the output's peak"] if limits.rtol else []
        bounds += [f"{limits.atol:.3g}"] if limits.atol or not limits.rtol else []
        return (
            f"test: every element within {' + '.join(bounds)}. Parts on a scale of their "
            "own, such as boxes beside scores: within that of their own peak"
        )
    return (
        f"test: error (root mean square) at most {percent(ERROR)} of the output's spread, that of "
        f"an element at most {percent(LARGEST)}. Parts on a scale of their own, such as boxes "
        f"beside scores: at most {percent(SLICE_ERROR)} of that scale. The top-1 class is the same "
        f"in {share(AGREEMENT, 0)} of the rows"
    )


def explained(output: OutputComparison, predicted: float) -> str:
    """Return how much of an output's error rounding explains."""
    error = output.error or 0.0
    if not error or error <= UNEXPLAINED * predicted:
        return (
            f"output {output.name}: rounding is predicted to make an error of {percent(predicted)}"
        )
    times = f"{error / predicted:,.0f} times " if predicted else ""
    return (
        f"output {output.name}: the error is {times}what rounding is predicted to make "
        f"({percent(predicted)}): look for a fault that is no rounding, such as a wrong kernel "
        "or a broken rewrite"
    )


def output_line(output: OutputComparison) -> str:
    """Return how far an output is off, in every measure that it has."""
    verdict = ("ok" if output.compared else "nothing to compare") if output.ok else "FAILED"
    measures: list[str] = []
    if output.error is not None:
        measures.append(f"error {percent(output.error)} of its spread")
    if output.largest is not None:
        measures.append(f"largest {percent(output.largest)}")
    measures.append(f"{percent(output.scaled_error)} of its peak")
    if output.slice is not None:
        measures.append(f"worst slice {percent(output.slice.distance)} of the slice's scale")
    if output.cosine is not None:
        measures.append(f"cosine {output.cosine:.6f}")
    measures.append(f"largest absolute error {output.max_abs:.3g}")
    if output.top1 is not None:
        measures.append(f"same top-1 class in {share(output.top1, 1)} of the rows")
    if output.within < 1 and "elements" in output.shares:
        measures.append(f"{share(output.within)} of the elements are within the tolerance")
    if output.nan or output.inf:
        measures.append(f"{output.nan} NaN, {output.inf} infinite")
    return printable(f"output {output.name}: {verdict}; {', '.join(measures)}")


@dataclass(frozen=True, slots=True)
class Inside:
    """A value inside the rewritten model that is not what the original has there.

    Attributes:
        value: Its name in the rewritten model.
        node: The node that makes it, of a misfit that of the original; "" for an input or a weight.
        op: That node's operator.
        error: |rewritten - original| / |original| over the finite elements; of a misfit the
            original is its node in float32, on the inputs in the rewritten model.
        inf: How many elements are infinite and finite in the original, over all feeds.
        nan: The same for NaN.
    """

    value: str
    node: str
    op: str
    error: float = 0.0
    inf: int = 0
    nan: int = 0

    @property
    def place(self) -> str:
        """The value, and what makes it."""
        return self.value + (f" ({self.op} {self.node})" if self.op else "")

    @property
    def lost(self) -> str:
        """How many elements are lost."""
        return f"{self.inf or self.nan} elements are {'infinite' if self.inf else 'NaN'}"

    def __str__(self) -> str:
        """Return where it went wrong, and how."""
        if self.inf or self.nan:
            return f"{self.place}, where {self.lost}"
        return f"{self.place}, whose error is {percent(self.error)} of its size"

    @property
    def misfit(self) -> str:
        """Return what is wrong of a node that the rewritten model computes otherwise."""
        return (
            f"{self.op} {self.node}".strip()
            + " computes something else than the original from the same inputs: the error of "
            f"{self.value} is {percent(self.error)} of its size"
        )


@dataclass(frozen=True, slots=True)
class DeviceComparison:
    """The rewritten model on real hardware, against its emulation.

    Attributes:
        outputs: How far the device's outputs are from the emulated ones.
        error: Why it could not be run there, or None.
        original: How far the device's outputs are from those of the original.
        itself: How far the original is there from what the CPU makes of it, on the feeds on which
            the rewritten model fails; empty if it fails on none, or if it cannot be run.
        itself_error: Why the original could not be run there, or None.
        notes: What is different about the engine on this machine.
    """

    providers: tuple[str, ...]
    outputs: tuple[OutputComparison, ...]
    error: str | None = None
    original: tuple[OutputComparison, ...] = ()
    itself: tuple[OutputComparison, ...] = ()
    itself_error: str | None = None
    notes: tuple[str, ...] = ()

    @property
    def names(self) -> str:
        """The providers."""
        return ", ".join(self.providers)

    @property
    def failures(self) -> tuple[str, ...]:
        """The failures there, and those of the original there."""
        excuses = [
            f"the original differs there as well, against the CPU: {error_of(output)}"
            for output in self.itself
            if not output.ok
        ]
        if self.itself_error is not None:
            excuses = [f"the original fails there as well: {self.itself_error}"]
        if self.error is not None:
            return (f"{self.names} could not run the model: {self.error}", *excuses)
        failed = (o for o in self.original if not o.ok)
        return (*(f"on {self.names}: {failure_of(output)}" for output in failed), *excuses)

    @property
    def lines(self) -> tuple[str, ...]:
        """How far off a device is that ran the model, and notes on it."""
        if self.error is not None:
            return ()
        worst = worst_of(self.original)
        said = "nothing was compared" if worst is None else f"worst {error_of(worst)}"
        return (f"run on {self.names}: {said}", *self.notes)


@dataclass(frozen=True, slots=True)
class FedBack:
    """Both models after many calls, each with the `states` that it made itself.

    `outputs` are how far those of the last calls are off.
    """

    calls: int
    states: tuple[str, ...]
    outputs: tuple[OutputComparison, ...]

    @property
    def _where(self) -> str:
        return f"after {self.calls:,} calls with {', '.join(self.states)} fed back"

    @property
    def failures(self) -> tuple[str, ...]:
        """The failures after the last call, one line each."""
        failed = (output for output in self.outputs if not output.ok)
        return tuple(f"{self._where}: {failure_of(output)}" for output in failed)

    def __str__(self) -> str:
        """Return how far off it is then."""
        worst = worst_of(self.outputs)
        return f"{self._where}: " + ("no error" if worst is None else f"worst {error_of(worst)}")


Outcome = Literal["held", "failed", "doubtful", "left out"]


@dataclass(frozen=True, slots=True)
class StressResult:
    """One stress input.

    Attributes:
        name: Its kind, such as "late positions".
        inputs: The inputs of the model that differ from plausible ones: name, shape and range.
        outcome: "held"; "failed"; "doubtful", if it fails on numbers of another scale than the
            model may be meant for, and passes on those; or "left out", because the original itself
            fails on it, is as unsteady, or time was short.
        why: The failure, or why it was left out; "" if it held.
        outputs: One comparison per output; errors are relative to the output's size on plausible
            inputs where it is smaller than that.
        first: The first value inside that went wrong, if it failed and that is known.
    """

    name: str
    inputs: tuple[str, ...]
    outcome: Outcome
    why: str = ""
    outputs: tuple[OutputComparison, ...] = ()
    first: Inside | None = None

    @property
    def failure(self) -> str:
        """The failure and its input, in one line."""
        place = "" if self.first is None else f"; first wrong: {self.first}"
        return f"on {self.name} ({', '.join(self.inputs)}): {self.why}{place}"

    @property
    def loses(self) -> bool:
        """Whether outputs became infinite or NaN, on inputs that many models have."""
        return self.name != UNNORMALISED and any(o.inf or o.nan for o in self.outputs)


@dataclass(frozen=True, slots=True)
class StressReport:
    """All stress inputs of a model: one result per kind that concerns it, and seconds."""

    results: tuple[StressResult, ...]
    seconds: float
    budget: float

    def of(self, *outcomes: Outcome) -> list[StressResult]:
        """Return the results with one of these outcomes."""
        return [result for result in self.results if result.outcome in outcomes]

    @property
    def failures(self) -> tuple[str, ...]:
        """The failures, one line per input."""
        return tuple(result.failure for result in self.of("failed"))

    @property
    def doubts(self) -> tuple[str, ...]:
        """Losses on inputs of a scale that the model may be meant for, one line each."""
        return tuple(f"{r.failure}. {_EXCLUDED}" for r in self.of("doubtful") if r.loses)

    @property
    def exceptions(self) -> str:
        """On which inputs of another scale it is off, as the end of what it was compared on."""
        names = [r.name for r in self.of("doubtful") if not r.loses]
        return f", but not on {' and '.join(names)}" if names else ""

    def lines(self) -> list[str]:
        """Return the text: what was tried, what was left out and why, what is doubtful."""
        tried = ", ".join(r.name for r in self.of("held", "failed", "doubtful"))
        limit = f"budget {self.budget:.0f} s"
        if self.seconds > self.budget:  # the input that runs when it ends is finished
            limit = f"the last one ended after the budget of {self.budget:.0f} s"
        return [
            f"stress inputs ({self.seconds:.1f} s; {limit}): {tried or 'none fit this model'}",
            *(f"left out: {r.name}: {r.why}" for r in self.of("left out")),
            *(f"doubtful: {r.failure}. {_EXCLUDED}" for r in self.of("doubtful") if not r.loses),
        ]


def with_device(
    outputs: Iterable[OutputComparison], device: DeviceComparison | None
) -> tuple[OutputComparison, ...]:
    """Return the errors of outputs that more in float32 may make smaller: emulated and on a device.

    A device that computes the float32 original wrong as well does not count.
    """
    if device is None or any(not output.ok for output in device.itself):
        return tuple(outputs)
    return (*outputs, *device.original)
