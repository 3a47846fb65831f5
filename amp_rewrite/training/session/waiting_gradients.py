"""How many batches have added to an update of an accumulating step that is still to come."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from amp_rewrite.errors import CheckpointError, SaveError
from amp_rewrite.training.optimizers.gradient_accumulation import COUNTER
from amp_rewrite.training.session.states import States
from amp_rewrite.training.step.step_info import StepInfo


class WaitingGradients:
    """Knows how many batches have added to an update that is still to come."""

    def __init__(self, info: StepInfo, states: States, *, shards: bool) -> None:
        """Keep where batches are counted; over `shards` each has its own sums until an update."""
        self.steps, self._states, self._shards = info.accumulate, states, shards
        counter = info.having(COUNTER)
        self._counter = None if counter is None else counter.name

    @property
    def batches(self) -> int:
        """How many batches wait."""
        return 0 if self._counter is None else int(self._states.read(self._counter))

    def next_run(self, *, now: bool) -> tuple[bool | None, int]:
        """Return whether the next run applies gradients, and of how many batches an update is.

        None leaves the first to the step, which counts itself; shards have to know, for they sum
        gradients only then.

        Args:
            now: Apply them though more batches were to come.
        """
        if self._counter is None or not (now or self._shards):
            return None, self.steps
        batches = self.batches + 1
        if batches >= self.steps:
            return True if self._shards else None, self.steps
        return (True, batches) if now else (False, self.steps)

    def check_save(self) -> None:
        """Refuse to save sums that differ from shard to shard."""
        if self._shards and (waiting := self.batches):
            raise SaveError(
                "every shard has gradients of its own that wait for an update",
                found=f"{waiting} of {self.steps} batches",
                remedy="save when `session.waiting` is 0; run(feeds, apply=True) makes it so",
            )

    def check_restored(self, tensors: Mapping[str, Any]) -> None:
        """Refuse sums of one process for several shards, each of which would add all of them."""
        if self._shards and (waiting := int(tensors.get(str(self._counter), 0))):
            raise CheckpointError(
                "gradients wait for an update, which shards cannot take over",
                found=f"{waiting} of {self.steps} batches",
                remedy="restore a checkpoint that was saved when `session.waiting` was 0",
            )
