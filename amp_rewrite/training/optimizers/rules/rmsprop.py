"""RMSProp."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import onnx_ir as ir

from amp_rewrite.training.optimizers import argument_checks as check
from amp_rewrite.training.optimizers.learning_rate import Rate
from amp_rewrite.training.optimizers.optimizer import Optimizer
from amp_rewrite.training.optimizers.update_rule import UpdateInput, UpdateRule


class RMSPropSlots(NamedTuple):
    """The slots of RMSProp."""

    rms: ir.Value  # mean square of gradients: the variable's shape, float32 or float64
    momentum: ir.Value  # velocity: the same


class CenteredRMSPropSlots(NamedTuple):
    """The slots of centered RMSProp."""

    rms: ir.Value  # as in RMSPropSlots
    momentum: ir.Value
    mg: ir.Value  # mean gradient: the variable's shape, float32 or float64


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

    Centered, with the variance s - m^2 in place of s, where m starts at 0:

        m = decay * m + (1 - decay) * g

    A. Graves, "Generating Sequences With Recurrent Neural Networks", 2013,
    https://arxiv.org/abs/1308.0850.
    """

    decay: float = check.field(check.number, high=1)
    momentum: float = check.field(check.number)
    epsilon: float = check.field(check.number, above=True)
    centered: bool = check.field(check.flag, default=False)

    @property
    def slots(self) -> type[Any]:  # pyright: ignore[reportIncompatibleVariableOverride] it depends
        """The slots; a centered rule has one more."""
        return CenteredRMSPropSlots if self.centered else RMSPropSlots

    def update(self, given: UpdateInput, shared: ir.Value, slots: Any) -> tuple[ir.Value, Any]:
        """Return the new value, and the new means and velocity."""
        b = given.b
        variance, slots = self.variance(given, slots)
        step = b.div(given.gradient, b.add(b.sqrt(variance), self.epsilon))
        velocity = b.add(b.mul(slots.momentum, self.momentum), step)
        value = b.sub(given.value, b.mul(velocity, shared))
        return value, slots._replace(momentum=velocity)

    def variance(self, given: UpdateInput, slots: Any) -> tuple[ir.Value, Any]:
        """Return s, or s - m^2 of at least 0, and the slots with new means."""
        b, gradient = given.b, given.gradient
        decay, rest = self.decay, 1 - self.decay
        rms = b.add(b.mul(slots.rms, decay), b.mul(b.square(gradient), rest))
        if not self.centered:
            return rms, slots._replace(rms=rms)
        mean = b.add(b.mul(slots.mg, decay), b.mul(gradient, rest))
        # Rounding can take the difference below 0, of which the root is NaN.
        variance = b.maximum(b.sub(rms, b.square(mean)), 0.0)
        return variance, slots._replace(rms=rms, mg=mean)


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

    initial_rms: float = check.field(check.number, default=0.0)

    def initial_slot(self, slot: str) -> float:
        """Return the first value of every element of a slot."""
        return self.initial_rms if slot == "rms" else 0.0

    def update(self, given: UpdateInput, shared: ir.Value, slots: Any) -> tuple[ir.Value, Any]:
        """Return the new value, and the new means and velocity."""
        b = given.b
        variance, slots = self.variance(given, slots)
        root = b.sqrt(b.add(variance, self.epsilon))
        step = b.div(b.mul(given.gradient, shared), root)
        velocity = b.add(b.mul(slots.momentum, self.momentum), step)
        return b.sub(given.value, velocity), slots._replace(momentum=velocity)


class RMSProp(Optimizer, rule=RMSPropRule):
    """Gradients in units of their size; see `RMSPropRule`.

    Attributes:
        decay: Decay of the means, in [0, 1).
        momentum: The decay of the velocity; at least 0.
        epsilon: Added to the root; above 0.
        centered: Divide by the root of the variance instead of that of the mean square.
    """

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


class RMSPropOptimizer(
    RMSProp, rule=partial(TensorFlowRMSPropRule, initial_rms=1.0), epsilon=1e-10
):
    """RMSProp whose mean square starts at 1; see `TensorFlowRMSPropRule`."""


class RMSprop(RMSProp, rule=TensorFlowRMSPropRule):
    """Keras's RMSprop, whose mean square starts at 0; see `TensorFlowRMSPropRule`.

    `rho` is `decay`.
    """

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
        """Make the rule; `Optimizer` says what every optimizer takes and raises."""
