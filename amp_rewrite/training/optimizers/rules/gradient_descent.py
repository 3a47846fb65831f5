"""Gradient descent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import onnx_ir as ir

from amp_rewrite.errors import OptimizerValueError
from amp_rewrite.training.optimizers import argument_checks as check
from amp_rewrite.training.optimizers.learning_rate import Rate, Schedule
from amp_rewrite.training.optimizers.optimizer import Optimizer
from amp_rewrite.training.optimizers.update_rule import NoSlots, UpdateInput, UpdateRule


@dataclass(frozen=True, kw_only=True)
class PenalizedRule(UpdateRule):
    """A rule with the weight decay in the gradient, g + weight_decay * w, as in PyTorch's SGD.

    It changes every row, so that a sparse gradient is made dense.
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


class GradientDescent(Optimizer, rule=GradientDescentRule):
    """Gradient descent; see `GradientDescentRule`.

    Attributes:
        weight_decay: The share of the variable that is added to its gradient; at least 0.
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


GradientDescentOptimizer = GradientDescent
"""w -= learning_rate * g. The order of its arguments and its numbers are TensorFlow 1's."""


class MomentumSlots(NamedTuple):
    """The slots of Momentum."""

    momentum: ir.Value  # the variable's shape, float32 or float64


@dataclass(frozen=True, kw_only=True)
class MomentumRule(PenalizedRule):
    """Gradient descent with a velocity.

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


class Momentum(Optimizer, rule=MomentumRule):
    """Gradient descent with momentum; see `MomentumRule`.

    Attributes:
        momentum: The decay of the velocity; at least 0.
        use_nesterov: Look ahead along the velocity.
        weight_decay: The share of the variable that is added to its gradient; at least 0.

    Examples:
        >>> optimizer = amp.optimizers.Momentum(0.1, 0.9, use_nesterov=True)
    """

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


class MomentumOptimizer(Momentum, rule=MomentumRule):
    """`Momentum` with the arguments in TensorFlow 1's order."""

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
        """Make the rule; `Optimizer` says what every optimizer takes and raises."""


@dataclass(frozen=True, kw_only=True)
class RatedMomentumRule(MomentumRule):
    """Momentum as Keras computes it (https://keras.io/api/optimizers/sgd/): the rate is in v.

    v = momentum * v - learning_rate * g            g with the weight decay in it
    w += v                                          or, with use_nesterov,
    w += momentum * v - learning_rate * g
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


class RatedMomentum(Momentum, rule=RatedMomentumRule):
    """`Momentum` with the learning rate in the velocity; see `RatedMomentumRule`."""


def SGD(  # noqa: N802 Keras's name, whose class is two classes here
    learning_rate: Rate = 0.01,
    momentum: float = 0.0,
    nesterov: bool = False,
    weight_decay: float | str | None = None,
    *,
    name: str | None = None,
    **options: Any,
) -> GradientDescent | Momentum:
    """Return Keras's SGD: GradientDescent, or Momentum.

    With a schedule the learning rate is in the velocity, as in Keras (`RatedMomentumRule`). With a
    constant rate the results are the same.

    Args:
        learning_rate: A number or a schedule.
        momentum: 0 is GradientDescent.
        nesterov: Use Nesterov's momentum.
        weight_decay: The share of the variable that is added to its gradient; None is 0. A text is
            the name, as in Keras 2.
        name: The optimizer's name.
        **options: Keyword arguments of `Optimizer`.

    Raises:
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
    scheduled = isinstance(learning_rate, Schedule | Mapping)
    kind = RatedMomentum if scheduled else Momentum
    return kind(learning_rate, momentum, nesterov, **options)
