"""A model that is written another way is painted the same way."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
import random_models
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from metamorphoses import CHANGES, Types, marked, types_of
from onnx import numpy_helper
from rewrite_text import lists_of, parse

import amp_rewrite as amp

BLOCK = """
block (float[N,8] inputs, bool[N,N] hidden) => (float[N,8] y)
<float eps = {1e-12}, float ninf = {-3.4e38}, float root = {2.0}, float half = {0.5},
 float one = {1.0}, int64[1] last = {1}> {
  x = MatMul(inputs, w0)
  mean = ReduceMean(x, last)
  centered = Sub(x, mean)
  squares = Mul(centered, centered)
  variance = ReduceMean(squares, last)
  safe = Add(variance, eps)
  deviation = Sqrt(safe)
  normal = Div(centered, deviation)
  scaled = Mul(normal, gamma)
  q = MatMul(scaled, wq)
  k = MatMul(scaled, wk)
  v = MatMul(scaled, wv)
  kt = Transpose<perm = [1, 0]>(k)
  scores = MatMul(q, kt)
  masked = Where(hidden, ninf, scores)
  weights = Softmax<axis = -1>(masked)
  mixed = MatMul(weights, v)
  projected = MatMul(mixed, wo)
  sum = Add(x, projected)
  wide = MatMul(sum, w1)
  over = Div(wide, root)
  erf = Erf(over)
  shifted = Add(erf, one)
  gated = Mul(wide, shifted)
  gelu = Mul(gated, half)
  narrow = MatMul(gelu, w2)
  total = Add(sum, narrow)
  total_squares = Mul(total, total)
  power = ReduceMean(total_squares, last)
  safe_power = Add(power, eps)
  length = Sqrt(safe_power)
  inverse = Reciprocal(length)
  unit = Mul(total, inverse)
  scaled_unit = Mul(unit, gamma)
  angles = MatMul(scaled_unit, w3)
  y = Cos(angles)
}"""


def block(seed: int = 0) -> onnx.ModelProto:
    """Return a transformer block as exporters decompose it, with random weights."""
    rng = np.random.default_rng(seed)
    shapes = dict.fromkeys(("w0", "wq", "wk", "wv", "wo", "w3"), (8, 8))
    shapes |= {"w1": (8, 32), "w2": (32, 8), "gamma": (8,)}
    model = parse(BLOCK)
    for name, shape in shapes.items():
        weight = (rng.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(weight, name))
    return model


def painted(model: onnx.ModelProto, **options: Any) -> Types:
    return types_of(amp.rewrite(model, inline_functions=True, **options))


def differences(before: Types, after: Types) -> dict[str, Any]:
    """Return what became of the nodes that did not become the same."""
    return {
        node: (types, after.get(node)) for node, types in before.items() if after.get(node) != types
    }


@pytest.mark.share(15, each="change")
@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("seed", range(6))
def test_a_block_written_another_way_is_painted_the_same(
    change: str, precision: str, seed: int
) -> None:
    model = marked(block())
    changed = CHANGES[change](model, np.random.default_rng(seed))
    onnx.checker.check_model(changed, full_check=True)
    options = {"precision": precision, "target": "schema", "lists": lists_of(precision)}
    assert differences(painted(model, **options), painted(changed, **options)) == {}


@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
@pytest.mark.parametrize("power", [-6, -2, 3, 7])
def test_a_factor_between_two_linear_layers_changes_no_color(precision: str, power: int) -> None:
    text = """layers (float[N,8] x) => (float[N,8] y) {
      h = MatMul(x, w1)
      r = Relu(h)
      s = MatMul(r, w2)
      m = Softmax(s)
      p = ReduceMean(m)
      d = Div(s, p)
      y = MatMul(d, w2)
    }"""
    model, scaled = marked(two_layers(text, 0)), marked(two_layers(text, power))
    options = {"precision": precision, "target": "schema", "lists": lists_of(precision)}
    assert painted(model, **options) == painted(scaled, **options)


def two_layers(text: str, power: int) -> onnx.ModelProto:
    """Return a model with weights w1 times 2 to some power, and w2 divided by it."""
    rng = np.random.default_rng(0)
    model = parse(text)
    for name, scale in {"w1": 2.0**power, "w2": 2.0**-power}.items():
        weight = (scale * rng.standard_normal((8, 8))).astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(weight, name))
    return model


QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example]
ARGUMENTS = {
    "steps": random_models.steps(),
    "assigned": random_models.assignments(),
    "seed": st.integers(0, 9),
}


def check_random(change: str, steps: Any, assigned: dict[str, str], seed: int) -> None:
    model = marked(random_models.build(steps, seed, 3))
    changed = CHANGES[change](model, np.random.default_rng(seed))
    onnx.checker.check_model(changed, full_check=True)
    lists = random_models.lists_from(assigned | {"Identity": "clear", "If": "clear"})
    # Where the last cast stands is a matter of cost, and a branch makes two of one.
    options: dict[str, Any] = {"lists": lists, "target": "schema", "move_casts": False}
    assert differences(painted(model, **options), painted(changed, **options)) == {}


@pytest.mark.share(3)
@pytest.mark.parametrize("change", CHANGES)
@given(**ARGUMENTS)
@settings(max_examples=12, suppress_health_check=QUIET, derandomize=True)
def test_a_random_model_written_another_way_is_painted_the_same(
    change: str, **arguments: Any
) -> None:
    check_random(change, **arguments)


@pytest.mark.slow
@pytest.mark.parametrize("change", CHANGES)
@given(**ARGUMENTS)
@settings(max_examples=2000, suppress_health_check=QUIET, derandomize=True)
def test_many_random_models_written_another_way_are_painted_the_same(
    change: str, **arguments: Any
) -> None:
    check_random(change, **arguments)
