"""In which numbers inputs come, as the arithmetic that a model begins with tells."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

import amp_rewrite as amp
from amp_rewrite.numerics.inputs.free_sizes import FreeSizes
from amp_rewrite.numerics.inputs.plausible import PlausibleInputs
from amp_rewrite.numerics.inputs.scalings import scalings_of

HEADER = '<ir_version: 8, opset_import: ["" : 17]>'
CONSTANTS = """<float[3] mean = {300, -5, 0}, float[3] std = {10, 0.5, 2},
  float[3] inv = {0.1, 2, 0.5},
  float[3] minus = {-300, 5, 0}, float[3] var = {100, 0.25, 4}, float[3] one = {1, 1, 1},
  float[3] zero = {0, 0, 0}, float byte = {255}, float inverse = {0.0039215689},
  float half = {0.5},
  float two = {2}, float eight = {0.125}, float most = {1}, float large = {10000}>"""


def model_of(body: str, inputs: str = "float[N,3] x") -> Any:
    text = f"{HEADER} g ({inputs}) => (float[a,b] y) {CONSTANTS} {{ {body} }}"
    return amp.load(onnx.parser.parse_model(text))


@pytest.mark.parametrize(
    "body",
    [
        "a = Sub(x, mean) b = Div(a, std) y = Tanh(b)",
        "a = Sub(x, mean) b = Mul(a, inv) y = Tanh(b)",
        "i = Identity(x) a = Sub(i, mean) c = Cast <to = 1> (a) b = Div(c, std) y = Tanh(b)",
        "s = Shape(x) a = Sub(x, mean) b = Div(a, std) z = Expand(b, s) y = Tanh(z)",
        "b = BatchNormalization <epsilon = 0.0> (x, one, zero, mean, var) y = Tanh(b)",
    ],
)
def test_a_mean_and_a_deviation_are_those_of_the_input(body: str) -> None:
    model = model_of(body)
    found = scalings_of(model)["x"]
    assert found.offset.reshape(-1) == pytest.approx([300, -5, 0])
    assert found.spread.reshape(-1) == pytest.approx([10, 0.5, 2])
    made = PlausibleInputs.of(model).feeds(FreeSizes(0))["x"]
    assert made.dtype == np.float32
    assert (np.abs(made - [300, -5, 0]) < 5 * np.array([10, 0.5, 2])).all()


@pytest.mark.parametrize(
    "body", ["a = Div(x, byte) y = Tanh(a)", "a = Mul(x, inverse) y = Tanh(a)"]
)
def test_bytes_are_divided_by_255(body: str) -> None:
    found = scalings_of(model_of(body))["x"]
    assert (float(found.offset), float(found.spread)) == pytest.approx((127.5, 63.75), rel=1e-4)


@pytest.mark.parametrize(
    "body",
    [
        "a = Mul(x, eight) y = Tanh(a)",  # the scale of attention
        "a = Add(x, mean) y = Tanh(a)",  # a bias
        "a = Sub(most, x) y = Tanh(a)",  # what is left of it
        "a = Sub(x, most) b = Mul(a, large) y = Softmax(b)",  # a mask
        "a = Sub(x, mean) b = Mul(x, inv) y = Add(a, b)",  # it is read elsewhere as well
        "y = Tanh(x)",
        "a = Mul(x, zero) y = Tanh(a)",
    ],
)
def test_other_arithmetic_says_nothing_of_the_scale(body: str) -> None:
    model = model_of(body)
    assert scalings_of(model) == {}
    assert np.abs(PlausibleInputs.of(model).feeds(FreeSizes(0))["x"]).max() < 5


def test_a_range_that_the_user_gives_counts_instead() -> None:
    model = model_of("a = Sub(x, mean) b = Div(a, std) y = Tanh(b)")
    made = PlausibleInputs.of(model, ranges={"x": (0.0, 1.0)}).feeds(FreeSizes())["x"]
    assert ((made > 0) & (made < 1)).all()
