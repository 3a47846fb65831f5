"""Gradient descent."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from amp_rewrite.optimizers.learning_rate import Rate
from amp_rewrite.optimizers.optimizer import Optimizer
from amp_rewrite.optimizers.update_rule import NoSlots, UpdateInput, UpdateRule


class GradientDescentRule(UpdateRule):
    """w -= learning_rate * g.

    H. Robbins, S. Monro, "A Stochastic Approximation Method", 1951,
    https://doi.org/10.1214/aoms/1177729586. A sparse gradient changes the touched rows only.
    """

    def update(
        self, given: UpdateInput, shared: ir.Value, slots: NoSlots
    ) -> tuple[ir.Value, NoSlots]:
        """Return the new value; there are no slots."""
        b = given.b
        return b.sub(given.value, b.mul(given.gradient, shared)), slots


class GradientDescent(Optimizer):
    """Gradient descent; see `GradientDescentRule`."""

    def __init__(
        self,
        learning_rate: Rate = 0.01,
        use_locking: bool = False,
        name: str = "GradientDescent",
        **clipping: Any,
    ) -> None:
        """Make the rule; `Optimizer` says what every optimizer takes and raises."""
        rule = GradientDescentRule()
        super().__init__(use_locking, name, rule=rule, learning_rate=learning_rate, **clipping)
