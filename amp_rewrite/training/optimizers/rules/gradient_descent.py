"""Gradient descent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import onnx_ir as ir

from amp_rewrite.training.optimizers import argument_checks as check
from amp_rewrite.training.optimizers.learning_rate import Rate
from amp_rewrite.training.optimizers.optimizer import Optimizer
from amp_rewrite.training.optimizers.update_rule import (
    NoSlots,
    UpdateInput,
    UpdateRule,
)


@dataclass(frozen=True, kw_only=True)
class PenalizedRule(UpdateRule):
    """A rule whose weight decay is a part of the gradient, g + weight_decay * w.

    That is the gradient of the loss plus weight_decay / 2 * |w|^2, as in PyTorch's SGD. It touches
    every row, so that a sparse gradient is made dense.
    """

    weight_decay: float = check.field(check.number, default=0.0)

    @property
    def touches_rows_only(self) -> bool:
        """Whether there is no weight decay."""
        return not self.weight_decay

    def penalized(self, given: UpdateInput) -> ir.Value:
        """Return the gradient with the weight decay in it."""
        if not self.weight_decay:
            return given.gradient
        return given.b.add(given.gradient, given.b.mul(given.value, self.weight_decay))


@dataclass(frozen=True, kw_only=True)
class GradientDescentRule(PenalizedRule):
    """w -= learning_rate * g, g with the weight decay in it.

    H. Robbins, S. Monro, "A Stochastic Approximation Method", 1951,
    https://doi.org/10.1214/aoms/1177729586. Without weight decay a sparse gradient changes the
    touched rows only.
    """

    def update(
        self, given: UpdateInput, shared: ir.Value, slots: NoSlots
    ) -> tuple[ir.Value, NoSlots]:
        """Return the new value; there are no slots."""
        b = given.b
        return b.sub(given.value, b.mul(self.penalized(given), shared)), slots


class GradientDescent(Optimizer):
    """Gradient descent; see `GradientDescentRule`.

    Attributes:
        weight_decay: What of the variable is added to its gradient; at least 0.
    """

    def __init__(
        self,
        learning_rate: Rate = 0.01,
        use_locking: bool = False,
        name: str = "GradientDescent",
        *,
        weight_decay: float = 0.0,
        **clipping: Any,
    ) -> None:
        """Make the rule; `Optimizer` says what every optimizer takes and raises."""
        rule = GradientDescentRule(weight_decay=weight_decay)
        super().__init__(use_locking, name, rule=rule, learning_rate=learning_rate, **clipping)


class MomentumSlots(NamedTuple):
    """The slots of Momentum."""

    momentum: ir.Value  # the variable's shape, float32 or float64


@dataclass(frozen=True, kw_only=True)
class MomentumRule(PenalizedRule):
    """Gradient descent with a velocity, or with Nesterov's.

        a = momentum * a + g                                g with the weight decay in it
        w -= learning_rate * a                              or, with use_nesterov,
        w -= learning_rate * (g + momentum * a)

    B. Polyak, "Some methods of speeding up the convergence of iteration methods", 1964,
    https://doi.org/10.1016/0041-5553(64)90137-5; I. Sutskever et al., "On the importance of
    initialization and momentum in deep learning", 2013,
    https://proceedings.mlr.press/v28/sutskever13.html. As in TensorFlow, a sparse gradient changes
    the touched rows of w and a only, unless there is weight decay: a does not decay elsewhere.
    """

    slots = MomentumSlots

    momentum: float = check.field(check.number)
    use_nesterov: bool = check.field(check.flag)

    def update(
        self, given: UpdateInput, shared: ir.Value, slots: MomentumSlots
    ) -> tuple[ir.Value, MomentumSlots]:
        """Return the new value and the new velocity."""
        b, gradient = given.b, self.penalized(given)
        velocity = b.add(b.mul(slots.momentum, self.momentum), gradient)
        step = velocity
        if self.use_nesterov:
            step = b.add(gradient, b.mul(velocity, self.momentum))
        return b.sub(given.value, b.mul(step, shared)), MomentumSlots(velocity)


class Momentum(Optimizer):
    """Gradient descent with momentum; see `MomentumRule`.

    Attributes:
        momentum: What is kept of the velocity; at least 0.
        use_nesterov: Look ahead along the velocity.
        weight_decay: What of the variable is added to its gradient; at least 0.

    Examples:
        >>> optimizer = amp.optimizers.Momentum(0.1, 0.9, use_nesterov=True)
    """

    _rule: ClassVar[type[MomentumRule]] = MomentumRule
    """What says how a step changes a variable."""

    def __init__(
        self,
        learning_rate: Rate = 0.01,
        momentum: float = 0.9,
        use_nesterov: bool = False,
        use_locking: bool = False,
        name: str = "Momentum",
        *,
        weight_decay: float = 0.0,
        **clipping: Any,
    ) -> None:
        """Make the rule; `Optimizer` says what every optimizer takes and raises."""
        rule = self._rule(momentum=momentum, use_nesterov=use_nesterov, weight_decay=weight_decay)
        super().__init__(use_locking, name, rule=rule, learning_rate=learning_rate, **clipping)
