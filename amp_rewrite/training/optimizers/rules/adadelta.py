"""Adadelta."""

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


class AdadeltaSlots(NamedTuple):
    """The slots of Adadelta."""

    accum: ir.Value  # mean square of gradients: the variable's shape, float32 or float64
    accum_update: ir.Value  # mean square of updates: the same


@dataclass(frozen=True, kw_only=True)
class AdadeltaRule(UpdateRule):
    """Updates in the units of the variable, without a rate of their own.

        a = rho * a + (1 - rho) * g^2
        d = sqrt(u + epsilon) / sqrt(a + epsilon) * g
        u = rho * u + (1 - rho) * d^2
        w -= learning_rate * d

    M. Zeiler, "ADADELTA: An Adaptive Learning Rate Method", 2012, https://arxiv.org/abs/1212.5701
    (where learning_rate is 1). As in TensorFlow, a sparse gradient changes the touched rows only.
    """

    slots = AdadeltaSlots

    rho: float = checked(check.number, high=1)
    epsilon: float = checked(check.number, above=True)

    def update(
        self, given: UpdateInput, shared: ir.Value, slots: AdadeltaSlots
    ) -> tuple[ir.Value, AdadeltaSlots]:
        """Return the new value and the new means."""
        b, gradient = given.b, given.gradient
        rho, rest = self.rho, 1 - self.rho
        accum = b.add(b.mul(slots.accum, rho), b.mul(b.square(gradient), rest))
        above = b.sqrt(b.add(slots.accum_update, self.epsilon))
        below = b.sqrt(b.add(accum, self.epsilon))
        update = b.mul(b.div(above, below), gradient)
        accum_update = b.add(b.mul(slots.accum_update, rho), b.mul(b.square(update), rest))
        value = b.sub(given.value, b.mul(update, shared))
        return value, AdadeltaSlots(accum, accum_update)


class Adadelta(Optimizer):
    """Updates in the units of the variable; see `AdadeltaRule`.

    Attributes:
        rho: Decay of both means: at least 0, below 1.
        epsilon: Added below both roots; above 0.
    """

    def __init__(
        self,
        learning_rate: Rate = 1.0,
        rho: float = 0.95,
        epsilon: float = 1e-6,
        use_locking: bool = False,
        name: str = "Adadelta",
        **clipping: Any,
    ) -> None:
        """Make the rule; `Optimizer` says what every optimizer takes and raises."""
        rule = AdadeltaRule(rho=rho, epsilon=epsilon)
        super().__init__(use_locking, name, rule=rule, learning_rate=learning_rate, **clipping)
