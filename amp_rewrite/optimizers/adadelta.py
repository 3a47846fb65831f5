"""Adadelta."""

from __future__ import annotations

from typing import Any, NamedTuple

import onnx_ir as ir

from amp_rewrite.optimizers import argument_checks as check
from amp_rewrite.optimizers.keras import Rate
from amp_rewrite.optimizers.optimizer import Optimizer
from amp_rewrite.optimizers.update_rule import Number


class AdadeltaSlots(NamedTuple):
    """The slots of Adadelta."""

    accum: ir.Value  # mean square of gradients: the variable's shape, float32 or float64
    accum_update: ir.Value  # mean square of updates: the same


class Adadelta(Optimizer):
    """Updates in the units of the variable, without a rate of their own.

        a = rho * a + (1 - rho) * g^2
        d = sqrt(u + epsilon) / sqrt(a + epsilon) * g
        u = rho * u + (1 - rho) * d^2
        w -= learning_rate * d

    M. Zeiler, "ADADELTA: An Adaptive Learning Rate Method", 2012, https://arxiv.org/abs/1212.5701
    (where learning_rate is 1). As in TensorFlow, a sparse gradient changes the touched rows only.
    """

    slots = AdadeltaSlots

    def __init__(
        self,
        learning_rate: Rate = 1.0,
        rho: float = 0.95,
        epsilon: float = 1e-6,
        use_locking: bool = False,
        name: str = "Adadelta",
        **clipping: Any,
    ) -> None:
        """Keep the hyperparameters.

        Args:
            learning_rate: A number of at least 0, or a schedule.
            rho: Decay of both means: at least 0, below 1.
            epsilon: Added below both roots; above 0.
            use_locking: Accepted for compatibility; see `Optimizer`.
            name: Slots are named after it; not empty.
            **clipping: clipnorm, clipvalue or global_clipnorm; see `Clipping`.

        Raises:
            OptimizerTypeError: A hyperparameter is no number, or a keyword is unknown.
            OptimizerValueError: The name is empty, or a hyperparameter is out of its range.
        """
        super().__init__(use_locking, name, learning_rate=learning_rate, **clipping)
        self.rho = check.number("rho", rho, high=1)
        self.epsilon = check.number("epsilon", epsilon, above=True)

    def _update(
        self, number: Number, shared: ir.Value, slots: AdadeltaSlots
    ) -> tuple[ir.Value, AdadeltaSlots]:
        b, gradient = number.b, number.gradient
        rho, rest = self.rho, 1 - self.rho
        accum = b.add(b.mul(slots.accum, rho), b.mul(b.square(gradient), rest))
        above = b.sqrt(b.add(slots.accum_update, self.epsilon))
        below = b.sqrt(b.add(accum, self.epsilon))
        update = b.mul(b.div(above, below), gradient)
        accum_update = b.add(b.mul(slots.accum_update, rho), b.mul(b.square(update), rest))
        value = b.sub(number.value, b.mul(update, shared))
        return value, AdadeltaSlots(accum, accum_update)
