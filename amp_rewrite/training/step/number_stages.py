"""A step in stages: single numbers apart from tensors.

An engine may compute int64 in 32 bits and float64 in float32: its counters wrap at 2^31, and powers
of beta lose their digits. A step is cut into three stages for it. The first one has what follows
from states of a single number (rates, powers, counters, keys of random numbers), the last one the
next values of such states; ONNX Runtime's CPU provider runs both, and gets the same numbers as it
does in a whole step. The stage between them, with all tensors, is the engine's.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import onnx_ir as ir

from amp_rewrite.grad.builder.known import constant_tensor, copy_of, dims, maker, take_place
from amp_rewrite.graph.names import FreeNames, names_in
from amp_rewrite.graph.traverse import ancestors, inputs_of, remove_unused_nodes, subgraphs
from amp_rewrite.training.step.cut_step import Stage, declare_types, stage_of

_TABLE = 4096
"""Up to that many elements may a constant have from which numbers follow: rates by steps, say."""

WIDE = (ir.DataType.INT64, ir.DataType.UINT64, ir.DataType.DOUBLE)
"""The types that an engine may compute in half of their bits."""

_BRANCHES = "If"


def number_stages(model: ir.Model, states: Collection[str]) -> tuple[Stage | None, ...]:
    """Return the stages before, of and after the tensors; None for one with nothing to compute.

    Types are known; the model, a step or a stage of it without functions, is changed.
    """
    graph = model.graph
    numbers = _EarlyValues(graph, states)
    for node in list(graph):
        if node.op_type == _BRANCHES and not node.domain:
            for branch in subgraphs(node):
                _hoist(branch, node, numbers, FreeNames(names_in(graph)))
            _split(node, numbers)
        numbers.add(node)
    declare_types(model, [v for node in graph for v in node.outputs])
    return _stages(model, numbers)


class _EarlyValues:
    """The values that follow from constants, and from states of a single number."""

    def __init__(self, graph: ir.Graph, states: Collection[str]) -> None:
        """Begin with what no node computes."""
        self._free = [v for v in graph.inputs if v.name in states and _is_number(v)]
        self.early = set(self._free)

    def is_fixed(self, value: ir.Value) -> bool:
        """Return whether a value is a constant that is not large."""
        tensor = constant_tensor(value)
        return tensor is not None and tensor.size <= _TABLE

    def is_number(self, value: ir.Value) -> bool:
        """Return whether a value is a single number."""
        return value in self.early or _is_number(value)

    def follows(self, node: ir.Node) -> bool:
        """Return whether a node computes numbers from numbers that are known early."""
        read = [v for v in node.inputs if v is not None]
        opaque = node.domain or node.op_type in _RANDOM.split()
        return (
            not (opaque or any(True for _ in subgraphs(node)))
            and any(v in self.early for v in read)
            and all(v in self.early or self.is_fixed(v) for v in read)
            and all(_is_number(v) for v in node.outputs)
        )

    def add(self, node: ir.Node) -> None:
        """Note what a node computes."""
        if self.follows(node):
            self.early.update(node.outputs)


# operators: those that draw from a generator of the engine.
_RANDOM = "RandomNormal RandomUniform RandomNormalLike RandomUniformLike Multinomial Bernoulli"


def _is_number(value: ir.Value) -> bool:
    lengths = dims(value)
    return lengths is not None and all(length == 1 for length in lengths)


def _hoist(branch: ir.Graph, before: ir.Node, numbers: _EarlyValues, names: FreeNames) -> None:
    """Compute in front of an If what a branch of it computes of early numbers."""
    outer = before.graph
    assert outer is not None, "the node is in a graph"
    for node in list(branch):
        for inner in subgraphs(node) if node.op_type == _BRANCHES else ():
            _hoist(inner, before, numbers, names)
        if not numbers.follows(node) or node.op_type == "Identity":
            continue
        results = [v for v in node.outputs if v in branch.outputs]
        copies = {v: copy_of(v, f"{v.name}:copy", node=f"{v.name}/copy") for v in results}
        for copy in copies.values():
            branch.insert_after(node, maker(copy))
        branch.outputs[:] = [copies.get(v, v) for v in branch.outputs]
        branch.remove(node)
        for value in node.outputs:
            value.name = names.take(f"{value.name}:early", first=0)
        outer.insert_before(before, node)
        numbers.add(node)


def _split(node: ir.Node, numbers: _EarlyValues) -> None:
    """Let an If of its own give out the numbers that an If computes from numbers alone."""
    branches = list(subgraphs(node))
    for branch in branches:
        for inner in list(branch):
            if inner.op_type == _BRANCHES and not inner.domain:
                _split(inner, numbers)
    late = [
        index
        for index in range(len(node.outputs))
        if all(_of_numbers(branch, branch.outputs[index], numbers) for branch in branches)
    ]
    if not late or len(late) == len(node.outputs):
        return
    attributes = node.attributes.values()
    copied = {a.name: a.value.clone(allow_outer_scope_values=True) for a in attributes}
    own = ir.Node(
        "",
        _BRANCHES,
        node.inputs,
        [ir.AttrGraph(name, graph) for name, graph in copied.items()],
        outputs=[ir.Value(name=f"{node.outputs[i].name}:number") for i in late],
        name=f"{node.name}/numbers",
    )
    outer = node.graph
    assert outer is not None, "the node is in a graph"
    outer.insert_after(node, own)
    for new, index in zip(own.outputs, late, strict=True):
        take_place(new, node.outputs[index])
    rest = [i for i in range(len(node.outputs)) if i not in late]
    for graph in copied.values():
        _keep_outputs(graph, late)
    for branch in branches:
        _keep_outputs(branch, rest)
    _drop_outputs(node, rest)


def _of_numbers(branch: ir.Graph, value: ir.Value, numbers: _EarlyValues) -> bool:
    """Return whether a branch computes a value from numbers alone."""
    nodes = ancestors([value], within={*branch})
    read = [v for node in nodes for v in inputs_of(node)]
    computed = [v for node in nodes for v in node.outputs]
    return all(numbers.is_number(v) or numbers.is_fixed(v) for v in (value, *read, *computed))


def _keep_outputs(graph: ir.Graph, kept: Collection[int]) -> None:
    graph.outputs[:] = [v for i, v in enumerate(graph.outputs) if i in kept]
    remove_unused_nodes(graph)


def _drop_outputs(node: ir.Node, kept: Collection[int]) -> None:
    """Replace an If by one with some of its outputs; nothing reads the others."""
    new = ir.Node(
        "",
        node.op_type,
        node.inputs,
        list(node.attributes.values()),
        outputs=[ir.Value(name=node.outputs[i].name) for i in kept],
        name=node.name,
        metadata_props=dict(node.metadata_props),
    )
    outer = node.graph
    assert outer is not None, "the node is in a graph"
    outer.insert_before(node, new)
    for value, index in zip(new.outputs, kept, strict=True):
        take_place(value, node.outputs[index])
    outer.remove(node)


def _stages(model: ir.Model, numbers: _EarlyValues) -> tuple[Stage | None, ...]:
    outputs = list(model.graph.outputs)
    early = {v for v in numbers.early if v.producer() is not None}
    last = _last_nodes([v for v in outputs if v not in early], numbers)
    late = [v for v in outputs if v.producer() in last]
    read = dict.fromkeys(v for node in last for v in inputs_of(node))
    tensors = [v for v in outputs if v not in early and v not in late]
    computed = [v for v in read if v.producer() not in (None, *last) and v not in early]
    tensors += [v for v in dict.fromkeys(computed) if v not in tensors and not numbers.is_fixed(v)]
    between = {n for n in ancestors(tensors) if not any(v in early for v in n.outputs)}
    entering = [v for v in dict.fromkeys(v for n in between for v in inputs_of(n)) if v in early]
    first = dict.fromkeys(v for v in (*outputs, *entering, *read) if v in early)
    return (
        stage_of(model, [], list(first)) if first else None,
        stage_of(model, entering, tensors) if tensors else None,
        stage_of(model, [v for v in read if v in first or v in tensors], late) if late else None,
    )


def _last_nodes(outputs: Iterable[ir.Value], numbers: _EarlyValues) -> set[ir.Node]:
    """Return the nodes that compute outputs of wide types, or next states, from numbers."""
    nodes: set[ir.Node] = set()
    left = [v for v in outputs if v.dtype in WIDE or _is_chosen(v)]
    while left:
        node = left.pop().producer()
        if node is None or node in nodes or any(v in numbers.early for v in node.outputs):
            continue
        if not all(
            numbers.is_number(v) or numbers.is_fixed(v) for v in (*inputs_of(node), *node.outputs)
        ):
            continue
        nodes.add(node)
        left.extend(v for v in inputs_of(node) if v.dtype in WIDE or _is_chosen(v))
    return nodes


def _is_chosen(value: ir.Value) -> bool:
    """Return whether a value is what an update that may be skipped leaves of a number."""
    node = value.producer()
    while node is not None and node.op_type == "Identity" and node.inputs[0] is not None:
        node = node.inputs[0].producer()
    return node is not None and node.op_type in (_BRANCHES, "Where") and value.shape == ir.Shape([])
