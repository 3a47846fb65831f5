"""Which initializers of a model are its weights."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import onnx_ir as ir

from amp_rewrite.grad.builder.known import constant_tensor, hold, is_float
from amp_rewrite.graph.clone import clone
from amp_rewrite.graph.names import FreeNames
from amp_rewrite.graph.step_part import Part, part_in
from amp_rewrite.graph.traits import Trait, has, row_of
from amp_rewrite.graph.traverse import ancestors, graphs_in, subgraphs

Use = tuple[ir.Node, int]
"""A node, and which of its inputs."""

_SMALL = 1024  # bytes; axes, shapes and the like, which inference reads


def lifted(model: ir.Model) -> ir.Model:
    """Return a copy of a model in which all weights are initializers of the main graph.

    Floating-point Constant nodes of rank 1 and more become initializers of the same name. Scalars
    stay: they are factors and epsilons of a formula. Weights inside an If, a Loop or a Scan can be
    trained in the main graph, under another name if theirs is taken.
    """
    model = clone(model)
    main = model.graph
    for graph in list(graphs_in(main)):
        nodes = (n for n in graph if n.op_type == "Constant" and not n.domain)
        constants = [n.outputs[0] for n in nodes if "sparse_value" not in n.attributes]
        if graph is not main:
            constants += graph.initializers.values()
            # A graph inside a node computes what it returns.
            constants = [v for v in constants if not v.is_graph_output()]
        for old in constants:
            tensor = constant_tensor(old)
            if tensor is not None and tensor.dtype.is_floating_point() and len(tensor.shape):
                _lift(main, graph, old, tensor)
    return model


def _lift(main: ir.Graph, graph: ir.Graph, old: ir.Value, tensor: ir.TensorProtocol) -> None:
    """Make a constant of a graph an initializer of the main graph."""
    name = str(old.name)
    if graph is not main:
        taken = (v.name or "" for node in main for v in node.outputs)
        inputs = (v.name or "" for v in main.inputs)
        name = FreeNames((*main.initializers, *inputs, *taken)).take(name)
    held = ir.tensor(tensor.numpy(), dtype=tensor.dtype, name=name)
    node = old.producer()
    if node is None:
        del graph.initializers[str(old.name)]
    new = hold(main, name, held)
    ir.convenience.replace_all_uses_with(old, new, replace_graph_outputs=True)
    if node is not None:
        graph.remove(node, safe=True)


def constant_nodes(model: ir.Model) -> set[str]:
    """Return the names of what the Constant nodes of a model hold, at any depth."""
    nodes = (node for graph in graphs_in(model.graph) for node in graph)
    return {str(n.outputs[0].name) for n in nodes if n.op_type == "Constant" and not n.domain}


def read_small(model: ir.Model) -> None:
    """Read small tensors from their files: inference does not, and shapes depend on some."""
    for value in model.graph.initializers.values():
        tensor = value.const_value
        if isinstance(tensor, ir.ExternalTensor) and tensor.nbytes <= _SMALL:
            array = np.array(tensor.numpy())
            value.const_value = ir.tensor(array, dtype=tensor.dtype, name=value.name)


def weights_before(model: ir.Model, value: ir.Value | None) -> list[ir.Value]:
    """Return the floating-point initializers that a value depends on, or all, in the model's order.

    Initializers that only set up an operator (the bounds of Clip, the scales of Resize, the
    statistics of BatchNormalization) are left out, and so are those that hold an infinity: an
    attention mask is not a weight, and weight decay would make NaN of it.
    """
    nodes = model.graph if value is None else nodes_before(model.graph, value)
    weights = {
        v
        for v in _weights(nodes)
        if v.const_value is None or not np.isinf(v.const_value.numpy()).any()
    }
    weights.update([value] if value is not None and value.is_initializer() else [])
    return [v for v in model.graph.initializers.values() if v in weights]


def forward_uses(value: ir.Value) -> Iterator[Use]:
    """Yield where the forward pass uses a value, also after nodes that rearrange or cast it."""
    for use in value.uses():
        node = use.node
        if part_in(node.metadata_props) not in (None, Part.LOSS) or has(node, Trait.COMPARES):
            continue
        if use.idx == 0 and (has(node, Trait.REARRANGES, Trait.CASTS) or node.op_type == "Expand"):
            yield from forward_uses(node.outputs[0])
        else:
            yield node, use.idx


def nodes_before(graph: ir.Graph, value: ir.Value) -> list[ir.Node]:
    """Return the nodes that a value is computed from, in the graph's order."""
    needed = ancestors([value])
    return [node for node in graph if node in needed]


def _weights(nodes: Iterable[ir.Node]) -> Iterator[ir.Value]:
    for node in nodes:
        settings = row_of(node).settings
        for index, value in enumerate(node.inputs):
            if value is None or index in settings:
                continue
            if value.is_initializer() and is_float(value):
                yield value
        for graph in subgraphs(node):
            yield from _weights(graph)
