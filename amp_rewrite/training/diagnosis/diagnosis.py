"""The errors of one run of a step, as records."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from amp_rewrite.base import arguments
from amp_rewrite.base.printable import one_line
from amp_rewrite.rewriting.report.records import Shown


@dataclass(frozen=True, slots=True)
class NonFinite:
    """A value with infinities or NaN that its operands do not have.

    Attributes:
        value: Its name.
        node: The node that computes it; None for an input or a state.
        op: The operator; None for an input or a state.
        part: "input", "state", "constant", "forward", "backward", "clipping", "sum over shards",
            "loss scaling" or "update".
        layer: In the backward pass, the node of the model that is differentiated.
        infinite: The number of infinite elements.
        nan: The number of elements that are NaN.
        elements: The number of elements.
        reached: The largest finite magnitude of its operands; None if there is none.
    """

    value: str
    node: str | None
    op: str | None
    part: str
    layer: str | None
    infinite: int
    nan: int
    elements: int
    reached: float | None

    def text(self) -> str:
        """Return it in words."""
        kinds = [f"{n} {kind}" for n, kind in ((self.infinite, "infinite"), (self.nan, "NaN")) if n]
        what = f"{' and '.join(kinds)} of {self.elements} elements of {self.value!r}"
        if self.node is None:
            return f"{what}, {_ARTICLES[self.part]} of the step"
        where = self.part if self.layer is None else f"{self.part} of {self.layer!r}"
        sentence = f"{what}, which {self.op} {self.node!r} computes ({where})"
        if self.reached is None:
            return sentence
        return f"{sentence} from magnitudes of at most {self.reached:.4g}"


_SCALED = ("backward", "loss scaling")
"""The parts of a step whose values the loss scale multiplies."""

_ARTICLES = {"input": "an input", "state": "a state", "constant": "a constant"}


@dataclass(frozen=True, slots=True)
class LayerUnderflow:
    """The underflow of the gradients of one node of the model.

    Attributes:
        layer: The node.
        value: The gradient that loses most.
        elements: The number of its elements.
        zeros: The share of elements that are zero.
        lost: The share of elements not zero in float32 that are zero in 16 bits.
        lives_at: The smallest loss scale, a power of two, at which 99 % of the elements not zero in
            float32 stay so; of all gradients of the layer.
        overflows_above: The largest loss scale, a power of two, at which none of them overflows.
    """

    layer: str
    value: str
    elements: int
    zeros: float
    lost: float
    lives_at: float
    overflows_above: float


@dataclass(frozen=True, slots=True)
class Diagnosis(Shown):
    """The errors of one run of a step.

    Attributes:
        finite: Whether the loss, all gradients and all next states are finite.
        first: The first value that is not finite, which the others come from; or None.
        precision: The type of forward and backward pass.
        loss_scale: The loss scale of the step.
        layers: The layers whose gradients are 16-bit, in the order of the backward pass.
        step: The number of the step, from 1, or None.
        epoch: The epoch of its batch, from 1, or None.
        batch: The number of its batch in that epoch, from 1, or None.
        loss: Its loss, or None.
        skipped: The number of updates skipped before it, in words; None if not too many.
    """

    finite: bool
    first: NonFinite | None
    precision: str
    loss_scale: float
    layers: tuple[LayerUnderflow, ...]
    step: int | None = None
    epoch: int | None = None
    batch: int | None = None
    loss: float | None = None
    skipped: str | None = None

    def __repr__(self) -> str:
        """Return one line."""
        return one_line(self, self.to_text())

    def losing(self, share: float = 0.0) -> list[LayerUnderflow]:
        """Return layers that lose more than a share (0 to 1) of their gradients, worst first."""
        share = arguments.number("share", share, low=0, high=1, expected="a number from 0 to 1")
        layers = [layer for layer in self.layers if layer.lost > share]
        return sorted(layers, key=lambda layer: -layer.lost)

    @property
    def scales(self) -> tuple[float, float] | None:
        """The smallest loss scale without underflow, and the largest without overflow."""
        if not self.layers:
            return None
        lives = max(layer.lives_at for layer in self.layers)
        return lives, min(layer.overflows_above for layer in self.layers)

    def to_text(self) -> str:
        """Return what is not finite in words."""
        if self.first is not None:
            scaled = self.first.part in _SCALED and self.loss_scale != 1
            at = f", at loss scale {self.loss_scale:g}" if scaled else ""
            return f"the first value that is not finite: {self.first.text()}{at}"
        if self.finite:
            return "every value is finite"
        return "no operator makes it: only constants are not finite"

    def to_dict(self) -> dict[str, Any]:
        """Return all fields in a form for JSON; a loss that is not finite is a word."""
        fields = asdict(self)
        if self.loss is not None and not math.isfinite(self.loss):
            fields["loss"] = str(self.loss)
        return fields
