"""Run a step whose gradients are summed over shards: stages, and collectives between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import onnx_ir as ir

from amp_rewrite.errors import ShardError
from amp_rewrite.grad.builder.known import copy_of, input_of, maker
from amp_rewrite.graph.clone import clone
from amp_rewrite.graph.traverse import ancestors, inputs_of
from amp_rewrite.runtimes.ort.device import Device
from amp_rewrite.training.distributed.collective import Collective
from amp_rewrite.training.distributed.memory import Bucket, HostMemory, SingleMemory, buckets_of
from amp_rewrite.training.graph.replicas import Groups, is_collective
from amp_rewrite.training.session.compiled_program import Program, StateTensors
from amp_rewrite.training.session.engine_stages import stage_runner
from amp_rewrite.training.step.cut_step import Stage, declare_types, stage_of
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

        `groups` has the group of this shard in groups of shards; `halfway` is that of the session.

        Raises:
            RunError: ONNX Runtime cannot load a stage.
        """
        self.info = info
        self._halfway = halfway
        model = clone(model)
        isolate(model)
        buckets = buckets_of(model.graph, bucket_bytes)
        stages = stages_of(model, buckets)
        self._memories = [
            (HostMemory if b.fused else SingleMemory)(b, groups[b.groups], device) for b in buckets
        ]
        targets = {name: v for memory in self._memories for name, v in memory.targets().items()}
        self._stages: list[Program | None] = []
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

    def compute(self, current: int, feeds: Mapping[str, Any], values: dict[str, Any]) -> None:
        """See `Program`.

        Raises:
            RunError: ONNX Runtime reports an error; the states of set `current` are as before.
            ShardError: Another shard has ended, or does not answer in time; or an earlier step
                failed after a sum had begun.
        """
        self._halfway.check()
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


def isolate(model: ir.Model) -> None:
    """Make sums independent of what is around them, in place.

    Their inputs, which the sums overwrite, are read by nothing else and computed by a node of a
    stage: a sum of a sum gets a copy of it. Their outputs are none of the model.
    """
    graph = model.graph
    for node in [n for n in graph if is_collective(n)]:
        _hide(graph, node.outputs[0])
        value = input_of(node, 0)
        if not _is_free(value):
            own = copy_of(value, f"{node.outputs[0].name}:own", node=f"{node.name}/copy")
            graph.insert_before(node, maker(own))
            node.replace_input_with(0, own)


def _is_free(value: ir.Value) -> bool:
    """Return whether a stage computes a value for one node alone."""
    node = value.producer()
    if node is None or is_collective(node):
        return False
    return len(value.uses()) == 1 and not value.is_graph_output()


def _hide(graph: ir.Graph, value: ir.Value) -> None:
    """If a value is an output of the graph, let a copy of it be that."""
    if not value.is_graph_output():
        return
    new = copy_of(value, str(value.name), node=f"{value.name}/output")
    value.name = f"{value.name}:sum"
    graph.append(maker(new))
    graph.outputs[:] = [new if v is value else v for v in graph.outputs]


def stages_of(model: ir.Model, buckets: Sequence[Bucket]) -> list[Stage]:
    """Return a stage per bucket, which ends with the bucket's inputs, and the last one.

    `isolate` has been called, and types are known.
    """
    values = [v for node in model.graph for v in node.outputs]
    declare_types(model, values)
    parts = _parts(model.graph, buckets)
    home = {v: number for number, part in enumerate(parts) for node in part for v in node.outputs}
    read = [{v for node in part for v in inputs_of(node)} for part in parts]
    sums = [node for bucket in buckets for node in bucket.nodes]
    always = {v for node in sums for v in (*node.inputs, *node.outputs)} | {*model.graph.outputs}
    stages: list[Stage] = []
    for number in range(len(parts)):
        wanted = always.union(*read[number + 1 :])
        enters = [v for v in values if v in read[number] and home.get(v) != number]
        leaves = [v for v in values if v in wanted and home.get(v) == number]
        stages.append(stage_of(model, enters, leaves))
    return stages


def _parts(graph: ir.Graph, buckets: Sequence[Bucket]) -> list[set[ir.Node]]:
    """Return the nodes of each stage: what a bucket needs that no bucket before it did."""
    left = {*graph}.difference(*(bucket.nodes for bucket in buckets))
    parts: list[set[ir.Node]] = []
    for bucket in buckets:
        wanted = [v for node in bucket.nodes for v in node.inputs if v is not None]
        parts.append(ancestors(wanted, within=left))
        left -= parts[-1]
    return [*parts, left]
