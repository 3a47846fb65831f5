"""Adam."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import onnx_ir as ir

from amp_rewrite.training.builder.builder import Builder
from amp_rewrite.training.optimizers import argument_checks as check
from amp_rewrite.training.optimizers.config import flat
from amp_rewrite.training.optimizers.learning_rate import Rate
from amp_rewrite.training.optimizers.optimizer import Optimizer
from amp_rewrite.training.optimizers.update_rule import (
    SharedInput,
    UpdateInput,
    UpdateRule,
)

BETA1_POWER, BETA2_POWER = "beta1_power", "beta2_power"

_HALF = 0.5
"""The decay from which it is taken out of a moment: what is added is divided by it."""


class AdamSlots(NamedTuple):
    """The slots of Adam and its relatives."""

    m: ir.Value  # first moment: the variable's shape, float32 or float64
    v: ir.Value  # second moment: the same


class AdamScalars(NamedTuple):
    """What the updates of all variables share: shape (), the type that updates have."""

    rate: ir.Value  # learning_rate * sqrt(1 - beta2^t) / (1 - beta1^t)
    epsilon: ir.Value  # see AdamRule.scaled_epsilon


@dataclass(frozen=True, kw_only=True)
class AdamRule(UpdateRule):
    """Adaptive moment estimation, with the corrections of the paper's Algorithm 1.

        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g^2
        w -= learning_rate * (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + epsilon)

    D. Kingma, J. Ba, "Adam: A Method for Stochastic Optimization", 2015,
    https://arxiv.org/abs/1412.6980. The corrections are taken out of the quotient, where they are
    scalars; powers of beta are kept in float64, for 1 - beta2^t loses 3 digits in float32.

    The moments of rows without a gradient decay and move these rows, so that a sparse gradient
    changes all rows, exactly as the dense one would. With lazy=True only the touched rows of w, m
    and v change, as in PyTorch's SparseAdam.

    With epsilon_hat=True epsilon is not multiplied by sqrt(1 - beta2^t): the formula of the paper's
    section 2, as TensorFlow and Keras compute it
    (https://www.tensorflow.org/api_docs/python/tf/raw_ops/ApplyAdam),

        w -= learning_rate * sqrt(1 - beta2^t) / (1 - beta1^t) * m / (sqrt(v) + epsilon)
    """

    slots = AdamSlots

    beta1: float = check.field(check.number, high=1)
    beta2: float = check.field(check.number, high=1)
    epsilon: float = check.field(check.number, above=True)
    lazy: bool = check.field(check.flag)
    epsilon_hat: bool = check.field(check.flag, default=False)

    @property
    def touches_rows_only(self) -> bool:
        """Whether it is lazy."""
        return self.lazy

    def initial_others(self) -> dict[str, np.ndarray]:
        """Return the powers of both betas in the first step: float64."""
        return {BETA1_POWER: np.array(self.beta1), BETA2_POWER: np.array(self.beta2)}

    def advance(self, given: SharedInput) -> dict[str, ir.Value]:
        """Return the powers of both betas in the next step."""
        b, others = given.b, given.others
        return {
            BETA1_POWER: b.mul(others[BETA1_POWER], self.beta1),
            BETA2_POWER: b.mul(others[BETA2_POWER], self.beta2),
        }

    def shared(self, given: SharedInput) -> Any:
        """Return AdamScalars."""
        b, others = given.b, given.others
        first = b.sub(1.0, others[BETA1_POWER])
        second = b.sqrt(b.sub(1.0, others[BETA2_POWER]))
        rate = b.div(b.mul(b.cast(given.rate, ir.DataType.DOUBLE), second), first)
        epsilon = self.scaled_epsilon(b, second)
        return AdamScalars(b.cast(rate, given.dtype), b.cast(epsilon, given.dtype))

    def scaled_epsilon(self, b: Builder, second: ir.Value) -> ir.Value:
        """Return what is added to sqrt(v): float64, shape (); `second` is sqrt(1 - beta2^t)."""
        if self.epsilon_hat:
            return b.constant(np.array(self.epsilon))
        return b.mul(second, self.epsilon)

    def direction(
        self, given: UpdateInput, slots: AdamSlots, epsilon: ir.Value
    ) -> tuple[ir.Value, AdamSlots]:
        """Return m / (sqrt(v) + epsilon), and the next slots.

        Few tensors in the variable's shape exist at a time: with its decay taken out, each sum can
        be made in place of its first term; and ONNX Runtime, which orders nodes from the results
        backwards, is done with m before it begins with v if the nodes of m come last.
        """
        b = given.b
        share = math.sqrt((1 - self.beta2) / _taken_out(self.beta2))
        v = _decayed(b, slots.v, self.beta2, b.square(b.mul(given.gradient, share)))
        root = b.add(b.sqrt(v), epsilon)
        share = (1 - self.beta1) / _taken_out(self.beta1)
        m = _decayed(b, slots.m, self.beta1, b.mul(given.gradient, share))
        return b.div(m, root), AdamSlots(m, v)

    def update(
        self, given: UpdateInput, shared: AdamScalars, slots: AdamSlots
    ) -> tuple[ir.Value, AdamSlots]:
        """Return the new value and the new moments."""
        b, (direction, new) = given.b, self.direction(given, slots, shared.epsilon)
        return b.sub(given.value, b.mul(direction, shared.rate)), new


class Adam(Optimizer):
    """Adaptive moment estimation; see `AdamRule`.

    Attributes:
        beta1: Decay of the first moment: at least 0, below 1.
        beta2: Decay of the second moment: at least 0, below 1.
        epsilon: Added to the root of the second moment; above 0.
        lazy: Let a sparse gradient change the touched rows only.
        epsilon_hat: Use TensorFlow's and Keras's formula.

    Examples:
        >>> model = amp.load("model.onnx")
        >>> loss = amp.losses.softmax_cross_entropy(model, "logits", "labels")
        >>> train_op = amp.optimizers.Adam(0.001).minimize(loss)
    """

    _rule: ClassVar[type[AdamRule]] = AdamRule
    """What says how a step changes a variable."""

    def __init__(
        self,
        learning_rate: Rate = 0.001,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        use_locking: bool = False,
        name: str = "Adam",
        *,
        lazy: bool = False,
        epsilon_hat: bool = False,
        **clipping: Any,
    ) -> None:
        """Make the rule; `Optimizer` says what every optimizer takes and raises."""
        rule = self._rule(
            beta1=beta1, beta2=beta2, epsilon=epsilon, lazy=lazy, epsilon_hat=epsilon_hat
        )
        super().__init__(use_locking, name, rule=rule, learning_rate=learning_rate, **clipping)

    @classmethod
    def from_config(
        cls, config: Mapping[str, Any], custom_objects: Mapping[str, Any] | None = None
    ) -> Self:
        """Return an optimizer made from what `get_config` returned; see `Optimizer.from_config`.

        A configuration of Keras's, whose betas are `beta_1` and `beta_2`, makes Keras's formula.
        """
        settings = flat(config)
        if isinstance(settings, Mapping) and "beta_1" in settings and cls is Adam:
            settings = {"epsilon_hat": True, **settings}
        return super().from_config(settings, custom_objects)


def _taken_out(decay: float) -> float:
    """Return the factor that a moment is computed without at first."""
    return 1.0 if decay < _HALF else decay


def _decayed(b: Builder, moment: ir.Value, decay: float, added: ir.Value) -> ir.Value:
    """Return decay * moment + what is added, which comes divided by `_taken_out(decay)`."""
    if decay < _HALF:
        return b.add(b.mul(moment, decay), added)
    return b.mul(b.add(added, moment), decay)
