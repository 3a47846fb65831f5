"""The members that Keras's optimizers have."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any, Self, TypedDict

import numpy as np

from amp_rewrite.errors import OptimizerTypeError, OptimizerValueError
from amp_rewrite.optimizers import argument_checks as check
from amp_rewrite.optimizers import schedules
from amp_rewrite.optimizers.config import arguments
from amp_rewrite.optimizers.slot_members import SlotMembers
from amp_rewrite.training.training_graph import State

Rate = float | schedules.Schedule
"""A learning rate: a number or a schedule."""


class Clipping(TypedDict, total=False):
    """How an optimizer clips gradients itself, before it applies them; at most one of them.

    clipnorm: the largest norm of each gradient; clipvalue: the largest magnitude of an element;
    global_clipnorm: the largest global norm.
    """

    clipnorm: float | None
    clipvalue: float | None
    global_clipnorm: float | None


class KerasMembers(SlotMembers):
    """Hyperparameters and weights as Keras offers them."""

    def __init__(self, name: str, learning_rate: Rate, clipping: Clipping) -> None:
        """Check and keep the learning rate and the clipping."""
        super().__init__(name)
        self._schedule: schedules.Schedule | None = None
        self._rate = 0.0
        self._step: State | None = None
        self._set_rate(learning_rate)
        unknown = set(clipping) - set(Clipping.__annotations__)
        if unknown:
            raise OptimizerTypeError(
                "unknown argument", where=name, found=sorted(unknown), expected=list(_CLIPPING)
            )
        limits = {key: clipping.get(key) for key in _CLIPPING}
        given = [key for key, limit in limits.items() if limit is not None]
        if len(given) > 1:
            raise OptimizerValueError("an optimizer clips in one way", found=" and ".join(given))
        for key in given:
            check.number(key, limits[key], above=True)
        self.clipnorm, self.clipvalue, self.global_clipnorm = limits.values()

    @property
    def name(self) -> str:
        """The optimizer's name."""
        return self._name

    @property
    def learning_rate(self) -> Any:
        """The present learning rate: a number, or the schedule.

        Setting a number takes effect from the next step on, in running sessions too; it ends
        nothing: a schedule goes on, from the new rate.
        """
        if self._schedule is not None:
            return self._schedule
        rates = self._states.rates()
        return float(rates[-1].read()) if rates else self._rate

    @learning_rate.setter
    def learning_rate(self, value: Rate) -> None:
        rates = self._states.rates()
        if rates and isinstance(value, schedules.Schedule):
            raise OptimizerValueError(
                "a schedule is part of the step, which has been built",
                where=self._name,
                expected="a number",
                remedy="make another optimizer with this schedule",
            )
        if self._schedule is None or isinstance(value, schedules.Schedule):
            self._set_rate(value)
        else:
            self._rate = check.number("learning_rate", value)
        for state in rates:
            state.assign(self._rate)

    @property
    def lr(self) -> Any:
        """The learning rate under its short name."""
        return self.learning_rate

    @lr.setter
    def lr(self, value: Rate) -> None:
        self.learning_rate = value

    @property
    def iterations(self) -> State | None:
        """The state that counts the steps; None before gradients are applied."""
        return self._step

    @property
    def weights(self) -> list[State]:
        """The iterations, then slots and non-slot states in order of creation."""
        own = self._states.of_graph()
        return own if self._step is None else [self._step, *own]

    def get_weights(self) -> list[np.ndarray]:
        """Return the present values of `weights`."""
        return [np.array(state.read()) for state in self.weights]

    def set_weights(self, weights: Sequence[Any]) -> None:
        """Replace the present values of `weights`.

        Raises:
            OptimizerValueError: Their number or a shape differs; nothing is replaced then.
        """
        states = self.weights
        if len(states) != len(weights):
            raise OptimizerValueError(
                "a list of weights of another optimizer",
                where=self._name,
                found=f"{len(weights)} weights",
                expected=f"{len(states)}",
            )
        for state, weight in zip(states, weights, strict=True):
            if np.shape(weight) != state.shape:
                raise OptimizerValueError(
                    "a weight of another shape",
                    where=state.name,
                    found=np.shape(weight),
                    expected=state.shape,
                )
        for state, weight in zip(states, weights, strict=True):
            state.assign(weight)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments that make an optimizer like this one."""
        config: dict[str, Any] = {}
        for key, parameter in inspect.signature(type(self).__init__).parameters.items():
            if key == "self":
                continue
            names = _CLIPPING if parameter.kind is parameter.VAR_KEYWORD else (key,)
            config.update({name: getattr(self, name) for name in names})
        if self._schedule is not None:
            config["learning_rate"] = self._schedule.get_config()
        return config

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Self:
        """Return an optimizer made from what `get_config` returned.

        Raises:
            OptimizerTypeError: It is no mapping, or a key is missing or unknown.
        """
        return cls(**arguments(cls, config, OptimizerTypeError))

    def _set_rate(self, value: Any) -> None:
        if isinstance(value, Mapping):
            value = schedules.from_config(value)
        self._schedule = value if isinstance(value, schedules.Schedule) else None
        base = value.base if isinstance(value, schedules.Schedule) else value
        self._rate = check.number("learning_rate", base)


_CLIPPING = ("clipnorm", "clipvalue", "global_clipnorm")
