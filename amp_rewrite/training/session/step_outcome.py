"""What became of a step, in words, and when a loss scale has collapsed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from amp_rewrite.dtypes import FLOAT16
from amp_rewrite.errors import LossScaleError
from amp_rewrite.runtimes.ort.ort_values import Array
from amp_rewrite.training.global_state import global_state
from amp_rewrite.training.loss_scaling.loss_scale import DynamicLossScale
from amp_rewrite.training.step.cut_step import values_by_name
from amp_rewrite.training.step.step import Step
from amp_rewrite.training.step.step_info import StepInfo

_FLOOR = DynamicLossScale().floor
_NEEDED = _FINITE, _SCALE = "grads_finite", "loss_scale"
_OUTCOME = "outcome"


class SkipWatch:
    """Follows the steps that a session has skipped."""

    needed = _NEEDED

    def __init__(self, limit: int, floor: float, *, fixed: bool = False) -> None:
        """Begin before the first step.

        Args:
            limit: How many skipped steps in a row at the floor are too many.
            floor: The lowest loss scale.
            fixed: Whether the loss scale never changes; it is always at its floor.
        """
        self._limit, self._floor, self._fixed = limit, float(np.float32(floor)), fixed
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
        scale = float(results[_SCALE])
        if results[_FINITE]:
            self.reset()
            return
        self._skipped.append((self._steps, scale))
        self._at_floor += scale <= self._floor
        if self._at_floor >= self._limit:
            raise LossScaleError(
                self._skipped, self._floor, self._limit, cause(), fixed=self._fixed
            )


def skip_watches(info: StepInfo, default: int = 0) -> list[SkipWatch]:
    """Return what follows the skipped steps of a step, if they have a limit.

    A loss scale of a user's class that tells no floor has that of DynamicLossScale by default.
    `default` is the limit of a loss scale that sets none; 0 is never.
    """
    config: Mapping[str, Any] = (info.loss_scale or {}).get("config", {})
    own_limit: int | None = config.get("max_consecutive_skips")
    limit = default if own_limit is None else own_limit
    if not limit or any(name not in info.fetches for name in _NEEDED):
        return []
    value: float | None = config.get("loss_scale_value")
    floor = config.get("floor", _FLOOR) if value is None else value
    return [SkipWatch(limit, floor, fixed=value is not None)]


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


class Outcome:
    """Tells whether a step was applied, or what was skipped and why.

    A step that has a value of the same name keeps it.
    """

    def __init__(self, step: Step, *, shards: bool) -> None:
        """Say of which step, and whether its gradients are summed over shards."""
        fetches = step.info.fetches
        self._told = _OUTCOME not in {*fetches, *values_by_name(step.model.graph)}
        self._from = tuple(n for n in _NEEDED if n in fetches)
        self._steps, self._shards = step.info.accumulate, shards
        checked = step.info.loss_scale is None or _FINITE in fetches
        self._applied = "applied" if checked else "applied unchecked"

    def needed(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return fetches with what the outcome is told by in its place."""
        if not self._is_in(names):
            return tuple(names)
        return tuple(dict.fromkeys((*(n for n in names if n != _OUTCOME), *self._from)))

    def add(
        self, results: Mapping[str, Array], names: Sequence[str], *, waiting: int, batches: int
    ) -> dict[str, Array]:
        """Return what was asked for.

        Args:
            results: What `needed` names.
            names: What was asked for.
            waiting: How many batches wait for an update.
            batches: Of how many batches an update is that the step has made.
        """
        told: dict[str, Array] = {}
        if self._is_in(names):
            told[_OUTCOME] = np.array(self._text(results, waiting, batches))
        return {name: told[name] if name in told else results[name] for name in names}

    def _is_in(self, names: Sequence[str]) -> bool:
        return self._told and _OUTCOME in names

    def _text(self, results: Mapping[str, Array], waiting: int, batches: int) -> str:
        if waiting:
            return f"accumulated: {waiting} of {self._steps} batches wait for the update"
        if results.get(_FINITE, True):
            return self._applied + ("" if self._steps == 1 else f": {_counted(batches)}")
        of = "" if batches == 1 else f" of one of {batches} batches"
        where = " on this shard or another" if self._shards else ""
        at = f", at loss scale {float(results[_SCALE]):g}" if _SCALE in results else ""
        return f"skipped: a gradient{of} is not finite{where}{at}"


def _counted(batches: int) -> str:
    return "1 batch" if batches == 1 else f"{batches} batches"
