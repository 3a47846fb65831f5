"""Make the updates of a step conditional: a skipped step changes nothing, bit for bit."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

import onnx_ir as ir

from amp_rewrite.base import arguments
from amp_rewrite.grad.builder.builder import Builder
from amp_rewrite.graph.traverse import nodes_in


def check_mode(mode: object) -> str:
    """Return a mode of `conditional`, checked."""
    return arguments.one_of("way to make updates conditional", mode, ("if", "select"))


def conditional(
    b: Builder,
    finite: ir.Value,
    updates: Mapping[str, ir.Value],
    present: Mapping[str, ir.Value],
    mode: str = "if",
    *,
    keep: Collection[ir.Value] = (),
    movable: Callable[[ir.Node], bool] = lambda node: True,
) -> dict[str, ir.Value]:
    """Return state -> its next value: of `updates` if `finite` (bool, shape ()), else `present`.

    Mode "if" moves the nodes that only the updates need into the then-branch of one If, if they are
    `movable`; values of `keep` stay outside. Call `TrainingGraph.forget_shapes` afterwards.
    "select" adds a Where per state.
    """
    check_mode(mode)
    changed = {name: value for name, value in updates.items() if value is not present[name]}
    if not changed:
        return dict(updates)
    copy_overwritten(b, [present[name] for name in changed])
    for name, value in changed.items():
        value.shape = present[name].shape if value.shape is None else value.shape
    if mode == "select":
        results = [b.where(finite, v, present[name]) for name, v in changed.items()]
    else:
        outside = {*keep, finite}
        then = _branch(b, "apply", list(changed.values()), outside, movable)
        skip = _branch(b, "skip", [present[name] for name in changed], outside, movable)
        found = b.op("If", finite, outputs=len(changed), then_branch=then, else_branch=skip)
        results = list(found) if isinstance(found, tuple) else [found]
    for name, result in zip(changed, results, strict=True):
        result.type, result.shape = present[name].type, present[name].shape
    return {**updates, **dict(zip(changed, results, strict=True))}


def _branch(
    b: Builder,
    name: str,
    values: list[ir.Value],
    keep: Collection[ir.Value],
    movable: Callable[[ir.Node], bool],
) -> ir.Graph:
    """Return a graph that computes values, with the nodes that nothing else needs."""
    moved = _only_for(b.graph, set(values), keep, movable)
    b.graph.remove(moved)
    graph = ir.Graph([], [], nodes=moved, name=b.free_name(f"conditional/{name}"))
    unused = {value for node in moved for value in node.outputs}
    inner = b.child(graph)
    for value in values:
        # An output of a graph is computed inside it, and is one output only.
        graph.outputs.append(value if value in unused else _copy(inner, value))
        unused.discard(value)
    return graph


def _copy(b: Builder, value: ir.Value) -> ir.Value:
    copy = b.op("Identity", value)
    copy.type, copy.shape = value.type, value.shape
    return copy


def _only_for(
    graph: ir.Graph,
    results: Collection[ir.Value],
    keep: Collection[ir.Value],
    movable: Callable[[ir.Node], bool],
) -> list[ir.Node]:
    """Return the nodes of a graph that only `results` need, in order."""
    owner = {inner: node for node in graph for inner in nodes_in(node)}
    moved: dict[ir.Node, None] = {}
    for node in reversed(graph):
        users = {owner.get(use.node, use.node) for value in node.outputs for use in value.uses()}
        wanted = users or any(value in results for value in node.outputs)
        bound = any(value in keep or value.is_graph_output() for value in node.outputs)
        if wanted and not bound and users <= moved.keys() and movable(node):
            moved[node] = None
    return list(reversed(moved))


_RUNNING = (3, 4)
"""The inputs of BatchNormalization that are running statistics."""


def copy_overwritten(b: Builder, states: Iterable[ir.Value]) -> None:
    """Let BatchNormalization read copies of the running statistics that it updates.

    ONNX Runtime's kernel writes the new running mean and variance into the memory of its inputs
    (onnxruntime/core/providers/cpu/nn/batch_norm.cc, `.Alias(3, 1)`), unless the output is a graph
    output. Later readers of the state, such as the else-branch of an If, would find the new one.

    A Clip without limits copies; an Identity would be removed before the memory is planned.
    """
    for state in states:
        readers = [(u.node, u.idx) for u in state.uses() if _overwrites(b.graph, u.node, u.idx)]
        if not readers:
            continue
        copy = b.op("Clip", state)
        copy.type, copy.shape = state.type, state.shape
        clip = copy.producer()
        assert clip is not None, "a node has just been added"
        b.graph.remove(clip)
        nodes = {node for node, _ in readers}
        b.graph.insert_before(next(node for node in b.graph if node in nodes), clip)
        for node, index in readers:
            node.replace_input_with(index, copy)


def _overwrites(graph: ir.Graph, node: ir.Node, index: int) -> bool:
    """Return whether a node of the graph may write over an input."""
    trains = node.attributes.get_int("training_mode", 0) == 1
    normalizes = node.op_type == "BatchNormalization" and trains
    return normalizes and index in _RUNNING and node.graph is graph
