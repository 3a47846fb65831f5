"""The optimizers of tf.compat.v1.train: its names, the order of its arguments, and its numbers.

Formulas are those of TensorFlow's kernels
(https://www.tensorflow.org/api_docs/python/tf/raw_ops, ApplyAdagrad and its neighbours). Every
optimizer takes besides what `Optimizer` takes by keyword.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from amp_rewrite.training.optimizers.learning_rate import Rate
from amp_rewrite.training.optimizers.rules.adagrad import Adadelta, Adagrad
from amp_rewrite.training.optimizers.rules.adam import Adam
from amp_rewrite.training.optimizers.rules.gradient_descent import GradientDescent, Momentum
from amp_rewrite.training.optimizers.rules.rmsprop import RMSProp, TensorFlowRMSPropRule

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
    """Adagrad without an epsilon: a += g^2; w -= learning_rate * g / sqrt(a)."""

    def __init__(
        self,
        learning_rate: Rate = 0.01,
        initial_accumulator_value: float = 0.1,
        use_locking: bool = False,
        name: str = "Adagrad",
        **options: Any,
    ) -> None:
        """Make the rule.

        Args:
            learning_rate: A number or a schedule.
            initial_accumulator_value: What a starts at; above 0.
            use_locking: Without effect.
            name: What slots are named after.
            **options: What `Optimizer` takes by keyword.

        Raises:
            OptimizerTypeError: One of them is of a type that it cannot be.
            OptimizerValueError: One is impossible.
        """
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
