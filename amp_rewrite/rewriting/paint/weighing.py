"""What the choice of regions weighs: a table of costs, sizes, and what the user prefers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from amp_rewrite.graph.flat import Array, FlatGraph
from amp_rewrite.graph.sizes import Shape, Sizes
from amp_rewrite.kernels.costs import CostTable

Preference = Literal["speed", "accuracy", "size"]

LEAST_SAVED = 1 / 3
"""What share of its time an operator that rounds has to save where accuracy is preferred."""

LEAST_SHARE = 0.03
"""What share of the predicted time of a model has to be saved: less may as well be lost."""

LEAST_CALL = 1.0
"""How many microseconds have to be saved for each low operator and each Cast, in the mean: so far
may a call's time be off, of which models of a millisecond or less consist."""

MICROSECONDS_PER_BYTE = 1.0
"""What a byte of the file counts where size is preferred: more than any cast of what it holds."""


@dataclass(frozen=True)
class Weighing:
    """What the choice of regions is made by.

    Attributes:
        table: What operators and casts take on the target.
        prefer: "speed": the least time, but an operator that rounds has to save the table's
            `least_rounding`.
            "accuracy": the same, and `LEAST_SAVED` of its time. "size": the fewest bytes of
            constants, then the least time.
        flat: The model.
        prices: By value, what rounding it counts beside the time, in the unit of time of
            running_time.py; None if rounding costs nothing.
    """

    table: CostTable
    prefer: Preference
    flat: FlatGraph
    prices: Array | None = None

    @cached_property
    def _shapes(self) -> dict[int, Shape]:
        # imported here: it takes onnx_ir, and targets without a table never need it
        from amp_rewrite.graph.io.assumed_shapes import assumed_shapes

        return assumed_shapes(self.flat)

    @cached_property
    def elements(self) -> Array:
        """By value, how many elements it has, as far as shapes tell, or is assumed to have."""
        from amp_rewrite.graph.io.assumed_shapes import assumed_elements

        return assumed_elements(self.flat, self._shapes)

    @cached_property
    def sizes(self) -> Sizes:
        """The sizes of values and of the arithmetic on them."""
        return Sizes(self.flat, self._shapes, self.elements.tolist())
