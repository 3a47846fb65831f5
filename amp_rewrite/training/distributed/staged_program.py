"""Run a step whose gradients are summed over shards: stages, and collectives between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from amp_rewrite.errors import ShardError
from amp_rewrite.graph.clone import clone
from amp_rewrite.runtimes.ort.device import Device
from amp_rewrite.runtimes.ort.ort_values import copy_of
from amp_rewrite.training.distributed.buckets import buckets_of
from amp_rewrite.training.distributed.collective import Collective
from amp_rewrite.training.distributed.memory import Memory, memory_of
from amp_rewrite.training.distributed.stages import check_stages, isolate, stages_of
from amp_rewrite.training.graph.replicas import Groups
from amp_rewrite.training.session.engine_stages import StageRunner, stage_runner
from amp_rewrite.training.session.program import Program, StateTensors
from amp_rewrite.training.step.step_info import StepInfo


class Halfway:
    """Remembers that a step failed between its sums.

    Other shards wait for the rest of them; the sums of a further step would meet those.
    """

    def __init__(self) -> None:
        """Begin before the first step."""
        self._error: str | None = None

    def note(self, error: BaseException) -> None:
        """Remember an error."""
        self._error = " ".join(f"{type(error).__name__}: {error}".split())

    def check(self) -> None:
        """Refuse to go on after an error.

        Raises:
            ShardError: A step failed between its sums.
        """
        if self._error is not None:
            raise ShardError(
                "an earlier step failed between two sums; this shard cannot go on with the others",
                found=self._error,
                remedy="let the error end all shards, and resume from the checkpoint",
            )


class ShardedProgram(Program):
    """A step in stages.

    The sum of a bucket begins when the stage that computes it is done, and is waited for when a
    later stage needs it.
    """

    def __init__(
        self,
        model: ir.Model,
        info: StepInfo,
        sets: Sequence[StateTensors],
        *,
        device: Device,
        groups: Mapping[Groups, Collective],
        bucket_bytes: int,
        halfway: Halfway,
        **options: Any,
    ) -> None:
        """Cut a step and load its stages.

        Args:
            model: A step without defaults of states.
            info: Its description.
            sets: See `Program`.
            device: Where the states are.
            groups: Groups of shards -> the group of this one.
            bucket_bytes: How much is summed at once.
            halfway: Of all programs of the session.
            **options: See `Program`.

        Raises:
            InvariantError: A stage reads what no stage before it computes.
            RunError: ONNX Runtime cannot load a stage.
        """
        self.info = info
        self._halfway = halfway
        model = clone(model)
        isolate(model)
        buckets = buckets_of(model.graph, bucket_bytes)
        stages = stages_of(model, buckets)
        check_stages(stages, buckets, info.fetches.values())
        self._memories: list[Memory] = [memory_of(b, groups[b.groups], device) for b in buckets]
        targets = {name: v for memory in self._memories for name, v in memory.targets().items()}
        self._stages: list[StageRunner | None] = []
        for stage in stages:
            own = {name: targets[name] for name in stage.leaves if name in targets}
            self._stages.append(
                stage_runner(stage, info, sets, own, device=device, **options)
                if stage.leaves
                else None
            )
        results = {name: i for i, bucket in enumerate(buckets) for name in bucket.results}
        wanted = [*(stage.enters for stage in stages), tuple(info.fetches.values())]
        self._waits = [sorted({results[n] for n in names if n in results}) for names in wanted]

    def run(self, current: int, feeds: Mapping[str, Any]) -> dict[str, np.ndarray[Any, Any]]:
        """Do what `Program.run` does.

        Raises:
            RunError: ONNX Runtime reports an error; the states of set `current` are as before.
            ShardError: Another shard has ended, or does not answer in time; or an earlier step
                failed after a sum had begun.
        """
        self._halfway.check()
        values: dict[str, Any] = {}
        done: set[int] = set()

        def wait(indices: Sequence[int]) -> None:
            for index in indices:
                if index not in done:
                    done.add(index)
                    values.update(self._memories[index].finish())

        begun = 0
        try:
            for index, stage in enumerate(self._stages):
                wait(self._waits[index])
                if stage is not None:
                    stage.compute(current, feeds, values)
                if index < len(self._memories):
                    begun += 1
                    self._memories[index].start(values)
            wait(range(len(self._memories)))
        except BaseException as error:
            if begun:
                self._halfway.note(error)
            raise
        return {name: copy_of(values[v]) for name, v in self.info.fetches.items()}

    def end_profiling(self) -> str:
        """End profiling; return the paths of the profiles of all stages, with commas between."""
        return ",".join(s.end_profiling() for s in self._stages if s is not None)
