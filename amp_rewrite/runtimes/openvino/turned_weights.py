"""Weights that a model multiplies with as they are, and transposed.

OpenVINO's CPU plugin packs a constant matrix once, whichever way products read it: if it is square,
2026.4.1 computes x W for the x W^T of the same W, as in gradients through a frozen layer. A second
constant is packed for itself.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import NamedTuple

import onnx_ir as ir

from amp_rewrite.graph.names import FreeNames, names_in
from amp_rewrite.graph.traits import operator
from amp_rewrite.graph.traverse import graphs_in

# operators: those whose result is their first input's matrix, in another type or transposed.
_PASSING = ("Cast", "Identity", "Transpose")
# operators: products whose second input is a matrix.
_PRODUCTS = ("MatMul", "Gemm", "com.microsoft::FusedMatMul")


class _Reader(NamedTuple):
    """A product with a matrix as its second input, the nodes between, and if it is transposed."""

    product: ir.Node
    path: tuple[ir.Node, ...]
    turned: bool


def part_turned_weights(model: ir.Model) -> None:
    """Give products that read a square constant transposed one of their own, in place."""
    names = FreeNames(names_in(model.graph))
    for graph in list(graphs_in(model.graph)):
        constants = [node.outputs[0] for node in graph if operator(node) == "Constant"]
        for value in (*graph.initializers.values(), *constants):
            tensor = None if value.is_graph_input() else ir.convenience.get_const_tensor(value)
            if tensor is None or not _is_square(tensor):
                continue
            readers = list(_readers(value))
            if len({reader.turned for reader in readers}) == 2:
                _part(graph, tensor, [r for r in readers if r.turned], names)


def _is_square(tensor: ir.TensorProtocol) -> bool:
    shape = tensor.shape.numpy()
    return len(shape) > 1 and shape[-1] == shape[-2] > 1


def _readers(
    value: ir.Value, path: tuple[ir.Node, ...] = (), *, turned: bool = False
) -> Iterator[_Reader]:
    """Yield the products that read a matrix as their second input."""
    for use in value.uses():
        node, kind = use.node, operator(use.node)
        if kind in _PRODUCTS and use.idx == 1:
            yield _Reader(node, path, turned != bool(node.attributes.get_int("transB", 0)))
        elif kind in _PASSING and use.idx == 0:
            turns = kind == "Transpose" and _swaps_last(node, value)
            yield from _readers(node.outputs[0], (*path, node), turned=turned != turns)


def _swaps_last(node: ir.Node, value: ir.Value) -> bool:
    rank = 0 if value.shape is None else len(value.shape)
    order = list(node.attributes.get_ints("perm", range(rank)[::-1]))
    return order[-2:] == [len(order) - 1, len(order) - 2]


def _part(
    graph: ir.Graph, tensor: ir.TensorProtocol, readers: list[_Reader], names: FreeNames
) -> None:
    """Let products read a constant of their own, through nodes of their own."""
    own = copy.copy(tensor)
    own.name = names.take(f"{tensor.name}:turned")
    constant = ir.Value(
        name=own.name,
        type=ir.TensorType(tensor.dtype),
        shape=ir.Shape(tensor.shape.numpy()),
        const_value=own,
    )
    graph.register_initializer(constant)
    copies: dict[ir.Node, ir.Value] = {}
    for product, path, _ in readers:
        value = constant
        for node in path:
            if node not in copies:
                copies[node] = _copied(node, value, names)
            value = copies[node]
        product.replace_input_with(1, value)


def _copied(node: ir.Node, value: ir.Value, names: FreeNames) -> ir.Value:
    """Return the result of a node's copy that reads another value."""
    old = node.outputs[0]
    duplicate = ir.Node(
        node.domain,
        node.op_type,
        [value, *node.inputs[1:]],
        list(node.attributes.values()),
        outputs=[ir.Value(name=names.take(f"{old.name}:turned"), type=old.type, shape=old.shape)],
        name=names.take(f"{node.name}:turned"),
    )
    assert node.graph is not None, "the node is in a graph"
    node.graph.insert_after(node, duplicate)
    return duplicate.outputs[0]
