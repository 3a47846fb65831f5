"""One session's part in training on several shards."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_ir as ir

from amp_rewrite.dtypes import BFLOAT16
from amp_rewrite.errors import AmpError, CheckpointError, FetchError
from amp_rewrite.graph.traverse import ancestors
from amp_rewrite.training.distributed.collective import Array, Collective, compare, gather_text
from amp_rewrite.training.distributed.cross_shard_optimizer import check_permutation
from amp_rewrite.training.distributed.staged_program import Halfway, ShardedProgram
from amp_rewrite.training.graph.replicas import Groups, groups_of, is_collective, resolve
from amp_rewrite.training.session.checkpoint import Checkpoint
from amp_rewrite.training.session.states import States
from amp_rewrite.training.step.cut_step import Stage, values_by_name
from amp_rewrite.training.step.dropout import spread_masks
from amp_rewrite.training.step.step import Step
from amp_rewrite.training.step.step_info import StepInfo


class SessionSharding:
    """One session's part in training on several shards.

    Attributes:
        writes: Whether this shard writes files.
        threads: Threads inside an operator for sessions that leave the choice open.
        always: Values that every run computes, fetched or not: sums that all shards have to make.
    """

    def __init__(self, world: Collective, collectives: dict[Groups, Collective]) -> None:
        """Begin before the step is known; engines have few groups, so that sessions share them."""
        self._world, self._groups = world, collectives
        collectives[()] = world
        self._halfway = Halfway()
        self._sums: set[str] = set()
        self.always: tuple[str, ...] = ()
        self.writes = world.rank == 0
        self.threads = max(1, _cores() // world.local_size)

    def prepare(self, step: Step) -> None:
        """Put the numbers of this shard into its step, in place."""
        sums = [node for node in step.model.graph if is_collective(node)]
        _compare_steps(self._world, step)
        for groups in sorted({groups_of(node) for node in sums}):
            check_permutation(groups, self._world.size)
            if groups not in self._groups:
                self._groups[groups] = self._world.split(groups)
        model = step.model
        spread_masks(model, self._world.rank)
        values = values_by_name(model.graph)
        updates = ancestors([values[state.output] for state in step.info.states])
        fetched = ancestors([values[n] for n in step.info.fetches.values() if n in values])
        self._sums = {str(n.outputs[0].name) for n in sums if n in updates | fetched}
        self.always = tuple(
            str(n.outputs[0].name) for n in sums if n in fetched and n not in updates
        )

    def begin(self, states: States) -> None:
        """Take the initial states of shard 0."""
        for name in states.info:
            array = states.read(name)
            self._world.broadcast(array)
            states.write(name, array)

    def program(self, stage: Stage, info: StepInfo, sets: Any, **options: Any) -> ShardedProgram:
        """Return what runs a step with the sums over shards in it."""
        for node in stage.model.graph if self._world.size > 1 else ():
            if is_collective(node) and node.outputs[0].name not in self._sums:
                raise FetchError(  # shards with other fetches would not make it
                    "a fetch needs a sum over shards that is not a part of this step",
                    where=node.outputs[0].name,
                    remedy="fetch it in a session of the step that it belongs to",
                )
        resolve(stage.model, self._world.size)
        return ShardedProgram(
            stage.model, info, sets, groups=self._groups, halfway=self._halfway, **options
        )

    def agree(self, text: str | None) -> str | None:
        """Return on all shards what the first one says that says anything; None if none does.

        The sum of one number, which costs little, finds out whether any does.
        """
        saying = np.array([text is not None], np.float32)
        self._world.sum(saying)
        if not saying.item():
            return None
        return next(filter(None, gather_text(self._world, text or "")), "")

    def checkpoint(self, read: Callable[[], Checkpoint]) -> Checkpoint:
        """Return what shard 0 reads, on every shard; `read` is called on shard 0 only."""
        self._halfway.check()
        compare(self._world, "their calls", "restore")
        tensors: dict[str, Array] = {}
        note: dict[str, Any] = {}
        failure: AmpError | None = None
        if self.writes:
            try:
                saved = read()
            except AmpError as error:
                failure, note = error, {"error": str(error)}
            else:
                tensors = saved.tensors
                kinds = {name: (a.dtype.name, a.shape) for name, a in tensors.items()}
                note = {"tensors": kinds, "progress": saved.progress}
        note = json.loads(gather_text(self._world, json.dumps(note))[0])
        if "error" in note:
            raise failure or CheckpointError("shard 0 cannot restore", found=note["error"])
        for name, (dtype, shape) in note["tensors"].items():
            kind = BFLOAT16.ir.numpy() if dtype == BFLOAT16.name else dtype
            array = np.ascontiguousarray(tensors.get(name, np.empty(shape, kind)))
            self._world.broadcast(array)
            tensors[name] = array.reshape(shape)
        return Checkpoint(tensors, note["progress"])


def _cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1  # macOS has no affinity


def _compare_steps(world: Collective, step: Step) -> None:
    """Compare states, inputs, nodes and constants of the steps of all shards.

    The initial values of states may differ: those of shard 0 are taken.
    """
    inputs = {str(v.name): v for v in step.model.graph.inputs}
    constants = {k: v.const_value for k, v in step.model.graph.initializers.items()}
    parts = {
        "states": [f"{s.name} {s.dtype} {list(s.shape)} {s.role}" for s in step.info.states],
        "inputs": [f"{n} {inputs[n].dtype} {inputs[n].shape}" for n in step.info.inputs],
        "nodes": [f"{node.op_type} {_digest(_bytes(node))}" for node in step.model.graph],
        "constants": [
            f"{name} {tensor.dtype} {tensor.shape} {_digest(tensor.tobytes())}"
            for name, tensor in sorted(constants.items())
            if name not in step.info.names and tensor is not None
        ],
    }
    for what, lines in parts.items():
        compare(world, f"the {what} of their steps", "\n".join(lines))


def _bytes(node: ir.Node) -> bytes:
    return ir.serde.serialize_node(node).SerializeToString(deterministic=True)


def _digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=8).hexdigest()
