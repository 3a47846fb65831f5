"""Notice when a loss scale has collapsed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from amp_rewrite.errors import LossScaleError
from amp_rewrite.training.loss_scaling.dynamic import DynamicLossScale
from amp_rewrite.training.step.step_info import StepInfo

_FLOOR = DynamicLossScale().floor
_NEEDED = ("grads_finite", "loss_scale")


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

    def note(self, found: Mapping[str, Any], waiting: int, cause: Callable[[], str | None]) -> None:
        """Take note of what a step has returned.

        Args:
            found: What `needed` names, by name.
            waiting: How many batches wait for an update: if any, nothing is decided yet.
            cause: Says what is not finite in the step, in words.

        Raises:
            LossScaleError: Too many steps in a row were skipped at the floor.
        """
        self._steps += 1
        if waiting:
            return
        scale = float(found[self._scale])
        if found[self._finite]:
            self.reset()
            return
        self._skipped.append((self._steps, scale))
        self._at_floor += scale <= self._floor
        if self._at_floor >= self._limit:
            raise LossScaleError(self._skipped, self._floor, self._limit, cause())


def skip_watches(info: StepInfo, default: int = 0) -> list[SkipWatch]:
    """Return what follows the skipped steps of a step: for each loss that has a limit.

    A loss scale of a user's class that tells no floor has that of DynamicLossScale by default.

    Args:
        info: The step.
        default: The limit of a loss scale that sets none; 0 is never.
    """
    if info.loss_scales:
        scales = {f"_{number}": scale for number, scale in enumerate(info.loss_scales)}
    else:
        scales = {"": info.loss_scale or {}}
    watches: list[SkipWatch] = []
    for suffix, scale in scales.items():
        config: Mapping[str, Any] = scale.get("config", {})
        given: int | None = config.get("max_consecutive_skips")
        limit = default if given is None else given
        if not limit or any(f"{name}{suffix}" not in info.fetches for name in _NEEDED):
            continue
        watches.append(SkipWatch(limit, config.get("floor", _FLOOR), suffix=suffix))
    return watches
