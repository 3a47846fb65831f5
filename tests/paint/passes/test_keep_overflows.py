"""Constants: converted once, kept with their consumers where they do not fit, masks saturated."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from rewriting import assert_close, assert_rewrites, parse, rewritten

import amp_rewrite as amp
from amp_rewrite.dtypes import BFLOAT16, FLOAT16

W = "float[4,4] w = {1,0,0,0,0,1,0,0,0,0,1,0,0,0,0,1}"
ROWS = np.float32([[-30, -40, -20, -50], [1, 2, 3, 4]])
MASK = "bool[2,4] blocked = {1,1,1,1,0,0,1,0}, float least = {-3.4e38}"
LOW = {"float16": FLOAT16, "bfloat16": BFLOAT16}


def model(body: str, extra: str = "", inputs: str = "float[2,4] x") -> str:
    more = f", {extra}" if extra else ""
    return f"g ({inputs}) => (float[2,4] y) <{W}{more}> {{ {body} }}"


def initializer(result: amp.RewriteResult, name: str) -> np.ndarray:
    graph = amp.to_proto(result.model).graph
    return next(numpy_helper.to_array(t) for t in graph.initializer if t.name == name)


def actions(result: amp.RewriteResult) -> dict[str, str]:
    return {r.name: r.action for r in result.report.weights.overflow}


def reasons(result: amp.RewriteResult) -> dict[str, str]:
    """Return node -> the reason of its first variable."""
    return {
        n.name: next(iter(n.variables.values())).reason for n in result.report.nodes if n.variables
    }


@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
def test_a_mask_constant_selected_before_softmax_saturates_at_the_lowest_value(
    precision: str,
) -> None:
    text = model(
        "h = MatMul(x, w) s = Where(blocked, least, h) p = Softmax(s) y = MatMul(p, w)", MASK
    )
    result = rewritten(text, precision=precision)
    assert float(initializer(result, "least")) == -LOW[precision].max
    assert actions(result) == {"least": "saturated"}
    found = assert_close(result, text, {"x": ROWS})
    assert np.isfinite(found["y"]).all()


@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
def test_a_mask_constant_added_before_softmax_leaves_room_for_the_scores(precision: str) -> None:
    mask = "float[2,4] m = {-3.4e38,-3.4e38,-3.4e38,-3.4e38,0,0,-3.4e38,0}"
    text = model("h = MatMul(x, w) s = Add(h, m) p = Softmax(s) y = MatMul(p, w)", mask)
    result = rewritten(text, precision=precision)
    assert initializer(result, "m").min() == -LOW[precision].max / 2
    assert actions(result) == {"m": "saturated"}
    found = amp.evaluate(amp.to_proto(result.model), {"x": ROWS})["y"]
    assert np.isfinite(found).all()  # at the lowest value, -65504 + -30 would be -inf, the row NaN
    expected = amp.evaluate(parse(text), {"x": ROWS})["y"]
    np.testing.assert_allclose(found[1], expected[1], atol=4 * LOW[precision].atol)
    np.testing.assert_allclose(found.sum(axis=1), 1, atol=4 * LOW[precision].atol)


@pytest.mark.parametrize("weights", ["convert", "cast"])
def test_a_mask_that_float32_arithmetic_makes_keeps_the_softmax_float32(weights: str) -> None:
    text = model(
        "h = MatMul(x, w) m = Mul(keep, least) s = Add(h, m) p = Softmax(s) y = MatMul(p, w)",
        "float least = {-3.4e38}",
        "float[2,4] x, float[2,4] keep",
    )
    result = rewritten(text, weights=weights)
    assert reasons(result)["Add_2"] == "constant-overflow"
    assert reasons(result)["Softmax_3"] == "not-between-allow"
    keep = np.float32([[1, 1, 1, 1], [0, 0, 1, 0]])
    found = assert_close(result, text, {"x": ROWS, "keep": keep})
    assert np.isfinite(found["y"]).all()  # the cast of -3.4e38 would be -inf, the first row NaN


def test_a_mask_that_a_constant_of_shape_repeats_saturates() -> None:
    text = model(
        "h = MatMul(x, w) m = ConstantOfShape<value = float[1] {-3.4e38}>(shape) "
        "s = Where(blocked, m, h) p = Softmax(s) y = MatMul(p, w)",
        f"{MASK}, int64[2] shape = {{2, 4}}",
    )
    found = assert_close(rewritten(text), text, {"x": ROWS})
    assert np.isfinite(found["y"]).all()


def test_a_mask_that_would_be_cast_at_run_time_stays_float32() -> None:
    text = model(
        "h = MatMul(x, w) s = Where(blocked, least, h) p = Softmax(s) y = MatMul(p, w)", MASK
    )
    result = rewritten(text, weights="cast")
    assert reasons(result)["Where_1"] == "constant-overflow"
    found = assert_close(result, text, {"x": ROWS})
    assert np.isfinite(found["y"]).all()


def test_a_mask_that_reaches_anything_but_an_ordering_operator_stays_float32() -> None:
    text = model("h = MatMul(x, w) s = Where(blocked, least, h) y = MatMul(s, w)", MASK)
    result = rewritten(text)
    assert reasons(result)["Where_1"] == "constant-overflow"
    assert actions(result) == {"least": "kept"}


@pytest.mark.parametrize("constant", ["98000000", "1048576", "-98000000"])
def test_a_constant_out_of_range_keeps_its_consumer_float32_and_is_reported(
    constant: str,
) -> None:
    text = model(
        "h = MatMul(x, w) s = Div(h, c) y = MatMul(s, w)", f"float[4] c = {{{constant},1,1,1}}"
    )
    result = rewritten(text)
    assert initializer(result, "c").dtype == np.float32
    assert reasons(result) == {
        "MatMul_0": "allow-list",
        "Div_1": "constant-overflow",
        "MatMul_2": "allow-list",
    }
    (record,) = result.report.weights.overflow
    assert (record.name, record.count, record.action) == ("c", 1, "kept")
    assert record.consumers == ("Div_1/T",)
    assert_close(result, text, {"x": ROWS})


@pytest.mark.parametrize(
    "through",
    [
        "r = Reshape(c, shape)",
        "i = Identity(c) r = Unsqueeze(i, zero)",
        "r = If(b) <then_branch = t () => (float[4] p) "
        "{ p = Constant<value = float[4] {98000000.0, 1, 1, 1}>() }, "
        "else_branch = e () => (float[4] q) { q = Constant<value = float[4] {1, 1, 1, 1}>() }>",
        "n = Neg(c) f = ConstantOfShape<value = float[1] {98000000.0}>(shape) r = Max(f, n)",
    ],
    ids=["Reshape", "Identity and Unsqueeze", "If branches", "ConstantOfShape"],
)
def test_a_constant_out_of_range_is_seen_behind_what_only_moves_it(through: str) -> None:
    text = model(
        f"h = MatMul(x, w) {through} s = Div(h, r) y = MatMul(s, w)",
        "float[4] c = {98000000.0, 1, 1, 1}, int64[2] shape = {1, 4}, int64[1] zero = {0}, "
        "bool b = {1}",
    )
    result = rewritten(text)
    assert "constant-overflow" in reasons(result).values()
    graph = amp.to_proto(result.model).graph
    found = assert_close(result, text, {"x": ROWS})
    assert np.isfinite(found["y"]).all()
    for tensor in graph.initializer:
        array = numpy_helper.to_array(tensor)
        assert array.dtype == bool or np.isfinite(array).all()


def test_a_batch_normalization_variance_out_of_range_keeps_it_float32() -> None:
    text = """
    g (float[1,2,4,4] x) => (float[1,2,4,4] y)
    <float[2,2,1,1] k = {1,0,0,1}, float[2] one = {1,1}, float[2] zero = {0,0},
     float[2] var = {98000000.0, 1}>
    { h = Conv(x, k) n = BatchNormalization(h, one, zero, zero, var) y = Conv(n, k) }
    """
    result = rewritten(text, target="cuda")
    assert reasons(result)["BatchNormalization_1"] == "constant-overflow"
    assert actions(result) == {"var": "kept"}
    assert_close(result, text)


def test_a_clip_bound_out_of_range_bounds_nothing() -> None:
    text = model(
        "h = MatMul(x, w) c = Clip(h, lowest, highest) y = MatMul(c, w)",
        "float lowest = {-1e9}, float highest = {1e9}",
    )
    result = rewritten(text)
    assert reasons(result)["Clip_1"] == "between-allow"
    assert actions(result) == {"lowest": "unbounded", "highest": "unbounded"}
    assert_close(result, text, {"x": ROWS})


def test_infinities_and_nan_of_a_weight_are_kept_and_what_flushes_is_counted() -> None:
    proto = parse(
        model("h = MatMul(x, w) s = Add(h, c) y = MatMul(s, w)", "float[4] c = {1,2,3,4}")
    )
    values = np.float32([np.inf, -np.inf, np.nan, 1e-9])
    proto.graph.initializer[1].CopyFrom(numpy_helper.from_array(values, "c"))
    result = rewritten(proto)
    np.testing.assert_array_equal(
        initializer(result, "c"), np.float16([np.inf, -np.inf, np.nan, 0])
    )
    assert actions(result) == {}
    (record,) = result.report.weights.underflow
    assert (record.name, record.count, record.action) == ("c", 1, "flushed")


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


def test_a_sparse_initializer_is_cast_or_left_alone_never_broken() -> None:
    proto = parse(model("y = MatMul(x, s)"))
    values = helper.make_tensor("s", TensorProto.FLOAT, [2], [1.0, 2.0])
    indices = helper.make_tensor("s_i", TensorProto.INT64, [2], [0, 5])
    proto.graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, [4, 4]))
    del proto.graph.initializer[:]
    result = rewritten(proto)
    assert amp.to_proto(result.model).graph.sparse_initializer == proto.graph.sparse_initializer


def test_a_weight_that_training_info_binds_keeps_its_type() -> None:
    proto = parse(model("y = MatMul(x, w)"))
    info = proto.training_info.add()
    info.algorithm.CopyFrom(helper.make_graph([], "update", [], []))
    info.update_binding.add(key="w", value="w")
    result = rewritten(proto)
    assert initializer(result, "w").dtype == np.float32
    assert amp.to_proto(result.model).training_info == proto.training_info


def test_half_the_bytes_are_left_of_a_model_that_is_all_allow(tmp_path: object) -> None:
    proto = parse(model("y = MatMul(x, w)"))
    big = numpy_helper.from_array(np.eye(4, 1024, dtype=np.float32), "w")
    proto.graph.initializer[0].CopyFrom(big)
    proto.graph.output[0].type.tensor_type.shape.dim[1].dim_value = 1024
    result = rewritten(proto)
    assert len(amp.to_proto(result.model).SerializeToString()) < 0.55 * proto.ByteSize()
    assert isinstance(proto, onnx.ModelProto)


def test_the_text_of_a_converted_weight_is_its_low_form() -> None:
    assert_rewrites(
        """g (float16[1] x) => (float16[1] y) <float[1] c = {2}>
           { d = Cast<to = 10>(c) y = Add(x, d) }""",
        """g (float16[1] x) => (float16[1] y) <float[1] c = {2}>
           { d = Cast<to = 10>(c) y = Add(x, d) }""",
    )
