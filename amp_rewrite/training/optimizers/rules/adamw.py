"""Adam with decoupled weight decay."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import onnx_ir as ir

from amp_rewrite.training.optimizers.learning_rate import Rate
from amp_rewrite.training.optimizers.rules.adam import (
    AdamSlots,
    DecayingAdam,
    DecayingAdamRule,
    decaying,
)
from amp_rewrite.training.optimizers.update_rule import SharedInput, UpdateInput


class AdamWScalars(NamedTuple):
    """What the updates of all variables share: AdamScalars and what a weight loses."""

    rate: ir.Value
    epsilon: ir.Value
    decay: ir.Value  # learning_rate * weight_decay


@dataclass(frozen=True, kw_only=True)
class AdamWRule(DecayingAdamRule):
    """Adam whose weight decay is not a part of the gradient.

        w -= learning_rate * weight_decay * w, then Adam's step

    I. Loshchilov, F. Hutter, "Decoupled Weight Decay Regularization", 2019,
    https://arxiv.org/abs/1711.05101. The decay is multiplied with the learning rate, as in PyTorch.
    It touches every row, so that a sparse gradient is made dense.
    """

    def shared(self, given: SharedInput) -> AdamWScalars:
        """Return AdamWScalars."""
        rate, epsilon = super().shared(given)
        return AdamWScalars(rate, epsilon, given.b.mul(given.rate, self.weight_decay))

    def update(
        self, given: UpdateInput, shared: Any, slots: AdamSlots
    ) -> tuple[ir.Value, AdamSlots]:
        """Return the new value and the new moments."""
        b = given.b
        value, new = super().update(given, shared, slots)
        if not self.variant(given.variable):
            return value, new
        return b.sub(value, b.mul(given.value, shared.decay)), new


class AdamW(DecayingAdam):
    """Adam with decoupled weight decay; see `AdamWRule`, and `Adam` for its hyperparameters.

    Attributes:
        weight_decay: The part of a weight that is lost per step at a learning rate of 1; at
            least 0.
        exclude_from_weight_decay: Regular expressions; variables in whose name one occurs do not
            decay. Usual for biases and normalization.

    Examples:
        >>> rate = amp.optimizers.CosineSchedule(0.001, decay_steps=1000)
        >>> optimizer = amp.optimizers.AdamW(rate, weight_decay=0.01)
    """

    def __init__(
        self,
        learning_rate: Rate = 0.001,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        weight_decay: float = 0.01,
        exclude_from_weight_decay: Iterable[str] = (),
        use_locking: bool = False,
        name: str = "AdamW",
        **clipping: Any,
    ) -> None:
        """Make the rule; `Optimizer` says what every optimizer takes and raises."""
        super().__init__(learning_rate, beta1, beta2, epsilon, use_locking, name, **clipping)
        self.rule = decaying(self, AdamWRule, weight_decay, exclude_from_weight_decay)
