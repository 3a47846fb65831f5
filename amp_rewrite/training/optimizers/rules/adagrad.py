"""Adagrad."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import onnx_ir as ir

from amp_rewrite.training.optimizers import argument_checks as check
from amp_rewrite.training.optimizers.checked_fields import checked
from amp_rewrite.training.optimizers.learning_rate import Rate
from amp_rewrite.training.optimizers.optimizer import Optimizer
from amp_rewrite.training.optimizers.update_rule import (
    UpdateInput,
    UpdateRule,
)


class AdagradSlots(NamedTuple):
    """The slots of Adagrad."""

    accumulator: ir.Value  # the variable's shape, float32 or float64


@dataclass(frozen=True, kw_only=True)
class AdagradRule(UpdateRule):
    """A rate per element, by the sum of all squared gradients.

        a += g^2
        w -= learning_rate * g / (sqrt(a) + epsilon)

    J. Duchi, E. Hazan, Y. Singer, "Adaptive Subgradient Methods for Online Learning and Stochastic
    Optimization", 2011, https://jmlr.org/papers/v12/duchi11a.html. A sparse gradient changes the
    touched rows only, which is what the rule does anyway.
    """

    slots = AdagradSlots

    initial_accumulator_value: float = checked(check.number)
    epsilon: float = checked(check.number)

    def __post_init__(self) -> None:
        """Check the hyperparameters.

        Raises:
            OptimizerTypeError: One is not a number.
            OptimizerValueError: One is out of its range.
        """
        super().__post_init__()
        # Without it, an element that has seen no gradient yet could be 0 / 0.
        check.number("epsilon", self.epsilon, above=not self.initial_accumulator_value)

    def initial_slot(self, slot: str) -> float:
        """Return what the accumulator starts at."""
        del slot
        return self.initial_accumulator_value

    def update(
        self, given: UpdateInput, shared: ir.Value, slots: AdagradSlots
    ) -> tuple[ir.Value, AdagradSlots]:
        """Return the new value and the new accumulator."""
        b, gradient = given.b, given.gradient
        accumulator = b.add(slots.accumulator, b.square(gradient))
        root = b.add(b.sqrt(accumulator), self.epsilon)
        step = b.div(b.mul(gradient, shared), root)
        return b.sub(given.value, step), AdagradSlots(accumulator)


class Adagrad(Optimizer):
    """A rate per element; see `AdagradRule`.

    Attributes:
        initial_accumulator_value: What the accumulator starts at; at least 0.
        epsilon: Added to the root; at least 0, and above 0 if the accumulator starts at 0.
    """

    def __init__(
        self,
        learning_rate: Rate = 0.01,
        initial_accumulator_value: float = 0.1,
        epsilon: float = 1e-10,
        use_locking: bool = False,
        name: str = "Adagrad",
        **clipping: Any,
    ) -> None:
        """Make the rule; `Optimizer` says what every optimizer takes and raises."""
        rule = AdagradRule(initial_accumulator_value=initial_accumulator_value, epsilon=epsilon)
        super().__init__(use_locking, name, rule=rule, learning_rate=learning_rate, **clipping)
