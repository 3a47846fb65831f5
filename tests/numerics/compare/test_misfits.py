"""A node that computes something else than the original's fails, whatever the outputs show."""

from __future__ import annotations

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
    assert any("computes something else than in the original" in line for line in report.failures)


def test_a_value_that_is_reset_is_named() -> None:
    model = original("Tanh(h)")
    broken = Breakage("a state reset", "i").applied(converted(model))
    assert broken is not None
    [found] = verify(model, broken, stress=False).misfits
    assert (found.op, found.node, found.error) == ("Tanh", "two", 1.0)
