"""When a loss scale has collapsed, and when there should be one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from amp_rewrite.dtypes import FLOAT16
from amp_rewrite.errors import LossScaleError
from amp_rewrite.training.global_state import global_state
from amp_rewrite.training.loss_scaling.dynamic import DynamicLossScale
from amp_rewrite.training.step.step_info import StepInfo

_FLOOR = DynamicLossScale().floor
_NEEDED = _FINITE, _SCALE = "grads_finite", "loss_scale"


class SkipWatch:
    """Follows the steps of a session that one loss has skipped."""

    def __init__(self, limit: int, floor: float, *, suffix: str = "") -> None:
        """Begin before the first step.

        Args:
            limit: How many skipped steps in a row at the floor are too many.
            floor: The lowest loss scale.
            suffix: What the fetches of the loss end with.
        """
        self._finite, self._scale = (f"{name}{suffix}" for name in _NEEDED)
        self.needed = self._finite, self._scale
        self._limit, self._floor = limit, float(np.float32(floor))
        self._steps = 0
        self.reset()

    def reset(self) -> None:
        """Forget the steps that were skipped."""
        self._skipped: list[tuple[int, float]] = []
        self._at_floor = 0

    def note(
        self, results: Mapping[str, Any], waiting: int, cause: Callable[[], str | None]
    ) -> None:
        """Take note of what a step has returned.

        Args:
            results: What `needed` names, by name.
            waiting: How many batches wait for an update: if any, nothing is decided yet.
            cause: Says what is not finite in the step, in words.

        Raises:
            LossScaleError: Too many steps in a row were skipped at the floor.
        """
        self._steps += 1
        if waiting:
            return
        scale = float(results[self._scale])
        if results[self._finite]:
            self.reset()
            return
        self._skipped.append((self._steps, scale))
        self._at_floor += scale <= self._floor
        if self._at_floor >= self._limit:
            raise LossScaleError(self._skipped, self._floor, self._limit, cause())


def skip_watches(info: StepInfo, default: int = 0) -> list[SkipWatch]:
    """Return what follows the skipped steps of a step: for each loss that has a limit.

    A loss scale of a user's class that tells no floor has that of DynamicLossScale by default.
    `default` is the limit of a loss scale that sets none; 0 is never.
    """
    if info.loss_scales:
        scales = {f"_{number}": scale for number, scale in enumerate(info.loss_scales)}
    else:
        scales = {"": info.loss_scale or {}}
    watches: list[SkipWatch] = []
    for suffix, scale in scales.items():
        config: Mapping[str, Any] = scale.get("config", {})
        own_limit: int | None = config.get("max_consecutive_skips")
        limit = default if own_limit is None else own_limit
        if not limit or any(f"{name}{suffix}" not in info.fetches for name in _NEEDED):
            continue
        watches.append(SkipWatch(limit, config.get("floor", _FLOOR), suffix=suffix))
    return watches


def warn_if_unscaled(info: StepInfo) -> None:
    """Warn, once per process, of a float16 step without a loss scale."""
    if info.precision != FLOAT16.name or info.loss_scale is not None:
        return
    global_state.warn_once(
        "unscaled",
        "a float16 step without a loss scale may not converge: gradients below "
        f"{FLOAT16.smallest_subnormal:.1g} become zero. Wrap the optimizer in LossScaleOptimizer, "
        "or call enable_mixed_precision_graph_rewrite",
    )
