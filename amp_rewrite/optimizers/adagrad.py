"""Adagrad."""

from __future__ import annotations

from typing import Any, NamedTuple

import onnx_ir as ir

from amp_rewrite.optimizers import argument_checks as check
from amp_rewrite.optimizers.keras import Rate
from amp_rewrite.optimizers.optimizer import Optimizer
from amp_rewrite.optimizers.update_rule import Number


class AdagradSlots(NamedTuple):
    """The slots of Adagrad."""

    accumulator: ir.Value  # the variable's shape, float32 or float64


class Adagrad(Optimizer):
    """A rate per element, by the sum of all squared gradients.

        a += g^2
        w -= learning_rate * g / (sqrt(a) + epsilon)

    J. Duchi, E. Hazan, Y. Singer, "Adaptive Subgradient Methods for Online Learning and Stochastic
    Optimization", 2011, https://jmlr.org/papers/v12/duchi11a.html. A sparse gradient changes the
    touched rows only, which is what the rule does anyway.
    """

    slots = AdagradSlots

    def __init__(
        self,
        learning_rate: Rate = 0.01,
        initial_accumulator_value: float = 0.1,
        epsilon: float = 1e-10,
        use_locking: bool = False,
        name: str = "Adagrad",
        **clipping: Any,
    ) -> None:
        """Keep the hyperparameters.

        Args:
            learning_rate: A number of at least 0, or a schedule.
            initial_accumulator_value: What the accumulator starts at; at least 0.
            epsilon: Added to the root; at least 0, and above 0 if the accumulator starts at 0.
            use_locking: Accepted for compatibility; see `Optimizer`.
            name: Slots are named after it; not empty.
            **clipping: clipnorm, clipvalue or global_clipnorm; see `Clipping`.

        Raises:
            OptimizerTypeError: A hyperparameter is no number, or a keyword is unknown.
            OptimizerValueError: The name is empty, or a hyperparameter is out of its range.
        """
        super().__init__(use_locking, name, learning_rate=learning_rate, **clipping)
        self.initial_accumulator_value = check.number(
            "initial_accumulator_value", initial_accumulator_value
        )
        # Without it, an element that has seen no gradient yet could be 0 / 0.
        self.epsilon = check.number("epsilon", epsilon, above=not initial_accumulator_value)

    def _initial_slot(self, slot: str) -> float:
        del slot
        return self.initial_accumulator_value

    def _update(
        self, number: Number, shared: ir.Value, slots: AdagradSlots
    ) -> tuple[ir.Value, AdagradSlots]:
        b, gradient = number.b, number.gradient
        accumulator = b.add(slots.accumulator, b.square(gradient))
        root = b.add(b.sqrt(accumulator), self.epsilon)
        step = b.div(b.mul(gradient, shared), root)
        return b.sub(number.value, step), AdagradSlots(accumulator)
