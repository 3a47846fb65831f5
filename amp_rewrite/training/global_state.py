"""The settings of the whole process: the mixed precision graph rewrite and the global policy."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from typing import Any

from amp_rewrite.dtypes import BFLOAT16, FLOAT16, PrecisionLike, low_dtype
from amp_rewrite.errors import LossScaleTypeError, LossScaleValueError, warn
from amp_rewrite.oplists.environment import is_enabled
from amp_rewrite.policy import Policy, policy_of
from amp_rewrite.training.loss_scaling.loss_scale import get
from amp_rewrite.training.loss_scaling.loss_scale_optimizer import LossScaleOptimizer
from amp_rewrite.training.optimizers.optimizer import Optimizer

_ENABLE = "amp_rewrite.enable_mixed_precision_graph_rewrite"
_DISABLE = "amp_rewrite.disable_mixed_precision_graph_rewrite"
_SET_POLICY = "amp_rewrite.set_global_policy"

Wrapper = Callable[[Any, Any], Any]
"""(optimizer, loss scale) -> the optimizer with a loss scale."""


class GlobalState:
    """The settings of the whole process.

    If the program has `chosen` neither the rewrite nor a policy, TensorFlow's environment variable
    TF_ENABLE_AUTO_MIXED_PRECISION=1 enables the rewrite.
    """

    def __init__(self) -> None:
        """Begin with the defaults."""
        self.reset()

    def reset(self) -> None:
        """Set everything back, for tests."""
        self.rewrite: str | None = None  # the type of new sessions if the rewrite is enabled
        self.policy = policy_of("float32")
        self.chosen = False
        self.wrappers: list[tuple[type[Any], Wrapper]] = []  # the latest first
        self._float32_sessions: weakref.WeakSet[Any] = weakref.WeakSet()
        self._warned: set[str] = set()

    def precision(self) -> str | None:
        """Return the 16-bit type of new sessions and steps, or None for the model's own types."""
        if self.rewrite is not None:
            return self.rewrite
        if not self.chosen and is_enabled(os.environ):
            return FLOAT16.name
        return self.policy.compute_dtype if self.policy.is_mixed else None

    def register_session(self, session: object, precision: str | None) -> None:
        """Note a session, as long as it lives; precision is None if it is float32."""
        if precision not in (FLOAT16.name, BFLOAT16.name):
            self._float32_sessions.add(session)

    def forget_session(self, session: object) -> None:
        """Note that a session is closed."""
        self._float32_sessions.discard(session)

    @property
    def float32_sessions(self) -> int:
        """The number of open float32 sessions."""
        return len(self._float32_sessions)

    def warn_once(self, key: str, text: str) -> None:
        """Warn, once per process and key."""
        if key not in self._warned:
            self._warned.add(key)
            warn(text)


global_state = GlobalState()
"""The state of this process."""


def enable_mixed_precision_graph_rewrite(
    opt: Any,
    loss_scale: Any = "dynamic",
    *,
    precision: PrecisionLike | str = "float16",
    conditional: str = "if",
) -> Any:
    """Rewrite new training sessions and steps to mixed precision; give an optimizer a loss scale.

    Forward and backward pass compute in `precision` where that is safe; variables, slots, the loss
    and the updates stay float32.

    Args:
        opt: An optimizer, or an object of a class known to `register_loss_scale_wrapper`.
        loss_scale: A LossScale, a number, "dynamic", or a configuration.
        precision: "float16", "bfloat16", or such a type of numpy, onnx or torch. bfloat16 has the
            range of float32: with "dynamic" or None, `opt` is returned as it is.
        conditional: See `LossScaleOptimizer`.

    Returns:
        The optimizer to use in place of `opt`, usually a LossScaleOptimizer.

    Raises:
        LossScaleValueError: A mixed global policy is set, or `opt` cannot be wrapped. Nothing is
            enabled then.
        OptionError: `precision` or `conditional` is unknown.
    """
    if global_state.policy.is_mixed:
        raise LossScaleValueError(
            f"{_ENABLE} cannot be called, because a mixed precision policy has been set with "
            f"{_SET_POLICY}",
            found=f"the global policy {global_state.policy.name!r}",
            remedy=f"use one of the two: call {_SET_POLICY}('float32') first",
        )
    count = global_state.float32_sessions
    if count:
        warn(
            f"{count} training session{'s' * (count > 1)} without mixed precision exist"
            f"{'s' * (count == 1)} and will stay float32; {_ENABLE} affects new sessions only, so "
            "call it before any session is made"
        )
    chosen = low_dtype(precision).name
    wrapped = _wrap(opt, loss_scale, chosen, conditional)
    global_state.rewrite, global_state.chosen = chosen, True
    return wrapped


