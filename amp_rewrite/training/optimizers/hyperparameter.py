"""Hyperparameters of a rule as members of the optimizer that has the rule."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Generic, Self, TypeVar, overload

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
