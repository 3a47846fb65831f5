"""Adam with decoupled weight decay."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import onnx_ir as ir

from amp_rewrite.optimizers import argument_checks as check
from amp_rewrite.optimizers.learning_rate import Rate
from amp_rewrite.optimizers.optimizer import Hyperparameter
from amp_rewrite.optimizers.rules.adam import Adam, AdamRule, AdamScalars, AdamSlots
from amp_rewrite.optimizers.rules.weight_decay import decays, patterns
from amp_rewrite.optimizers.update_rule import UpdateInput, checked
from amp_rewrite.training.training_graph import State


@dataclass(frozen=True, kw_only=True)
class AdamWRule(AdamRule):
    """Adam whose weight decay is not a part of the gradient.

        w -= learning_rate * weight_decay * w, then Adam's step

    I. Loshchilov, F. Hutter, "Decoupled Weight Decay Regularization", 2019,
    https://arxiv.org/abs/1711.05101. The decay is multiplied with the learning rate, as in PyTorch.
    It touches every row, so that a sparse gradient is made dense.
    """

    weight_decay: float = checked(check.number)
    exclude_from_weight_decay: Iterable[str] = checked(patterns)

    def variant(self, variable: State) -> bool:
        """Return whether a variable decays."""
        return decays(variable.name, self.weight_decay, self.exclude_from_weight_decay)

    def update(
        self, given: UpdateInput, shared: AdamScalars, slots: AdamSlots
    ) -> tuple[ir.Value, AdamSlots]:
        """Return the new value and the new moments."""
        b = given.b
        value, new = super().update(given, shared, slots)
        if not self.variant(given.variable):
            return value, new
        decay = b.mul(shared.learning_rate, self.weight_decay)
        return b.sub(value, b.mul(given.value, decay)), new


class AdamW(Adam):
    """Adam with decoupled weight decay; see `AdamWRule`."""

    weight_decay = Hyperparameter[float]()
    exclude_from_weight_decay = Hyperparameter[tuple[str, ...]]()

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
        """Make the rule.

        Args:
            learning_rate: A number of at least 0, or a schedule.
            beta1: Decay of the first moment: at least 0, below 1.
            beta2: Decay of the second moment: at least 0, below 1.
            epsilon: Added to the root of the second moment; above 0.
            weight_decay: The part of a weight that is lost per step at a learning rate of 1; at
                least 0.
            exclude_from_weight_decay: Regular expressions; variables in whose name one occurs do
                not decay. Usual for biases and normalization.
            use_locking: Accepted for compatibility; see `Optimizer`.
            name: Slots are named after it; not empty.
            **clipping: clipnorm, clipvalue or global_clipnorm; see `Clipping`.

        Raises:
            OptimizerTypeError: A hyperparameter is not a number, or a keyword is unknown.
            OptimizerValueError: The name is empty, or a hyperparameter is out of its range.
        """
        super().__init__(learning_rate, beta1, beta2, epsilon, use_locking, name, **clipping)
        self.rule = AdamWRule(
            **vars(self.rule),
            weight_decay=weight_decay,
            exclude_from_weight_decay=exclude_from_weight_decay,
        )
