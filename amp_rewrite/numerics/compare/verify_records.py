"""What `verify` finds besides the comparisons of outputs: frozen records, and their sentences.

Evidence: that of intermediates.py, misfits.py, fed_back.py, stress_checks.py and device_checks.py,
whose records these are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from amp_rewrite.base.printable import percent
from amp_rewrite.numerics.compare.distance import ERROR, OutputComparison
from amp_rewrite.numerics.compare.verify_texts import (
    doubt_of,
    error_of,
    failure_of,
    output_line,
    worst_of,
)

UNNORMALISED = "unnormalised numbers"
"""Hundreds, of which nothing says that a model is fed with them, as pictures may be bytes."""

_EXCLUDED = "If your inputs are like that, pass --data; if not, --input-range NAME=LOW:HIGH"


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
        providers: The execution providers that ran it.
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
        """What does not hold there, one line each."""
        if self.error is not None:
            return (f"{self.names} could not run the model: {self.error}", *self.excuses)
        failed = (o for o in self.original if not o.ok)
        return (*(f"on {self.names}: {failure_of(output)}" for output in failed), *self.excuses)

    @property
    def lines(self) -> tuple[str, ...]:
        """How far off a device is that ran the model, and notes on it."""
        if self.error is not None:
            return ()
        worst = worst_of(self.original)
        said = "nothing was compared" if worst is None else f"worst {error_of(worst)}"
        return (f"run on {self.names}: {said}", *self.notes)

    @property
    def details(self) -> tuple[str, ...]:
        """What a device made of every output."""
        if self.error is not None:
            return ()
        return (
            f"{self.names} against the emulation:",
            *map(output_line, self.outputs),
            f"{self.names} against the original:",
            *map(output_line, self.original),
            *self.notes,
        )

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
        return tuple(f"{self.where}: {doubt_of(o)}" for o in self.outputs if o.excuse)

    def __str__(self) -> str:
        """Return how far off it is then."""
        worst = worst_of(self.outputs)
        return f"{self.where}: " + ("no error" if worst is None else f"worst {error_of(worst)}")


Outcome = Literal["held", "failed", "doubtful", "left out"]


@dataclass(frozen=True, slots=True)
class StressResult:
    """One stress input.

    Attributes:
        name: What kind it is, such as "late positions".
        inputs: The inputs of the model that differ from plausible ones: name, shape and range.
        outcome: "held"; "failed"; "doubtful", if the numbers are those of another scale than the
            model may be meant for, and it holds for that; or "left out", because the original
            itself fails on it, the rounded weights alone are as far off, or for lack of time or
            memory.
        why: What does not hold, or why it was left out; "" if it held.
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
        """What does not hold on which input, in one line."""
        place = "" if self.first is None else f"; first wrong: {self.first}"
        return f"on {self.name} ({', '.join(self.inputs)}): {self.why}{place}"

    @property
    def loses(self) -> bool:
        """Whether outputs became infinite or NaN, on inputs that many models have."""
        return self.name != UNNORMALISED and any(o.inf or o.nan for o in self.outputs)


@dataclass(frozen=True, slots=True)
class StressReport:
    """All stress inputs of a model.

    Attributes:
        results: One per kind that concerns the model.
        seconds: How long they took.
        budget: How many seconds they were allowed.
    """

    results: tuple[StressResult, ...]
    seconds: float
    budget: float

    def of(self, *outcomes: Outcome) -> list[StressResult]:
        """Return the results that ended so."""
        return [result for result in self.results if result.outcome in outcomes]

    @property
    def failures(self) -> tuple[str, ...]:
        """What does not hold, one line per input."""
        return tuple(result.failure for result in self.of("failed"))

    @property
    def doubts(self) -> tuple[str, ...]:
        """What is lost on inputs of a scale that the model may be meant for, one line each."""
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
            *(
                f"not counted: {r.name}: fully masked rows of output {o.name}, whose error is "
                f"{percent(o.apart_error)} of its peak"
                for r in self.results
                for o in r.outputs
                if o.apart_error > ERROR
            ),
            *(f"doubtful: {r.failure}. {_EXCLUDED}" for r in self.of("doubtful") if not r.loses),
        ]
