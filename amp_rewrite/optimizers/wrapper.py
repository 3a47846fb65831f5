"""An optimizer around an optimizer."""

from __future__ import annotations

from typing import Any, ClassVar

from amp_rewrite.optimizers.optimizer import Optimizer


class OptimizerWrapper(Optimizer):
    """Has every attribute of the optimizer inside but for what a child defines itself.

    Reading, calling and setting attributes go to the inner optimizer: hyperparameters, slots,
    weights, iterations, and what a class of a user's own adds.
    """

    _FROM_BASE: ClassVar[frozenset[str]] = frozenset(
        {"minimize", "apply_gradients", "get_gradients", "reduce_gradients"}
    )
    """Methods of Optimizer that call methods which children define."""

    def __init__(self, optimizer: Optimizer) -> None:
        """Wrap an optimizer."""
        # Optimizer.__init__ would give the wrapper hyperparameters of its own.
        object.__setattr__(self, "_inner", optimizer)

    @property
    def inner_optimizer(self) -> Optimizer:
        """The optimizer inside."""
        return object.__getattribute__(self, "_inner")

    def __getattribute__(self, name: str) -> Any:
        """Return an attribute: a child's own, or that of the inner optimizer."""
        own = object.__getattribute__(self, "__dict__")
        if (
            name in own
            or name.startswith("__")
            or _defines(object.__getattribute__(self, "__class__"), name)
        ):
            return object.__getattribute__(self, name)
        return getattr(own["_inner"], name)

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute of the inner optimizer unless a child has it."""
        if name in self.__dict__ or _defines(type(self), name):
            object.__setattr__(self, name, value)
        else:
            setattr(self.inner_optimizer, name, value)

    def __delattr__(self, name: str) -> None:
        """Delete an attribute of the inner optimizer unless a child has it."""
        if name in self.__dict__ or _defines(type(self), name):
            object.__delattr__(self, name)
        else:
            delattr(self.inner_optimizer, name)

    def __dir__(self) -> list[str]:
        """Return the names of all attributes, those of the inner optimizer included."""
        return sorted({*object.__dir__(self), *dir(self.inner_optimizer)})


def _defines(kind: type, name: str) -> bool:
    """Return whether a child of Optimizer defines an attribute, or inherits a listed one."""
    if name in OptimizerWrapper._FROM_BASE:  # pyright: ignore[reportPrivateUsage]
        return True
    classes = kind.__mro__[: kind.__mro__.index(Optimizer)]
    return any(name in vars(c) for c in classes)
