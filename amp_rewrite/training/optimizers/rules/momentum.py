"""Gradient descent with momentum."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import onnx_ir as ir

from amp_rewrite.training.optimizers import argument_checks as check
from amp_rewrite.training.optimizers.checked_fields import checked
from amp_rewrite.training.optimizers.learning_rate import Rate
from amp_rewrite.training.optimizers.optimizer import Optimizer
from amp_rewrite.training.optimizers.rules.gradient_descent import PenalizedRule
from amp_rewrite.training.optimizers.update_rule import UpdateInput


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

    momentum: float = checked(check.number)
    use_nesterov: bool = checked(check.flag)

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
