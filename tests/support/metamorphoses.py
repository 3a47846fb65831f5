"""Changes of a model that change nothing of what it computes, and what a rewrite made of it.

Every change takes a model whose nodes are marked (`marked`), so that they are found again under
other names, in another order, in a function or in a branch; `types_of` says what each became.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from graphlib import TopologicalSorter
from itertools import count
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import amp_rewrite as amp
from amp_rewrite.graph.io.read_object import infer_types

ORIGIN = "metamorphosis.origin"
DOMAIN = "outlined"

Rng = np.random.Generator
Change = Callable[[onnx.ModelProto, Rng], onnx.ModelProto]
Types = dict[str, tuple[str, tuple[str | None, ...], tuple[str | None, ...]]]


def marked(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a copy in which every node bears a number of its own as metadata."""
    copy = _duplicate(model)
    for number, node in enumerate(n for g in graphs(copy.graph) for n in g.node):
        node.metadata_props.add(key=ORIGIN, value=str(number))
    return copy


def types_of(result: amp.RewriteResult) -> Types:
    """Return marked node -> its operator and the types of its inputs and outputs."""
    types = infer_types(result.model)
    found: Types = {}
    for node in result.model.graph.all_nodes():
        origin = node.metadata_props.get(ORIGIN)
        if origin is not None:
            inputs = tuple(None if value is None else types.get(value) for value in node.inputs)
            outputs = tuple(types.get(value) for value in node.outputs)
            found[origin] = (node.op_type, inputs, outputs)
    return found


def graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """Yield a graph and those inside it."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                if inner.node or inner.output:
                    yield from graphs(inner)


def renamed(model: onnx.ModelProto, rng: Rng) -> onnx.ModelProto:
    """Give every node and every value another name, which sorts otherwise."""
    copy = _duplicate(model)
    new: dict[str, str] = {"": ""}

    def name(old: str) -> str:
        return new.setdefault(old, f"{rng.integers(10**9)}_{len(new)}")

    for graph in graphs(copy.graph):
        for node in graph.node:
            node.name = f"node_{name(f'node {node.name}')}"
            node.input[:] = map(name, node.input)
            node.output[:] = map(name, node.output)
        for entry in (*graph.input, *graph.output, *graph.value_info, *graph.initializer):
            entry.name = name(entry.name)
    return copy


def reordered(model: onnx.ModelProto, rng: Rng) -> onnx.ModelProto:
    """Sort the nodes of every graph another way."""
    copy = _duplicate(model)
    for graph in graphs(copy.graph):
        nodes = list(graph.node)
        makers = {name: i for i, node in enumerate(nodes) for name in node.output if name}
        sorter = TopologicalSorter({i: _needs(node, makers) for i, node in enumerate(nodes)})
        sorter.prepare()
        order: list[int] = []
        ready: list[int] = []
        while sorter.is_active():
            ready += sorter.get_ready()
            order.append(ready.pop(int(rng.integers(len(ready)))))
            sorter.done(order[-1])
        del graph.node[:]
        graph.node.extend(nodes[i] for i in order)
    return copy


def with_identities(model: onnx.ModelProto, rng: Rng) -> onnx.ModelProto:
    """Put an Identity in front of every third input of a node."""
    copy = _duplicate(model)
    names = (f"same{number}" for number in count())
    for graph in graphs(copy.graph):
        nodes: list[onnx.NodeProto] = []
        for node in graph.node:
            chosen = [i for i, name in enumerate(node.input) if name and rng.random() < 1 / 3]
            for index, name in zip(chosen, names, strict=False):
                nodes.append(helper.make_node("Identity", [node.input[index]], [name], name))
                node.input[index] = name
            nodes.append(_duplicate(node))
        del graph.node[:]
        graph.node.extend(nodes)
    return copy


def outlined(model: onnx.ModelProto, rng: Rng) -> onnx.ModelProto:
    """Move some neighbouring nodes of the main graph into a function and call it."""
    copy = _duplicate(model)
    nodes = [_duplicate(node) for node in copy.graph.node]
    start = int(rng.integers(len(nodes)))
    stop = min(len(nodes), start + int(rng.integers(2, 12)))
    while stop > start and any(_inner(node) for node in nodes[start:stop]):
        stop -= 1
    body = nodes[start:stop]
    if not body:
        return copy
    inputs, outputs = _ends(copy.graph, nodes, body)
    function = helper.make_function(
        DOMAIN, "part", inputs, outputs, body, opset_imports=list(copy.opset_import)
    )
    call = helper.make_node("part", inputs, outputs, "call", domain=DOMAIN)
    del copy.graph.node[:]
    copy.graph.node.extend([*nodes[:start], call, *nodes[stop:]])
    copy.functions.append(function)
    copy.opset_import.append(helper.make_opsetid(DOMAIN, 1))
    return copy


def in_branches(model: onnx.ModelProto, rng: Rng) -> onnx.ModelProto:
    """Move a node of the main graph into both branches of an If whose condition is a constant."""
    copy = _duplicate(model)
    nodes = [_duplicate(node) for node in copy.graph.node]
    known = _known_types(copy)
    plain = [i for i, node in enumerate(nodes) if not _inner(node)]
    choice = [i for i in plain if set(nodes[i].output) <= known.keys()]
    if not choice:
        return copy
    index = int(rng.choice(choice))
    node = nodes[index]
    then, other = (_branch(node, name, known) for name in ("then", "else"))
    for unmarked in other.node:
        del unmarked.metadata_props[:]
    condition = numpy_helper.from_array(np.array(True), "always")
    copy.graph.initializer.append(condition)
    outer = helper.make_node(
        "If", ["always"], list(node.output), "branches", then_branch=then, else_branch=other
    )
    del copy.graph.node[:]
    copy.graph.node.extend([*nodes[:index], outer, *nodes[index + 1 :]])
    return copy


LINEAR = ("Conv", "Gemm", "MatMul")
HOMOGENEOUS = (
    "AveragePool", "Flatten", "Identity", "LeakyRelu", "MaxPool", "Relu", "Reshape", "Squeeze",
    "Transpose", "Unsqueeze",
)  # fmt: skip


def rescaled(model: onnx.ModelProto, rng: Rng) -> onnx.ModelProto:
    """Multiply the weights of linear layers by a power of two, and divide those of the next by it.

    What stands between two such layers passes factors on.
    """
    copy = _duplicate(model)
    weights = {tensor.name: tensor for tensor in copy.graph.initializer}
    for first, second in list(_linear_pairs(copy.graph, weights)):
        power = float(rng.choice([0.25, 0.5, 2.0, 4.0]))
        for name in first.input[1:]:
            _multiply(weights[name], power)
        _multiply(weights[second.input[1]], 1 / power)
    return copy


def _linear_pairs(
    graph: onnx.GraphProto, weights: dict[str, onnx.TensorProto]
) -> Iterator[tuple[onnx.NodeProto, onnx.NodeProto]]:
    """Yield linear layers with the one that alone reads each; their weights are their own."""
    readers: dict[str, list[onnx.NodeProto | None]] = {end.name: [None] for end in graph.output}
    for node in graph.node:
        for name in _reads(node):
            readers.setdefault(name, []).append(node)

    def is_layer(node: onnx.NodeProto) -> bool:
        names = node.input[1:]
        alone = (name in weights and len(readers[name]) == 1 for name in names)
        return node.op_type in LINEAR and all(alone)

    for first in filter(is_layer, graph.node):
        value: str | None = first.output[0]
        while value is not None:
            reader = readers.get(value, [None])[0] if len(readers.get(value, ())) == 1 else None
            passes = reader is not None and reader.op_type in HOMOGENEOUS
            if reader is not None and reader.input[0] == value and is_layer(reader):
                yield first, reader
            value = reader.output[0] if reader is not None and passes else None


def _multiply(tensor: onnx.TensorProto, factor: float) -> None:
    scaled = numpy_helper.to_array(tensor) * np.float32(factor)
    tensor.CopyFrom(numpy_helper.from_array(scaled, tensor.name))


def _branch(node: onnx.NodeProto, name: str, known: dict[str, Any]) -> onnx.GraphProto:
    inner = _duplicate(node)
    inner.name = f"{node.name}_{name}"
    inner.output[:] = [output and f"{output}_{name}" for output in node.output]
    ends = [_duplicate(known[output]) for output in node.output]
    for end, output in zip(ends, inner.output, strict=True):
        end.name = output
    return helper.make_graph([inner], name, [], ends)


def _known_types(model: onnx.ModelProto) -> dict[str, Any]:
    inferred = onnx.shape_inference.infer_shapes(model).graph
    return {v.name: v for v in (*inferred.value_info, *inferred.output) if _is_tensor(v)}


def _is_tensor(value: onnx.ValueInfoProto) -> bool:
    return value.type.tensor_type.elem_type != TensorProto.UNDEFINED


def _ends(
    graph: onnx.GraphProto, nodes: list[onnx.NodeProto], body: list[onnx.NodeProto]
) -> tuple[list[str], list[str]]:
    """Return the values that some nodes read from outside, and those read outside of them."""
    made = [name for node in body for name in node.output if name]
    read = [name for node in body for name in node.input if name and name not in made]
    inside = {id(node) for node in body}
    others = {name for node in nodes if id(node) not in inside for name in _reads(node)}
    others |= {output.name for output in graph.output}
    return list(dict.fromkeys(read)), [name for name in made if name in others]


def _needs(node: onnx.NodeProto, makers: dict[str, int]) -> set[int]:
    return {makers[name] for name in _reads(node) if name in makers}


def _reads(node: onnx.NodeProto) -> Iterator[str]:
    yield from node.input
    for graph in _inner(node):
        for inner in graphs(graph):
            for deep in inner.node:
                yield from deep.input
            yield from (output.name for output in inner.output)


def _inner(node: onnx.NodeProto) -> list[onnx.GraphProto]:
    return [a.g for a in node.attribute if a.type == onnx.AttributeProto.GRAPH]


def _duplicate(message: Any) -> Any:
    copy = type(message)()
    copy.CopyFrom(message)
    return copy


CHANGES: dict[str, Change] = {
    "renamed": renamed,
    "reordered": reordered,
    "identities": with_identities,
    "outlined": outlined,
    "branches": in_branches,
}
"""What a change is called -> the change."""
