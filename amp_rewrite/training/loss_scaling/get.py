"""Loss scales by what denotes them, here and in TensorFlow 2.4 to Keras 3."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from amp_rewrite.errors import LossScaleValueError
from amp_rewrite.training.loss_scaling.dynamic import DynamicLossScale
from amp_rewrite.training.loss_scaling.loss_scale import FixedLossScale, LossScale
from amp_rewrite.training.optimizers.config import class_of, restore

_CLASSES: dict[str, type[LossScale]] = {
    kind.__name__: kind for kind in (FixedLossScale, DynamicLossScale)
}


def get(identifier: object) -> LossScale | None:
    """Return a loss scale.

    Args:
        identifier: A number, which is a FixedLossScale; "dynamic"; a LossScale, which is returned;
            what `serialize` or `get_config` of a loss scale of this package returned; or None,
            which is returned.

    Raises:
        LossScaleValueError: It denotes no loss scale.
        LossScaleTypeError: It is a configuration with a missing or unknown key.
    """
    if identifier is None or isinstance(identifier, LossScale):
        return identifier
    if isinstance(identifier, int | float) and not isinstance(identifier, bool):
        return FixedLossScale(identifier)
    if isinstance(identifier, str) and identifier == "dynamic":
        return DynamicLossScale()
    loss_scale = _from_config(identifier) if isinstance(identifier, Mapping) else None
    if loss_scale is None:
        raise LossScaleValueError(
            "Could not interpret loss scale identifier",
            found=repr(identifier),
            expected="a number, 'dynamic', a LossScale, a configuration or None",
        )
    return loss_scale


get_loss_scale = get
"""The name at the top of the package, where `get` alone says nothing."""


def serialize(loss_scale: LossScale) -> dict[str, Any]:
    """Return what `get` makes the loss scale from; JSON can hold it."""
    return {"class_name": type(loss_scale).__name__, "config": loss_scale.get_config()}


def restored(identifier: Any, custom_objects: Mapping[str, type[Any]]) -> LossScale | None:
    """Return what `get` returns, or a loss scale of a user's class."""
    kind = class_of(identifier, custom_objects)
    return (
        get(identifier)
        if kind is None
        else restore(kind, identifier.get("config", {}), custom_objects)
    )


def _from_config(config: Mapping[Any, Any]) -> LossScale | None:
    if set(config) == {"class_name", "config"}:
        kind = _CLASSES.get(str(config["class_name"]))
        return None if kind is None else kind.from_config(config["config"])
    if "loss_scale_value" in config:
        return FixedLossScale.from_config(config)
    return DynamicLossScale.from_config(config) if "initial_loss_scale" in config else None


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
