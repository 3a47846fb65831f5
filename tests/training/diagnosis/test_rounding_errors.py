"""What rounding brings, estimated in one pass, against models that round one value."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from rewrite_text import parse

import amp_rewrite as amp
from amp_rewrite.dtypes import LOW
from amp_rewrite.errors import DataError, GradientError, OptionError
from amp_rewrite.numerics.emulate.insert import Inserter
from amp_rewrite.numerics.repaint.float32_session import Float32Session
from amp_rewrite.numerics.search.tolerance import Tolerance

BLOCK = """g (float[N, 8] x) => (float[N, 8] y, float[N, 1] power)
<float[8, 8] w, float[8, 8] v, float[8] gain, float epsilon = {0.00001}, int64[1] last = {-1}> {
    h = MatMul (x, w)
    squares = Mul (h, h)
    power = ReduceMean (squares, last)
    safe = Add (power, epsilon)
    length = Sqrt (safe)
    unit = Div (h, length)
    scaled = Mul (unit, gain)
    p = MatMul (scaled, v)
    weights = Softmax (p)
    y = Mul (weights, h)
}"""


def block(text: str = BLOCK) -> onnx.ModelProto:
    model, rng = parse(text), np.random.default_rng(0)
    for name, shape in (("w", (8, 8)), ("v", (8, 8)), ("gain", (8,))):
        tensor = rng.standard_normal(shape).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(tensor, name))
    return model


def feeds(rows: int = 5, seed: int = 1) -> dict[str, Any]:
    return {"x": np.random.default_rng(seed).standard_normal((rows, 8)).astype(np.float32)}


def measured(model: onnx.ModelProto, name: str, precision: str, given: dict[str, Any]) -> float:
    """Return the squared relative error of the outputs if one value is rounded."""
    exact = Float32Session(amp.load(model)).run(given)
    rounded = amp.load(model)
    values = (*rounded.graph.inputs, *rounded.graph.initializers.values())
    made = [v for node in rounded.graph for v in node.outputs]
    value = next(v for v in (*values, *made) if v.name == name)
    inserter, low = Inserter(rounded), LOW[precision]
    inserter.round(value, low) if value in made else inserter.round_input(value, low)
    found = Float32Session(rounded).run(given)
    errors = (
        float(((found[k].astype(np.float64) - v) ** 2).sum() / (v.astype(np.float64) ** 2).sum())
        for k, v in exact.items()
    )
    return sum(errors)


@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
def test_each_value_brings_what_it_brings_when_it_alone_is_rounded(precision: str) -> None:
    model, given = block(), feeds(rows=64)
    found = amp.rounding_errors(model, [given], precision, draws=200)
    named = {"x", "w", "v", "gain", "h", "squares", "power", "safe", "length", "unit", "p", "y"}
    assert named <= found.keys()
    for name in named:  # 200 draws: within a tenth of itself, three times over
        assert found[name] == pytest.approx(measured(model, name, precision, given), rel=0.4)


def test_several_batches_are_averaged() -> None:
    model = block()
    one, other = (amp.rounding_errors(model, [feeds(seed=s)], draws=400)["h"] for s in (1, 2))
    both = amp.rounding_errors(model, [feeds(seed=1), feeds(seed=2)], draws=400)["h"]
    assert both == pytest.approx((one + other) / 2, rel=0.3)


def test_what_overflows_brings_infinity() -> None:
    model = block()
    given = {"x": feeds()["x"] * np.float32(1e4)}
    found = amp.rounding_errors(model, [given], "float16")
    assert np.isinf(found["squares"])
    assert np.isfinite(found["unit"])
    assert np.isfinite(amp.rounding_errors(model, [given], "bfloat16")["squares"])


def test_no_gradient_passes_an_operator_without_a_rule() -> None:
    model = parse("""g (float[4, 4] x) => (float[4, 4] y) {
        h = Add (x, x) d = Det (h) s = Mul (h, d) y = Tanh (s) }""")
    found = amp.rounding_errors(model, [{"x": np.eye(4, dtype=np.float32) * 0.3}])
    assert found["s"] > 0
    assert found.keys() >= {"x", "h", "s", "y"}


def test_a_model_without_a_float_output_is_refused_and_tuned_by_runs() -> None:
    model = block(BLOCK.replace("(float[N, 8] y, float[N, 1] power)", "(int64[N] c)"))
    node = onnx.helper.make_node("ArgMax", ["y"], ["c"], axis=1, keepdims=0)
    model.graph.node.append(node)
    with pytest.raises(GradientError, match="no output has gradients"):
        amp.rounding_errors(model, [feeds()])
    given: dict[str, Any] = {"precision": "bfloat16", "target": "schema"}
    tolerance = Tolerance("max-relative", 0.0)
    found = amp.tune(model, [feeds(64)], tolerance, estimate=amp.rounding_errors, **given)
    assert found.loss == 0
    assert found.keep == amp.tune(model, [feeds(64)], tolerance, **given).keep


def test_the_model_is_not_modified() -> None:
    model = amp.load(block())
    before = ir.to_proto(model).SerializeToString(deterministic=True)
    amp.rounding_errors(model, [feeds()])
    assert ir.to_proto(model).SerializeToString(deterministic=True) == before


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(OptionError, match="precision"):
        amp.rounding_errors(block(), [feeds()], "float8")
    with pytest.raises(OptionError, match="draws"):
        amp.rounding_errors(block(), [feeds()], draws=0)
    with pytest.raises(DataError, match="no batch"):
        amp.rounding_errors(block(), [])


def test_a_model_of_an_old_opset_is_raised() -> None:
    old = parse("g (float[2] x) => (float[2] y) { y = Tanh (x) }")
    old.opset_import[0].version = 9
    assert amp.rounding_errors(old, [{"x": np.ones(2, np.float32)}])["y"] > 0
