"""Optimizers by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from amp_rewrite.errors import OptimizerValueError
from amp_rewrite.optimizers.adadelta import Adadelta
from amp_rewrite.optimizers.adagrad import Adagrad
from amp_rewrite.optimizers.adam import Adam
from amp_rewrite.optimizers.adamw import AdamW
from amp_rewrite.optimizers.gradient_descent import GradientDescent
from amp_rewrite.optimizers.keras import Rate
from amp_rewrite.optimizers.lamb import LAMB
from amp_rewrite.optimizers.momentum import Momentum
from amp_rewrite.optimizers.optimizer import Optimizer
from amp_rewrite.optimizers.rmsprop import RMSProp
from amp_rewrite.optimizers.wrapper import OptimizerWrapper


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
        **options: `name`, `use_locking` and clipping.

    Raises:
        OptimizerValueError: A number is impossible, or nesterov without momentum.
    """
    if nesterov and not momentum:
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

_CLASSES: dict[str, type[Optimizer]] = {
    kind.__name__.lower(): kind
    for kind in (GradientDescent, Momentum, Adagrad, Adadelta, RMSProp, Adam, AdamW, LAMB)
}
NAMES = ("sgd", *_CLASSES)
"""What `get` takes as a name, in lower case."""


def get(identifier: object, **arguments: Any) -> Optimizer:
    """Return an optimizer.

    Args:
        identifier: An optimizer, which is returned; a name, in any case; or
            `{"class_name": name, "config": get_config()}`.
        **arguments: Arguments of the optimizer that a name denotes.

    Raises:
        OptimizerValueError: It denotes no optimizer.
    """
    if isinstance(identifier, Optimizer):
        return identifier
    if isinstance(identifier, Mapping) and isinstance(identifier.get("config", {}), Mapping):
        arguments = {**dict(identifier.get("config", {})), **arguments}
        identifier = identifier.get("class_name")
        wrapper = next((w for w in _wrappers() if w.__name__ == identifier), None)
        if wrapper is not None:
            return wrapper.from_config(arguments)
    if isinstance(identifier, str) and identifier.lower() == "sgd":
        return SGD(**arguments)
    if not isinstance(identifier, str) or identifier.lower() not in _CLASSES:
        raise OptimizerValueError(
            "Could not interpret optimizer identifier",
            found=repr(identifier),
            expected=" or ".join(NAMES),
        )
    return _CLASSES[identifier.lower()](**arguments)


def _wrappers() -> list[type[OptimizerWrapper]]:
    """Return the package's optimizers around optimizers, which rooms above this one define."""
    package = __name__.partition(".")[0]
    kinds = OptimizerWrapper.__subclasses__()
    return [kind for kind in kinds if kind.__module__.partition(".")[0] == package]
