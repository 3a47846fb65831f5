"""Element types without shape inference: attributes, containers, subgraphs, functions, gaps."""

import onnx
import onnx.parser
import pytest

from amp_rewrite.graph.io.load import load
from amp_rewrite.graph.io.read_object import infer_types

HEAD = '<ir_version: 10, opset_import: ["" : %d, "c" : 1]>'


def types(body: str, inputs: str = "float[2] x", opset: int = 21) -> dict[str, str]:
    """Return value name -> type; nothing but the inputs has a recorded one."""
    text = f"{HEAD % opset} g ({inputs}) => (y) {{ {body} }}"
    return {v.name or "": t for v, t in infer_types(load(onnx.parser.parse_model(text))).items()}


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("Relu(x)", "tensor(float)"),
        ("Cast<to = 10>(x)", "tensor(float16)"),
        ("Shape(x)", "tensor(int64)"),
        ("Greater(x, x)", "tensor(bool)"),
        ("CastLike(i, x)", "tensor(float)"),
        ("ConstantOfShape(i)", "tensor(float)"),
        ("ConstantOfShape<value = int32[1] {1}>(i)", "tensor(int32)"),
        ("Constant<value_ints = [1, 2]>()", "tensor(int64)"),
        ("EyeLike<dtype = 11>(x)", "tensor(double)"),
        ("RandomNormalLike(x)", "tensor(float)"),
        ("SequenceConstruct(x, x)", "seq(tensor(float))"),
        ("SequenceEmpty()", "seq(tensor(float))"),
        ("SequenceEmpty<dtype = 7>()", "seq(tensor(int64))"),
        ("SplitToSequence(x)", "seq(tensor(float))"),
        ("Optional(x)", "optional(tensor(float))"),
        ("QuantizeLinear(x, s)", "tensor(uint8)"),
        ("Multinomial(x)", "tensor(int32)"),
    ],
)
def test_an_output_type_follows_schema_or_attribute(call: str, expected: str) -> None:
    found = types(f"y = {call}", "float[2] x, int64[1] i, float s")
    assert found["y"] == expected


def test_the_outputs_of_control_flow_have_the_types_of_the_bodies() -> None:
    found = types(
        "y = If(b) <then_branch = t () => (p) { p = Relu(x) },"
        " else_branch = e () => (q) { q = Exp(x) }>",
        "float[2] x, bool b",
    )
    assert found["y"] == found["p"] == "tensor(float)"
    found = types(
        "a, y = Loop(n, b, x) <body = l (i, c, v) => (d, o, s) "
        "{ d = Identity(c) o = Relu(v) s = Cast<to = 7>(v) }>",
        "float[2] x, bool b, int64 n",
    )
    assert (found["a"], found["y"], found["v"]) == (
        "tensor(float)",
        "tensor(int64)",
        "tensor(float)",
    )


@pytest.mark.parametrize(("opset", "front"), [(8, '"", '), (9, ""), (21, "")])
def test_a_scan_of_any_opset_hands_its_types_to_the_body(opset: int, front: str) -> None:
    call = "a, y = Scan<num_scan_inputs = 1, body = b (s, e) => (o, r) { o = Relu(s) r = Not(e) }>"
    found = types(f"{call}({front}x, k)", "float[2,2] x, bool[2,2,2] k", opset)
    assert (found["s"], found["e"]) == ("tensor(float)", "tensor(bool)")
    assert (found["a"], found["y"]) == ("tensor(float)", "tensor(bool)")


def test_a_custom_operators_output_is_known_from_its_consumers() -> None:
    found = types("h = c.Foo(x) y = Add(h, x)")
    assert found["h"] == found["y"] == "tensor(float)"


def test_a_call_of_a_function_has_the_types_of_its_body_for_these_inputs() -> None:
    text = """<ir_version: 10, opset_import: ["" : 21, "l" : 1]>
      g (float[2] x, double[2] z) => (y, u) { y = l.f(x) u = l.f(z) }
      <domain: "l", opset_import: ["" : 21]> f (p) => (r) { q = Relu(p) r = Exp(q) }"""
    found = infer_types(load(onnx.parser.parse_model(text)))
    by_name = {v.name: t for v, t in found.items()}
    assert (by_name["y"], by_name["u"]) == ("tensor(float)", "tensor(double)")
