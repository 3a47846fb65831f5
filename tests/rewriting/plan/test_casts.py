"""Casts: where they stand, and what becomes of graph ends."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto
from rewrite_text import assert_close, assert_rewrites, needs_opset, parse, rewritten, text_of

import amp_rewrite as amp

W = "float[4,4] w = {1,0,0,0,0,1,0,0,0,0,1,0,0,0,0,1}"
LOW_W = "float16[4,4] w = {15360,0,0,0,0,15360,0,0,0,0,15360,0,0,0,0,15360}"
X = np.array([[1, 2, 3, 4], [-5, 6, -7, 8]], np.float32)


def model(body: str, outputs: str = "float[2,4] y", inputs: str = "float[2,4] x") -> str:
    return f"g ({inputs}) => ({outputs}) <{W}> {{ {body} }}"


def casts(result: amp.RewriteResult) -> list[tuple[str, str, tuple[str, ...]]]:
    return [(c.value, c.to, c.consumers) for c in result.report.casts]


def types(result: amp.RewriteResult) -> dict[str, int]:
    graph = amp.to_proto(result.model).graph
    return {v.name: v.type.tensor_type.elem_type for v in (*graph.input, *graph.output)}


def test_inputs_and_outputs_keep_their_types_by_casts_inside() -> None:
    assert_rewrites(
        model("y = MatMul(x, w)"),
        f"""g (float[2,4] x) => (float[2,4] y)
        <{LOW_W}, float16[2,4] "x-CastToFp16-0", float16[2,4] "y-Fp16-0"> {{
          "x-CastToFp16-0" = Cast<to = 10>(x)
          "y-Fp16-0" = MatMul("x-CastToFp16-0", w)
          y = Cast<to = 1>("y-Fp16-0") }}""",
    )


def test_one_cast_serves_every_consumer_of_a_value() -> None:
    result = rewritten(model("a = MatMul(x, w) b = MatMul(x, w) y = Add(a, b)"))
    assert casts(result)[0] == ("x", "float16", ("MatMul_0/T", "MatMul_1/T"))


@pytest.mark.parametrize(
    ("keep", "expected"),
    [
        (True, {"x": "f", "y": "f", "z": "f"}),
        (False, {"x": "h", "y": "h", "z": "h"}),
        (["x"], {"x": "f", "y": "h", "z": "h"}),
        (["y"], {"x": "h", "y": "f", "z": "h"}),
        (["z", "x"], {"x": "f", "y": "h", "z": "f"}),
    ],
)
def test_keep_io_types_says_which_ends_stay_float32(
    keep: bool | list[str], expected: dict[str, str]
) -> None:
    text = model("y = MatMul(x, w) z = Exp(y)", "float[2,4] y, float[2,4] z")
    names = {"f": TensorProto.FLOAT, "h": TensorProto.FLOAT16}
    result = rewritten(text, keep_io_types=keep)
    assert types(result) == {name: names[letter] for name, letter in expected.items()}


def test_an_output_computed_in_float32_gives_its_place_to_a_cast() -> None:
    text = model("y = MatMul(x, w) z = Exp(y)", "float[2,4] y, float[2,4] z")
    result = rewritten(text, keep_io_types=False)
    found = amp.evaluate(amp.to_proto(result.model), {"x": X.astype(np.float16) / 8})
    np.testing.assert_allclose(found["z"], np.exp(X / 8), rtol=0.01)
    assert found["z"].dtype == np.float16


def test_a_cast_of_the_model_that_is_allowed_by_name_reads_float32_itself() -> None:
    text = "g (float[2,4] x) => (float16[2,4] y) { [c] y = Cast<to = 10>(x) }"
    assert_rewrites(text, text, allow_nodes=["c"])


@pytest.mark.parametrize("keep", [True, False])
def test_nothing_low_leaves_the_ends_alone(keep: bool) -> None:
    result = rewritten(model("y = Exp(x)"), keep_io_types=keep)
    assert not result.changed


@pytest.mark.parametrize(
    ("outputs", "body"),
    [
        ("float[2,4] y, float[2,4] z", "y = MatMul(x, w) z = Relu(y)"),
        ("float[2,4] y, float[2,4] y", "y = MatMul(x, w)"),
        ("float[2,4] y, float[2,4] x", "y = MatMul(x, w)"),
        ("float[2,4] y, float[4,4] w", "y = MatMul(x, w)"),
    ],
    ids=["consumed output", "one value twice", "input as output", "weight as output"],
)
@pytest.mark.parametrize("keep", [True, False, ["x"], ["y"]])
def test_odd_outputs_stay_valid(outputs: str, body: str, keep: bool | list[str]) -> None:
    text = model(body, outputs)
    result = rewritten(text, keep_io_types=keep)
    assert result.changed
    if keep is True:
        assert_close(result, text, {"x": X})


def test_an_existing_cast_to_float32_is_retargeted() -> None:
    assert_rewrites(
        model("f = Cast<to = 1>(x) y = MatMul(f, w)", inputs="int8[2,4] x"),
        f"""g (int8[2,4] x) => (float[2,4] y) <{LOW_W}, float16[2,4] "y-Fp16-0"> {{
          f = Cast<to = 10>(x) "y-Fp16-0" = MatMul(f, w) y = Cast<to = 1>("y-Fp16-0") }}""",
    )


def test_an_existing_cast_from_the_low_type_disappears() -> None:
    result = rewritten(model("f = Cast<to = 1>(x) y = MatMul(f, w)", inputs="float16[2,4] x"))
    assert [n.op_type for n in amp.to_proto(result.model).graph.node] == ["MatMul", "Cast"]
    assert result.report.summary.casts_removed == 1


def test_an_output_and_a_cast_of_it_that_is_an_output_stay_two() -> None:
    text = model("y = MatMul(x, w) z = Cast<to = 1>(y)", "float[2,4] y, float[2,4] z")
    result = rewritten(text)
    assert [v.name for v in result.model.graph.outputs] == ["y", "z"]
    assert_close(result, text, {"x": X})


def test_a_cast_to_float32_with_a_float32_consumer_stays() -> None:
    text = model(
        "f = Cast<to = 1>(x) y = MatMul(f, w) z = Exp(f)",
        "float[2,4] y, float[2,4] z",
        "int8[2,4] x",
    )
    result = rewritten(text)
    assert ("f", "float16", ("MatMul_1/T",)) in casts(result)


def test_no_op_casts_go_and_the_one_that_makes_an_output_is_reused() -> None:
    body = "a = Cast<to = 1>(x) b = Cast<to = 1>(a) c = MatMul(b, w) d = Cast<to = 1>(c)"
    text = model(f"{body} e = Cast<to = 1>(d) y = Cast<to = 1>(e)")
    result = rewritten(text)
    assert [n.op_type for n in result.model.graph] == ["Cast", "MatMul", "Cast"]
    assert casts(result) == [("x", "float16", ("Cast_0/V",))]
    assert_close(result, text, {"x": X})


def test_no_op_casts_inside_branches_read_a_captured_low_value() -> None:
    text = model(
        """h = MatMul(x, w)
        y = If(b) <then_branch = t () => (float[2,4] p) { a = Cast<to = 1>(h) p = Cast<to = 1>(a) },
                   else_branch = e () => (float[2,4] q) { q = Cast<to = 1>(h) }>""",
        inputs="float[2,4] x, bool b",
    )
    result = rewritten(text)
    for flag in (True, False):
        assert_close(result, text, {"x": X, "b": np.array(flag)})


def test_a_captured_outer_value_is_cast_in_the_outer_graph() -> None:
    text = model(
        """e = Exp(x)
        y = If(b) <then_branch = t () => (float[2,4] p) { p = MatMul(e, w) },
                   else_branch = f () => (float[2,4] q) { i = Relu(e) q = MatMul(i, w) }>""",
        inputs="float[2,4] x, bool b",
    )
    result = rewritten(text)
    outer = [n.name for n in result.model.graph if n.op_type == "Cast"]
    assert outer[0] == "e-CastToFp16-0-AutoMixedPrecision"
    assert_close(result, text, {"x": X / 4, "b": np.array(True)})


LOOPS = {
    "carried value never used": """
      a, z = Loop(n, t, x) <body = b (int64 i, bool c, float[2,4] v)
        => (bool d, float[2,4] o, float[2,4] s) { d = Identity(c) o = MatMul(x, w) s = Relu(o) }>
      y = Identity(z)""",
    "body output is a body input": """
      a, q, z = Loop(n, t, x, x) <body = b (int64 i, bool c, float[2,4] v, float[2,4] u)
        => (bool c, float[2,4] u, float[2,4] v, float[2,4] s) { s = MatMul(v, w) }>
      y = Identity(z)""",
    "low scan output": """
      a, z = Loop(n, t, x) <body = b (int64 i, bool c, float[2,4] v)
        => (bool d, float[2,4] o, float[2,4] s) { d = Identity(c) s = MatMul(v, w) o = Exp(s) }>
      y = Identity(z)""",
    "three deep": """
      k = MatMul(x, w) e = Exp(x)
      a, z = Loop(n, t, x) <body = b (int64 i, bool c, float[2,4] v)
        => (bool d, float[2,4] o, float[2,4] s) {
          d = Identity(c)
          o = If(c) <
            then_branch = p () => (float[2,4] l) {
              l = Loop(n, c, v) <body = bb (int64 i2, bool c2, float[2,4] v2)
                => (bool d2, float[2,4] o2) {
                  d2 = Identity(c2) m = MatMul(v2, w) r = Add(m, k) o2 = Div(r, e) }> },
            else_branch = q () => (float[2,4] r2) { r2 = Identity(k) }>
          s = Relu(o) }>
      y = Identity(z)""",
}


@pytest.mark.parametrize("name", LOOPS)
@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
def test_a_loop_stays_valid_and_close(name: str, precision: str) -> None:
    head = "n = Constant<value = int64 {2}>() t = Constant<value = bool {1}>()"
    text = model(f"{head} {LOOPS[name]}", "float[2,2,4] y")
    result = rewritten(text, precision=precision)
    assert result.changed
    assert_close(result, text, {"x": X / 16})


SCAN = """y, z = Scan<num_scan_inputs = 1, body = b (float[4] s, float[4] e)
  => (float[4] o, float[4] r) { m = MatMul(s, w) o = Add(m, e) r = Identity(o) }>"""


@pytest.mark.parametrize(
    ("opset", "call", "shape"), [(8, '("", i, x)', "1,"), (9, "(i, x)", ""), (21, "(i, x)", "")]
)
def test_a_scan_joins_its_states_whatever_the_opset(opset: int, call: str, shape: str) -> None:
    inputs = f"float[{shape}4] i, float[{shape}3,4] x"
    text = model(SCAN + call, f"float[{shape}4] y, float[{shape}3,4] z", inputs)
    text = f'<ir_version: 8, opset_import: ["" : {opset}]> {text}'
    result = rewritten(text)
    body = next(n for n in result.model.graph if n.op_type == "Scan").attributes["body"].as_graph()
    assert not [n for n in body if n.op_type == "Cast"]
    assert {value.dtype.name for value in body.inputs if value.dtype} == {"FLOAT16"}
    assert_close(result, text)


def test_a_model_without_ai_onnx_imports_it_for_its_casts() -> None:
    text = f"""<ir_version: 10, opset_import: ["com.microsoft" : 1]>
    {model("y = com.microsoft.FusedMatMul(x, w)")}"""
    result = rewritten(text)
    assert result.model.graph.opset_imports == {"com.microsoft": 1, "": 13}
    assert rewritten(text, keep_io_types=False).model.graph.opset_imports == {"com.microsoft": 1}
    assert_close(result, text, {"x": X})


@pytest.mark.parametrize("keep", [True, False])
def test_bfloat16_before_opset_13_changes_nothing_and_says_why(keep: bool) -> None:
    text = f'<ir_version: 8, opset_import: ["" : 12]> {model("y = MatMul(x, w)")}'
    result = rewritten(text, precision="bfloat16", keep_io_types=keep)
    assert not result.changed
    assert result.report.nodes[0].variables["T"].reason == "opset-too-old"


@pytest.mark.share(3)
@pytest.mark.parametrize("opset", [*range(7, 26), pytest.param(26, marks=needs_opset(26))])
def test_every_opset_converts(opset: int) -> None:
    ir_version = 3 if opset < 9 else 13 if opset > 23 else 8
    head = f'<ir_version: {ir_version}, opset_import: ["" : {opset}]>'
    text = f"{head} {model('h = MatMul(x, w) r = Relu(h) y = MatMul(r, w)')}"
    proto = parse(text)
    if ir_version == 3:
        value = proto.graph.input.add()
        value.CopyFrom(proto.graph.input[0])
        value.name = "w"
        value.type.tensor_type.shape.dim[0].dim_value = 4
    result = rewritten(proto)
    assert result.report.summary.nodes_converted == 3


def test_a_function_call_is_a_boundary_and_inlined_on_demand() -> None:
    text = f"""<ir_version: 10, opset_import: ["" : 18, "one" : 1, "two" : 1]>
    {model("a = MatMul(x, w) b = one.f(a, w) y = MatMul(b, w)")}
    <domain: "one", opset_import: ["" : 18, "two" : 1]> f (p, q) => (r)
    {{ s = MatMul(p, q) t = two.f(s) r = Relu(t) }}
    <domain: "two", opset_import: ["" : 18]> f (p) => (r) {{ e = Exp(p) r = Div(p, e) }}"""
    result = rewritten(text)
    assert result.report.functions == "boundaries"
    assert result.report.boundaries == {"one::f": 1}
    assert_close(result, text, {"x": X / 4})
    inlined = amp.rewrite(parse(text), target="schema", inline_functions=True)
    assert inlined.report.functions == "inlined"
    assert sorted(n.op for n in inlined.report.nodes) == ["Div", "Exp", *["MatMul"] * 3, "Relu"]
    assert_close(inlined, text, {"x": X / 4})


def test_unnamed_nodes_and_graphs_get_distinct_names_in_the_report() -> None:
    proto = parse(model("a = MatMul(x, w) b = Relu(a) y = MatMul(b, w)"))
    for node in proto.graph.node:
        node.name = ""
    proto.graph.name = ""
    names = [n.name for n in amp.rewrite(proto, target="schema").report.nodes]
    assert len({*names, ""}) == 4


def test_nine_domains_survive() -> None:
    domains = "".join(f', "domain{i}" : 1' for i in range(8))
    text = f'<ir_version: 8, opset_import: ["" : 17{domains}]> {model("y = MatMul(x, w)")}'
    assert len(rewritten(text).model.graph.opset_imports) == 9


def test_added_names_are_free_ones() -> None:
    name = '"x-CastToFp16-0-AutoMixedPrecision"'
    text = model(f"{name} = Exp(x) a = MatMul(x, w) y = Add(a, {name})")
    assert "x-CastToFp16-1-AutoMixedPrecision" in text_of(rewritten(text))
