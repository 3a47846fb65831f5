"""What an update rule is, and what it is given."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import onnx_ir as ir

from amp_rewrite.builder.builder import Builder
from amp_rewrite.training.training_graph import State


@dataclass(frozen=True)
class Scalars:
    """What the updates of all variables of one element type share.

    Attributes:
        b: Adds the nodes.
        dtype: The type that updates are computed in: float32 or float64.
        rate: The learning rate of this step: shape (), `dtype`.
        others: The present states that belong to no variable, by name, in their own type.
    """

    b: Builder
    dtype: ir.DataType
    rate: ir.Value
    others: Mapping[str, ir.Value]


@dataclass(frozen=True)
class Number:
    """A variable, or the rows of it that a sparse gradient touches, in one step.

    Attributes:
        b: Adds the nodes.
        value: The present value: float32 or float64.
        multiple: Its gradient times `factor`: same shape and type.
        variable: Which variable it is.
        factor: See `UpdateRule._gradient_factor`; 1 if nothing has multiplied the gradient.
    """

    b: Builder
    value: ir.Value
    multiple: ir.Value
    variable: State
    factor: float = 1.0

    @property
    def gradient(self) -> ir.Value:
        """The gradient."""
        return self.gradient_times(1.0)

    def gradient_times(self, number: float) -> ir.Value:
        """Return a multiple of the gradient."""
        if number == self.factor:
            return self.multiple
        return self.b.mul(self.multiple, number / self.factor)

    def with_gradient(self, gradient: ir.Value) -> Number:
        """Return the same with another gradient: what a rule gives to the rule it is a child of."""
        return replace(self, multiple=gradient, factor=1.0)


class NoSlots(NamedTuple):
    """The slots of a rule that has none."""


class UpdateRule:
    """What a child of Optimizer says about itself: its slots, and how one step changes them."""

    slots: type[Any] = NoSlots
    touches_rows_only: bool = True
    """Whether a sparse gradient changes the touched rows of variable and slots only."""

    def _initial_slot(self, slot: str) -> float:
        """Return what a slot is filled with at first."""
        del slot
        return 0.0

    def _initial_others(self) -> dict[str, np.ndarray]:
        """Return name -> initial value of the states that belong to no variable: scalars."""
        return {}

    def _gradient_factor(self) -> float:
        """Return the number above 0 that `_update` multiplies gradients by before anything else.

        A loss scale is taken out of gradients by a product; it multiplies by this number as well,
        so that the update has one pass over the gradients less.
        """
        return 1.0

    def _scalars(self, scalars: Scalars) -> Any:
        """Return what the updates of all variables of one type share."""
        return scalars.rate

    def _advance(self, scalars: Scalars) -> dict[str, Any]:
        """Return name -> next value of the states that belong to no variable."""
        del scalars
        return {}

    def _variant(self, variable: State) -> Hashable:
        """Return what `_update` depends on besides its tensors: variables of one variant share it.

        A step holds one function per variant, and one call of it per variable.
        """
        del variable
        return None

    def _update(self, number: Number, shared: Any, slots: Any) -> tuple[Any, Any]:
        """Return the new value of a variable (or of rows of it) and its new slots.

        Args:
            number: The variable, its gradient, and the builder, which builds a function: tensors
                that are not given here are out of reach, and shapes are not known.
            shared: What `_scalars` returned.
            slots: The present slots, an instance of `slots`.
        """
        raise NotImplementedError(f"{type(self).__name__} does not say how it updates a variable")
