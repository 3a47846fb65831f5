"""Run a step whose gradients are summed over shards: stages, and collectives between them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, groupby
from typing import Any

import numpy as np
import onnx_ir as ir

from amp_rewrite.errors import ShardError
from amp_rewrite.grad.builder.known import copy_of, input_of, maker
from amp_rewrite.graph.clone import clone
from amp_rewrite.graph.traverse import ancestors, inputs_of
from amp_rewrite.runtimes.ort.device import HOST, Device
from amp_rewrite.runtimes.ort.ort_values import copy_of as array_of
from amp_rewrite.runtimes.ort.ort_values import shared_array, to_ort_value
from amp_rewrite.training.distributed.collective import Array, Collective
from amp_rewrite.training.graph.replicas import SUM, Groups, groups_of, is_collective
from amp_rewrite.training.session.compiled_program import Program, StateTensors
from amp_rewrite.training.session.engine_stages import stage_runner
from amp_rewrite.training.step.cut_step import Stage, declare_types, stage_of
from amp_rewrite.training.step.step_info import StepInfo

_ALIGNMENT = 64  # bytes: a line of the cache, and what vector instructions like


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
    """A step in stages; after each, all sums are made whose inputs are there."""

    def __init__(
        self,
        model: ir.Model,
        info: StepInfo,
        sets: Sequence[StateTensors],
        *,
        device: Device,
        groups: Mapping[Groups, Collective],
        halfway: Halfway,
        **options: Any,
    ) -> None:
        """Cut a step and load its stages.

        `groups` has the group of this shard in groups of shards; `halfway` is that of the session.

        Raises:
            RunError: ONNX Runtime cannot load a stage.
        """
        self.info = info
        self._halfway, self._groups, self._device = halfway, groups, device
        model = clone(model)
        _set_apart(model.graph)
        self._levels = [*_levels(model.graph), []]
        self._stages = [
            stage_runner(stage, info, sets, {}, device=device, **options) if stage.leaves else None
            for stage in _stages(model, self._levels)
        ]
        self._buffers: dict[object, Array] = {}

    def compute(self, current: int, feeds: Mapping[str, Any], values: dict[str, Any]) -> None:
        """See `Program`.

        Raises:
            RunError: ONNX Runtime reports an error; the states of set `current` are as before.
            ShardError: Another shard has ended, or does not answer in time; or an earlier step
                failed after a sum had begun.
        """
        self._halfway.check()
        begun = False
        try:
            for stage, level in zip(self._stages, self._levels, strict=True):
                if stage is not None:
                    stage.compute(current, feeds, values)
                begun |= bool(level)
                self._exchange(level, values)
        except BaseException as error:
            if begun:
                self._halfway.note(error)
            raise

    def _exchange(self, level: Sequence[ir.Node], values: dict[str, Any]) -> None:
        """Sum or gather over shards; values of one type that one group sums travel together."""
        for key, nodes in groupby(level, _kind):
            group, members = self._groups[key[1]], list(nodes)
            given = [self._array(values[str(input_of(node, 0).name)]) for node in members]
            made = (
                self._sums(group, given, key)
                if key[0] == SUM
                else [np.concatenate(group.gather(np.ascontiguousarray(a))) for a in given]
            )
            for node, array in zip(members, made, strict=True):
                values[str(node.outputs[0].name)] = to_ort_value(array, self._device)

    def _array(self, value: Any) -> Array:
        return shared_array(value) if value.device_name() == HOST.kind else array_of(value)

    def _sums(self, group: Collective, arrays: Sequence[Array], key: object) -> list[Array]:
        """Return the sums of arrays of one type, parts of memory that the next step overwrites."""
        dtype = arrays[0].dtype
        step = _ALIGNMENT // dtype.itemsize
        *starts, length = accumulate((-(-a.size // step) * step for a in arrays), initial=0)
        whole = self._buffers.get(key)
        if whole is None or whole.size != length:
            whole = self._buffers[key] = _aligned(length, dtype)
        parts = [
            whole[start : start + array.size].reshape(array.shape)
            for start, array in zip(starts, arrays, strict=True)
        ]
        for part, array in zip(parts, arrays, strict=True):
            part[...] = array
        group.sum(whole)
        return parts


def _kind(node: ir.Node) -> tuple[str, Groups, str]:
    return node.op_type, groups_of(node), str(node.outputs[0].dtype)


def _aligned(length: int, dtype: np.dtype[Any]) -> Array:
    """Return zeros that begin at a multiple of _ALIGNMENT bytes."""
    size = length * dtype.itemsize
    room = np.zeros(size + _ALIGNMENT, np.uint8)
    start = -room.ctypes.data % _ALIGNMENT
    return room[start : start + size].view(dtype)


def _set_apart(graph: ir.Graph) -> None:
    """Let nodes compute what sums read, and what the graph gives out of them, in place."""
    for node in [n for n in graph if is_collective(n)]:
        value, result = input_of(node, 0), node.outputs[0]
        if value.producer() is None:
            own = copy_of(value, f"{result.name}:own", node=f"{node.name}/copy")
            graph.insert_before(node, maker(own))
            node.replace_input_with(0, own)
        if result.is_graph_output():
            new = copy_of(result, str(result.name), node=f"{result.name}/output")
            result.name = f"{result.name}:sum"
            graph.append(maker(new))
            graph.outputs[:] = [new if v is result else v for v in graph.outputs]


def _levels(graph: ir.Graph) -> list[list[ir.Node]]:
    """Return the sums and gathers that need no other one, those that need these, and so on.

    The order within a level is the same on all shards, whatever else they compute.
    """
    level_of: dict[ir.Value, int] = {}
    levels: dict[int, list[ir.Node]] = {}
    for node in graph:
        level = max((level_of.get(v, 0) for v in inputs_of(node)), default=0)
        if is_collective(node):
            levels.setdefault(level, []).append(node)
            level += 1
        level_of.update(dict.fromkeys(node.outputs, level))
    return [
        sorted(nodes, key=lambda n: (_kind(n), str(n.outputs[0].name)))
        for _, nodes in sorted(levels.items())
    ]


def _stages(model: ir.Model, levels: Sequence[Sequence[ir.Node]]) -> Iterator[Stage]:
    """Yield what each level of sums needs and no earlier one needed, and then the rest."""
    values = [v for node in model.graph for v in node.outputs]
    declare_types(model, values)
    left = {*model.graph}.difference(*levels)
    parts: list[set[ir.Node]] = []
    for level in levels[:-1]:
        parts.append(ancestors([input_of(node, 0) for node in level], within=left))
        left -= parts[-1]
    parts.append(left)
    home = {v: number for number, part in enumerate(parts) for node in part for v in node.outputs}
    read = [{v for node in part for v in inputs_of(node)} for part in parts]
    always = {input_of(node, 0) for level in levels for node in level} | {*model.graph.outputs}
    for number in range(len(parts)):
        wanted = always.union(*read[number + 1 :])
        enters = [v for v in values if v in read[number] and home.get(v) != number]
        leaves = [v for v in values if v in wanted and home.get(v) == number]
        yield stage_of(model, enters, leaves)
