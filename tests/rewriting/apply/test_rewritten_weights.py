"""Weights: converted once, in both types where two colors read them, cast where they vary."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, helper, numpy_helper
from rewrite_text import assert_close, assert_rewrites, initializer, parse, rewritten

import amp_rewrite as amp

W = "float[4,4] w = {1,0,0,0,0,1,0,0,0,0,1,0,0,0,0,1}"
ROWS = np.array([[-30, -40, -20, -50], [1, 2, 3, 4]], np.float32)


def model(body: str, extra: str = "", inputs: str = "float[2,4] x") -> str:
    more = f", {extra}" if extra else ""
    return f"g ({inputs}) => (float[2,4] y) <{W}{more}> {{ {body} }}"


def test_an_initializer_that_two_colors_read_is_there_in_both_types() -> None:
    before = (
        f"g (float[2,4] x) => (float[2,4] y, float[4,4] z) <{W}> {{ y = MatMul(x, w) z = Exp(w) }}"
    )
    result = rewritten(before)
    graph = amp.to_proto(result.model).graph
    types = {t.name: t.data_type for t in graph.initializer}
    copy = "w-CastToFp16-0-AutoMixedPrecision"
    assert types == {"w": TensorProto.FLOAT, copy: TensorProto.FLOAT16}
    assert [n.input[-1] for n in graph.node if n.op_type in ("MatMul", "Exp")] == [copy, "w"]


def test_an_initializer_captured_by_subgraphs_gets_one_copy_in_its_own_graph() -> None:
    text = f"""g (float[2,4] x, bool b) => (float[2,4] y, float[4,4] e) <{W}> {{
      h = MatMul(x, w) e = Exp(w)
      q = If(b) <then_branch = t () => (float[2,4] p) {{ p = MatMul(h, w) }},
                 else_branch = f () => (float[2,4] o) {{ v = Exp(w) o = MatMul(h, v) }}>
      y = Relu(q) }}"""
    result = rewritten(text)
    graph = amp.to_proto(result.model).graph
    assert len(graph.initializer) == 2
    branches = next(n for n in graph.node if n.op_type == "If").attribute
    assert [len(b.g.initializer) for b in branches] == [0, 0]
    for flag in (True, False):
        assert_close(result, text, {"x": ROWS, "b": np.array(flag)})


def test_an_initializer_that_many_read_is_converted_once() -> None:
    body = "a = MatMul(x, w) b = MatMul(a, w) c = MatMul(b, w) y = MatMul(c, w)"
    result = rewritten(model(body))
    assert [t.name for t in amp.to_proto(result.model).graph.initializer] == ["w"]
    assert initializer(result, "w").dtype == np.float16
    assert result.report.weights.converted == 1


def test_an_initializer_that_callers_may_override_is_an_input() -> None:
    proto = parse(model("y = MatMul(x, w)"))
    proto.graph.input.append(helper.make_tensor_value_info("w", TensorProto.FLOAT, [4, 4]))
    result = rewritten(proto)
    assert initializer(result, "w").dtype == np.float32
    assert [c.value for c in result.report.casts] == ["x", "w", "y"]
    feeds = {"x": ROWS, "w": 2 * np.eye(4, dtype=np.float32)}
    found = amp.evaluate(amp.to_proto(result.model), feeds)
    np.testing.assert_allclose(found["y"], 2 * ROWS)


def test_an_initializer_of_ir_version_3_is_a_constant_although_it_is_an_input() -> None:
    proto = parse('<ir_version: 3, opset_import: ["" : 8]>' + model("y = MatMul(x, w)"))
    proto.graph.input.append(helper.make_tensor_value_info("w", TensorProto.FLOAT, [4, 4]))
    result = rewritten(proto)
    assert initializer(result, "w").dtype == np.float16
    declared = {
        i.name: i.type.tensor_type.elem_type for i in amp.to_proto(result.model).graph.input
    }
    assert declared == {"x": TensorProto.FLOAT, "w": TensorProto.FLOAT16}


def test_weights_that_are_constant_nodes_inside_branches_are_converted() -> None:
    text = """g (float[2,4] x, bool b) => (float[2,4] y) {
      y = If(b) <
        then_branch = t () => (float[2,4] p) {
          v = Constant<value = float[4,4] {1,0,0,0,0,1,0,0,0,0,1,0,0,0,0,1}>() p = MatMul(x, v) },
        else_branch = f () => (float[2,4] q) {
          u = Constant<value_floats = [1.0, 2.0, 3.0, 4.0]>() m = MatMul(x, x2) q = Add(m, u) }
      > }"""
    text = text.replace("MatMul(x, x2)", "Mul(x, x)")
    result = rewritten(text)
    graph = amp.to_proto(result.model).graph
    then = next(a.g for a in graph.node[-2].attribute if a.name == "then_branch")
    constant = next(n for n in then.node if n.op_type == "Constant")
    assert constant.attribute[0].t.data_type == TensorProto.FLOAT16
    for flag in (True, False):
        assert_close(result, text, {"x": ROWS, "b": np.array(flag)})


def test_one_constant_as_two_outputs_of_a_branch_serves_both_types() -> None:
    text = f"""g (float[2,4] x, bool c) => (float[2,4] y, float[4,4] z) <{W}> {{
      a, b = If(c) <
        then_branch = t () => (float[4,4] p, float[4,4] p) {{ p = Identity(w) }},
        else_branch = e () => (float[4,4] q, float[4,4] q) {{
          q = Constant<value = float[4,4] {{2,0,0,0,0,1,0,0,0,0,1,0,0,0,0,1}}>() }}>
      y = MatMul(x, a) z = Exp(b) }}"""
    result = rewritten(text, infer_after_allow=False)
    assert result.changed  # rewritten() has checked the types


def test_weights_cast_keeps_them_float32_and_adds_a_cast() -> None:
    copy = "w-CastToFp16-0-AutoMixedPrecision"
    result = rewritten(model("y = MatMul(x, w)"), weights="cast")
    assert initializer(result, "w").dtype == np.float32
    assert copy in {c.name for c in result.report.casts}
    assert result.report.weights.converted == 0


def test_half_the_bytes_are_left_of_a_model_that_is_all_allow() -> None:
    proto = parse(model("y = MatMul(x, w)"))
    big = numpy_helper.from_array(np.eye(4, 1024, dtype=np.float32), "w")
    proto.graph.initializer[0].CopyFrom(big)
    proto.graph.output[0].type.tensor_type.shape.dim[1].dim_value = 1024
    result = rewritten(proto)
    assert len(amp.to_proto(result.model).SerializeToString()) < 0.55 * proto.ByteSize()


def test_the_text_of_a_converted_weight_is_its_low_form() -> None:
    assert_rewrites(
        """g (float16[1] x) => (float16[1] y) <float[1] c = {2}>
           { d = Cast<to = 10>(c) y = Add(x, d) }""",
        """g (float16[1] x) => (float16[1] y) <float[1] c = {2}>
           { d = Cast<to = 10>(c) y = Add(x, d) }""",
    )
