"""Operators of training on several shards, in a domain of the project's own.

CrossReplicaSum (X) -> Y: the sum of X over the shards of a group; the type and the shape of X.
CrossReplicaGather (X) -> Y: the X of the shards of a group, joined along axis 0.
ReplicaCount () -> N: the number of shards of a group: float32, shape ().

All have the attributes `groups`, the numbers of the shards of one group after those of the other,
and `group_size`; without them all shards are one group. A session on one shard takes X for Y and 1
for N; the functions that a step file carries under these names say the same to other runtimes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextvars import ContextVar, Token
from typing import Any, Self, TypeAlias

import numpy as np
import onnx_ir as ir

from amp_rewrite.errors import OptionError, ShardError
from amp_rewrite.grad.builder.builder import Builder
from amp_rewrite.grad.builder.known import copy_of, hold, input_of, maker, take_place

DOMAIN = "amp_rewrite"
SUM, GATHER, COUNT = "CrossReplicaSum", "CrossReplicaGather", "ReplicaCount"

Groups = tuple[tuple[int, ...], ...]
"""The shards of each group; empty: all shards are one group."""

_VERSION = 1
_GROUPS, _SIZE = "groups", "group_size"


def _op(b: Builder, op: str, *inputs: ir.Value, groups: Groups) -> ir.Value:
    b.model.graph.opset_imports.setdefault(DOMAIN, _VERSION)
    flat = [shard for group in groups for shard in group] or None
    size = len(groups[0]) if groups else None
    return b.op(op, *inputs, domain=DOMAIN, groups=flat, group_size=size)


def cross_replica_sum(b: Builder, x: ir.Value, groups: Groups = ()) -> ir.Value:
    """Return the sum of x over the shards of a group, which is made in float32 at least."""
    wide = b.at_least_float32(x)
    y = _op(b, SUM, wide, groups=groups)
    y.type = wide.type
    return b.cast_like(b.shaped_like(y, x), x)


def cross_replica_gather(b: Builder, x: ir.Value, groups: Groups = ()) -> ir.Value:
    """Return the x of every shard of a group, joined along axis 0."""
    y = _op(b, GATHER, x, groups=groups)
    y.type = x.type
    dims = b.dims(x)
    y.shape = None if dims is None else ir.Shape([None, *dims[1:]])
    return y


def replica_count(b: Builder, groups: Groups = ()) -> ir.Value:
    """Return the number of shards of a group: float32, shape ()."""
    y = _op(b, COUNT, groups=groups)
    y.type, y.shape = ir.TensorType(ir.DataType.FLOAT), ir.Shape(())
    return y


def groups_of(node: ir.Node) -> Groups:
    """Return the groups of a node of the domain."""
    flat: Sequence[int] = node.attributes.get_ints(_GROUPS, ())
    size = node.attributes.get_int(_SIZE, len(flat))
    return tuple(tuple(flat[i : i + size]) for i in range(0, len(flat), size)) if flat else ()


def define(model: ir.Model) -> None:
    """Add functions by which other runtimes run a step on one shard, in place."""
    for op in dict.fromkeys(node.op_type for node in replica_nodes(model)):
        x = ir.Value(name="X")
        if op == COUNT:
            body = ir.node("Constant", [], {"value_float": 1.0})
        else:
            body = ir.node("Identity", [x])
        body.outputs[0].name = "Y"
        graph = ir.Graph(
            [] if op == COUNT else [x],
            body.outputs,
            nodes=[body],
            opset_imports={"": model.graph.opset_imports[""]},
        )
        kinds = ((_GROUPS, ir.AttributeType.INTS), (_SIZE, ir.AttributeType.INT))
        attributes = [ir.Attr(name, kind, None) for name, kind in kinds]
        function = ir.Function(DOMAIN, op, graph=graph, attributes=attributes)
        model.functions[function.identifier()] = function


def undefine(model: ir.Model) -> None:
    """Remove what `define` added, so that the operators are seen as what they are."""
    for key in [k for k in model.functions if k[0] == DOMAIN and k[1] in (SUM, GATHER, COUNT)]:
        del model.functions[key]


def is_collective(node: ir.Node) -> bool:
    """Return whether a node's output depends on other shards: a sum or a gather."""
    return node.domain == DOMAIN and node.op_type in (SUM, GATHER)


