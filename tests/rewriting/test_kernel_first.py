"""A function of a model that has the name of an operator: runtimes run their kernel of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import amp_rewrite as amp
from amp_rewrite.graph.io.convert_opset import convert_opset
from amp_rewrite.graph.io.load import load

pytest.importorskip("onnxruntime")

FUNCTION = """<domain: "com.microsoft", opset_import: ["" : 24]>
SkipSimplifiedLayerNormalization <epsilon> (i, k, g) => (o, m, v, s) {
  s = %s(i, k) o = RMSNormalization(s, g) m = Constant<value_float = 0.0>()
  v = Constant<value_float = 0.0>() }"""

BODY = """{
  a = MatMul(x, w)
  n, m0, v0, s = com.microsoft.SkipSimplifiedLayerNormalization<epsilon = 0.000001>(a, x, g)
  b = MatMul(n, w)
  o = com.microsoft.SkipSimplifiedLayerNormalization<epsilon = 0.000001>(b, s, g)
  y = MatMul(o, w) }"""

X = np.random.default_rng(0).normal(size=(1, 8, 64)).astype(np.float32)


def model(function: str | None = FUNCTION % "Add", body: str = BODY) -> onnx.ModelProto:
    head = '<ir_version: 10, opset_import: ["" : 24, "com.microsoft" : 1]>'
    text = f"{head} g (float[1,8,64] x) => (float[1,8,64] y) {body} {function or ''}"
    made = onnx.parser.parse_model(text)
    weight = np.random.default_rng(1).normal(size=(64, 64)) / 8
    arrays = {"w": weight.astype(np.float32), "g": np.ones(64, np.float32)}
    made.graph.initializer.extend(numpy_helper.from_array(a, name) for name, a in arrays.items())
    return made


def operators(path: Path) -> list[str]:
    return [node.op_type for node in onnx.load(path).graph.node]


def read(source: onnx.ModelProto | Path) -> onnx.ModelProto:
    return amp.to_proto(amp.load(source))


@pytest.mark.parametrize("inline", [False, True])
def test_it_is_painted_like_the_operator_and_its_body_stays(inline: bool, tmp_path: Path) -> None:
    given, alone = model(), model(None)
    amp.save(amp.rewrite(given, inline_functions=inline), tmp_path / "made.onnx")
    amp.save(amp.rewrite(alone), tmp_path / "alone.onnx")
    made = onnx.load(tmp_path / "made.onnx")
    assert list(made.functions) == list(given.functions)
    assert read(made).graph == read(tmp_path / "alone.onnx").graph
    assert operators(tmp_path / "made.onnx").count("Cast") == 2


def test_repair_leaves_the_operator_and_the_body(tmp_path: Path) -> None:
    amp.save(amp.rewrite(model()), tmp_path / "low.onnx")
    low = onnx.load(tmp_path / "low.onnx")
    amp.save(amp.repair(tmp_path / "low.onnx"), tmp_path / "repaired.onnx")
    repaired = onnx.load(tmp_path / "repaired.onnx")
    assert [n.op_type for n in repaired.graph.node] == [n.op_type for n in low.graph.node]
    assert list(repaired.functions) == list(low.functions)


@pytest.mark.parametrize("emulate", [False, True])
def test_the_kernel_runs_whatever_the_body_says(emulate: bool) -> None:
    lying = model(FUNCTION % "Sub")
    found = amp.evaluate(lying, {"x": X}, emulate=emulate)["y"]
    expected = amp.evaluate(model(None), {"x": X}, emulate=False)["y"]
    np.testing.assert_allclose(found, expected, atol=1e-4)


def test_a_call_may_have_more_inputs_than_the_body_where_the_operator_takes_them() -> None:
    shorter = (FUNCTION % "Add").replace("(i, k, g)", "(i, k)").replace("(s, g)", "(s, s)")
    assert amp.rewrite(model(shorter)).report.summary.nodes_converted == 5


def test_a_function_that_no_operator_is_called_like_is_still_a_boundary() -> None:
    new = (FUNCTION % "Add").replace("SkipSimplified", "Newer"), BODY.replace("SkipSimp", "Newer")
    body = new[1].replace("Newerlified", "Newer")
    report = amp.rewrite(model(new[0], body)).report
    assert report.functions == "boundaries"
    assert amp.rewrite(model()).report.functions == "none"


def test_an_operator_of_onnx_itself_comes_before_a_function_too() -> None:
    text = """<ir_version: 10, opset_import: ["" : 20]> g (float[4] x) => (float[4] y) {
      y = Gelu(x) } <domain: "", opset_import: ["" : 20]> Gelu (i) => (o) { o = Neg(i) }"""
    found = amp.evaluate(onnx.parser.parse_model(text), {"x": np.ones(4, np.float32)})["y"]
    np.testing.assert_allclose(found, np.full(4, 0.8413), atol=1e-3)


def test_the_opset_of_a_model_with_such_a_body_can_be_raised() -> None:
    raised = convert_opset(load(model()), 25)
    assert raised.graph.opset_imports[""] == 25
    assert [f.name for f in raised.functions.values()] == ["SkipSimplifiedLayerNormalization"]


def reasons(made: onnx.ModelProto) -> list[str]:
    nodes = amp.rewrite(made).report.nodes
    return [n.variables["T"].reason for n in nodes if n.op == "SkipSimplifiedLayerNormalization"]


@pytest.mark.parametrize("taken", [True, False])
def test_a_sum_inside_that_leaves_the_range_keeps_its_operator_in_float32(taken: bool) -> None:
    body = BODY if taken else BODY.replace("n, m0, v0, s", "n").replace("(b, s, g)", "(b, a, g)")
    body = body.replace("a = MatMul(x, w)", "p = MatMul(x, w) a = Clip(p, low, high)")
    made = model(body=body.replace("(a, x, g)", "(a, a, g)"))
    bounds = {"low": np.float32(4e4), "high": np.float32(5e4)}
    made.graph.initializer.extend(
        numpy_helper.from_array(np.asarray(a), n) for n, a in bounds.items()
    )
    assert reasons(made)[0] == ("likely-overflow" if taken else "certain-overflow")


def test_a_residual_stream_through_sums_inside_is_followed() -> None:
    made = model()
    wide = numpy_helper.to_array(made.graph.initializer[0]) * 3e4
    made.graph.initializer[0].CopyFrom(numpy_helper.from_array(wide.astype(np.float32), "w"))
    assert reasons(made) == ["likely-overflow", "likely-overflow"]


@pytest.mark.parametrize("taken", [True, False])
def test_the_emulation_rounds_the_sum_inside(taken: bool) -> None:
    end = "n" if taken else "n, m0, v0, s"
    text = f"""<ir_version: 10, opset_import: ["" : 20, "com.microsoft" : 1]>
      g (float16[1,2,4] x, float16[1,2,4] k, float16[4] g) => (float16[1,2,4] n) {{
        {end} = com.microsoft.SkipSimplifiedLayerNormalization(x, k, g) }}"""
    made = onnx.parser.parse_model(text)
    feeds = {n: np.full((1, 2, 4), 4e4, np.float16) for n in "xk"} | {"g": np.ones(4, np.float16)}
    assert not np.isfinite(amp.evaluate(made, feeds)["n"]).any()
    feeds["k"] = -feeds["k"] * np.float16(0.5)
    np.testing.assert_allclose(amp.evaluate(made, feeds)["n"].astype(float), 1.0, atol=1e-3)
