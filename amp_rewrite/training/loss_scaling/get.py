"""Loss scales by their identifiers, here and in TensorFlow 2.4 to Keras 3."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from amp_rewrite.errors import LossScaleValueError
from amp_rewrite.training.loss_scaling.dynamic import DynamicLossScale
from amp_rewrite.training.loss_scaling.loss_scale import (
    FixedLossScale,
    LossScale,
    UncheckedLossScale,
)
from amp_rewrite.training.optimizers.config import class_of, restore

_CLASSES: dict[str, type[LossScale]] = {
    kind.__name__: kind for kind in (FixedLossScale, UncheckedLossScale, DynamicLossScale)
}


def get(identifier: object) -> LossScale | None:
    """Return a loss scale.

    Args:
        identifier: A number, which is a FixedLossScale; "dynamic"; a configuration of a loss scale
            of this package; or a LossScale or None, which is returned.

    Raises:
        LossScaleValueError: It is no identifier of a loss scale.
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
    if kind is None:
        return get(identifier)
    return restore(kind, identifier.get("config", {}), custom_objects)


def _from_config(config: Mapping[Any, Any]) -> LossScale | None:
    if set(config) == {"class_name", "config"}:
        kind = _CLASSES.get(str(config["class_name"]))
        return None if kind is None else kind.from_config(config["config"])
    if "loss_scale_value" in config:
        return FixedLossScale.from_config(config)
    return DynamicLossScale.from_config(config) if "initial_loss_scale" in config else None
