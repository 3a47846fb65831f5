"""Notice when a loss scale has collapsed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from amp_rewrite.errors import LossScaleError
from amp_rewrite.loss_scaling.dynamic import DynamicLossScale
from amp_rewrite.optimizers.gradient_accumulation import ACCUMULATED
from amp_rewrite.trainer.step.step_info import StepInfo

_FLOOR = DynamicLossScale().floor
_NEEDED = ("grads_finite", "loss_scale")


class SkipWatch:
    """Follows the skipped steps of a session."""

    def __init__(self, limit: int, floor: float, *, accumulates: bool = False) -> None:
        """Begin before the first step.

        Args:
            limit: How many skipped steps in a row at the floor are too many.
            floor: The lowest loss scale.
            accumulates: Whether gradients of several steps are applied at once.
        """
        self._wanted = (*_NEEDED, ACCUMULATED) if accumulates else _NEEDED
        self._limit, self._floor = limit, float(np.float32(floor))
        self._steps = 0
        self.reset()

    def reset(self) -> None:
        """Forget the steps that were skipped."""
        self._skipped: list[tuple[int, float]] = []
        self._at_floor = 0

    def needed(self, fetches: Sequence[str]) -> tuple[str, ...]:
        """Return fetches and what `note` needs besides."""
        return tuple(dict.fromkeys((*fetches, *self._wanted)))

    def note(self, found: Mapping[str, Any], cause: Callable[[], str | None]) -> None:
        """Take note of what a step has returned.

        Args:
            found: What `needed` names, by name.
            cause: Says what is not finite in the step, in words.

        Raises:
            LossScaleError: Too many steps in a row were skipped at the floor.
        """
        self._steps += 1
        if found.get(ACCUMULATED, 0):
            return  # nothing is decided yet
        finite, scale = (found[name] for name in _NEEDED)
        if finite:
            self.reset()
            return
        self._skipped.append((self._steps, float(scale)))
        self._at_floor += float(scale) <= self._floor
        if self._at_floor >= self._limit:
            raise LossScaleError(self._skipped, self._floor, self._limit, cause())


def skip_watch(info: StepInfo) -> SkipWatch | None:
    """Return what follows the skipped steps of a step; None if its loss scale sets no limit.

    A loss scale of a user's class that tells no floor has that of DynamicLossScale by default.
    """
    config: Mapping[str, Any] = (info.loss_scale or {}).get("config", {})
    limit = config.get("max_consecutive_skips")
    if limit is None or any(name not in info.fetches for name in _NEEDED):
        return None
    return SkipWatch(limit, config.get("floor", _FLOOR), accumulates=info.accumulate > 1)
