"""A node that computes something else than the original's fails, whatever the outputs show."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from breakages import Breakage

import amp_rewrite as amp
from amp_rewrite.numerics.compare.verify import verify


def original(body: str) -> onnx.ModelProto:
    """Return a residual block of which the outputs hardly show what its products are."""
    w, v = (",".join([f"{n:g}"] * 64) for n in (0.5, 0.05))
    text = f"""<ir_version: 9, opset_import: ["" : 18]> g (float[4,8] x) => (float[4,8] y)
      <float[8,8] w = {{{w}}}, float[8,8] v = {{{v}}}, float eps = {{0.001}}> {{
      [one] h = MatMul(x, w) [two] i = {body} [three] j = MatMul(i, v)
      s = Constant <value = float {{0.01}}> () small = Mul(j, s) y = Add(x, small) }}"""
    return onnx.parser.parse_model(text)


def converted(model: onnx.ModelProto) -> onnx.ModelProto:
    return ir.to_proto(amp.rewrite(model).model)


@pytest.mark.parametrize("body", ["Relu(h)", "Identity(h)", "Exp(h)"])
def test_a_converted_model_has_no_misfit(body: str) -> None:
    model = original(body)
    assert verify(model, converted(model), stress=False).misfits == ()


def test_cancellation_is_no_misfit() -> None:
    text = onnx.printer.to_text(original("Sub(k, h)")).replace("[two]", "k = Add(h, eps) [two]")
    model = onnx.parser.parse_model(text)
    low = converted(model)
    assert verify(model, low, stress=False).misfits == ()


@pytest.mark.parametrize("kind", ["a weight zeroed", "a sign flipped", "a scale halved"])
def test_another_weight_is_named_though_the_outputs_hold(kind: str) -> None:
    model = original("Tanh(h)")
    broken = Breakage(kind, "w").applied(converted(model))
    assert broken is not None
    report = verify(model, broken, stress=False)
    assert all(output.ok for output in report.outputs)
    assert not report.ok
    [found] = report.misfits
    assert (found.op, found.node) == ("MatMul", "one")
    assert any("computes something else than the original" in line for line in report.failures)


BIASED = """<ir_version: 9, opset_import: ["" : 18]> g (float[N,32] x) => (float[N,32] y)
  <float[32,32] w, float[32] b, float[32] scale, float[32] shift> {
  [one] h = MatMul(x, w) [two] i = Add(h, b) [shape] s = Shape(i) [three] j = Reshape(i, s)
  [four] k = LayerNormalization(j, scale, shift)
  few = Constant <value = float {0.001}> () small = Mul(k, few) y = Add(x, small) }"""


def biased() -> onnx.ModelProto:
    """Return a residual block whose bias and shift are 5 % of what they are added to."""
    rng = np.random.default_rng(0)
    model = onnx.parser.parse_model(BIASED)
    numbers = {
        "w": rng.standard_normal((32, 32)) / 6,
        "b": 0.05 * rng.standard_normal(32),
        "scale": np.ones(32),
        "shift": 0.05 * rng.standard_normal(32),
    }
    del model.graph.initializer[:]
    model.graph.initializer.extend(
        onnx.numpy_helper.from_array(array.astype(np.float32), name)
        for name, array in numbers.items()
    )
    return model


@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
@pytest.mark.parametrize("target", ["cuda", "webgpu"])
def test_rounding_is_no_misfit(precision: Any, target: str) -> None:
    if (precision, target) == ("bfloat16", "webgpu"):
        pytest.skip("WebGPU has no bfloat16")
    model = biased()
    low = ir.to_proto(amp.rewrite(model, precision=precision, target=target).model)
    assert verify(model, low, stress=False).misfits == ()


@pytest.mark.parametrize(
    ("kind", "place", "node"),
    [
        ("a weight zeroed", "b", "two"),
        ("a scale halved", "b", "two"),
        ("a sign flipped", "shift", "four"),
        ("a Cast to int", "j", "three"),
        ("a state reset", "j", "three"),
    ],
)
def test_a_small_share_of_a_value_is_named(kind: str, place: str, node: str) -> None:
    model = biased()
    broken = Breakage(kind, place).applied(converted(model))
    assert broken is not None
    [found] = verify(model, broken, stress=False).misfits
    assert found.node == node


def test_a_sum_that_stagnates_in_float16_is_no_misfit() -> None:
    text = """<ir_version: 9, opset_import: ["" : 18]> g (float[4,4096] x) => (float[4,4] y) {
      ones = Sigmoid(x) [sum] h = MatMul(ones, w) y = Sigmoid(h) }"""
    model = onnx.parser.parse_model(text)
    w = np.full((4096, 4), 0.01 / 3, np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(w, "w"))
    low = ir.to_proto(amp.rewrite(model).model)
    report = verify(model, low, stress=False, target="webgpu")
    assert report.misfits == ()


@pytest.mark.parametrize("sign", [-1, 1])
def test_the_fill_of_a_mask_is_no_misfit(sign: int) -> None:
    """Padding that is -1 by chance makes the fill the largest number: both are clipped."""
    text = """<ir_version: 9, opset_import: ["" : 18]> g
      (float[2,8,8] x, float[2,1,8] pad) => (float[2,8,8] y)
      <float[8,8] w, float[8,8] causal, float low = {-3.4028234e38}> {
      s = MatMul(x, w) [fill] pm = Mul(pad, low) mask = Min(pm, causal) t = Add(s, mask)
      p = Softmax <axis = -1> (t) y = MatMul(p, x) }"""
    model = onnx.parser.parse_model(text)
    w = np.random.default_rng(0).standard_normal((8, 8)).astype(np.float32)
    causal = np.triu(np.full((8, 8), -3.4028234e38, np.float32), 1)
    del model.graph.initializer[:2]
    held = (("w", w), ("causal", causal), ("low", np.float32(-3.4028234e38)))
    model.graph.initializer.extend(onnx.numpy_helper.from_array(np.asarray(a), n) for n, a in held)
    low = ir.to_proto(amp.rewrite(model, precision="bfloat16").model)
    pad = np.zeros((2, 1, 8), np.float32)
    pad[0, 0, :5] = sign * np.array([1, 0.2, 0.5, 0.9, 1])
    x = np.random.default_rng(1).standard_normal((2, 8, 8)).astype(np.float32)
    report = verify(model, low, {"x": x, "pad": pad})
    assert (report.ok, report.misfits) == (True, ())