def disable_mixed_precision_graph_rewrite() -> None:
    """Let new sessions compute in float32 again; existing ones and optimizers stay."""
    by_variable = not global_state.chosen and is_enabled(os.environ)
    if global_state.rewrite is None and not by_variable:
        warn(f"{_DISABLE} was called although the mixed precision graph rewrite is not enabled")
    global_state.rewrite, global_state.chosen = None, True


def set_global_policy(policy: str | Policy) -> None:
    """Set the types of new sessions, without a loss scale (see `LossScaleOptimizer`).

    "mixed_float16" and "mixed_bfloat16" rewrite new sessions as the graph rewrite does. With a
    policy of one type, new sessions have the types of their model.

    Args:
        policy: A policy or its name.

    Raises:
        LossScaleValueError: The policy is mixed, and the graph rewrite is enabled.
        OptionError: There is no such policy.
    """
    wanted = policy_of(policy)
    if wanted.is_mixed and global_state.rewrite is not None:
        raise LossScaleValueError(
            f"{_SET_POLICY} cannot set a mixed precision policy, because the mixed precision graph "
            f"rewrite has been enabled with {_ENABLE}",
            found=f"the policy {wanted.name!r}",
            remedy=f"use one of the two: call {_DISABLE}() first",
        )
    global_state.policy, global_state.chosen = wanted, True


def global_policy() -> Policy:
    """Return the global policy."""
    return global_state.policy


def register_loss_scale_wrapper(base: type[Any], wrapper: Wrapper) -> None:
    """Let `enable_mixed_precision_graph_rewrite` take optimizers of another family.

    Args:
        base: A class of optimizers; the last registered class is tried first.
        wrapper: (optimizer of that class, LossScale) -> the optimizer for the user.

    Raises:
        LossScaleTypeError: `base` is not a class, or `wrapper` is not callable.
    """
    if not isinstance(base, type):  # pyright: ignore[reportUnnecessaryIsInstance] users pass anything
        raise LossScaleTypeError("base must be a class", found=repr(base))
    if not callable(wrapper):
        raise LossScaleTypeError("wrapper must be callable", found=repr(wrapper))
    global_state.wrappers.insert(0, (base, wrapper))


def _wrap(opt: Any, loss_scale: Any, precision: str, conditional: str) -> Any:
    """Return the optimizer with a loss scale."""
    wrap = next((w for base, w in global_state.wrappers if isinstance(opt, base)), None)
    if wrap is None and not isinstance(opt, Optimizer):
        bases = ["amp_rewrite.optimizers.Optimizer"]
        bases += [f"{b.__module__}.{b.__qualname__}" for b, _ in global_state.wrappers]
        raise LossScaleValueError(
            f'"opt" must be an instance of {" or ".join(bases)}',
            found="None" if opt is None else type(opt).__name__,
            remedy="pass an optimizer such as amp_rewrite.optimizers.Adam(1e-3)",
        )
    if precision == BFLOAT16.name and (loss_scale is None or loss_scale == "dynamic"):
        return opt
    for _, wrapper in global_state.wrappers:
        if isinstance(wrapper, type) and isinstance(opt, wrapper):
            raise LossScaleValueError(
                f'"opt" must not already be an instance of a {wrapper.__name__}',
                remedy="pass the optimizer that it wraps",
            )
    if wrap is None:
        return LossScaleOptimizer(opt, loss_scale, conditional=conditional)
    return wrap(opt, get(loss_scale))


enable_mixed_precision_graph_rewrite_v1 = enable_mixed_precision_graph_rewrite
disable_mixed_precision_graph_rewrite_v1 = disable_mixed_precision_graph_rewrite
