"""Adagrad and Adadelta."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import onnx_ir as ir

from amp_rewrite.training.optimizers import argument_checks as check
from amp_rewrite.training.optimizers.learning_rate import Rate
from amp_rewrite.training.optimizers.optimizer import Optimizer
from amp_rewrite.training.optimizers.update_rule import UpdateInput, UpdateRule


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
    touched rows only.
    """

    slots = AdagradSlots

    initial_accumulator_value: float = check.field(check.number)
    epsilon: float = check.field(check.number)

    def __post_init__(self) -> None:
        """Check the hyperparameters; without epsilon, a first gradient of 0 could be 0 / 0."""
        super().__post_init__()
        check.number("epsilon", self.epsilon, above=not self.initial_accumulator_value)

    def initial_slot(self, slot: str) -> float:
        """Return the first value of the accumulator."""
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


class Adagrad(Optimizer, rule=AdagradRule):
    """A rate per element; see `AdagradRule`.

    Attributes:
        initial_accumulator_value: The first value of the accumulator; at least 0.
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


class AdagradOptimizer(Adagrad, rule=AdagradRule):
    """Adagrad without an epsilon: a += g^2; w -= learning_rate * g / sqrt(a); a starts above 0."""

    def __init__(
        self,
        learning_rate: Rate = 0.01,
        initial_accumulator_value: float = 0.1,
        use_locking: bool = False,
        name: str = "Adagrad",
        *,
        epsilon: float = 0.0,
        **options: Any,
    ) -> None:
        """Make the rule; `Optimizer` says what every optimizer takes and raises."""


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

    rho: float = check.field(check.number, high=1)
    epsilon: float = check.field(check.number, above=True)

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


class Adadelta(Optimizer, rule=AdadeltaRule):
    """Updates in the units of the variable; see `AdadeltaRule`.

    Attributes:
        rho: Decay of both means, in [0, 1).
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


class AdadeltaOptimizer(Adadelta, learning_rate=0.001, epsilon=1e-8):
    """`Adadelta` with TensorFlow 1's defaults: a rate of 0.001, and an epsilon of 1e-8."""
