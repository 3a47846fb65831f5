"""Adam and its relatives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
import onnx_ir as ir

from amp_rewrite.grad.builder.builder import Builder
from amp_rewrite.training.optimizers import argument_checks as check
from amp_rewrite.training.optimizers.config import flat
from amp_rewrite.training.optimizers.learning_rate import Rate
from amp_rewrite.training.optimizers.optimizer import Optimizer
from amp_rewrite.training.optimizers.update_rule import SharedInput, UpdateInput, UpdateRule

BETA1_POWER, BETA2_POWER = "beta1_power", "beta2_power"


class AdamSlots(NamedTuple):
    """The slots of Adam and its relatives."""

    m: ir.Value  # first moment: the variable's shape, float32 or float64
    v: ir.Value  # second moment: the same


class AMSGradSlots(NamedTuple):
    """The slots of AMSGrad."""

    m: ir.Value  # as in AdamSlots
    v: ir.Value
    vhat: ir.Value  # the largest v so far: the variable's shape, float32 or float64


class AdamScalars(NamedTuple):
    """The scalars that the updates of all variables share: shape (), the type of updates."""

    rate: ir.Value  # learning_rate * sqrt(1 - beta2^t) / (1 - beta1^t)
    epsilon: ir.Value  # see AdamRule.scaled_epsilon


def _flag_or_none(name: str, value: object) -> bool:
    """Return a switch; None, as in configurations of Keras, is off."""
    return value is not None and check.flag(name, value)


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

    With amsgrad=True the largest v so far takes the place of v below the root, as in PyTorch and
    Keras: S. Reddi, S. Kale, S. Kumar, "On the Convergence of Adam and Beyond", 2018,
    https://arxiv.org/abs/1904.09237.
    """

    beta1: float = check.field(check.number, high=1)
    beta2: float = check.field(check.number, high=1)
    epsilon: float = check.field(check.number, above=True)
    lazy: bool = check.field(check.flag)
    epsilon_hat: bool = check.field(check.flag, default=False)
    amsgrad: bool = check.field(_flag_or_none, default=False)

    @property
    def slots(self) -> type[Any]:  # pyright: ignore[reportIncompatibleVariableOverride] it depends
        """The slots; AMSGrad has one more."""
        return AMSGradSlots if self.amsgrad else AdamSlots

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

    def direction(self, given: UpdateInput, slots: Any, epsilon: ir.Value) -> tuple[ir.Value, Any]:
        """Return m / (sqrt(v) + epsilon), and the next slots."""
        b, gradient = given.b, given.gradient
        v = b.add(b.mul(slots.v, self.beta2), b.mul(b.square(gradient), 1 - self.beta2))
        slots = slots._replace(v=v)
        if self.amsgrad:
            slots = slots._replace(vhat=b.maximum(slots.vhat, v))
        root = b.add(b.sqrt(slots[-1]), epsilon)
        m = b.add(b.mul(slots.m, self.beta1), b.mul(gradient, 1 - self.beta1))
        return b.div(m, root), slots._replace(m=m)

    def update(self, given: UpdateInput, shared: Any, slots: Any) -> tuple[ir.Value, Any]:
        """Return the new value and the new moments."""
        b, (direction, new) = given.b, self.direction(given, slots, shared.epsilon)
        return b.sub(given.value, b.mul(direction, shared.rate)), new


class Adam(Optimizer, rule=AdamRule):
    """Adaptive moment estimation; see `AdamRule`.

    Attributes:
        beta1: Decay of the first moment, in [0, 1).
        beta2: Decay of the second moment, in [0, 1).
        epsilon: Added to the root of the second moment; above 0.
        lazy: Let a sparse gradient change the touched rows only.
        epsilon_hat: Use TensorFlow's and Keras's formula.
        amsgrad: Divide by the largest second moment so far.

    Examples:
        >>> model = amp.load("model.onnx")
        >>> loss = amp.losses.softmax_cross_entropy(model, "logits", "labels")
        >>> train_op = amp.optimizers.Adam(0.001).minimize(loss)
    """

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
        amsgrad: bool = False,
        **clipping: Any,
    ) -> None:
        """Make the rule; `Optimizer` says what every optimizer takes and raises."""

    @classmethod
    def from_config(
        cls, config: Mapping[str, Any], custom_objects: Mapping[str, Any] | None = None
    ) -> Self:
        """Return an optimizer made from what `get_config` returned; see `Optimizer.from_config`.

        A configuration of Keras's, whose betas are `beta_1` and `beta_2`, makes Keras's formula.
        """
        settings = flat(config)
        if isinstance(settings, Mapping) and "beta_1" in settings and cls in (Adam, AdamW):
            settings = {"epsilon_hat": True, **settings}
        return super().from_config(settings, custom_objects)


