"""The product of an input with a low-rank adapter, added to that with a weight."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from amp_rewrite.graph.keys import PART_KEY
from amp_rewrite.graph.part import Part
from amp_rewrite.graph.traits import operator
from amp_rewrite.training.builder.builder import Builder
from amp_rewrite.training.graph.adapter import Adapter
from amp_rewrite.training.graph.training_graph import TrainingGraph
from amp_rewrite.training.graph.weight_products import PRODUCTS, WeightProduct

_SCOPE = "lora"


def adapt_product(graph: TrainingGraph, product: WeightProduct, adapter: Adapter) -> None:
    """Let a product with a weight have the result that it has with the adapted weight.

    The values that others know stay the ones that they know: the node that computed the result
    becomes the sum, and a new node computes what it computed. A bias is added before the change,
    so that a runtime fuses it with the product as it did. The new nodes belong to the forward pass.

    Args:
        graph: The training graph; changed.
        product: One of its products.
        adapter: An adapter of its weight, whose states are there.
    """
    body = product.node.graph
    assert isinstance(body, ir.Graph), "the product was found in a graph"
    main = graph.scoped(_SCOPE, Part.ARITHMETIC)
    b = main if body is graph.model.graph else main.child(body)
    before = len(b.added)
    node = product.node
    change = b.cast_like(_change(b, graph, product, adapter), node.outputs[0])
    biased = _bias_of(node)
    base = _add_to(node, change)
    if biased is not None:
        reader, index = biased
        reader.replace_input_with(index, base)
        _add_to(reader, change)
    for node in b.added[before:]:
        node.metadata_props.pop(PART_KEY)
    body.sort()


def _change(b: Builder, graph: TrainingGraph, product: WeightProduct, adapter: Adapter) -> ir.Value:
    """Return `scale * x A B`, where `x W` is the product; of other forms of it what belongs there.

        x W      (x A) B         W^T x     B^T (A^T x)
        x W^T    (x B^T) A^T     W x       A (B x)

    W is (in, out) here; the second line is for a weight that is used in both directions.
    """
    x = _other_factor(b, product)
    dtype = b.type_of(x)
    a, c = (b.cast(graph.states[name].value, dtype) for name in (adapter.a, adapter.b))
    if product.output_first != adapter.output_first:
        a, c = b.transpose(c, [1, 0]), b.transpose(a, [1, 0])
    if adapter.dropout:
        ratio = b.constant(adapter.dropout, ir.DataType.FLOAT)
        x = b.op("Dropout", x, ratio, b.constant(np.array(False)))
    scale = adapter.scale * product.node.attributes.get_float("alpha", 1.0)
    if product.index == 1:
        return b.matmul(_times(b, b.matmul(x, a), scale), c)
    a, c = b.transpose(a, [1, 0]), b.transpose(c, [1, 0])
    return b.matmul(c, _times(b, b.matmul(a, x), scale))


def _other_factor(b: Builder, product: WeightProduct) -> ir.Value:
    """Return what the weight is multiplied with, transposed where the product transposes it."""
    node, index = product.node, 1 - product.index
    x = node.inputs[index]
    assert x is not None, "the factors of a product are not optional"
    flag = PRODUCTS[operator(node)][index]
    if flag is not None and node.attributes.get_int(flag, 0):
        return b.transpose(x, [1, 0])
    return x


def _times(b: Builder, x: ir.Value, number: float) -> ir.Value:
    return x if number == 1 else b.mul(x, number)


def _bias_of(node: ir.Node) -> tuple[ir.Node, int] | None:
    """Return what adds a vector to a product and alone reads it, and its input; or None."""
    uses = list(node.outputs[0].uses())
    if node.outputs[0].is_graph_output() or len(uses) != 1:
        return None
    reader, index = uses[0].node, uses[0].idx
    if operator(reader) != "Add" or reader.graph is not node.graph:
        return None
    other = reader.inputs[1 - index]
    if other is None or not other.is_initializer() or other.shape is None or len(other.shape) > 1:
        return None
    return reader, index


def _add_to(node: ir.Node, change: ir.Value) -> ir.Value:
    """Let a node add a change to what it has computed, which a new node computes; return that."""
    result = node.outputs[0]
    before = ir.Node(
        node.domain,
        node.op_type,
        node.inputs,
        node.attributes.values(),
        num_outputs=1,
        name=node.name,
        metadata_props=node.metadata_props,
    )
    old = before.outputs[0]
    old.name, old.type, old.shape = f"{result.name}/base", result.type, result.shape
    node.prepend(before)
    node.op_type, node.name = "Add", f"{node.name}/adapted" if node.name else node.name
    node.attributes.clear()
    node.resize_inputs(2)
    node.replace_input_with(0, old)
    node.replace_input_with(1, change)
    return old
