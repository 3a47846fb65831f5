"""Whether a step was applied, in words, and when a loss scale has collapsed."""

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
    """Follows the skipped steps of a session, if their number has a limit.

    A loss scale of a user's class that tells no floor has that of DynamicLossScale.
    """

    def __init__(self, info: StepInfo, default: int = 0) -> None:
        """Begin before the first step; `default` is the limit of a scale that sets none."""
        config: Mapping[str, Any] = (info.loss_scale or {}).get("config", {})
        own_limit: int | None = config.get("max_consecutive_skips")
        self._limit = default if own_limit is None else own_limit
        watches = self._limit and all(name in info.fetches for name in _NEEDED)
        self.needed: tuple[str, ...] = _NEEDED if watches else ()  # what `note` reads
        value: float | None = config.get("loss_scale_value")
        self._fixed = value is not None
        self._floor = float(np.float32(config.get("floor", _FLOOR) if value is None else value))
        self._steps = 0
        self.reset()

    def reset(self) -> None:
        """Forget the steps that were skipped."""
        self._skipped: list[tuple[int, float]] = []
        self._at_floor = 0

    def note(
        self, results: Mapping[str, Any], waiting: int, cause: Callable[[], str | None]
    ) -> None:
        """Take note of what a step has returned, unless batches wait for an update.

        Raises:
            LossScaleError: Too many steps in a row were skipped at the floor; `cause` says why.
        """
        self._steps += 1
        if waiting or not self.needed:
            return
        if results[_FINITE]:
            self.reset()
            return
        scale = float(results[_SCALE])
        self._skipped.append((self._steps, scale))
        self._at_floor += scale <= self._floor
        if self._at_floor >= self._limit:
            raise LossScaleError(
                self._skipped, self._floor, self._limit, cause(), fixed=self._fixed
            )


def warn_if_unscaled(info: StepInfo) -> None:
    """Warn, once per process, of a float16 step without a loss scale."""
    if info.precision == FLOAT16.name and info.loss_scale is None:
        global_state.warn_once(
            "unscaled",
            "a float16 step without a loss scale may not converge: gradients below "
            f"{FLOAT16.smallest_subnormal:.1g} become zero. Wrap the optimizer in "
            "LossScaleOptimizer, or call enable_mixed_precision_graph_rewrite",
        )


class Outcome:
    """Tells whether a step was applied, or what was skipped and why.

    A step that has a value of the same name keeps it.
    """

    def __init__(self, step: Step, *, shards: bool) -> None:
        """Say of which step, and whether its gradients are summed over shards."""
        info = step.info
        self._is_free = _OUTCOME not in {*info.fetches, *values_by_name(step.model.graph)}
        self._from = tuple(name for name in _NEEDED if name in info.fetches)
        self._steps, self._shards = info.accumulate, shards
        checked = info.loss_scale is None or _FINITE in info.fetches
        self._applied = "applied" if checked else "applied unchecked"

    def needed(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return fetches, with those that decide the outcome in its place."""
        if not self._is_free or _OUTCOME not in names:
            return tuple(names)
        return tuple(dict.fromkeys((*(n for n in names if n != _OUTCOME), *self._from)))

    def add(
        self, results: Mapping[str, Array], names: Sequence[str], *, waiting: int, batches: int
    ) -> dict[str, Array]:
        """Return the fetches `names`; an update is of `batches`, and `waiting` ones wait for it."""
        if self._is_free and _OUTCOME in names:
            results = {**results, _OUTCOME: np.array(self._text(results, waiting, batches))}
        return {name: results[name] for name in names}

    def _text(self, results: Mapping[str, Array], waiting: int, batches: int) -> str:
        if waiting:
            return f"accumulated: {waiting} of {self._steps} batches wait for the update"
        if results.get(_FINITE, True):
            count = "1 batch" if batches == 1 else f"{batches} batches"
            return self._applied + ("" if self._steps == 1 else f": {count}")
        of = "" if batches == 1 else f" of one of {batches} batches"
        where = " on this shard or another" if self._shards else ""
        at = f", at loss scale {float(results[_SCALE]):g}" if _SCALE in results else ""
        return f"skipped: a gradient{of} is not finite{where}{at}"
