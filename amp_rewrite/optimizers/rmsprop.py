"""RMSProp, plain and centered."""

from __future__ import annotations

from typing import Any, NamedTuple

import onnx_ir as ir

from amp_rewrite.optimizers import argument_checks as check
from amp_rewrite.optimizers.keras import Rate
from amp_rewrite.optimizers.optimizer import Optimizer
from amp_rewrite.optimizers.update_rule import Number


class RMSPropSlots(NamedTuple):
    """The slots of RMSProp."""

    rms: ir.Value  # mean square of gradients: the variable's shape, float32 or float64
    momentum: ir.Value  # velocity: the same


class CenteredRMSPropSlots(NamedTuple):
    """The slots of centered RMSProp."""

    rms: ir.Value  # mean square of gradients: the variable's shape, float32 or float64
    momentum: ir.Value  # velocity: the same
    mg: ir.Value  # mean gradient: the same


class RMSProp(Optimizer):
    """Gradients divided by the root of their running mean square, or of their variance.

        s = decay * s + (1 - decay) * g^2
        m = decay * m + (1 - decay) * g                     if centered, else m = 0
        v = momentum * v + g / (sqrt(s - m^2) + epsilon)
        w -= learning_rate * v

    T. Tieleman, G. Hinton, "Lecture 6.5 - rmsprop", 2012,
    https://www.cs.toronto.edu/~tijmen/csc321/slides/lecture_slides_lec6.pdf; A. Graves, "Generating
    Sequences With Recurrent Neural Networks", 2013, https://arxiv.org/abs/1308.0850 (centered).
    s, m and v start at 0 and epsilon stands outside of the root, as in PyTorch. A sparse gradient
    changes the touched rows only.
    """

    slots = RMSPropSlots

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
        """Keep the hyperparameters.

        Args:
            learning_rate: A number of at least 0, or a schedule.
            decay: Decay of the means: at least 0, below 1.
            momentum: What is kept of the velocity; at least 0.
            epsilon: Added to the root; above 0.
            use_locking: Accepted for compatibility; see `Optimizer`.
            centered: Divide by the root of the variance instead of that of the mean square.
            name: Slots are named after it; not empty.
            **clipping: clipnorm, clipvalue or global_clipnorm; see `Clipping`.

        Raises:
            OptimizerTypeError: A hyperparameter is no number, or a keyword is unknown.
            OptimizerValueError: The name is empty, or a hyperparameter is out of its range.
        """
        super().__init__(use_locking, name, learning_rate=learning_rate, **clipping)
        self.decay = check.number("decay", decay, high=1)
        self.momentum = check.number("momentum", momentum)
        self.epsilon = check.number("epsilon", epsilon, above=True)
        self.centered = bool(centered)
        self.slots = CenteredRMSPropSlots if centered else RMSPropSlots

    def _update(self, number: Number, shared: ir.Value, slots: Any) -> tuple[ir.Value, Any]:
        b, gradient = number.b, number.gradient
        decay, rest = self.decay, 1 - self.decay
        rms = b.add(b.mul(slots.rms, decay), b.mul(b.square(gradient), rest))
        variance, new = rms, slots._replace(rms=rms)
        if self.centered:
            mean = b.add(b.mul(slots.mg, decay), b.mul(gradient, rest))
            # Rounding can take the difference below 0, of which the root is NaN.
            variance = b.maximum(b.sub(rms, b.square(mean)), 0.0)
            new = new._replace(mg=mean)
        step = b.div(gradient, b.add(b.sqrt(variance), self.epsilon))
        velocity = b.add(b.mul(slots.momentum, self.momentum), step)
        value = b.sub(number.value, b.mul(velocity, shared))
        return value, new._replace(momentum=velocity)
