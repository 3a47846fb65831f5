"""Which sums travel together: buckets, in the order in which they can begin."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod

import onnx_ir as ir

from amp_rewrite.graph.metadata_keys import ORDER_KEY
from amp_rewrite.graph.traverse import ancestors, inputs_of
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
