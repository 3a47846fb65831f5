"""Which sums travel together, in buckets, and the memory in which these travel."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import onnx_ir as ir

from amp_rewrite.graph.metadata_keys import ORDER_KEY
from amp_rewrite.graph.traverse import ancestors, inputs_of
from amp_rewrite.runtimes.ort.device import HOST, Device
from amp_rewrite.runtimes.ort.ort_values import empty, to_array, to_ort_value
from amp_rewrite.training.distributed.collective import Array, Collective, Pending
from amp_rewrite.training.graph.replicas import SUM, Groups, groups_of, is_collective


@dataclass(frozen=True)
class Bucket:
    """Sums of one type over the same groups.

    Attributes:
        nodes: CrossReplicaSum nodes whose shapes are known; or one node of any kind.
        groups: Their groups.
        fused: Whether they travel in one piece of memory.
    """

    nodes: tuple[ir.Node, ...]
    groups: Groups
    fused: bool

    @property
    def sources(self) -> list[str]:
        """The names of the values to sum."""
        return [str(node.inputs[0].name) for node in self.nodes if node.inputs[0] is not None]

    @property
    def results(self) -> list[str]:
        """The names of the sums."""
        return [str(node.outputs[0].name) for node in self.nodes]


def buckets_of(graph: ir.Graph, bucket_bytes: int) -> list[Bucket]:
    """Return the sums of a graph in buckets.

    The order is that of `number_sums`, or else that in which the values to sum are computed. A sum
    of what depends on another sum comes in a later bucket. It is full when it holds `bucket_bytes`.
    """
    position, depth = _order(graph)
    nodes = sorted((node for node in graph if node in depth), key=lambda n: (depth[n], position[n]))
    buckets: list[Bucket] = []
    open_: dict[tuple[object, ...], list[ir.Node]] = {}
    for node in nodes:
        value, groups = node.outputs[0], groups_of(node)
        if node.op_type != SUM or byte_size(value) is None:
            buckets.append(Bucket((node,), groups, fused=False))
            continue
        key = value.dtype, groups, depth[node]
        members = open_.setdefault(key, [])
        members.append(node)
        if sum(byte_size(n.outputs[0]) or 0 for n in members) >= bucket_bytes:
            buckets.append(Bucket(tuple(open_.pop(key)), groups, fused=True))
    buckets += [
        Bucket(tuple(members), groups_of(members[0]), fused=True) for members in open_.values()
    ]
    return sorted(buckets, key=lambda b: max((depth[n], position[n]) for n in b.nodes))


def byte_size(value: ir.Value) -> int | None:
    """Return how many bytes a value takes, or None if its shape is not known."""
    if value.shape is None or value.dtype is None:
        return None
    dims = [d for d in value.shape if isinstance(d, int)]
    return prod(dims) * value.dtype.numpy().itemsize if len(dims) == len(value.shape) else None


def _order(graph: ir.Graph) -> tuple[Mapping[ir.Node, int], Mapping[ir.Node, int]]:
    """Return of each sum where its input is computed, and on how many sums in a row it depends."""
    at: dict[ir.Value, int] = {}
    behind: dict[ir.Value, int] = {}
    position: dict[ir.Node, int] = {}
    depth: dict[ir.Node, int] = {}
    sums = {node for node in graph if is_collective(node)}
    for index, node in enumerate(graph):
        inputs = inputs_of(node)
        level = max((behind.get(v, 0) for v in inputs), default=0)
        if node in sums:
            noted = node.metadata_props.get(ORDER_KEY)
            place = max((at.get(v, -1) for v in inputs), default=-1)
            position[node] = place if noted is None else int(noted)
            depth[node] = level
            level += 1
        for value in node.outputs:
            at[value], behind[value] = index, level
    return position, depth


def number_sums(
    graph: ir.Graph, updates: Iterable[ir.Value], fetches: Iterable[ir.Value]
) -> list[str]:
    """Number the sums of a whole step in the order in which they are to be made.

    What is cut out of the step for the fetches of one shard keeps the numbers, so that shards that
    fetch different values still make the same sums in the same order. The graph is sorted
    and its sums are marked; `fetches` have names among those of the step.

    Returns:
        The names of the sums that no update needs; every run has to make them too.
    """
    always, asked = ancestors(updates), ancestors(fetches)
    position, depth = _order(graph)
    nodes = [n for n in sorted(depth, key=lambda n: (depth[n], position[n])) if n in always | asked]
    for index, node in enumerate(nodes):
        node.metadata_props[ORDER_KEY] = str(index)
    return [str(node.outputs[0].name) for node in nodes if node not in always]


def is_numbered(node: ir.Node) -> bool:
    """Return whether `number_sums` has met a sum."""
    return ORDER_KEY in node.metadata_props


_ALIGNMENT = 64  # bytes: a line of the cache, and what vector instructions like


def _layout(bucket: Bucket) -> tuple[list[tuple[int, tuple[int, ...]]], int, ir.DataType]:
    """Return (offset, shape) of each value, and the length in all; in elements of their type."""
    dtype = bucket.nodes[0].outputs[0].dtype
    assert dtype is not None, "a fused bucket knows its type"
    step = _ALIGNMENT // dtype.numpy().itemsize
    places: list[tuple[int, tuple[int, ...]]] = []
    length = 0
    for node in bucket.nodes:
        shape = tuple(int(d) for d in node.outputs[0].shape or ())  # pyright: ignore[reportArgumentType] a fused bucket knows its shapes
        places.append((length, shape))
        length += -(-prod(shape) // step) * step
    return places, length, dtype


class HostMemory:
    """A bucket at run time: one array for all its values.

    Where the runtime computes on the host, it writes the values there and reads the sums there.
    """

    def __init__(self, bucket: Bucket, group: Collective, device: Device) -> None:
        """Allocate it, for a bucket that a group sums where the runtime computes on a device."""
        places, length, dtype = _layout(bucket)
        self._sources, self._results = bucket.sources, bucket.results
        self._group, self._device, self._dtype = group, device, dtype
        self._whole = _aligned(length, dtype)
        self._pending: Pending | None = None
        self._parts = [self._whole[at : at + prod(shape)].reshape(shape) for at, shape in places]
        self._views = [to_ort_value(part, HOST) for part in self._parts]
        if device.is_host:
            self._values = self._views
        else:
            self._values = [empty(shape, dtype, device) for _, shape in places]

    def targets(self) -> Mapping[str, Any]:
        """Return value to sum -> OrtValue that the runtime shall write it to."""
        return dict(zip(self._sources, self._values, strict=True))

    def start(self, values: Mapping[str, Any]) -> None:
        """Begin to sum; from a device the values are copied to the host."""
        del values
        if not self._device.is_host:
            for part, value in zip(self._parts, self._values, strict=True):
                part[...] = to_array(value, self._dtype)
        self._pending = self._group.start_sum(self._whole)

    def finish(self) -> Mapping[str, Any]:
        """Return sum -> OrtValue when all are there."""
        assert self._pending is not None, "started before"
        self._pending.wait()
        if not self._device.is_host:
            for view, value in zip(self._views, self._values, strict=True):
                value.update_inplace(view)
        return dict(zip(self._results, self._values, strict=True))


class SingleMemory:
    """A value whose shape is known at run time only: a sum of its own, or a gather."""

    def __init__(self, bucket: Bucket, group: Collective, device: Device) -> None:
        """Keep what is needed; see `HostMemory`."""
        self._node = bucket.nodes[0]
        self._source, self._result = bucket.sources[0], bucket.results[0]
        self._group, self._device = group, device
        self._array: Array | None = None
        self._pending: Pending | None = None

    def targets(self) -> Mapping[str, Any]:
        """Return nothing: the runtime allocates the value."""
        return {}

    def start(self, values: Mapping[str, Any]) -> None:
        """Begin to sum what is one of `values`, all that the stages have computed."""
        dtype = self._node.outputs[0].dtype
        assert dtype is not None, "a step knows the types of its gradients"
        self._array = np.ascontiguousarray(to_array(values[self._source], dtype))
        if self._node.op_type == SUM:
            self._pending = self._group.start_sum(self._array)

    def finish(self) -> Mapping[str, Any]:
        """Return the result; a gather is made here, for its lengths have to be told first."""
        assert self._array is not None, "started before"
        if self._pending is not None:
            self._pending.wait()
            array = self._array
        else:
            array = np.concatenate(self._group.gather(self._array))
        return {self._result: to_ort_value(array, self._device)}


def _aligned(length: int, dtype: ir.DataType) -> Array:
    """Return zeros that begin at a multiple of _ALIGNMENT bytes."""
    size = length * dtype.numpy().itemsize
    room = np.zeros(size + _ALIGNMENT, np.uint8)
    start = -room.ctypes.data % _ALIGNMENT
    return room[start : start + size].view(dtype.numpy())
