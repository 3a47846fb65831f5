"""A Mul where a scaled set ends: at the fewest places, and the model computes the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest

from amp_rewrite.graph.flat import FlatGraph
from amp_rewrite.graph.infer import infer
from amp_rewrite.rewriting.read_source import read_source
from amp_rewrite.rewriting.scaling.borders import borders, solve_with_borders
from amp_rewrite.rewriting.scaling.noted_exponents import exponents_noted, scaled_as_noted
from amp_rewrite.rewriting.scaling.scaled_model import scaled_flat
from amp_rewrite.values.scales.call import System
from amp_rewrite.values.scales.equations import scale_system
from amp_rewrite.values.scales.solve import Solution, is_solution

FRONT = "w = Constant<value_float = 3.0>() s = Constant<value_floats = [1.0, 2.0, 0.3, 4.0]>() "
HEAD = '<ir_version: 9, opset_import: ["" : 18]>'

# name: nodes between x and z, how many Muls that v times 2^-6 takes.
CASES = {
    "an output": ("v = Mul(x, w) y = LayerNormalization(v, s) z = Add(v, y)", 1),
    "a Softmax": ("v = Mul(x, w) y = Softmax(v) t = LayerNormalization(v, s) z = Add(t, y)", 1),
    "two readers share one": (
        "v = Mul(x, w) y = Softmax(v) t = Sigmoid(v) u = LayerNormalization(v, s) "
        "a = Add(t, y) z = Add(a, u)",
        1,
    ),
    "behind, where two values meet": (
        "v = Mul(x, w) r = Relu(v) n = Neg(v) m = Add(r, n) y = Softmax(m) "
        "t = LayerNormalization(v, s) z = Add(t, y)",
        1,
    ),
    "in front of two nodes that need it": (
        "a = Sigmoid(x) v = Add(x, a) r = Relu(v) n = Neg(v) z = Add(r, n)",
        4,
    ),
    "a branch": (
        "v = Mul(x, w) c = Constant<value_int = 1>() d = Cast<to = 9>(c) "
        "y = If (d) <then_branch = t () => (float[2,4] p) { p = Softmax(v) }, "
        "else_branch = e () => (float[2,4] q) { q = Tanh(v) }> "
        "t = LayerNormalization(v, s) z = Add(t, y)",
        2,
    ),
    "a branch, and in front of it": (
        "v = Mul(x, w) k = Sigmoid(v) c = Constant<value_int = 1>() d = Cast<to = 9>(c) "
        "y = If (d) <then_branch = t () => (float[2,4] p) { p = Softmax(v) }, "
        "else_branch = e () => (float[2,4] q) { q = Tanh(v) }> "
        "t = LayerNormalization(v, s) a = Add(t, k) z = Add(a, y)",
        3,
    ),
    "a product of two": (
        "v = Mul(x, w) g = Sigmoid(x) y = Mul(v, g) u = Softmax(y) t = LayerNormalization(v, s) "
        "z = Add(t, u)",
        1,
    ),
    "a square": (
        "v = Mul(x, w) y = Mul(v, v) u = Softmax(y) t = LayerNormalization(v, s) z = Add(t, u)",
        1,
    ),
}


def parsed(body: str) -> onnx.ModelProto:
    text = f"{HEAD} m (float[2,4] x) => (float[2,4] z) {{ {FRONT}{body} }}"
    return onnx.parser.parse_model(text)


def solved(flat: FlatGraph, *values: str, limit: float = -6.0) -> tuple[System, Solution]:
    system = scale_system(flat, infer(flat), borders=True)
    limits = {flat.value_names.index(value): limit for value in values}
    return system, solve_with_borders(system, limits)


def outputs(model: onnx.ModelProto, feeds: dict[str, Any]) -> list[Any]:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    return [*session.run(None, feeds)]


def muls_of(flat: FlatGraph) -> int:
    return len(flat.nodes_of("Mul"))


@pytest.mark.parametrize("name", CASES)
def test_a_set_ends_at_the_fewest_places_and_the_bits_are_the_same(name: str):
    body, count = CASES[name]
    model = parsed(body)
    flat = read_source(model, inline_functions=False)
    system, found = solved(flat, "v")
    assert found.exponents[flat.value_names.index("v")] == -6
    fresh = scale_system(flat, infer(flat), borders=True)
    assert is_solution(fresh, found.exponents)
    made = scaled_flat(system, found.exponents)
    assert muls_of(made) - muls_of(flat) == count
    onnx.checker.check_model(made.proto)
    x = np.random.default_rng(0).normal(size=(2, 4)).astype(np.float32)
    for before, after in zip(outputs(model, {"x": x}), outputs(made.proto, {"x": x}), strict=True):
        np.testing.assert_array_equal(before, after)


@pytest.mark.parametrize("name", CASES)
def test_the_note_makes_the_same_model_of_the_original(name: str):
    flat = read_source(parsed(CASES[name][0]), inline_functions=False)
    system, found = solved(flat, "v")
    made = scaled_flat(system, found.exponents)
    again = scaled_as_noted(flat, exponents_noted(system, found.exponents))
    assert again is not None
    assert again.proto.SerializeToString(deterministic=True) == made.proto.SerializeToString(
        deterministic=True
    )


def test_a_note_with_borders_that_are_no_solution_is_none():
    flat = read_source(parsed(CASES["a Softmax"][0]), inline_functions=False)
    system, found = solved(flat, "v")
    note = exponents_noted(system, found.exponents)
    node = flat.node_names[flat.nodes_of("Softmax")[0]]
    assert f'"{node}":{{"0":0}}' in note
    assert (
        scaled_as_noted(flat, note.replace(f'"{node}":{{"0":0}}', f'"{node}":{{"0":-6}}')) is None
    )


def test_what_leaves_the_range_and_is_an_output_is_refused():
    flat = read_source(parsed("z = Mul(x, w)"), inline_functions=False)
    _, found = solved(flat, "z")
    assert not found.exponents
    assert [*found.refused.values()] == ["z is an output of the model"]


def test_nothing_that_fits_is_scaled():
    flat = read_source(parsed(CASES["an output"][0]), inline_functions=False)
    system, found = solved(flat, "v", limit=3.0)
    assert not found.exponents
    assert not borders(system, found.exponents)


def test_sets_that_are_read_as_they_are_made_are_one():
    body = "v = Mul(x, w) r = Relu(v) n = Neg(r) z = Softmax(n)"
    flat = read_source(parsed(body), inline_functions=False)
    _, found = solved(flat, "v", "r", "n")
    (members,) = found.chosen.values()
    assert {flat.value_names.index(name) for name in "vrn"} <= {*members}


def test_a_factor_that_is_subnormal_in_float16_is_refused():
    flat = read_source(parsed(CASES["an output"][0]), inline_functions=False)
    _, found = solved(flat, "v", limit=-16.0)
    assert not found.exponents
    assert "no Mul can have its factor" in found.refused.values()
