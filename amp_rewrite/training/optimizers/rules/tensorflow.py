"""The optimizers of tf.compat.v1.train and Keras: their names, order of arguments, and numbers.

Formulas are those of TensorFlow's kernels
(https://www.tensorflow.org/api_docs/python/tf/raw_ops, ApplyAdagrad and its neighbours). Every
optimizer takes besides what `Optimizer` takes by keyword. What Keras and this package both have
under one name (`Adam`, `AdamW`, `Adagrad`, `Adadelta`) takes Keras's arguments as well;
docs/from_tensorflow.md has the formulas where numbers differ.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import onnx_ir as ir

from amp_rewrite.errors import OptimizerValueError
from amp_rewrite.training.optimizers import argument_checks as check
from amp_rewrite.training.optimizers import schedules
from amp_rewrite.training.optimizers.learning_rate import Rate
from amp_rewrite.training.optimizers.rules.adagrad import Adadelta, Adagrad
from amp_rewrite.training.optimizers.rules.adam import Adam
from amp_rewrite.training.optimizers.rules.adamw import LAMB
from amp_rewrite.training.optimizers.rules.gradient_descent import (
    GradientDescent,
    Momentum,
    MomentumRule,
    MomentumSlots,
)
from amp_rewrite.training.optimizers.rules.rmsprop import RMSProp, TensorFlowRMSPropRule
from amp_rewrite.training.optimizers.update_rule import UpdateInput

GradientDescentOptimizer = GradientDescent
"""w -= learning_rate * g. The order of its arguments and its numbers are TensorFlow 1's."""


class MomentumOptimizer(Momentum):
    """`Momentum` with the arguments in TensorFlow 1's order.

    a = momentum * a + g; w -= learning_rate * a, or with use_nesterov
    w -= learning_rate * (g + momentum * a).
    """

    def __init__(
        self,
        learning_rate: Rate = 0.01,
        momentum: float = 0.9,
        use_locking: bool = False,
        name: str = "Momentum",
        use_nesterov: bool = False,
        *,
        weight_decay: float = 0.0,
        **options: Any,
    ) -> None:
        """Make the rule; `Momentum` says what the arguments are."""
        super().__init__(
            learning_rate,
            momentum,
            use_nesterov,
            use_locking,
            name,
            weight_decay=weight_decay,
            **options,
        )


class AdagradOptimizer(Adagrad):
    """Adagrad without an epsilon: a += g^2; w -= learning_rate * g / sqrt(a); a starts above 0."""

    def __init__(
        self,
        learning_rate: Rate = 0.01,
        initial_accumulator_value: float = 0.1,
        use_locking: bool = False,
        name: str = "Adagrad",
        **options: Any,
    ) -> None:
        """Make the rule; `Adagrad` says what the arguments are."""
        options.setdefault("epsilon", 0.0)
        super().__init__(
            learning_rate,
            initial_accumulator_value,
            use_locking=use_locking,
            name=name,
            **options,
        )


class AdadeltaOptimizer(Adadelta):
    """`Adadelta` with TensorFlow 1's defaults: a rate of 0.001, and an epsilon of 1e-8."""

    def __init__(
        self,
        learning_rate: Rate = 0.001,
        rho: float = 0.95,
        epsilon: float = 1e-8,
        use_locking: bool = False,
        name: str = "Adadelta",
        **options: Any,
    ) -> None:
        """Make the rule; `Adadelta` says what the arguments are."""
        super().__init__(learning_rate, rho, epsilon, use_locking, name, **options)


class RMSPropOptimizer(RMSProp):
    """RMSProp whose mean square starts at 1; see `TensorFlowRMSPropRule`."""

    _rule = staticmethod(partial(TensorFlowRMSPropRule, initial_rms=1.0))

    def __init__(
        self,
        learning_rate: Rate = 0.001,
        decay: float = 0.9,
        momentum: float = 0.0,
        epsilon: float = 1e-10,
        use_locking: bool = False,
        centered: bool = False,
        name: str = "RMSProp",
        **options: Any,
    ) -> None:
        """Make the rule; `RMSProp` says what the arguments are."""
        super().__init__(
            learning_rate, decay, momentum, epsilon, use_locking, centered, name, **options
        )


