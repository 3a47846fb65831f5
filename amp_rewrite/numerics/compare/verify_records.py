"""What `verify` finds besides the comparisons of outputs: frozen records, and their sentences.

Evidence: that of intermediates.py, misfits.py and device_checks.py, whose records these are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from amp_rewrite.base.printable import percent, share
from amp_rewrite.numerics.compare.distance import ERROR, LARGEST, OutputComparison


@dataclass(frozen=True, slots=True)
class Infinity:
    """A value inside the rewritten model with infinities or NaNs that the original does not have.

    Attributes:
        value: Its name in the rewritten model.
        node: The node that makes it; "" for an input or a weight.
        op: That node's operator.
        inf: How many elements are infinite and finite in the original, over all feeds.
        nan: The same for NaN.
    """

    value: str
    node: str
    op: str
    inf: int
    nan: int


@dataclass(frozen=True, slots=True)
class Misfit:
    """A node of the original that the rewritten model computes otherwise.

    Attributes:
        value: The output, by its name in the rewritten model.
        node: The name of the original's node.
        op: Its operator.
        error: |rewritten - expected| / |expected|, where the original's node in float32 makes what
            is expected of the inputs in the rewritten model.
    """

    value: str
    node: str
    op: str
    error: float

    def __str__(self) -> str:
        """Return it as one line."""
        place = f"{self.op} {self.node}".strip()
        return (
            f"{place} computes something else than the original from the same inputs: the error "
            f"of {self.value} is {percent(self.error)} of its size"
        )


@dataclass(frozen=True, slots=True)
class DeviceComparison:
    """The rewritten model on real hardware, against its emulation.

    Attributes:
        providers: The execution providers that ran it.
        outputs: How far the device's outputs are from the emulated ones.
        error: Why it could not be run there, or None.
        original: How far the device's outputs are from those of the original.
        asked: The user asked for the device, so that it must hold.
        itself: How far the original is there from what the CPU makes of it, on the feeds on which
            the rewritten model fails; empty if it fails on none, or if it cannot be run.
        itself_error: Why the original could not be run there, or None.
        notes: What is different about the engine on this machine.
    """

    providers: tuple[str, ...]
    outputs: tuple[OutputComparison, ...]
    error: str | None = None
    original: tuple[OutputComparison, ...] = ()
    asked: bool = False
    itself: tuple[OutputComparison, ...] = ()
    itself_error: str | None = None
    notes: tuple[str, ...] = ()

    @property
    def failures(self) -> tuple[str, ...]:
        """What does not hold on a device that was asked for, one line each."""
        if not self.asked:
            return ()
        names = ", ".join(self.providers)
        if self.error is not None:
            return (f"{names} could not run the model: {self.error}", *self.excuses)
        failed = (o for o in self.original if not o.ok)
        return (*(f"on {names}: {failure_of(output)}" for output in failed), *self.excuses)

    @property
    def lines(self) -> tuple[str, ...]:
        """How far off a device is that was asked for and ran the model, and notes on it."""
        if not self.asked or self.error is not None:
            return ()
        names, worst = ", ".join(self.providers), worst_of(self.original)
        said = "nothing was compared" if worst is None else f"worst {error_of(worst)}"
        return (f"run on {names}: {said}", *self.notes)

    @property
    def excuses(self) -> tuple[str, ...]:
        """What the provider does to the original as well: that is not the rewrite's fault."""
        if self.itself_error is not None:
            return (f"the original fails there as well: {self.itself_error}",)
        return tuple(
            f"the original differs there as well, against the CPU: {error_of(output)}"
            for output in self.itself
            if not output.ok
        )


_EXCUSES = {
    "weights": "rounding the weights alone gives the same error",
    "original": "so does the float32 original when its inputs change by one part in 1,000,000",
}


@dataclass(frozen=True, slots=True)
class FedBack:
    """Both models after many calls, each with the states that it made itself.

    Attributes:
        calls: How many.
        states: The outputs that were fed back.
        outputs: How far the outputs of the last calls are off.
    """

    calls: int
    states: tuple[str, ...]
    outputs: tuple[OutputComparison, ...]

    @property
    def where(self) -> str:
        """What was done, as the beginning of a line."""
        return f"after {self.calls:,} calls with {', '.join(self.states)} fed back"

    @property
    def failures(self) -> tuple[str, ...]:
        """What is wrong after the last call, one line each."""
        failed = (o for o in self.outputs if not o.ok and not o.excuse)
        return tuple(f"{self.where}: {failure_of(output)}" for output in failed)

    @property
    def doubts(self) -> tuple[str, ...]:
        """What yardsticks move as far, one line each."""
        return tuple(
            f"{self.where}: {failure_of(o)}; {_EXCUSES[o.excuse]}" for o in self.outputs if o.excuse
        )

    def __str__(self) -> str:
        """Return how far off it is then."""
        worst = worst_of(self.outputs)
        return f"{self.where}: " + ("no error" if worst is None else f"worst {error_of(worst)}")


def failure_of(output: OutputComparison) -> str:
    """Return why an output fails, in one line: by the first measure that does."""
    name = f"output {output.name}"
    if output.fault == "shape":
        return f"{name} has another shape"
    if output.fault == "lost":
        lost = output.inf + output.nan
        return f"{name}: {lost} elements are infinite or NaN, finite in the original"
    if output.fault == "error" and output.error is not None:
        return (
            f"{name}: error {percent(output.error)} of its {output.of}, at most {percent(ERROR)} "
            "passes"
        )
    if output.fault == "largest" and output.largest is not None:
        return (
            f"{name}: error of single elements up to {percent(output.largest)} of its {output.of}, "
            f"at most {percent(LARGEST)} passes"
        )
    if output.fault == "slice":
        return f"{name}: {output.slice}"
    if output.fault == "classes" and output.top1 is not None:
        return f"{name}: only {share(output.top1, 1)} of the rows have the same top-1 class"
    outside = output.elements - round(output.within * output.elements)
    return (
        f"{name}: {outside} of {output.elements} elements exceed the tolerance, "
        f"largest absolute error {output.max_abs:.3g}"
    )


def error_of(output: OutputComparison, *, strict: bool = False) -> str:
    """Return how far an output is off, and relative to what."""
    if output.error is None:
        return f"{share(1 - output.within)} of the elements of output {output.name} differ"
    if strict:
        return f"error {percent(output.scaled_error)} of the peak of output {output.name}"
    return f"error {percent(output.error)} of the {output.of} of output {output.name}"


def worst_of(outputs: Sequence[OutputComparison]) -> OutputComparison | None:
    """Return the output that is nearest to its limits, or furthest beyond them."""
    compared = [output for output in outputs if output.compared]
    return max(compared, key=lambda o: (o.share, o.error or 0.0), default=None)


def plain(value: Any) -> Any:
    """Return records that are mappings, and what is in them, as JSON has it: no NaN or infinity."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
