"""Where a network is cut into blocks."""

from __future__ import annotations

import onnx
import onnx_ir as ir
import pytest

from amp_rewrite.training.grad.walk import depending_on
from amp_rewrite.training.graph.recomputed import blocks_of

# network -> (its nodes, the results of each block)
NETWORKS = {
    "a chain": ("a = MatMul(x, w) b = Relu(a) c = MatMul(b, v) y = Relu(c)", "a|b c|y"),
    "residual branches behind an embedding": (
        "k = Mul(x, w) n = Sigmoid(k) a = MatMul(n, w) b = Add(k, a)"
        "m = Sigmoid(b) c = MatMul(m, v) d = Add(b, c) y = Relu(d)",
        "k n a b|m c d|y",
    ),
    "a value that a branch reads": (
        "e = MatMul(x, w) a = MatMul(e, v) b = Mul(a, e) c = MatMul(b, v) y = Mul(c, e)",
        "e|a b c y",
    ),
    "a value that all later ones read": (
        "e = MatMul(x, w) a = MatMul(e, v) b = Mul(a, e) c = MatMul(b, v) d = Mul(c, e)"
        "h = MatMul(d, v) i = Mul(h, e) k = MatMul(i, w) l = Mul(k, e) y = MatMul(l, e)",
        "e|a|b c|d h|i k|l y",
    ),
    "a mask beside": (
        "a = MatMul(x, w) s = Where(mask, a, x) b = MatMul(s, v) y = Where(mask, b, x)",
        "a|s b|y",
    ),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_a_block_ends_where_one_value_is_left_and_has_a_product(name: str) -> None:
    body, expected = NETWORKS[name]
    text = f"""<ir_version: 8, opset_import: ["": 17]>
    g (float[4, 4] x, bool[4, 4] mask, float[4, 4] w, float[4, 4] v) => (float[4, 4] y)
    {{{body}}}"""
    graph = ir.from_proto(onnx.parser.parse_model(text)).graph
    nodes = list(graph)
    found = blocks_of(nodes, depending_on(nodes, graph.inputs[2:]))
    assert "|".join(" ".join(str(n.outputs[0].name) for n in block) for block in found) == expected
