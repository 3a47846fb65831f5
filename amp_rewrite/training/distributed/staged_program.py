"""One session's part in training on several shards: a step in stages, and sums between them."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, groupby
from math import prod
from typing import Any

import numpy as np
import onnx_ir as ir

from amp_rewrite.dtypes import BFLOAT16
from amp_rewrite.errors import AmpError, CheckpointError, FetchError, ShardError
from amp_rewrite.grad.builder.known import copy_of, dims, input_of, maker
from amp_rewrite.grad.rules.window import static
from amp_rewrite.graph.clone import clone
from amp_rewrite.graph.traverse import ancestors, inputs_of
from amp_rewrite.runtimes.ort.device import HOST, Device
from amp_rewrite.runtimes.ort.ort_values import copy_of as array_of
from amp_rewrite.runtimes.ort.ort_values import to_ort_value
from amp_rewrite.training.distributed.collective import Array, Collective, compare, gather_text
from amp_rewrite.training.distributed.cross_shard_optimizer import check_permutation
from amp_rewrite.training.graph.replicas import SUM, Groups, groups_of, is_collective, resolve
from amp_rewrite.training.session.checkpoint import Checkpoint
from amp_rewrite.training.session.compiled_program import Program, StateTensors, stage_runner
from amp_rewrite.training.session.states import States
from amp_rewrite.training.step.cut_step import Stage, declare_types, stage_of, values_by_name
from amp_rewrite.training.step.dropout import spread_masks
from amp_rewrite.training.step.step import Step
from amp_rewrite.training.step.step_info import StepInfo


class ShardedProgram(Program):
    """A step in stages; after each, all sums are made whose inputs are there."""

    def __init__(
        self,
        model: ir.Model,
        info: StepInfo,
        sets: Sequence[StateTensors],
        sharding: SessionSharding,
        *,
        device: Device,
        **options: Any,
    ) -> None:
        """Cut a step and load its stages."""
        self.info, self._sharding = info, sharding
        model = clone(model)
        _set_apart(model.graph)
        levels = _levels(model.graph)
        buckets = [[_Bucket(nodes, device) for nodes in level] for level in [*levels, []]]
        targets = {n: v for level in buckets for bucket in level for n, v in bucket.targets()}
        self._parts: list[Program | _Bucket] = []
        for stage, level in zip(_stages(model, levels), buckets, strict=True):
            own = {name: targets[name] for name in stage.leaves if name in targets}
            if stage.leaves:
                loaded = stage_runner(stage, info, sets, own, device=device, **options)
                self._parts.append(loaded)
            self._parts += level

    def compute(self, current: int, feeds: Mapping[str, Any], values: dict[str, Any]) -> None:
        """See `Program`."""
        self._sharding.check()
        begun = False
        try:
            for part in self._parts:
                if isinstance(part, _Bucket):
                    begun = True
                    part.exchange(self._sharding.groups[part.groups], values)
                else:
                    part.compute(current, feeds, values)
        except BaseException as error:
            if begun:
                self._sharding.failure = " ".join(f"{type(error).__name__}: {error}".split())
            raise


class _Bucket:
    """Sums, or gathers, of one type over the same groups, which travel together.

    Where the runtime computes on the host and shapes are known, it writes what is summed into the
    memory that travels, and reads the sums there.
    """

    def __init__(self, nodes: Sequence[ir.Node], device: Device) -> None:
        """Allocate that memory."""
        self.groups, self._device = groups_of(nodes[0]), device
        self._sums = nodes[0].op_type == SUM
        self._sources = [str(input_of(node, 0).name) for node in nodes]
        self.results = [str(node.outputs[0].name) for node in nodes]
        self._whole: Array | None = None
        self._parts: list[Any] = []
        shapes = [static(dims(node.outputs[0])) for node in nodes]
        known = [shape for shape in shapes if shape is not None]
        dtype = nodes[0].outputs[0].dtype
        if self._sums and device.is_host and len(known) == len(nodes) and dtype is not None:
            kind = dtype.numpy()
            *starts, length = accumulate(map(prod, known), initial=0)
            self._whole = whole = np.zeros(length, kind)
            parts = [whole[i : i + prod(s)].reshape(s) for i, s in zip(starts, known, strict=True)]
            self._parts = [to_ort_value(part, HOST) for part in parts]

    def targets(self) -> Iterable[tuple[str, Any]]:
        """Return value to sum and OrtValue that the runtime shall write it to, in pairs."""
        return zip(self._sources, self._parts, strict=bool(self._parts))

    def exchange(self, group: Collective, values: dict[str, Any]) -> None:
        """Sum or gather `values`, and put the results there."""
        if self._whole is not None:
            group.sum(self._whole)
            values.update(zip(self.results, self._parts, strict=True))
            return
        given = [array_of(values[name]) for name in self._sources]
        if self._sums:
            whole = np.concatenate([array.reshape(-1) for array in given])
            group.sum(whole)
            parts = np.split(whole, np.cumsum([array.size for array in given])[:-1])
            made = [part.reshape(a.shape) for part, a in zip(parts, given, strict=True)]
        else:
            made = [np.concatenate(group.gather(array)) for array in given]
        values.update(
            (name, to_ort_value(array, self._device))
            for name, array in zip(self.results, made, strict=True)
        )


def _kind(node: ir.Node) -> tuple[str, Groups, str]:
    return node.op_type, groups_of(node), str(node.outputs[0].dtype)


def _set_apart(graph: ir.Graph) -> None:
    """Let nodes compute what sums read, and what the graph gives out of them, in place."""
    for node in [n for n in graph if is_collective(n)]:
        value, result = input_of(node, 0), node.outputs[0]
        node_before = value.producer()
        if (
            node_before is None
            or is_collective(node_before)
            or len(value.uses()) > 1
            or value.is_graph_output()
        ):  # the sum takes its place in memory
            own = copy_of(value, f"{result.name}:own", node=f"{node.name}/copy")
            graph.insert_before(node, maker(own))
            node.replace_input_with(0, own)
        if result.is_graph_output():
            new = copy_of(result, str(result.name), node=f"{result.name}/output")
            result.name = f"{result.name}:sum"
            graph.append(maker(new))
            graph.outputs[:] = [new if v is result else v for v in graph.outputs]


def _levels(graph: ir.Graph) -> list[list[list[ir.Node]]]:
    """Return the sums and gathers that need no other one, those that need these, and so on.

    In each level those of a kind are together, and the order is the same on all shards.
    """
    level_of: dict[ir.Value, int] = {}
    levels: dict[int, list[ir.Node]] = {}
    for node in graph:
        level = max((level_of.get(v, 0) for v in inputs_of(node)), default=0)
        if is_collective(node):
            levels.setdefault(level, []).append(node)
            level += 1
        level_of.update(dict.fromkeys(node.outputs, level))
    in_order = [
        sorted(levels[level], key=lambda n: (_kind(n), str(n.outputs[0].name)))
        for level in sorted(levels)
    ]
    return [[list(nodes) for _, nodes in groupby(level, _kind)] for level in in_order]


def _stages(model: ir.Model, levels: Sequence[Sequence[Sequence[ir.Node]]]) -> Iterator[Stage]:
    """Yield what each level of sums needs and no earlier one needed, and then the rest."""
    values = [v for node in model.graph for v in node.outputs]
    declare_types(model, values)
    sums = [{node for nodes in level for node in nodes} for level in levels]
    left = {*model.graph}.difference(*sums)
    parts: list[set[ir.Node]] = []
    for level in sums:
        parts.append(ancestors([input_of(node, 0) for node in level], within=left))
        left -= parts[-1]
    parts.append(left)
    home = {v: number for number, part in enumerate(parts) for node in part for v in node.outputs}
    read = [{v for node in part for v in inputs_of(node)} for part in parts]
    always = {input_of(node, 0) for level in sums for node in level} | {*model.graph.outputs}
    for number in range(len(parts)):
        wanted = always.union(*read[number + 1 :])
        enters = [v for v in values if v in read[number] and home.get(v) != number]
        leaves = [v for v in values if v in wanted and home.get(v) == number]
        yield stage_of(model, enters, leaves)


class SessionSharding:
    """One session's part in training on several shards.

    Attributes:
        writes: Whether this shard writes files.
        threads: Threads inside an operator for sessions that leave the choice open.
        always: Values that every run computes, fetched or not: sums that all shards have to make.
        groups: Groups of shards -> that of this shard; engines have few, which sessions share.
        failure: The error of a step that failed between its sums, or None. Other shards wait for
            the rest of them; the sums of a further step would meet those.
    """

    def __init__(self, world: Collective, collectives: dict[Groups, Collective]) -> None:
        """Begin before the step is known."""
        self._world, self.groups = world, collectives
        collectives[()] = world
        self.failure: str | None = None
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
            if groups not in self.groups:
                self.groups[groups] = self._world.split(groups)
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
        return ShardedProgram(stage.model, info, sets, self, **options)

    def check(self) -> None:
        """Refuse to go on after an error between two sums."""
        if self.failure is not None:
            raise ShardError(
                "an earlier step failed between two sums; this shard cannot go on with the others",
                found=self.failure,
                remedy="let the error end all shards, and resume from the checkpoint",
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
        self.check()
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
