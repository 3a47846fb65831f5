"""The base class of loss scales, and one that never changes."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import cached_property, partial
from typing import Any, NamedTuple, Self

import numpy as np
import onnx_ir as ir

from amp_rewrite.dtypes import FLOAT32
from amp_rewrite.errors import LossScaleTypeError, LossScaleValueError
from amp_rewrite.grad.builder.builder import Builder
from amp_rewrite.training.graph.training_graph import SCALE_ROLES, State, TrainingGraph
from amp_rewrite.training.optimizers.config import arguments

PREFIX = "loss_scale/"
"""The names of the states are this and a field of LossScaleState."""

ROLES = SCALE_ROLES
"""The roles of the states, in the order of the fields of LossScaleState."""


class LossScaleState(NamedTuple):
    """The scalars that a loss scale keeps from one step to the next."""

    current_loss_scale: Any  # float32 (): multiplies the loss
    good_steps: Any  # int64 (): finite steps since the scale changed
    skipped_steps: Any  # int64 (): skipped steps in all
    consecutive_skips: Any  # int64 (): skipped steps since the last applied one
    hysteresis_left: Any  # int64 (): which overflow from now on shrinks the scale; 1 is the next


_SET = f", or set the present scale: session.set({PREFIX + LossScaleState._fields[0]!r}, number)"


class LossScale(ABC):
    """A factor of the loss, so that its gradients do not underflow in 16 bits.

    P. Micikevicius et al., "Mixed Precision Training", 2018, https://arxiv.org/abs/1710.03740.

    Its numbers are states of a training graph; `applied` and `skipped` add the nodes that compute
    the next ones. Optimizers with the same LossScale object share these states. A child's
    constructor arguments are attributes of the same names.
    """

    @property
    @abstractmethod
    def initial(self) -> float:
        """The scale of the first step."""

    @property
    def checks(self) -> bool:
        """Whether gradients are checked, and a step whose gradients are not finite is skipped."""
        return bool(self.kept)

    @property
    def kept(self) -> tuple[str, ...]:
        """The fields of LossScaleState that are states of a step; the others are constants."""
        return LossScaleState._fields[:4]

    @abstractmethod
    def applied(self, b: Builder, state: LossScaleState) -> LossScaleState:
        """Return the state (values) after a step whose gradients are finite; `b` adds nodes."""

    @abstractmethod
    def skipped(self, b: Builder, state: LossScaleState) -> LossScaleState:
        """Return the state after a step whose gradients are not finite; see `applied`."""

    def update(self, b: Builder, state: LossScaleState, finite: ir.Value) -> LossScaleState:
        """Return the state after a step; `finite` (bool, shape ()) is about all its gradients."""
        pairs = zip(self.applied(b, state), self.skipped(b, state), strict=True)
        return LossScaleState(*(x if x is y else b.where(finite, x, y) for x, y in pairs))

    def states_in(self, graph: TrainingGraph) -> Mapping[str, State]:
        """Return field -> state in a graph, of the `kept` ones; made when first asked for."""
        if graph not in self._states:
            pairs = zip(self.initial_state()._asdict().items(), ROLES, strict=True)
            self._states[graph] = {
                key: graph.state(PREFIX + key, array, role)
                for (key, array), role in pairs
                if key in self.kept
            }
        return self._states[graph]

    @property
    def current(self) -> float:
        """The present scale in the graph that was built on last; the initial one before."""
        state = self._last("current_loss_scale")
        return self.initial if state is None else float(state.read())

    @property
    def good_steps(self) -> int:
        """The present number of finite steps since the scale changed; 0 before there is a step."""
        state = self._last("good_steps")
        return 0 if state is None else int(state.read())

    def _last(self, field: str) -> State | None:
        """Return a state in the graph that was built on last."""
        states = list(self._states.values())
        return states[-1].get(field) if states else None

    @cached_property
    def _states(self) -> dict[TrainingGraph, dict[str, State]]:
        """The states in each training graph."""
        return {}

    def __call__(self) -> float:
        """Return the present scale, as `current` does: TensorFlow's form."""
        return self.current

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute; an argument is checked as in the constructor.

        Raises:
            LossScaleValueError: The constructor refuses it, or a step is built.
        """
        arguments = inspect.signature(type(self)).parameters
        if name in arguments and all(key in vars(self) for key in arguments):  # it is made
            value = getattr(type(self)(**{**self.get_config(), name: value}), name)
        if vars(self).get("_built") and name in arguments:
            raise LossScaleValueError(
                f"{name} is part of the step, which has been built",
                where=type(self).__name__,
                remedy="make another loss scale, optimizer and step"
                + (_SET if LossScaleState._fields[0] in self.kept else ""),
            )
        super().__setattr__(name, value)

    def initial_state(self) -> LossScaleState:
        """Return the state before the first step: arrays."""
        self._built = True
        counts = (np.array(n, np.int64) for n in (0, 0, 0, 1))
        return LossScaleState(np.array(self.initial, np.float32), *counts)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments that make a loss scale like this one."""
        return {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Self:
        """Return a loss scale made from what `get_config` returned.

        Raises:
            LossScaleTypeError: It is not a mapping, or a key is missing or unknown.
        """
        return cls(**arguments(cls, config, LossScaleTypeError))

    def __repr__(self) -> str:
        """Return the call that makes a loss scale like this one."""
        arguments = ", ".join(f"{key}={value!r}" for key, value in self.get_config().items())
        return f"{type(self).__name__}({arguments})"

    def __eq__(self, other: object) -> bool:
        """Return whether the other one has the same class and configuration."""
        return type(other) is type(self) and other.get_config() == self.get_config()  # pyright: ignore[reportAttributeAccessIssue]

    def __hash__(self) -> int:
        """Return a hash of class and configuration."""
        return hash(repr(self))


class FixedLossScale(LossScale):
    """One scale for every step; a step whose gradients are not finite is skipped and counted.

    Examples:
        >>> optimizer = amp.optimizers.GradientDescent(0.1)
        >>> scaled = amp.LossScaleOptimizer(optimizer, amp.FixedLossScale(128.0))
    """

    def __init__(self, loss_scale_value: float) -> None:
        """Keep the scale.

        Args:
            loss_scale_value: At least 1; a Python int or float.

        Raises:
            LossScaleValueError: It is something else.
        """
        value: Any = loss_scale_value
        refused = partial(LossScaleValueError, where="FixedLossScale")
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise refused(
                "loss_scale_value must be a Python int or float",
                found=repr(value),
                remedy="pass float(value)",
            )
        if not value >= 1:
            raise refused("loss_scale_value must be at least 1", found=value)
        if value > FLOAT32.max:
            raise refused("loss_scale_value must be finite in float32", found=value)
        self.loss_scale_value = float(value)

    @property
    def initial(self) -> float:
        """The scale."""
        return self.loss_scale_value

    @property
    def kept(self) -> tuple[str, ...]:
        """The counters of skipped steps."""
        return LossScaleState._fields[2:4]

    def applied(self, b: Builder, state: LossScaleState) -> LossScaleState:
        """Return the state after a finite step."""
        return state._replace(consecutive_skips=b.constant(0))

    def skipped(self, b: Builder, state: LossScaleState) -> LossScaleState:
        """Return the state after a step that was not finite."""
        return state._replace(
            skipped_steps=b.add(state.skipped_steps, 1),
            consecutive_skips=b.add(state.consecutive_skips, 1),
        )


class UncheckedLossScale(FixedLossScale):
    """One scale for every step; every update is applied, as with TensorFlow's FixedLossScale.

    A gradient that overflows makes NaN of the weights. There is no fetch `grads_finite`, and the
    fetch `outcome` is "applied unchecked".

    Examples:
        >>> optimizer = amp.optimizers.GradientDescent(0.1)
        >>> scaled = amp.LossScaleOptimizer(optimizer, amp.UncheckedLossScale(128.0))
    """

    @property
    def kept(self) -> tuple[str, ...]:
        """No field: nothing is counted."""
        return ()
