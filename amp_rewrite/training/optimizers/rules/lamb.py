"""LAMB."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import onnx_ir as ir

from amp_rewrite.training.builder.builder import Builder
from amp_rewrite.training.optimizers.learning_rate import Rate
from amp_rewrite.training.optimizers.rules.adam import BETA1_POWER, BETA2_POWER, AdamSlots
from amp_rewrite.training.optimizers.rules.adamw import AdamW, DecayingAdamRule
from amp_rewrite.training.optimizers.update_rule import SharedInput, UpdateInput


class LAMBScalars(NamedTuple):
    """What the updates of all variables share: shape (), the type that updates have."""

    learning_rate: ir.Value
    first: ir.Value  # sqrt(1 - beta2^t) / (1 - beta1^t)
    epsilon: ir.Value  # see AdamRule.scaled_epsilon


@dataclass(frozen=True, kw_only=True)
class LAMBRule(DecayingAdamRule):
    """Adam's direction, scaled per variable to the norm of the variable.

        r = (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + epsilon) + weight_decay * w
        w -= learning_rate * |w| / |r| * r                  with |w| / |r| = 1 where either is 0

    Y. You et al., "Large Batch Optimization for Deep Learning: Training BERT in 76 minutes", 2020,
    https://arxiv.org/abs/1904.00962 (Algorithm 2, phi the identity). The norms run over the whole
    variable, so that a sparse gradient is made dense.
    """

    def shared(self, given: SharedInput) -> LAMBScalars:
        """Return LAMBScalars."""
        b, others, dtype = given.b, given.others, given.dtype
        second = b.sqrt(b.sub(1.0, others[BETA2_POWER]))
        first = b.div(second, b.sub(1.0, others[BETA1_POWER]))
        epsilon = self.scaled_epsilon(b, second)
        return LAMBScalars(given.rate, b.cast(first, dtype), b.cast(epsilon, dtype))

    def update(
        self, given: UpdateInput, shared: Any, slots: AdamSlots
    ) -> tuple[ir.Value, AdamSlots]:
        """Return the new value and the new moments."""
        b, (quotient, new) = given.b, self.direction(given, slots, shared.epsilon)
        direction = b.mul(quotient, shared.first)
        if self.variant(given.variable):
            direction = b.add(direction, b.mul(given.value, self.weight_decay))
        scale = b.mul(shared.learning_rate, _ratio(b, given.value, direction))
        return b.sub(given.value, b.mul(direction, scale)), new


class LAMB(AdamW):
    """Adam's direction, scaled to the norm of the variable; see `LAMBRule` and `AdamW`."""

    _rule = LAMBRule

    def __init__(
        self,
        learning_rate: Rate = 0.001,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-6,
        weight_decay: float = 0.01,
        exclude_from_weight_decay: Iterable[str] = (),
        use_locking: bool = False,
        name: str = "LAMB",
        **clipping: Any,
    ) -> None:
        """Make the rule; `AdamW` says what the arguments are."""
        decay = weight_decay, exclude_from_weight_decay
        super().__init__(
            learning_rate, beta1, beta2, epsilon, *decay, use_locking, name, **clipping
        )


def _ratio(b: Builder, value: ir.Value, direction: ir.Value) -> ir.Value:
    """Return |value| / |direction|; 1 where either is 0."""
    above, below = (
        b.sqrt(b.reduce("ReduceSumSquare", x, None, keepdims=False)) for x in (value, direction)
    )
    either = b.equal(b.mul(b.sign(above), b.sign(below)), 0.0)
    return b.where(either, 1.0, b.div(above, b.where(either, 1.0, below)))
