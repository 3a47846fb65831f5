"""Optimizers by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from amp_rewrite.errors import OptimizerTypeError, OptimizerValueError
from amp_rewrite.training.optimizers.config import class_of, custom_classes, restore
from amp_rewrite.training.optimizers.learning_rate import restore_rate
from amp_rewrite.training.optimizers.optimizer import Optimizer
from amp_rewrite.training.optimizers.rules.adagrad import (
    Adadelta,
    AdadeltaOptimizer,
    Adagrad,
    AdagradOptimizer,
)
from amp_rewrite.training.optimizers.rules.adam import LAMB, Adam, AdamOptimizer, AdamW
from amp_rewrite.training.optimizers.rules.gradient_descent import (
    SGD,
    GradientDescent,
    Momentum,
    MomentumOptimizer,
    RatedMomentum,
)
from amp_rewrite.training.optimizers.rules.rmsprop import RMSProp, RMSprop, RMSPropOptimizer

LAMBOptimizer = LAMB
AdamWOptimizer = AdamW

_CLASSES = (GradientDescent, Momentum, Adagrad, Adadelta, RMSProp, Adam, AdamW, LAMB)
_OTHERS = (
    *(MomentumOptimizer, AdagradOptimizer, AdadeltaOptimizer, RMSPropOptimizer, AdamOptimizer),
    *(RMSprop, RatedMomentum),
)
_MAKERS: dict[str, Callable[..., Optimizer]] = {
    "sgd": SGD,
    **{kind.__name__.lower(): kind for kind in _CLASSES},
}
_EXACT: dict[str, Callable[..., Optimizer]] = {kind.__name__: kind for kind in _OTHERS}
"""Names of TensorFlow's forms, which `get` takes as they are written: "RMSprop" is Keras's."""
NAMES = tuple(_MAKERS)
"""The names that `get` takes, in lower case."""

_REGISTERED: dict[str, type[Optimizer]] = {}
"""Name -> class of the optimizers that wrap others, which lie above this module."""


def register(kind: type[Optimizer]) -> None:
    """Let configurations name a class."""
    _REGISTERED[kind.__name__] = kind


def get(
    identifier: object, *, custom_objects: Mapping[str, type[Any]] | None = None, **arguments: Any
) -> Optimizer:
    """Return an optimizer.

    Args:
        identifier: An optimizer, which is returned; a name, in any case; or
            `{"class_name": name, "config": get_config()}`.
        custom_objects: Name -> class of a user's optimizers, schedules and loss scales in a
            configuration.
        **arguments: Arguments of the optimizer.

    Raises:
        OptimizerTypeError: `custom_objects` is not a mapping to classes with `from_config`.
        OptimizerValueError: It denotes no optimizer.
    """
    custom = custom_classes(custom_objects, OptimizerTypeError)
    if isinstance(identifier, Optimizer):
        return identifier
    if isinstance(identifier, Mapping) and isinstance(identifier.get("config", {}), Mapping):
        arguments = {**identifier.get("config", {}), **arguments}
        kind = class_of(identifier, {**_REGISTERED, **custom})
        if kind is not None:
            return restore(kind, arguments, custom)
        restore_rate(arguments, custom)
        identifier = identifier.get("class_name")
    if isinstance(identifier, str) and identifier in _EXACT:
        return _EXACT[identifier](**arguments)
    if not isinstance(identifier, str) or identifier.lower() not in _MAKERS:
        raise OptimizerValueError(
            "Could not interpret optimizer identifier",
            found=repr(identifier),
            expected=" or ".join(NAMES),
        )
    maker = _MAKERS[identifier.lower()]
    return restore(maker, arguments, custom) if isinstance(maker, type) else maker(**arguments)