class AdamOptimizer(Adam):
    """Adam with the epsilon hat; see `AdamRule`."""

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
        epsilon_hat: bool = True,
        **options: Any,
    ) -> None:
        """Make the rule; `Adam` says what the arguments are."""
        super().__init__(
            learning_rate,
            beta1,
            beta2,
            epsilon,
            use_locking,
            name,
            lazy=lazy,
            epsilon_hat=epsilon_hat,
            **options,
        )


@dataclass(frozen=True, kw_only=True)
class RatedMomentumRule(MomentumRule):
    """Momentum as Keras computes it: the learning rate is in the velocity.

        v = momentum * v - learning_rate * g            g with the weight decay in it
        w += v                                          or, with use_nesterov,
        w += momentum * v - learning_rate * g

    The same as `MomentumRule` while the rate is constant
    (https://keras.io/api/optimizers/sgd/).
    """

    def update(
        self, given: UpdateInput, shared: ir.Value, slots: MomentumSlots
    ) -> tuple[ir.Value, MomentumSlots]:
        """Return the new value and the new velocity."""
        b = given.b
        step = b.mul(self.penalized(given), shared)
        velocity = b.sub(b.mul(slots.momentum, self.momentum), step)
        moved = velocity
        if self.use_nesterov:
            moved = b.sub(b.mul(velocity, self.momentum), step)
        return b.add(given.value, moved), MomentumSlots(velocity)


class RatedMomentum(Momentum):
    """`Momentum` with the learning rate in the velocity; see `RatedMomentumRule`."""

    _rule = RatedMomentumRule


def SGD(  # noqa: N802 Keras's name, whose class is two classes here
    learning_rate: Rate = 0.01,
    momentum: float = 0.0,
    nesterov: bool = False,
    weight_decay: float | str | None = None,
    *,
    name: str | None = None,
    **options: Any,
) -> GradientDescent | Momentum:
    """Return what Keras calls SGD: GradientDescent, or Momentum if there is any.

    With a schedule the learning rate is in the velocity, as in Keras (`RatedMomentumRule`); with a
    constant rate that makes no difference, and Momentum's own rule is used.

    Args:
        learning_rate: A number or a schedule.
        momentum: 0 is GradientDescent.
        nesterov: Use Nesterov's momentum.
        weight_decay: What of the variable is added to its gradient; None is 0. A text is the name,
            which stands here in Keras 2.
        name: What slots are named after.
        **options: What `Optimizer` takes by keyword.

    Raises:
        OptimizerTypeError: An argument is of a type that it cannot be.
        OptimizerValueError: A number is impossible, or nesterov without momentum.
    """
    if isinstance(weight_decay, str):
        weight_decay, name = None, weight_decay
    options["weight_decay"] = 0.0 if weight_decay is None else weight_decay
    if name is not None:
        options["name"] = name
    momentum = check.number("momentum", momentum)
    if check.flag("nesterov", nesterov) and not momentum:
        raise OptimizerValueError(
            "Nesterov's method needs a momentum", found=momentum, expected="a number above 0"
        )
    if not momentum:
        return GradientDescent(learning_rate, **options)
    scheduled = isinstance(learning_rate, schedules.Schedule | Mapping)
    kind = RatedMomentum if scheduled else Momentum
    return kind(learning_rate, momentum, nesterov, **options)


class RMSprop(RMSProp):
    """Keras's RMSprop, whose mean square starts at 0; see `TensorFlowRMSPropRule`.

    `rho` is `decay`.
    """

    _rule = TensorFlowRMSPropRule

    def __init__(
        self,
        learning_rate: Rate = 0.001,
        rho: float = 0.9,
        momentum: float = 0.0,
        epsilon: float = 1e-7,
        centered: bool = False,
        name: str = "RMSprop",
        *,
        use_locking: bool = False,
        **options: Any,
    ) -> None:
        """Make the rule; `RMSProp` says what the arguments are."""
        super().__init__(
            learning_rate, rho, momentum, epsilon, use_locking, centered, name, **options
        )


Lamb = LAMB
