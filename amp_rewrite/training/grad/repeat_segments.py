"""Compute parts of the forward pass again for the gradients, instead of keeping their values.

T. Chen et al., "Training Deep Nets with Sublinear Memory Cost", 2016,
https://arxiv.org/abs/1604.06174.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

import onnx_ir as ir

from amp_rewrite.graph.metadata_keys import PART_KEY, RECOMPUTED_KEY
from amp_rewrite.graph.step_part import source_key
from amp_rewrite.graph.traits import Trait, has
from amp_rewrite.graph.traverse import inputs_of, subgraphs
from amp_rewrite.training.builder.builder import Builder
from amp_rewrite.training.builder.known import constant_tensor


def repeat_segments(
    b: Builder,
    segments: Iterable[Sequence[ir.Node]],
    backward: Sequence[ir.Node],
    *,
    keeps_ends: bool,
) -> None:
    """Let gradients read values of segments that are computed again, in place.

    A segment is computed again from what enters it. Without more, a runtime would find the same
    nodes twice, compute them once and keep the values. So what enters is passed through a Reshape
    whose shape takes part of the gradient that arrives at the segment, times 0: the copies have
    other inputs than the originals, and nothing of them can run before the backward pass comes to
    them. A Reshape moves no data.

    What nodes with subgraphs and with random numbers make is kept. A Dropout that is computed again
    has the mask of its original.

    Args:
        b: The builder of the gradients.
        segments: Nodes of the forward pass, each segment sorted; none is in two.
        backward: The nodes of the gradients, sorted.
        keeps_ends: Whether what other nodes of the forward pass read of a segment is kept.
    """
    places = {node: index for index, node in enumerate(backward)}
    before = len(b.added)
    for segment in segments:
        inside = {node for node in segment if _can_be_repeated(node)}
        values = _inner_values(inside, places) if keeps_ends else _values(inside)
        users = [node for node in backward if any(v in values for v in node.inputs)]
        arriving = _arriving(users, places)
        if arriving is None:  # it is the end of the forward pass, whose values are still there
            continue
        copies = _copied(b, _needed(segment, inside, values, users), values, arriving)
        for node in users:
            for index, value in enumerate(node.inputs):
                if value in copies:
                    node.replace_input_with(index, copies[value])
    for node in b.added[before:]:
        node.metadata_props.pop(PART_KEY)  # it is painted as what it repeats
    b.graph.sort()


def _can_be_repeated(node: ir.Node) -> bool:
    return not has(node, Trait.RANDOM, Trait.HOLDS) and next(subgraphs(node), None) is None


def _values(nodes: Iterable[ir.Node]) -> set[ir.Value]:
    return {value for node in nodes for value in node.outputs}


def _inner_values(inside: Collection[ir.Node], backward: Mapping[ir.Node, int]) -> set[ir.Value]:
    """Return the values that only a segment and the backward pass read."""
    return {
        value
        for value in _values(inside)
        if all(use.node in inside or use.node in backward for use in value.uses())
    }


def _arriving(users: Sequence[ir.Node], places: Mapping[ir.Node, int]) -> ir.Value | None:
    """Return the last gradient that is computed before a segment's; None if there is none.

    Args:
        users: The nodes of gradients that read values of the segment, sorted.
        places: All nodes of gradients -> their place. Those before the first user do not depend on
            any user.
    """
    if not users:
        return None
    first = places[users[0]]
    stack, seen = list(users), set(users)
    last: ir.Value | None = None
    latest = -1
    while stack:
        for value in inputs_of(stack.pop()):
            maker = value.producer()
            place = -1 if maker is None else places.get(maker, -1)
            is_float = value.dtype is not None and value.dtype.is_floating_point()
            if latest < place < first and is_float:
                last, latest = value, place
            if maker is not None and place > first and maker not in seen:
                seen.add(maker)
                stack.append(maker)
    return last


def _needed(
    segment: Sequence[ir.Node],
    inside: Collection[ir.Node],
    values: Collection[ir.Value],
    users: Iterable[ir.Node],
) -> list[ir.Node]:
    """Return the nodes that compute what users read of a segment, sorted."""
    wanted = {value for node in users for value in node.inputs if value in values}
    needed: list[ir.Node] = []
    for node in reversed(segment):
        if node in inside and any(value in wanted for value in node.outputs):
            needed.append(node)
            wanted.update(value for value in node.inputs if value in values)
    return needed[::-1]


def _copied(
    b: Builder, nodes: Sequence[ir.Node], values: Collection[ir.Value], arriving: ir.Value
) -> dict[ir.Value, ir.Value]:
    """Add sorted nodes again, none before the gradient `arriving`; return value -> its copy."""
    copies: dict[ir.Value, ir.Value] = {}
    nothing = _nothing_of(b, arriving)
    for node in nodes:
        for value in node.inputs:
            if value is not None and value not in copies and value not in values:
                copies[value] = _behind(b, value, nothing)
        copies.update(zip(node.outputs, _repeated(b, node, copies), strict=True))
    return copies


def _nothing_of(b: Builder, gradient: ir.Value) -> ir.Value:
    """Return 0 in a way that depends on a gradient: int64, shape (1,)."""
    first = b.slice(b.reshape(gradient, [-1]), [0], [1])
    sign = b.cast(b.greater(first, 0.0), ir.DataType.INT64)
    return b.mul(b.reduce_sum(sign), 0)  # the sum of no element is one, too


def _behind(b: Builder, value: ir.Value, nothing: ir.Value) -> ir.Value:
    """Return a value that is there as soon as `nothing` is; a constant as it is."""
    is_tensor = isinstance(value.type, ir.TensorType)
    if value.is_initializer() or constant_tensor(value) is not None or not is_tensor:
        return value
    shape = b.add(b.op("Shape", value), nothing)
    return b.shaped_like(b.reshape_exactly(value, shape), value)


def _repeated(b: Builder, node: ir.Node, copies: Mapping[ir.Value, ir.Value]) -> Sequence[ir.Value]:
    """Add a node once more, with copies of its inputs; return its outputs."""
    inputs = [None if value is None else copies.get(value, value) for value in node.inputs]
    if node.op_type == "BatchNormalization" and node.attributes.get_int("training_mode", 0):
        # ONNX Runtime's kernel may write over the running statistics that it reads, and does not
        # need: they would move twice, or in a step that fails. It gets zeros.
        inputs[3:] = [None if v is None else b.shaped_like(b.sub(v, v), v) for v in inputs[3:]]
    copy = ir.Node(
        node.domain,
        node.op_type,
        inputs,
        node.attributes.values(),
        overload=node.overload,
        num_outputs=len(node.outputs),
        name=b.free_name(f"{source_key(node)}/recomputed"),
        metadata_props={**node.metadata_props, RECOMPUTED_KEY: source_key(node)},
    )
    for old, new in zip(node.outputs, copy.outputs, strict=True):
        new.name = b.free_name(f"{old.name}/recomputed") if old.name else old.name
        new.type, new.shape = old.type, old.shape
    b.graph.append(copy)
    return copy.outputs
