"""Loss scales, and their identifiers here and in TensorFlow 2.4 to Keras 3."""

from __future__ import annotations

import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import cached_property, partial
from typing import Any, NamedTuple, Self

import numpy as np
import onnx_ir as ir

from amp_rewrite.base import arguments
from amp_rewrite.dtypes import FLOAT32
from amp_rewrite.errors import LossScaleTypeError, LossScaleValueError
from amp_rewrite.grad.builder.builder import Builder
from amp_rewrite.training.graph.training_graph import SCALE_ROLES, State, TrainingGraph
from amp_rewrite.training.optimizers import config as configs

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
    hysteresis_left: Any = None  # int64 (): which overflow shrinks the scale; 1 is the next


_STATE = PREFIX + LossScaleState._fields[0]
_SET = f", or set the present scale: session.assign_state({_STATE!r}, number)"


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
        """Return a loss scale made from the result of `get_config`.

        Raises:
            LossScaleTypeError: It is not a mapping, or a key is missing or unknown.
        """
        return cls(**configs.arguments(cls, config, LossScaleTypeError))

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
            loss_scale_value: At least 1; a Python int or float. Others are a LossScaleValueError.
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


_refused = partial(LossScaleValueError, where="DynamicLossScale")


class DynamicLossScale(LossScale):
    """As large a scale as the gradients stay finite with.

        finite, good_steps + 1 >= period: scale * multiplier if finite, else scale; good_steps = 0
        finite otherwise:                 good_steps + 1
        not finite:                       max(scale / multiplier, floor); good_steps = 0; skipped

    In float32 (P. Micikevicius et al., "Mixed Precision Training", 2018, section 3.2,
    https://arxiv.org/abs/1710.03740). `backoff_factor` is GradScaler's, `ceiling` Apex's. With
    DeepSpeed's `hysteresis` an overflow shrinks the scale only after hysteresis - 1 others since
    the scale grew, or, with `consecutive_hysteresis`, since the last finite step.

    Examples:
        >>> scale = amp.DynamicLossScale(initial_loss_scale=1024.0, increment_period=100)
        >>> scaled = amp.LossScaleOptimizer(amp.optimizers.GradientDescent(0.1), scale)
    """

    def __init__(
        self,
        initial_loss_scale: float = 2.0**15,
        increment_period: int = 2000,
        multiplier: float = 2.0,
        *,
        floor: float = 1.0,
        max_consecutive_skips: int | None = None,
        backoff_factor: float | None = None,
        ceiling: float | None = None,
        hysteresis: int = 1,
        consecutive_hysteresis: bool = False,
    ) -> None:
        """Keep the parameters.

        Args:
            initial_loss_scale: The scale of the first step.
            increment_period: The number of finite steps until it grows.
            multiplier: The factor of growth; the scale shrinks by 1 / multiplier. Above 1.
            floor: The smallest scale; above 0, and not above the initial scale.
            max_consecutive_skips: A session raises LossScaleError after this number of skipped
                steps in a row at the floor; 0 is never. None is never for `TrainingSession.run`,
                20 for `Trainer.train`.
            backoff_factor: The factor by which it shrinks, in (0, 1), in place of 1 / multiplier.
            ceiling: The largest scale; None is the largest number of float32.
            hysteresis: The number of the overflow that shrinks the scale: 1 is the first.
            consecutive_hysteresis: Whether every finite step begins that count anew; if not, only
                growth does.

        Raises:
            LossScaleValueError: An argument is impossible.
            LossScaleTypeError: `consecutive_hysteresis` is neither True nor False.
        """
        self.initial_loss_scale = _number("initial_loss_scale", initial_loss_scale, above=0)
        self.increment_period = _count("increment_period", increment_period)
        self.multiplier = _number("multiplier", multiplier, above=1)
        self.floor = _number("floor", floor, above=0)
        if self.floor > self.initial_loss_scale:
            raise _refused(
                "floor must not be above initial_loss_scale",
                found=f"floor {self.floor:g}, initial_loss_scale {self.initial_loss_scale:g}",
                remedy="set floor below 1 for such a small scale",
            )
        self.max_consecutive_skips = max_consecutive_skips
        if max_consecutive_skips is not None:
            _count("max_consecutive_skips", max_consecutive_skips, least=0)
        self.backoff_factor = None
        if backoff_factor is not None:
            self.backoff_factor = _number("backoff_factor", backoff_factor, above=0)
            if self.backoff_factor >= 1:
                raise _refused("impossible backoff_factor", found=backoff_factor, expected="(0, 1)")
        self.ceiling = None if ceiling is None else _number("ceiling", ceiling, above=0)
        if self.ceiling is not None and self.ceiling < self.initial_loss_scale:
            raise _refused(
                "ceiling must not be below initial_loss_scale",
                found=f"ceiling {self.ceiling:g}, initial_loss_scale {self.initial_loss_scale:g}",
            )
        self.hysteresis = _count("hysteresis", hysteresis)
        self.consecutive_hysteresis = arguments.switch(
            "consecutive_hysteresis", consecutive_hysteresis, error=LossScaleTypeError
        )

    @property
    def initial(self) -> float:
        """The scale of the first step."""
        return self.initial_loss_scale

    @property
    def kept(self) -> tuple[str, ...]:
        """All fields; the last one only for a hysteresis that counts until the scale grows."""
        counts_on = self.hysteresis > 1 and not self.consecutive_hysteresis
        return LossScaleState._fields if counts_on else super().kept

    def initial_state(self) -> LossScaleState:
        """Return the state before the first step; see `LossScale.initial_state`."""
        left = np.array(self.hysteresis, np.int64)
        return super().initial_state()._replace(hysteresis_left=left)

    def applied(self, b: Builder, state: LossScaleState) -> LossScaleState:
        """Return the state after a finite step; see the class."""
        scale, good = state.current_loss_scale, b.add(state.good_steps, 1)
        grows = b.greater_or_equal(good, self.increment_period)
        larger = b.mul(scale, self.multiplier)
        larger = b.where(b.less_or_equal(larger, FLOAT32.max), larger, scale)
        if self.ceiling is not None:
            larger = b.minimum(larger, self.ceiling)
        state = state._replace(
            current_loss_scale=b.where(grows, larger, scale),
            good_steps=b.where(grows, 0, good),
            consecutive_skips=b.constant(0),
        )
        if "hysteresis_left" not in self.kept:
            return state
        left = b.where(grows, self.hysteresis, state.hysteresis_left)
        return state._replace(hysteresis_left=left)

    def skipped(self, b: Builder, state: LossScaleState) -> LossScaleState:
        """Return the state after a step that was not finite; see the class."""
        scale, skips = state.current_loss_scale, b.add(state.consecutive_skips, 1)
        if self.backoff_factor is None:
            smaller = b.div(scale, self.multiplier)
        else:
            smaller = b.mul(scale, self.backoff_factor)
        smaller = b.maximum(smaller, self.floor)
        if "hysteresis_left" in self.kept:
            left = state.hysteresis_left
            smaller = b.where(b.less_or_equal(left, 1), smaller, scale)
            state = state._replace(hysteresis_left=b.maximum(b.sub(left, 1), 1))
        elif self.hysteresis > 1:
            smaller = b.where(b.greater_or_equal(skips, self.hysteresis), smaller, scale)
        return state._replace(
            current_loss_scale=smaller,
            good_steps=b.constant(0),
            skipped_steps=b.add(state.skipped_steps, 1),
            consecutive_skips=skips,
        )


def _number(name: str, value: object, *, above: float) -> float:
    """Return a parameter that is above `above` in float32 too."""
    following = float(np.nextafter(np.float32(above), np.float32(math.inf)))
    return arguments.number(
        name,
        value,
        low=(above + following) / 2,  # up to here float32 rounds to `above`
        high=FLOAT32.max,
        above=True,
        expected=f"a finite float32 number above {above:g}",
        error=_refused,
    )


def _count(name: str, value: object, least: int = 1) -> int:
    return arguments.integer(name, value, low=least, error=_refused)


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
    kind = configs.class_of(identifier, custom_objects)
    if kind is None:
        return get(identifier)
    return configs.restore(kind, identifier.get("config", {}), custom_objects)


def _from_config(config: Mapping[Any, Any]) -> LossScale | None:
    if set(config) == {"class_name", "config"}:
        kind = _CLASSES.get(str(config["class_name"]))
        return None if kind is None else kind.from_config(config["config"])
    if "loss_scale_value" in config:
        return FixedLossScale.from_config(config)
    return DynamicLossScale.from_config(config) if "initial_loss_scale" in config else None
