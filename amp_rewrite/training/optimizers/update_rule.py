"""What an update rule is, and what it is given."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from functools import partial
from typing import Any, ClassVar, Generic, NamedTuple, Self, TypeVar, overload

import numpy as np
import onnx_ir as ir

from amp_rewrite.errors import UnsupportedError
from amp_rewrite.training.builder.builder import Builder
from amp_rewrite.training.graph.training_graph import State

T = TypeVar("T")


class Hyperparameter(Generic[T]):
    """A member of an optimizer that is a field of its rule; setting it makes another rule."""

    def __set_name__(self, owner: type[Any], name: str) -> None:
        """Take note of the name that it has in the optimizer and in the rule."""
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type[Any]) -> Self: ...
    @overload
    def __get__(self, instance: Any, owner: type[Any]) -> T: ...
    def __get__(self, instance: Any, owner: type[Any]) -> T | Self:
        """Return the rule's value."""
        return self if instance is None else getattr(instance.rule, self._name)

    def __set__(self, instance: Any, value: T) -> None:
        """Set the rule's value, which is checked; `Optimizer.__setattr__` says when it can be."""
        instance.rule = replace(instance.rule, **{self._name: value})


_CHECK = "check"
"""Key in the metadata of a rule's field: (name, value) -> the value, checked."""


@dataclass(frozen=True)
class SharedInput:
    """What the updates of all variables of one element type share.

    Attributes:
        b: Adds the nodes.
        dtype: The type that updates are computed in: float32 or float64.
        rate: The learning rate of this step: shape (), `dtype`.
        others: The present states that belong to no variable, by name, in their own type.
    """

    b: Builder
    dtype: ir.DataType
    rate: ir.Value
    others: Mapping[str, ir.Value]


@dataclass(frozen=True)
class UpdateInput:
    """A variable, or the rows of it that a sparse gradient touches, in one step.

    Attributes:
        b: Adds the nodes.
        value: The present value: float32 or float64.
        multiple: Its gradient times `factor`: same shape and type.
        variable: Which variable it is.
        factor: `UpdateRule.gradient_factor`; 1 if nothing has multiplied the gradient.
    """

    b: Builder
    value: ir.Value
    multiple: ir.Value
    variable: State
    factor: float = 1.0

    @property
    def gradient(self) -> ir.Value:
        """The gradient."""
        return self.gradient_times(1.0)

    def gradient_times(self, number: float) -> ir.Value:
        """Return a multiple of the gradient."""
        if number == self.factor:
            return self.multiple
        return self.b.mul(self.multiple, number / self.factor)

    def with_gradient(self, gradient: ir.Value) -> UpdateInput:
        """Return the same with another gradient: what a rule gives to the rule it is a child of."""
        return replace(self, multiple=gradient, factor=1.0)


class NoSlots(NamedTuple):
    """The slots of a rule that has none."""


def checked(check: Callable[..., Any], *, default: Any = MISSING, **bounds: Any) -> Any:
    """Return a field of a rule: its value is what `check(name, value, **bounds)` returns."""
    return field(default=default, metadata={_CHECK: partial(check, **bounds)})


@dataclass(frozen=True, kw_only=True)
class UpdateRule(ABC):
    """How one step changes a variable: hyperparameters, slots, and functions that add nodes.

    A rule is a value: it knows no graph and remembers nothing between two calls. A child is a
    frozen dataclass of its hyperparameters, with at least `update`; an optimizer has a rule:

        class SignRule(UpdateRule):
            def update(self, given, shared, slots):
                b = given.b
                return b.sub(given.value, b.mul(b.sign(given.gradient), shared)), slots

        optimizer = Optimizer(name="Sign", learning_rate=1e-3, rule=SignRule())

    Attributes:
        slots: A NamedTuple; its fields name the tensors, shaped like the variable, that the rule
            remembers from step to step.
    """

    slots: ClassVar[type[Any]] = NoSlots

    def __post_init__(self) -> None:
        """Check the hyperparameters.

        Raises:
            OptimizerTypeError: One has a wrong type.
            OptimizerValueError: One is out of its range.
        """
        for entry in fields(self):
            if _CHECK in entry.metadata:
                value = entry.metadata[_CHECK](entry.name, getattr(self, entry.name))
                object.__setattr__(self, entry.name, value)

    @property
    def touches_rows_only(self) -> bool:
        """Whether a sparse gradient changes the touched rows of variable and slots only."""
        return True

    @property
    def gradient_factor(self) -> float:
        """The number above 0 that `update` multiplies gradients by before anything else.

        A loss scale is taken out of gradients by a product; it multiplies by this number as well,
        so that the update has one pass over the gradients less.
        """
        return 1.0

    def initial_slot(self, slot: str) -> float:
        """Return what a slot is filled with at first."""
        del slot
        return 0.0

    def initial_others(self) -> dict[str, np.ndarray]:
        """Return name -> initial value of the states that belong to no variable: scalars."""
        return {}

    def shared(self, given: SharedInput) -> Any:
        """Return what the updates of all variables of one type share: a value, or a NamedTuple."""
        return given.rate

    def advance(self, given: SharedInput) -> dict[str, ir.Value]:
        """Return name -> next value of the states that belong to no variable."""
        del given
        return {}

    def variant(self, variable: State) -> Hashable:
        """Return what `update` depends on besides its tensors: variables of one variant share it.

        A step holds one function per variant, and one call of it per variable.
        """
        del variable
        return None

    @abstractmethod
    def update(self, given: UpdateInput, shared: Any, slots: Any) -> tuple[ir.Value, Any]:
        """Return the new value of a variable (or of rows of it) and its new slots.

        Args:
            given: The variable, its gradient, and the builder, which builds a function: tensors
                that are not given here are out of reach, and shapes are not known.
            shared: What the method `shared` returned.
            slots: The present slots, an instance of the class `slots`.
        """


@dataclass(frozen=True, kw_only=True)
class NoRule(UpdateRule):
    """The rule of an optimizer that was made without one: nothing can be updated.

    Attributes:
        owner: The class of the optimizer.
    """

    owner: str

    def update(self, given: UpdateInput, shared: Any, slots: Any) -> tuple[ir.Value, Any]:
        """Refuse.

        Raises:
            UnsupportedError: Always.
        """
        raise UnsupportedError(
            f"{self.owner} does not say how it updates a variable",
            remedy="give the optimizer a rule, a child of UpdateRule",
        )
