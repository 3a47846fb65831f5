"""The arguments that Keras 3 gives a LossScaleOptimizer, and the loss scale that they describe."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from amp_rewrite.errors import LossScaleValueError
from amp_rewrite.training.loss_scaling.dynamic import DynamicLossScale
from amp_rewrite.training.loss_scaling.loss_scale import FixedLossScale, LossScale

_WHERE = "LossScaleOptimizer"


@dataclass(frozen=True)
class GrowingForm:
    """The arguments, None where one was not given.

    Attributes:
        dynamic: Whether the scale follows the gradients; None is True.
        initial_scale: The scale of the first step; None is 2^15.
        growth_steps: How many finite steps it takes to grow; None is 2000.
    """

    dynamic: bool | None
    initial_scale: float | None
    growth_steps: int | None

    @property
    def is_asked_for(self) -> bool:
        """Whether any of them was given."""
        arguments = (self.dynamic, self.initial_scale, self.growth_steps)
        return any(argument is not None for argument in arguments)

    def loss_scale(self) -> LossScale:
        """Return the loss scale that they describe.

        Raises:
            LossScaleValueError: One is impossible, or they exclude each other.
        """
        if self.dynamic is not None and not isinstance(self.dynamic, bool):  # pyright: ignore[reportUnnecessaryIsInstance] users pass anything
            raise LossScaleValueError(
                "dynamic must be True or False", where=_WHERE, found=repr(self.dynamic)
            )
        if self.dynamic is not False:
            options: dict[str, Any] = {
                "initial_loss_scale": self.initial_scale,
                "increment_period": self.growth_steps,
            }
            return DynamicLossScale(**{k: v for k, v in options.items() if v is not None})
        if self.initial_scale is None:
            raise LossScaleValueError(
                "initial_scale must be given if dynamic is False",
                where=_WHERE,
                remedy="pass initial_scale=1024, for example",
            )
        if self.growth_steps is not None:
            raise LossScaleValueError(
                "dynamic_growth_steps must be None if dynamic is False",
                where=_WHERE,
                found=repr(self.growth_steps),
            )
        return FixedLossScale(self.initial_scale)


def only_one(optimizer: Any, inner_optimizer: Any) -> Any:
    """Return the optimizer that was given in either place."""
    if optimizer is not None and inner_optimizer is not None:
        raise LossScaleValueError(
            "two optimizers", where=_WHERE, found="optimizer and inner_optimizer", expected="one"
        )
    return inner_optimizer if optimizer is None else optimizer