def replica_nodes(model: ir.Model) -> Iterator[ir.Node]:
    """Yield the nodes of these operators in the main graph."""
    kinds = (SUM, GATHER, COUNT)  # functions of the step share the domain
    return (node for node in model.graph if node.domain == DOMAIN and node.op_type in kinds)


def resolve(model: ir.Model, shards: int = 1) -> None:
    """Put a number in place of ReplicaCount and, on one shard, X in place of sums and gathers."""
    for node in list(replica_nodes(model)):
        if node.op_type == COUNT:
            groups = groups_of(node)
            count = len(groups[0]) if groups and shards > 1 else shards
            if count == 1:
                _remove_products(model.graph, node)
            name = f"{COUNT}/{count}"
            number = model.graph.initializers.get(name)
            if number is None:
                number = hold(model.graph, name, np.array(count, np.float32))
            _replace(model.graph, node, number)
        elif shards == 1:
            _replace(model.graph, node, input_of(node, 0))


def _remove_products(graph: ir.Graph, node: ir.Node) -> None:
    """Remove what multiplies by the reciprocal of 1.

    ONNX Runtime's own removal breaks some graphs (1.31: "Node input is not a graph input,
    initializer, or output of a previous node").
    """
    for use in list(node.outputs[0].uses()):
        if use.node.op_type != "Reciprocal":
            continue
        share = use.node.outputs[0]
        for product in [u.node for u in share.uses() if u.node.op_type == "Mul"]:
            left, right = product.inputs
            other = left if right is share else right
            if other is not None and product.graph is graph:
                _replace(graph, product, other)


def _replace(graph: ir.Graph, node: ir.Node, value: ir.Value) -> None:
    """Put an Identity in place of a node; its output keeps its name, by which it is fetched."""
    copy = copy_of(value, "", node=node.name)
    maker(copy).metadata_props.update(node.metadata_props)
    graph.insert_before(node, maker(copy))
    take_place(copy, node.outputs[0])
    graph.remove(node, safe=True)


Sharding: TypeAlias = Any
"""One session's part in training on several shards: the class `SessionSharding`."""


class ShardContext:
    """The number of shards that a step built inside its `with` block runs on; None if any."""

    def __init__(self, size: int | None) -> None:
        """Keep the number."""
        self.size = size
        self._token: Token[ShardContext | None] | None = None

    def __enter__(self) -> Self:
        """Let optimizers and sessions inside the block find the context."""
        self._token = CURRENT.set(self)
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Let them find the context around it again."""
        if self._token is not None:
            CURRENT.reset(self._token)
            self._token = None

    def sharding(self) -> Sharding | None:
        """Return what a new session needs, or None if it runs on one shard."""
        return None


CURRENT: ContextVar[ShardContext | None] = ContextVar("amp_rewrite.shards", default=None)
"""The context of the innermost `with`, for optimizers and sessions inside it."""


def sharding_of(shards: ShardContext | None, model: ir.Model) -> Sharding | None:
    """Return a new session's part in training on several shards, or None if it runs on one.

    `shards` of None is the context around it, for a step that sums over shards.
    """
    sums = any(True for _ in replica_nodes(model))
    context = CURRENT.get() if shards is None else shards
    if context is None or (shards is None and not sums):
        return None
    if not isinstance(context, ShardContext):  # pyright: ignore[reportUnnecessaryIsInstance] users pass anything
        raise OptionError(
            "not the shards of a session",
            found=f"an object of type {type(context).__name__}",
            expected="what amp_rewrite.distributed.mpi returned",
        )
    if not sums and (context.size or 1) > 1:
        raise ShardError(
            "the step sums nothing over shards, which would train apart from each other",
            remedy="build it with CrossShardOptimizer, or amp-rewrite train-step --cross-shard",
        )
    return context.sharding()
