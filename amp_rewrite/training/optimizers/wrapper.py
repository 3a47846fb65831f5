"""An optimizer around an optimizer."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Self, TypeVar

from amp_rewrite.errors import AmpError, OptimizerTypeError, OptimizerValueError
from amp_rewrite.training.graph.training_graph import GraphValue, State
from amp_rewrite.training.optimizers import registry
from amp_rewrite.training.optimizers.config import arguments
from amp_rewrite.training.optimizers.gradient import Gradient
from amp_rewrite.training.optimizers.optimizer import Optimizer, overrides
from amp_rewrite.training.optimizers.slots import Variable
from amp_rewrite.training.optimizers.train_op import TrainOp

E = TypeVar("E", bound=AmpError)

INSIDE = (
    *("reduce_gradients", "get_gradients", "touches_rows_only"),
    *("learning_rate", "iterations", "weights"),
    *("get_slot", "get_slot_names", "variables", "add_slot", "add_weight"),
)
"""The members of Optimizer that are those of the inner optimizer."""


class OptimizerWrapper(Optimizer):
    """An optimizer that leaves its members to another one; a child changes some of them.

    It has no rule, slots or learning rate, so that `Optimizer.__init__` is not called. The members
    in INSIDE are the inner optimizer's; `get_name`, `minimize`, `apply_gradients`, `get_updates`
    and `lr` are made from others.

    Reading an attribute that the wrapper lacks, and setting or deleting one that its class lacks,
    is done in the inner optimizer, except for names that begin with an underscore.
    """

    inner_argument: ClassVar[str] = "optimizer"
    """The name of the constructor's argument for the inner optimizer."""

    def __init__(self, optimizer: Optimizer) -> None:
        """Wrap an optimizer.

        Raises:
            OptimizerTypeError: It is not an optimizer.
            OptimizerValueError: It scales the loss, which the wrapper does not support.
        """
        self._inner = optimizer
        if not isinstance(optimizer, Optimizer):  # pyright: ignore[reportUnnecessaryIsInstance] users pass anything
            raise OptimizerTypeError(
                "not an optimizer",
                where=type(self).__name__,
                found=f"an object of type {type(optimizer).__name__}",
            )
        supports = type(self).supports_loss_scaling
        self.supports_loss_scaling = supports and optimizer.supports_loss_scaling
        self.scales_loss = type(self).scales_loss or optimizer.scales_loss
        if optimizer.scales_loss and not supports:
            raise unscalable(optimizer, type(self), OptimizerValueError)

    @property
    def inner_optimizer(self) -> Optimizer:
        """The optimizer inside."""
        return self._inner

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the inner optimizer that the wrapper lacks."""
        if name.startswith("_"):
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        return getattr(self._inner, name)

    def __setattr__(self, name: str, value: Any) -> None:
        """Set a member of the wrapper, or an attribute of the inner optimizer."""
        if name in inspect.signature(type(self)).parameters and not hasattr(type(self), name):
            raise OptimizerValueError(
                f"{name} of {type(self).__name__} cannot be changed",
                where=self.get_name(),
                remedy=f"make another {type(self).__name__}",
            )
        if name.startswith("_") or hasattr(type(self), name):
            super().__setattr__(name, value)
        else:
            setattr(self._inner, name, value)

    def __delattr__(self, name: str) -> None:
        """Delete a member of the wrapper, or an attribute of the inner optimizer."""
        if name in vars(self):
            super().__delattr__(name)
        else:
            delattr(self._inner, name)

    def __dir__(self) -> list[str]:
        """Return the names of all attributes, those of the inner optimizer included."""
        return sorted({*super().__dir__(), *dir(self._inner)})

    @property
    def name(self) -> str:
        """The inner optimizer's name."""
        return self._inner.get_name()

    def _gradients_of(
        self, loss: GraphValue, variables: Sequence[Any], grad_loss: GraphValue | None
    ) -> list[tuple[Any, State]]:
        """Let the inner optimizer compute gradients, by a method that a user may override."""
        return self._inner.compute_gradients(loss, var_list=variables, grad_loss=grad_loss)

    def apply_reduced(
        self,
        grads_and_vars: Iterable[tuple[Gradient, Variable]],
        global_step: Variable | None = None,
        name: str | None = None,
    ) -> TrainOp:
        """Let the inner optimizer apply reduced gradients, by its `apply_gradients` if possible."""
        if overrides(self._inner, "reduce_gradients"):
            return self._inner.apply_reduced(grads_and_vars, global_step, name)
        return self._inner.apply_gradients(grads_and_vars, global_step, name)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments that make an optimizer like this one."""
        inner = {"class_name": type(self._inner).__name__, "config": self._inner.get_config()}
        return {self.inner_argument: inner}

    @classmethod
    def from_config(
        cls, config: Mapping[str, Any], custom_objects: Mapping[str, Any] | None = None
    ) -> Self:
        """Return an optimizer made from the result of `get_config`; see `Optimizer`."""
        settings = arguments(cls, config, OptimizerTypeError)
        inner = registry.get(settings.pop(cls.inner_argument), custom_objects=custom_objects)
        return cls(**settings, **{cls.inner_argument: inner})


def unscalable(optimizer: Optimizer, collective: type[Optimizer], error: type[E]) -> E:
    """Return the error about a collective that a loss scale would change."""
    return error(
        "Loss scaling is not supported with this collective",
        where=optimizer.get_name(),
        found=f"{collective.__name__}, whose supports_loss_scaling is False",
        remedy="reduce gradients by a sum or a mean",
    )


class _Inside:
    """A member that is read and set in the inner optimizer."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, wrapper: OptimizerWrapper | None, kind: type[OptimizerWrapper]) -> Any:
        return getattr(Optimizer if wrapper is None else wrapper.inner_optimizer, self._name)

    def __set__(self, wrapper: OptimizerWrapper, value: Any) -> None:
        setattr(wrapper.inner_optimizer, self._name, value)


for _name in INSIDE:
    setattr(OptimizerWrapper, _name, _Inside(_name))
