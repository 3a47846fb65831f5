"""Constant biases behind a product, which kernels with fused sums begin to add up with.

ONNX Runtime puts an Add of one number for each channel into the Conv before it, if its weight is
constant and the Add reads the Conv first, and an Add of one for each column into the MatMul before
it, which becomes a Gemm (its optimizers ConvAddFusion and MatMulAddFusion, tried on 1.32.0). So the
product is not rounded before the bias is added: the sum begins with it.

Evidence: magika for cpu-arm64: error 6.9e-5 without, 5.5e-5 with.
"""

from __future__ import annotations

import math
from collections.abc import Collection

import onnx_ir as ir

from amp_rewrite.graph.flat import MAIN
from amp_rewrite.graph.infer import Types
from amp_rewrite.graph.io.read_object import number_object
from amp_rewrite.graph.tensors import known_tensor
from amp_rewrite.numerics.emulate.adder import known_shape
from amp_rewrite.numerics.emulate.folded_weights import constant_of
from amp_rewrite.numerics.emulate.insert import Inserter
from amp_rewrite.numerics.emulate.low_sums import Sums
from amp_rewrite.numerics.emulate.node_collector import NodeCollector

# operators: what the processor computes in one sum.
_JOINED = {"Conv": "Conv", "MatMul": "Gemm"}
"""An operator that takes in a bias, and what it is then."""


def join_biases(
    model: ir.Model, types: Types, low: Collection[ir.Value | None], sums: Sums
) -> list[ir.Node]:
    """Give products the constants that are added to them; the types of new values are added.

    Returns:
        The products without a bias: nothing needs them any more, unless they are fetched.
    """
    joined = {op for op in _JOINED if any(order and order.fused for order in sums.get(op, ()))}
    insert, left, ranks = Inserter(model), list[ir.Node](), _Ranks(model)
    for graph in (model.graph, *model.graph.subgraphs()):
        for node in list(graph):
            if node.domain != "" or node.op_type not in joined or node.outputs[0] not in low:
                continue
            users = list(node.outputs[0].uses())
            if len(users) == 1 and not insert.is_end(node.outputs[0]):
                left += _join(node, users[0][0], insert, types, ranks)
    return left


def drop_unused(nodes: Collection[ir.Node]) -> None:
    """Remove nodes whose results nothing reads and nobody fetches."""
    for node in nodes:
        graph = node.graph
        if (
            graph is not None
            and not node.outputs[0].uses()
            and not node.outputs[0].is_graph_output()
        ):
            graph.remove(node, safe=True)


class _Ranks:
    """The ranks of a model's values, recorded or, where one is missing, inferred for all at once.

    The runtime infers shapes before it looks for products with biases.
    """

    def __init__(self, model: ir.Model) -> None:
        self._model = model
        self._inferred: dict[str, int] | None = None

    def of(self, value: ir.Value) -> int | None:
        if value.shape is not None:
            return len(value.shape)
        if self._inferred is None:
            flat = number_object(self._model)
            inferred = [(v, s) for v, s in flat.inferred_shapes.items() if flat.home[v] == MAIN]
            self._inferred = {flat.value_names[v]: len(shape) for v, shape in inferred}
        return self._inferred.get(value.name or "")


def _join(
    node: ir.Node, add: ir.Node, insert: Inserter, types: Types, ranks: _Ranks
) -> list[ir.Node]:
    """Put a product with a bias in place of the Add behind a product."""
    if add.graph is not node.graph or (add.domain, add.op_type) != ("", "Add"):
        return []
    is_first = add.inputs[0] is node.outputs[0]
    if node.op_type == "Conv" and not is_first:
        return []
    bias = add.inputs[1] if is_first else add.inputs[0]
    shape = None if bias is None else _shape_of_constant(bias)
    if bias is None or shape is None or not _fits(node, shape, ranks):
        return []
    nodes = NodeCollector(add.outputs[0].name or "", insert.names)
    flat = nodes.add("Reshape", [bias, nodes.ints(-1)])
    flat.shape = ir.Shape([math.prod(shape)])
    types[flat] = types[add.outputs[0]]
    joined = nodes.add(
        _JOINED[node.op_type], [*node.inputs[:2], flat], list(node.attributes.values())
    )
    types[joined] = types[add.outputs[0]]
    insert.replace_node(add, nodes.made, joined)
    return [node]


def _fits(node: ir.Node, bias: tuple[int, ...], ranks: _Ranks) -> bool:
    """Tell whether a constant has one number for each channel, or each column, of a product."""
    weight = _lengths(node.inputs[1])
    if weight is None:
        return False
    if node.op_type == "Conv":
        places = (1,) * (len(weight) - 2)
        has_bias = len(node.inputs) > 2 and node.inputs[2] is not None
        if has_bias or known_tensor(node.inputs[1]) is None:
            return False
        return bias in ((weight[0], *places), (1, weight[0], *places))
    if len(weight) != 2 or bias not in ((weight[1],), (1, weight[1])):
        return False
    data = node.inputs[0]
    return data is not None and ranks.of(data) == 2


def _shape_of_constant(value: ir.Value) -> tuple[int, ...] | None:
    """Return the shape of a constant, or of a constant in another shape; None for other values."""
    if known_tensor(value) is not None:
        return _lengths(value)
    maker = value.producer()
    if maker is None or (maker.domain, maker.op_type) != ("", "Reshape"):
        return None
    before, shape = _lengths(maker.inputs[0]), constant_of(maker.inputs[1])
    if known_tensor(maker.inputs[0]) is None or before is None or shape is None:
        return None
    asked = [int(length) for length in shape.reshape(-1)]
    rest = math.prod(length for length in asked if length > 0)
    return tuple(math.prod(before) // rest if length < 0 else length for length in asked)


def _lengths(value: ir.Value | None) -> tuple[int, ...] | None:
    lengths = None if value is None else known_shape(value)
    return None if lengths is None else tuple(lengths)
