"""Nodes that are out of order, or stand in a file twice, are mended when a model is read."""

from __future__ import annotations

import onnx
import pytest
from rewrite_text import parse

from amp_rewrite.errors import AmpWarning, GraphError
from amp_rewrite.graph.io.read_flat import read_flat

ENDS = "g (float[4] x, bool t) => (float[4] y)"


def mended(body: str, expected: str) -> list[str]:
    """Read a model with a warning; return its operators in order."""
    proto = parse(f"{ENDS} {body}")
    before = proto.SerializeToString(deterministic=True)
    with pytest.warns(AmpWarning, match=f"^model: corrected: {expected}$"):
        flat = read_flat(proto)
    assert proto.SerializeToString(deterministic=True) == before, "it is the caller's"
    assert flat.mended.words() == expected
    onnx.checker.check_model(flat.proto)
    return [flat.called(n).op_type for n in range(flat.n_nodes)]


def test_a_node_goes_in_front_of_the_first_that_reads_it() -> None:
    body = "{ a = Neg(x) b = Add(a, d) y = Mul(b, e) c = Exp(x) d = Sin(c) e = Cos(d) }"
    assert mended(body, "3 nodes were out of order") == ["Neg", "Exp", "Sin", "Add", "Cos", "Mul"]


def test_nodes_inside_graphs_are_sorted_and_what_they_read_comes_first() -> None:
    body = """{ y = If(t) <
        then_branch = p () => (float[4] a) { a = Neg(b) b = Exp(h) },
        else_branch = q () => (float[4] c) { c = Relu(x) }> h = Sin(x) }"""
    assert mended(body, "2 nodes were out of order") == ["Sin", "If", "Exp", "Neg", "Relu"]


def test_nodes_of_a_function_are_sorted() -> None:
    proto = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 17, "own": 1]>'
        "g (float[4] x) => (float[4] y) { y = own.f(x) }"
        '<domain: "own", opset_import: ["": 17]> f (a) => (c) { c = Exp(b) b = Neg(a) }'
    )
    with pytest.warns(AmpWarning, match="1 node was out of order"):
        flat = read_flat(proto)
    (function,) = flat.functions.values()
    assert [function.graph.called(n).op_type for n in range(2)] == ["Neg", "Exp"]


@pytest.mark.parametrize(
    "second", ["h = Cast<to = 1>(t)", "h = Cast<to = 10>(x)", "h = Exp(x)", "h, k = Split(x)"]
)
def test_two_nodes_that_make_one_value_otherwise_are_refused(second: str) -> None:
    with pytest.raises(GraphError, match="value 'h' has two producers"):
        read_flat(parse(f"{ENDS} {{ h = Cast<to = 1>(x) {second} y = Relu(h) }}"))


@pytest.mark.parametrize(
    "body",
    [
        "h = Relu(q) q = Relu(h) q = Sigmoid(x) y = Relu(h)",
        "h = Add(y, y) h = Relu(x) y = Relu(h)",
    ],
)
def test_a_value_that_is_defined_twice_is_no_cycle(body: str) -> None:
    with pytest.raises(GraphError, match=r"has two producers; found it is defined twice: by #\d"):
        read_flat(parse(f"{ENDS} {{ {body} }}"))


def test_a_cycle_among_unsorted_nodes_is_refused() -> None:
    body = "{ y = Add(a, z) z = Exp(x) a = Relu(b) b = Neg(a) }"
    with pytest.raises(GraphError, match="the graph has a cycle"):
        read_flat(parse(f"{ENDS} {body}"))


def test_a_long_chain_in_the_wrong_order_is_sorted() -> None:
    nodes = [onnx.helper.make_node("Relu", [f"v{i}"], [f"v{i + 1}"]) for i in range(20_000)]
    ends = [
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [4])
        for name in ("v0", "v20000")
    ]
    graph = onnx.helper.make_graph(nodes[::-1], "g", ends[:1], ends[1:])
    with pytest.warns(AmpWarning, match="19,999 nodes were out of order"):
        flat = read_flat(onnx.helper.make_model(graph, ir_version=10).SerializeToString())
    assert list(flat.main.outputs) == flat.outputs_of(19_999)
