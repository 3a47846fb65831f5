"""Scales of Resize that were stored in float16."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from rewrite_text import parse

import amp_rewrite as amp
from amp_rewrite.runtimes.ort.sessions import Session

BEHIND = "s = Cast<to = 1>(h)"
CAST = f"{BEHIND} d = Resize(x, , s)"


def resized(made: str, scales: list[float], length: int, *, opset: int = 17) -> onnx.ModelProto:
    """Return a model whose input is resized, and then goes through a Relu in float16."""
    model = parse(
        f'<ir_version: 9, opset_import: ["" : {opset}]> g (float16[1,{length}] x)'
        f" => (float16[1,M] y) {{ {made} y = Relu(d) }}"
    )
    stored = numpy_helper.from_array(np.array(scales, np.float16), "h")
    model.graph.initializer.append(stored)
    return model


def length_of(model: onnx.ModelProto, length: int) -> int:
    """Return how long the output of a model is."""
    session = Session(amp.load(model))
    (found,) = session.run({"x": np.ones((1, length), np.float16)})
    return found.shape[1]


def holder(made: str) -> onnx.ModelProto:
    """Return a model whose scales a Constant holds."""
    model = resized(made, [1, 0.05], 600)
    node = onnx.helper.make_node("Constant", [], ["h"], value=model.graph.initializer.pop())
    model.graph.node.insert(0, node)
    return model


@pytest.mark.parametrize(
    "model",
    [
        resized(CAST, [1, 0.05], 600),
        resized("i = Identity(h) s = Cast<to = 1>(i) d = Resize(x, , s)", [1, 0.05], 600),
        resized("d = Resize(x, , h)", [1, 0.05], 600),
        resized(f"{BEHIND} d = Resize(x, s)", [1, 0.05], 600, opset=10),
        holder(CAST),
    ],
    ids=["cast", "moved", "direct", "opset 10", "Constant"],
)
def test_scales_that_float16_rounded_are_what_they_were(model: onnx.ModelProto) -> None:
    report = amp.check(model, run=False)
    assert not report.ok
    (danger,) = report.dangers
    assert (danger.op, danger.reason) == ("Resize", "rounded-scales")
    assert danger.words == "has scales stored in float16: 0.0499878 instead of 1/20"
    made = amp.repair(model)
    assert "corrected: Resize " in made.to_text()
    fixed = amp.to_proto(made.model)
    onnx.checker.check_model(fixed, full_check=True)
    assert length_of(fixed, 600) == 30
    assert not amp.repair(fixed).changed


def test_upsample_is_given_its_scales_too() -> None:
    model = resized(
        f"{BEHIND} u = Cast<to = 1>(x) v = Upsample(u, s) d = Cast<to = 10>(v)",
        [1, 7 / 3],
        3,
        opset=9,
    )
    (danger,) = amp.check(model, run=False).dangers
    assert danger.words == "has scales stored in float16: 2.33398 instead of 7/3"


@pytest.mark.parametrize("scale", [2.0, 0.5, 1.5, 0.25, 2.375, 65 / 64, 3.0, 2048.0])
def test_a_scale_that_float16_holds_is_left_alone(scale: float) -> None:
    model = resized(CAST, [1, scale], 600)
    assert not any(d.reason == "rounded-scales" for d in amp.check(model, run=False).dangers)
    assert "restored" not in amp.repair(model).headline


@pytest.mark.parametrize(("p", "q"), [(1, 3), (2, 3), (1, 20), (7, 3), (1, 300), (5, 7), (13, 6)])
def test_the_simplest_fraction_near_a_number_is_found(p: int, q: int) -> None:
    (danger,) = amp.check(resized(CAST, [1, p / q], 600), run=False).dangers
    assert danger.words.endswith(f" instead of {p}/{q}")