class AdamOptimizer(Adam, epsilon_hat=True):
    """Adam with the epsilon hat; see `AdamRule`."""


class AdamWScalars(NamedTuple):
    """The scalars that the updates of all variables share."""

    rate: ir.Value
    epsilon: ir.Value
    decay: ir.Value  # learning_rate * weight_decay


@dataclass(frozen=True, kw_only=True)
class AdamWRule(AdamRule):
    """Adam whose weight decay is not a part of the gradient.

        w -= learning_rate * weight_decay * w, then Adam's step

    I. Loshchilov, F. Hutter, "Decoupled Weight Decay Regularization", 2019,
    https://arxiv.org/abs/1711.05101. The decay is multiplied with the learning rate, as in PyTorch.
    It touches every row, so that a sparse gradient is made dense.
    """

    weight_decay: float = check.field(check.number, default=0.0)

    def shared(self, given: SharedInput) -> Any:
        """Return AdamWScalars."""
        rate, epsilon = super().shared(given)
        return AdamWScalars(rate, epsilon, given.b.mul(given.rate, self.weight_decay))

    def update(self, given: UpdateInput, shared: Any, slots: Any) -> tuple[ir.Value, Any]:
        """Return the new value and the new moments."""
        b = given.b
        value, new = super().update(given, shared, slots)
        if not self.weight_decay:
            return value, new
        return b.sub(value, b.mul(given.value, shared.decay)), new


class AdamW(Adam, rule=AdamWRule):
    """Adam with decoupled weight decay; see `AdamWRule`, and `Adam` for its hyperparameters.

    Attributes:
        weight_decay: The part of a weight that is lost per step at a learning rate of 1; at
            least 0. `ParameterGroups(optimizer, no_decay="bias,norm")` spares variables.

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
        use_locking: bool = False,
        name: str = "AdamW",
        *,
        lazy: bool = False,
        epsilon_hat: bool = False,
        amsgrad: bool = False,
        **clipping: Any,
    ) -> None:
        """Make the rule; `Optimizer` says what every optimizer takes and raises."""


class LAMBScalars(NamedTuple):
    """The scalars that the updates of all variables share."""

    learning_rate: ir.Value
    first: ir.Value  # sqrt(1 - beta2^t) / (1 - beta1^t)
    epsilon: ir.Value  # see AdamRule.scaled_epsilon


@dataclass(frozen=True, kw_only=True)
class LAMBRule(AdamWRule):
    """Adam's direction, scaled per variable to the norm of the variable.

        r = (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + epsilon) + weight_decay * w
        w -= learning_rate * |w| / |r| * r                  with |w| / |r| = 1 where either is 0

    Y. You et al., "Large Batch Optimization for Deep Learning: Training BERT in 76 minutes", 2020,
    https://arxiv.org/abs/1904.00962 (Algorithm 2, phi the identity). The norms run over the whole
    variable, so that a sparse gradient is made dense.
    """

    def shared(self, given: SharedInput) -> Any:
        """Return LAMBScalars."""
        b, others, dtype = given.b, given.others, given.dtype
        second = b.sqrt(b.sub(1.0, others[BETA2_POWER]))
        first = b.div(second, b.sub(1.0, others[BETA1_POWER]))
        epsilon = self.scaled_epsilon(b, second)
        return LAMBScalars(given.rate, b.cast(first, dtype), b.cast(epsilon, dtype))

    def update(self, given: UpdateInput, shared: Any, slots: Any) -> tuple[ir.Value, Any]:
        """Return the new value and the new moments."""
        b, (quotient, new) = given.b, self.direction(given, slots, shared.epsilon)
        direction = b.mul(quotient, shared.first)
        if self.weight_decay:
            direction = b.add(direction, b.mul(given.value, self.weight_decay))
        scale = b.mul(shared.learning_rate, _ratio(b, given.value, direction))
        return b.sub(given.value, b.mul(direction, scale)), new


class LAMB(AdamW, rule=LAMBRule, epsilon=1e-6, name="LAMB"):
    """Adam's direction, scaled to the norm of the variable; see `LAMBRule` and `AdamW`."""


Lamb = LAMB


def _ratio(b: Builder, value: ir.Value, direction: ir.Value) -> ir.Value:
    """Return |value| / |direction|; 1 where either is 0."""
    above, below = (
        b.sqrt(b.reduce("ReduceSumSquare", x, None, keepdims=False)) for x in (value, direction)
    )
    either = b.equal(b.mul(b.sign(above), b.sign(below)), 0.0)
    return b.where(either, 1.0, b.div(above, b.where(either, 1.0, below)))
