"""Constant factors behind a product of two tensors, which a runtime moves into one of them.

OpenVINO computes `(q k^T) * s` as `q (k * s)^T`: k * s is rounded to the low type, and together
with what makes k if nothing but its shape changes in between. Attention scores are divided so.
"""

from __future__ import annotations

from collections.abc import Collection

import onnx_ir as ir

from amp_rewrite.graph.infer import Types
from amp_rewrite.numerics.emulate.folded_weights import factor_of, is_known
from amp_rewrite.numerics.emulate.insert import Inserter
from amp_rewrite.numerics.emulate.node_collector import NodeCollector

# operators: between a factor and what makes its tensor; numbers pass them as they are.
MOVES = ("Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze")


def move_factors(
    model: ir.Model, types: Types, low: Collection[ir.Value | None], operators: Collection[str]
) -> tuple[set[ir.Node], set[ir.Node]]:
    """Move factors to where a runtime has them; what they were taken from can still be fetched.

    The types of new values are added.

    Returns:
        The nodes whose results nothing needs any more, and the new factors.
    """
    insert = Inserter(model)
    left, factors = set[ir.Node](), set[ir.Node]()
    for graph in (model.graph, *model.graph.subgraphs()):
        for node in list(graph):
            if node.domain != "" or node.op_type not in operators or node.outputs[0] not in low:
                continue
            users = list(node.outputs[0].uses())
            if len(users) == 1 and not insert.is_end(node.outputs[0]):
                _move(node, users[0][0], insert, types, left, factors)
    return left, factors


def _move(
    node: ir.Node,
    scaled: ir.Node,
    insert: Inserter,
    types: Types,
    left: set[ir.Node],
    factors: set[ir.Node],
) -> None:
    """Put a product of moved factors in place of the node that scales its result."""
    number = factor_of(scaled) if scaled.graph is node.graph else None
    first, second = node.inputs[0], node.inputs[1]
    tensors = not is_known(first) and not is_known(second)
    if second is None or number is None or number.size != 1 or not tensors:
        return
    nodes = NodeCollector(scaled.outputs[0].name or "", insert.names)
    passed = _passed(second, insert)
    source = passed[-1].inputs[0] if passed else second
    product = nodes.add("Mul", [source, nodes.number(float(number.reshape(-1)[0]))])
    factors.add(nodes.made[-1])
    types[product] = types[second]
    for moved in reversed(passed):
        product = nodes.add(
            moved.op_type, [product, *moved.inputs[1:]], list(moved.attributes.values())
        )
        types[product] = types[second]
    result = nodes.add(node.op_type, [first, product], list(node.attributes.values()))
    types[result] = types[scaled.outputs[0]]
    left.update((node, *passed))
    insert.replace_node(scaled, nodes.made, result)


def _passed(value: ir.Value, insert: Inserter) -> list[ir.Node]:
    """Return the nodes before a value that only change its shape and that it alone needs."""
    nodes: list[ir.Node] = []
    while (maker := value.producer()) is not None and maker.op_type in MOVES:
        if maker.domain != "" or len(value.uses()) != 1 or insert.is_end(value):
            break
        nodes.append(maker)
        if (before := maker.inputs[0]) is None:
            break
        value = before
    return nodes
