"""What `verify` found on stress inputs: frozen records, and their text.

Evidence: that of stress_checks.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from amp_rewrite.base.printable import percent
from amp_rewrite.numerics.compare.distance import ERROR, OutputComparison

UNNORMALISED = "unnormalised numbers"
"""Hundreds, of which nothing says that a model is fed with them, as pictures may be bytes."""

_EXCLUDED = "If your inputs are like that, pass --data; if not, --input-range NAME=LOW:HIGH"

Outcome = Literal["held", "failed", "doubtful", "left out"]


@dataclass(frozen=True, slots=True)
class Departure:
    """The first value inside that went wrong on an input, in topological order.

    Attributes:
        value: Its name in the rewritten model.
        node: The node that makes it; "" for an input or a weight.
        op: That node's operator.
        error: |rewritten - original| / |original| over the finite elements.
        inf: How many elements are infinite and finite in the original.
        nan: The same for NaN.
    """

    value: str
    node: str
    op: str
    error: float
    inf: int
    nan: int

    def __str__(self) -> str:
        """Return where it went wrong, and how."""
        place = f" ({self.op} {self.node})" if self.op else ""
        if self.inf or self.nan:
            kind = "infinite" if self.inf else "NaN"
            return f"{self.value}{place}, where {self.inf or self.nan} elements are {kind}"
        return f"{self.value}{place}, whose error is {percent(self.error)} of its size"


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
    first: Departure | None = None

    @property
    def failure(self) -> str:
        """What does not hold on which input, in one line."""
        place = "" if self.first is None else f"; first wrong: {self.first}"
        return f"on {self.name} ({', '.join(self.inputs)}): {self.why}{place}"

    @property
    def loses(self) -> bool:
        """Whether outputs became infinite or NaN, on inputs that many models have."""
        return self.name != UNNORMALISED and any(o.inf or o.nan for o in self.outputs)

    @property
    def apart_lines(self) -> tuple[str, ...]:
        """What became of rows that are masked whole, where that is not what the original gives."""
        return tuple(
            f"not counted: {self.name}: fully masked rows of output {o.name}, whose error is "
            f"{percent(o.apart_error)} of its peak"
            for o in self.outputs
            if o.apart_error > ERROR
        )


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

    @property
    def failures(self) -> tuple[str, ...]:
        """What does not hold, one line per input."""
        return tuple(r.failure for r in self.results if r.outcome == "failed")

    @property
    def doubts(self) -> tuple[str, ...]:
        """What is lost on inputs of a scale that the model may be meant for, one line each."""
        return tuple(f"{r.failure}. {_EXCLUDED}" for r in self._doubtful if r.loses)

    @property
    def exceptions(self) -> str:
        """On which inputs of another scale it is off, as the end of what it was compared on."""
        names = [r.name for r in self._doubtful if not r.loses]
        return f", but not on {' and '.join(names)}" if names else ""

    @property
    def _doubtful(self) -> list[StressResult]:
        return [r for r in self.results if r.outcome == "doubtful"]

    def _limit(self) -> str:
        """Return the budget; the input that runs when it ends is finished."""
        if self.seconds <= self.budget:
            return f"budget {self.budget:.0f} s"
        return f"the last one ended after the budget of {self.budget:.0f} s"

    def lines(self) -> list[str]:
        """Return the text: what was tried, what was left out and why, what is doubtful."""
        tried = ", ".join(r.name for r in self.results if r.outcome != "left out")
        left_out = (r for r in self.results if r.outcome == "left out")
        return [
            f"stress inputs ({self.seconds:.1f} s; {self._limit()}): "
            + (tried or "none fit this model"),
            *(f"left out: {r.name}: {r.why}" for r in left_out),
            *(line for r in self.results for line in r.apart_lines),
            *(f"doubtful: {r.failure}. {_EXCLUDED}" for r in self._doubtful if not r.loses),
        ]
