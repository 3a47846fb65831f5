"""Optimizers by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from amp_rewrite.errors import OptimizerTypeError, OptimizerValueError
from amp_rewrite.training.optimizers import argument_checks as check
from amp_rewrite.training.optimizers import schedules
from amp_rewrite.training.optimizers.config import class_of, custom_classes, restore
from amp_rewrite.training.optimizers.learning_rate import Rate
from amp_rewrite.training.optimizers.optimizer import Optimizer
from amp_rewrite.training.optimizers.rules.adadelta import Adadelta
from amp_rewrite.training.optimizers.rules.adagrad import Adagrad
from amp_rewrite.training.optimizers.rules.adam import Adam
from amp_rewrite.training.optimizers.rules.adamw import AdamW
from amp_rewrite.training.optimizers.rules.gradient_descent import GradientDescent
from amp_rewrite.training.optimizers.rules.lamb import LAMB
from amp_rewrite.training.optimizers.rules.momentum import Momentum
from amp_rewrite.training.optimizers.rules.rmsprop import RMSProp


def SGD(  # noqa: N802 Keras's name, whose class is two classes here
    learning_rate: Rate = 0.01,
    momentum: float = 0.0,
    nesterov: bool = False,
    **options: Any,
) -> GradientDescent | Momentum:
    """Return what Keras calls SGD: GradientDescent, or Momentum if there is any.

    Args:
        learning_rate: A number or a schedule.
        momentum: 0 is GradientDescent.
        nesterov: Use Nesterov's momentum.
        **options: `weight_decay`, `name`, `use_locking` and clipping.

    Raises:
        OptimizerValueError: A number is impossible, or nesterov without momentum.
    """
    momentum = check.number("momentum", momentum)
    if check.flag("nesterov", nesterov) and not momentum:
        raise OptimizerValueError(
            "Nesterov's method needs a momentum", found=momentum, expected="a number above 0"
        )
    if not momentum:
        return GradientDescent(learning_rate, **options)
    return Momentum(learning_rate, momentum, nesterov, **options)


GradientDescentOptimizer = GradientDescent
MomentumOptimizer = Momentum
AdagradOptimizer = Adagrad
AdadeltaOptimizer = Adadelta
RMSPropOptimizer = RMSprop = RMSProp
AdamOptimizer = Adam
AdamWOptimizer = AdamW
Lamb = LAMBOptimizer = LAMB

_MAKERS: dict[str, Callable[..., Optimizer]] = {
    "sgd": SGD,
    "gradientdescent": GradientDescent,
    "momentum": Momentum,
    "adagrad": Adagrad,
    "adadelta": Adadelta,
    "rmsprop": RMSProp,
    "adam": Adam,
    "adamw": AdamW,
    "lamb": LAMB,
}
NAMES = tuple(_MAKERS)
"""What `get` takes as a name, in lower case."""

_REGISTERED: dict[str, type[Optimizer]] = {}
"""Class name -> class, of those that `register` was called with; `wrappers` are among them."""


def register(kind: type[Optimizer]) -> None:
    """Let configurations of a class of optimizers be restored by its name, without custom_objects.

    Args:
        kind: A class with `from_config`.

    Raises:
        OptimizerTypeError: It is not a class of optimizers.
        OptimizerValueError: Another class has this name.
    """
    given: Any = kind
    if not isinstance(given, type) or not issubclass(given, Optimizer):
        raise OptimizerTypeError(
            "not a class of optimizers",
            found=f"an object of type {type(given).__name__}",
            expected="a child of Optimizer",
        )
    name = kind.__name__
    if name.lower() in _MAKERS or _registered(name) not in (kind, None):
        raise OptimizerValueError(
            "another class of optimizers has this name",
            found=name,
            remedy="give it a name of its own, or pass it as one of custom_objects",
        )
    _REGISTERED[name] = kind


def _registered(name: object) -> type[Optimizer] | None:
    """Return the class that configurations call by a name without custom_objects, or None."""
    if not isinstance(name, str):
        return None
    return _REGISTERED.get(name)


def get(
    identifier: object, *, custom_objects: Mapping[str, type[Any]] | None = None, **arguments: Any
) -> Optimizer:
    """Return an optimizer.

    Args:
        identifier: An optimizer, which is returned; a name, in any case; or
            `{"class_name": name, "config": get_config()}`.
        custom_objects: Name -> class of optimizers, schedules and loss scales in a configuration
            that are neither this package's nor registered.
        **arguments: Arguments of the optimizer that a name denotes.

    Raises:
        OptimizerTypeError: `custom_objects` is not a mapping to classes with `from_config`.
        OptimizerValueError: It denotes no optimizer.
    """
    custom = custom_classes(custom_objects, OptimizerTypeError)
    if isinstance(identifier, Optimizer):
        return identifier
    if isinstance(identifier, Mapping) and isinstance(identifier.get("config", {}), Mapping):
        arguments = {**identifier.get("config", {}), **arguments}
        kind = class_of(identifier, custom) or _registered(identifier.get("class_name"))
        if kind is not None:
            return restore(kind, arguments, custom)
        if isinstance(arguments.get("learning_rate"), Mapping):
            rate = schedules.from_config(arguments["learning_rate"], custom)
            arguments["learning_rate"] = rate
        identifier = identifier.get("class_name")
    if not isinstance(identifier, str) or identifier.lower() not in _MAKERS:
        raise OptimizerValueError(
            "Could not interpret optimizer identifier",
            found=repr(identifier),
            expected=" or ".join(NAMES),
        )
    return _MAKERS[identifier.lower()](**arguments)
