"""What was measured of a model's forms, and which of them was chosen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from amp_rewrite.kernels.costs import CostTable
from amp_rewrite.numerics.measure.contest import Times

ORIGINAL = "float32"

LEAST_FASTER = 0.03
"""What share of float32's time has to be saved: less may be what else the machine does."""


@dataclass(frozen=True, slots=True)
class Form:
    """One form of the model.

    Attributes:
        name: How it was made, in words.
        times: How long it took.
        low: How many float32 nodes are in 16 bits.
        casts: How many Casts the rewrite added.
        says: What else is to be said: that it holds, or why it was left out.
    """

    name: str
    times: Times
    low: int = 0
    casts: int = 0
    says: str = ""

    def __str__(self) -> str:
        """Return the form in words."""
        counts = f", {self.low} nodes in 16 bits, {self.casts} casts" if self.low else ""
        return f"{self.name}: {self.times}{counts}{f'; {self.says}' if self.says else ''}"


@dataclass(frozen=True, eq=False)
class Choice:
    """Which form of a model is the fastest that holds on a device.

    Attributes:
        provider: What they ran on.
        device: The device in words, with its driver, if it has one.
        runtime: The engine with its version.
        forms: The forms in the order of their times.
        chosen: The name of the fastest in 16 bits that holds; None if none does.
        saved: What share of float32's time it saves; negative if it takes longer.
        costs: What its nodes and casts took, for `costs` and `--costs`.
        nodes: How many nodes the model has.
        otherwise: What the engine computes in another type than the chosen form says.
        notes: What else the engine does otherwise here.
    """

    provider: str
    device: str
    runtime: str
    forms: tuple[Form, ...]
    chosen: str | None
    saved: float
    costs: CostTable
    nodes: int
    otherwise: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def is_faster(self) -> bool:
        """Whether the chosen form is faster than float32 by as much as can be told."""
        return self.chosen is not None and self.saved >= LEAST_FASTER

    @property
    def verdict(self) -> str:
        """What came of it, in one line."""
        if self.chosen is None:
            is_low = any(form.low for form in self.forms)
            return "no form in 16 bits holds" if is_low else "no form is in 16 bits here"
        change = f"{abs(self.saved):.1%} {'less' if self.saved >= 0 else 'more'} time"
        if self.is_faster:
            return f"fastest here: {self.chosen}, {change} than float32"
        return (
            f"nothing in 16 bits is faster than float32 here by {LEAST_FASTER:.0%}: "
            f"{self.chosen} takes {change}"
        )

    @property
    def lines(self) -> tuple[str, ...]:
        """What is printed: the device, each form with its spread, and what came of it."""
        on = f"measured on {self.provider} ({self.runtime}; {self.device}):"
        return (on, *(f"  {form}" for form in self.forms), *self.otherwise, *self.notes)

    def to_dict(self) -> Mapping[str, Any]:
        """Return it as JSON has it, without the costs."""
        return {
            "provider": self.provider,
            "device": self.device,
            "runtime": self.runtime,
            "forms": [
                {
                    "name": form.name,
                    "seconds": list(form.times.seconds),
                    "low": form.low,
                    "casts": form.casts,
                    "says": form.says,
                }
                for form in self.forms
            ],
            "chosen": self.chosen,
            "saved": self.saved,
            "otherwise": list(self.otherwise),
            "text": self.verdict,
        }
