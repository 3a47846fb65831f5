"""What became of a step, in words: the fetch "outcome"."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from amp_rewrite.runtimes.ort.ort_values import Array
from amp_rewrite.training.step.cut import values_by_name
from amp_rewrite.training.step.step import Step

OUTCOME = "outcome"

_FINITE, _SCALE = "grads_finite", "loss_scale"


class Outcome:
    """Tells whether a step was applied, or what was skipped and why.

    A step that has a value of the same name keeps it.
    """

    def __init__(self, step: Step, *, shards: bool) -> None:
        """Say of which step, and whether its gradients are summed over shards."""
        fetches = step.info.fetches
        self._told = OUTCOME not in {*fetches, *values_by_name(step.model.graph)}
        self._losses = len(step.info.loss_scales)
        of_each = (f"{n}_{i}" for n in (_FINITE, _SCALE) for i in range(self._losses))
        self._from = tuple(n for n in (_FINITE, _SCALE, *of_each) if n in fetches)
        self._steps, self._shards = step.info.accumulate, shards

    def needed(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return fetches with what the outcome is told by in its place."""
        if not self._is_in(names):
            return tuple(names)
        return tuple(dict.fromkeys((*(n for n in names if n != OUTCOME), *self._from)))

    def add(
        self, found: Mapping[str, Array], names: Sequence[str], *, waiting: int, batches: int
    ) -> dict[str, Array]:
        """Return what was asked for.

        Args:
            found: What `needed` names.
            names: What was asked for.
            waiting: How many batches wait for an update.
            batches: Of how many batches an update is that the step has made.
        """
        told: dict[str, Array] = {}
        if self._is_in(names):
            told[OUTCOME] = np.array(self._text(found, waiting, batches))
        return {name: told[name] if name in told else found[name] for name in names}

    def _is_in(self, names: Sequence[str]) -> bool:
        return self._told and OUTCOME in names

    def _text(self, found: Mapping[str, Array], waiting: int, batches: int) -> str:
        if waiting:
            return f"accumulated: {waiting} of {self._steps} batches wait for the update"
        if found.get(_FINITE, True):
            return "applied" if self._steps == 1 else f"applied: {_counted(batches)}"
        of = "" if batches == 1 else f" of one of {batches} batches"
        where = " on this shard or another" if self._shards else ""
        return f"skipped: a gradient{of} is not finite{where}{self._scales(found)}"

    def _scales(self, found: Mapping[str, Array]) -> str:
        """Return the loss scale; of several losses those whose gradients are not finite."""
        if not self._losses:
            return f", at loss scale {float(found[_SCALE]):g}" if _SCALE in found else ""
        to_blame = [i for i in range(self._losses) if not found.get(f"{_FINITE}_{i}", True)]
        told = [f"{float(found[f'{_SCALE}_{i}']):g} of loss {i}" for i in to_blame]
        return f", at loss scale {' and '.join(told)}" if told else ", but those of each loss are"


def _counted(batches: int) -> str:
    return "1 batch" if batches == 1 else f"{batches} batches"
