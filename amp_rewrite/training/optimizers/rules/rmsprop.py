"""RMSProp."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import onnx_ir as ir

from amp_rewrite.training.optimizers import argument_checks as check
from amp_rewrite.training.optimizers.learning_rate import Rate
from amp_rewrite.training.optimizers.optimizer import Optimizer
from amp_rewrite.training.optimizers.update_rule import (
    Hyperparameter,
    UpdateInput,
    UpdateRule,
    checked,
)


class RMSPropSlots(NamedTuple):
    """The slots of RMSProp."""

    rms: ir.Value  # mean square of gradients: the variable's shape, float32 or float64
    momentum: ir.Value  # velocity: the same


class CenteredRMSPropSlots(NamedTuple):
    """The slots of centered RMSProp."""

    rms: ir.Value  # mean square of gradients: the variable's shape, float32 or float64
    momentum: ir.Value  # velocity: the same
    mg: ir.Value  # mean gradient: the same


@dataclass(frozen=True, kw_only=True)
class RMSPropRule(UpdateRule):
    """Gradients divided by the root of their running mean square.

        s = decay * s + (1 - decay) * g^2
        v = momentum * v + g / (sqrt(s) + epsilon)
        w -= learning_rate * v

    T. Tieleman, G. Hinton, "Lecture 6.5 - rmsprop", 2012,
    https://www.cs.toronto.edu/~tijmen/csc321/slides/lecture_slides_lec6.pdf. s and v start at 0 and
    epsilon stands outside of the root, as in PyTorch. A sparse gradient changes the touched rows
    only.
    """

    slots = RMSPropSlots

    decay: float = checked(check.number, high=1)
    momentum: float = checked(check.number)
    epsilon: float = checked(check.number, above=True)

    def update(self, given: UpdateInput, shared: ir.Value, slots: Any) -> tuple[ir.Value, Any]:
        """Return the new value, and the new means and velocity."""
        b, gradient = given.b, given.gradient
        decay, rest = self.decay, 1 - self.decay
        rms = b.add(b.mul(slots.rms, decay), b.mul(b.square(gradient), rest))
        variance, slots = self.variance(given, slots._replace(rms=rms))
        step = b.div(gradient, b.add(b.sqrt(variance), self.epsilon))
        velocity = b.add(b.mul(slots.momentum, self.momentum), step)
        value = b.sub(given.value, b.mul(velocity, shared))
        return value, slots._replace(momentum=velocity)

    def variance(self, given: UpdateInput, slots: Any) -> tuple[ir.Value, Any]:
        """Return what the gradient is divided by the root of, and the slots that this changes."""
        del given
        return slots.rms, slots


class CenteredRMSPropRule(RMSPropRule):
    """RMSProp with the variance in place of the mean square.

        m = decay * m + (1 - decay) * g
        v = momentum * v + g / (sqrt(s - m^2) + epsilon)

    A. Graves, "Generating Sequences With Recurrent Neural Networks", 2013,
    https://arxiv.org/abs/1308.0850. m starts at 0.
    """

    slots = CenteredRMSPropSlots

    def variance(
        self, given: UpdateInput, slots: CenteredRMSPropSlots
    ) -> tuple[ir.Value, CenteredRMSPropSlots]:
        """Return s - m^2, at least 0, and the slots with the new m."""
        b = given.b
        mean = b.add(b.mul(slots.mg, self.decay), b.mul(given.gradient, 1 - self.decay))
        # Rounding can take the difference below 0, of which the root is NaN.
        variance = b.maximum(b.sub(slots.rms, b.square(mean)), 0.0)
        return variance, slots._replace(mg=mean)


@dataclass(frozen=True, kw_only=True)
class TensorFlowRMSPropRule(RMSPropRule):
    """RMSProp as TensorFlow computes it: epsilon inside the root, the rate in the velocity.

        s = decay * s + (1 - decay) * g^2
        v = momentum * v + learning_rate * g / sqrt(s + epsilon)
        w -= v

    and, centered, with m = decay * m + (1 - decay) * g, sqrt(s - m^2 + epsilon)
    (https://www.tensorflow.org/api_docs/python/tf/raw_ops/ApplyRMSProp, ApplyCenteredRMSProp).
    v and m start at 0, s at `initial_rms`: 1 in tf.compat.v1.train, 0 in Keras. A sparse gradient
    changes the touched rows only.
    """

    initial_rms: float = checked(check.number, default=0.0)

    def initial_slot(self, slot: str) -> float:
        """Return what a slot is filled with at first."""
        return self.initial_rms if slot == "rms" else 0.0

    def update(self, given: UpdateInput, shared: ir.Value, slots: Any) -> tuple[ir.Value, Any]:
        """Return the new value, and the new means and velocity."""
        b, gradient = given.b, given.gradient
        decay, rest = self.decay, 1 - self.decay
        rms = b.add(b.mul(slots.rms, decay), b.mul(b.square(gradient), rest))
        variance, slots = self.variance(given, slots._replace(rms=rms))
        root = b.sqrt(b.add(variance, self.epsilon))
        step = b.div(b.mul(gradient, shared), root)
        velocity = b.add(b.mul(slots.momentum, self.momentum), step)
        return b.sub(given.value, velocity), slots._replace(momentum=velocity)


class TensorFlowCenteredRMSPropRule(CenteredRMSPropRule, TensorFlowRMSPropRule):
    """`TensorFlowRMSPropRule` with the variance in place of the mean square."""


class RMSProp(Optimizer):
    """Gradients in units of their size; see `RMSPropRule` and `CenteredRMSPropRule`.

    Attributes:
        decay: Decay of the means: at least 0, below 1.
        momentum: What is kept of the velocity; at least 0.
        epsilon: Added to the root; above 0.
        centered: Divide by the root of the variance instead of that of the mean square.
    """

    decay = Hyperparameter[float]()
    momentum = Hyperparameter[float]()
    epsilon = Hyperparameter[float]()

    def __init__(
        self,
        learning_rate: Rate = 0.001,
        decay: float = 0.9,
        momentum: float = 0.0,
        epsilon: float = 1e-8,
        use_locking: bool = False,
        centered: bool = False,
        name: str = "RMSProp",
        **clipping: Any,
    ) -> None:
        """Make the rule; `Optimizer` says what every optimizer takes and raises."""
        rule = self._rule(centered, decay=decay, momentum=momentum, epsilon=epsilon)
        super().__init__(use_locking, name, rule=rule, learning_rate=learning_rate, **clipping)

    @property
    def centered(self) -> bool:
        """Whether the gradient is divided by the root of its variance."""
        return isinstance(self.rule, CenteredRMSPropRule)

    @centered.setter
    def centered(self, value: bool) -> None:
        self.rule = self._rule(value, **vars(self.rule))

    @classmethod
    def _rule(cls, centered: object, **hyperparameters: float) -> RMSPropRule:
        """Return the rule with or without the mean taken out."""
        kind = CenteredRMSPropRule if check.flag("centered", centered) else RMSPropRule
        return kind(**hyperparameters)


class TensorFlowRMSProp(RMSProp):
    """RMSProp with TensorFlow's numbers; see `TensorFlowRMSPropRule`."""

    _initial_rms: ClassVar[float] = 0.0
    """What the mean square starts at."""

    @classmethod
    def _rule(cls, centered: object, **hyperparameters: float) -> RMSPropRule:
        is_centered = check.flag("centered", centered)
        kind = TensorFlowCenteredRMSPropRule if is_centered else TensorFlowRMSPropRule
        return kind(**{"initial_rms": cls._initial_rms, **hyperparameters})
