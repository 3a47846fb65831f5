"""Estimates of a model's values: what counts as data, and what as statistics or masks."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx.parser
import pytest
from magnitude_models import estimate_of, graph_of
from pass_marks import context_of, model_of

import amp_rewrite as amp
from amp_rewrite.graph.build_type_graph import build_type_graph
from amp_rewrite.graph.io.read_flat import read_flat
from amp_rewrite.values.intervals.interval import between
from amp_rewrite.values.intervals.propagate import intervals_of
from amp_rewrite.values.magnitudes.estimate import Estimate
from amp_rewrite.values.magnitudes.estimates import Estimates

HEADER = '<ir_version: 10, opset_import: ["" : 21]>'


def estimates(text: str, **ranges: tuple[float, float]) -> dict[str, Estimate | None]:
    """Return the estimates of a model's values by name."""
    type_graph = build_type_graph(read_flat(onnx.parser.parse_model(f"{HEADER} {text}")))
    names = type_graph.flat.value_names
    given = {names.index(name): between(*ends) for name, ends in ranges.items()}
    found = Estimates(type_graph, intervals_of(type_graph, inputs=given))
    return {name: found[v] for v, name in enumerate(names) if name}


def known(text: str, name: str, **ranges: tuple[float, float]) -> tuple[float, ...]:
    """Return mean, deviation and degree of a value."""
    found = estimates(text, **ranges)[name]
    assert found is not None
    return found[:3]


def test_inputs_are_normalised_unless_a_range_says_more() -> None:
    text = "g (float[2] x, uint8[2] b, int64[2] n) => (float[2] y) { y = Relu(x) }"
    assert estimates(text)["x"] == Estimate(0.0, 1.0, 1.0)
    assert known(text, "x", x=(0, 255)) == pytest.approx((127.5, 73.6, 0.0), rel=1e-2)
    assert known(text, "b") == pytest.approx((127.5, 73.6, 0.0), rel=1e-2)
    assert estimates(text)["n"] is None


def test_layers_of_positive_weights_are_followed() -> None:
    rng, x = np.random.default_rng(0), np.abs(np.random.default_rng(1).standard_normal((64, 8)))
    weights = np.round(rng.uniform(0.5, 1.5, (8, 8)), 3)
    numbers = ",".join(map(str, weights.ravel()))
    layers = " ".join(f"r{k + 1} = MatMul(r{k}, w)" for k in range(5))
    found = estimates(
        f"g (float[64,8] x) => (float[64,8] r5) <float[8,8] w = {{{numbers}}}> "
        f"{{ r0 = Abs(x) {layers} }}"
    )["r5"]
    for _ in range(5):
        x = x @ weights
    assert found is not None
    assert found.mean == pytest.approx(x.mean(), rel=0.2)
    assert found.largest >= x.max()


@pytest.mark.parametrize("spelling", ["n = Div(x, v)", "r = Reciprocal(v) n = Mul(x, r)"])
def test_what_is_divided_by_a_tiny_constant_is_large(spelling: str) -> None:
    text = "g (float[4,2] x) => (float[4,2] n) <float[2] v = {1e-9, 3e-9}> {"
    assert known(f"{text} {spelling} }}", "n")[1] == pytest.approx(4.5e8, rel=0.3)


@pytest.mark.parametrize(("variance", "trusted"), [("4", True), ("0.0001", False)])
def test_statistics_count_as_far_as_they_agree_with_the_weights(
    variance: str, trusted: bool
) -> None:
    found = estimates(
        "g (float[1,1,4,4] x) => (float[1,1,4,4] y) <float[1,1,1,1] k = {5}, float[1] one = {1}, "
        f"float[1] zero = {{0}}, float[1] v = {{{variance}}}> "
        "{ h = Conv(x, k) y = BatchNormalization(h, one, zero, zero, v) }"
    )["y"]
    assert found is not None
    assert (found.spread == pytest.approx(1.0)) is trusted


def test_what_is_unknown_stays_unknown_until_something_bounds_it() -> None:
    found = estimates(
        "g (int64[2,4] n) => (float[2,4] y) { f = Cast<to = 1>(n) s = Add(f, f) y = Sigmoid(s) }"
    )
    assert found["s"] is None
    assert found["y"] is not None
    assert found["y"][:3] == pytest.approx((0.5, 0.29, 0.0), rel=1e-2)


def test_branches_and_bodies_are_followed() -> None:
    found = estimates(
        "g (bool b, float[2] x) => (float[2] y, float[2] z) <int64 n = {3}, bool t = {1}, "
        "float hundred = {100}> {"
        "y = If(b) <then_branch = p () => (float[2] u) { u = Mul(x, hundred) }, "
        "else_branch = q () => (float[2] v) { v = Neg(x) }> "
        "z = Loop(n, t, x) <body = l (int64 i, bool c, float[2] s) => (bool d, float[2] e) "
        "{ d = Identity(c) e = Mul(s, hundred) }> }"
    )
    assert found["y"] is not None
    assert found["y"].spread == pytest.approx(100)
    assert found["z"] is not None
    assert found["z"].spread == pytest.approx(100)


def test_nothing_is_known_of_training_variables() -> None:
    text = "g (float[2,4] x, float[4,4] w) => (float[2,4] y) { y = MatMul(x, w) }"
    type_graph = build_type_graph(read_flat(onnx.parser.parse_model(f"{HEADER} {text}")))
    x, w = type_graph.flat.main.inputs
    intervals = intervals_of(type_graph)
    (y,) = type_graph.flat.main.outputs
    assert Estimates(type_graph, intervals)[y] is not None
    assert Estimates(type_graph, intervals, frozenset([w]))[y] is None
    assert Estimates(type_graph, intervals, frozenset([x]))[y] is None


# A node, the shapes of its inputs, and mean, deviation and degree of y. Numbers of x are spread
# evenly from 0 to 2, those of n are normalised ones of an unknown scale.
RULES: dict[str, tuple[str, str, tuple[float, ...]]] = {
    "a square": ("Pow(n, two)", "float[4] n", (1, 2**0.5, 2)),
    "another power": ("Pow(n, three)", "float[4] n", (0.5, 0.5, 3)),
    "a sum": ("ReduceSum(n, last)", "float[2,4] n", (0, 10**0.5 / 2, 1)),
    "a sum of squares": ("ReduceSumSquare(n, last)", "float[2,4] n", (4, 5**0.5, 2)),
    "a sum without end": ("ReduceSum(n, last)", "float[2,N] n", ()),
    "groups": ("GroupNormalization<num_groups = 1>(n, three, two)", "float[1,1,4] n", (2, 3, 0)),
    "channels": ("InstanceNormalization(n, three, two)", "float[1,1,4] n", (2, 3, 0)),
    "rows": ("LayerNormalization(n, three, two)", "float[2,1] n", (2, 3, 0)),
    "a quotient": ("Div(x, two)", "float[4] x", (0.5, 12**-0.5, 0)),
    "a root": ("Sqrt(x)", "float[4] x", (1.0746, 0.5373, 0)),
    "shares": ("Softmax(n)", "float[2,4] n", (0.25, 0.25, 0)),
    "a layer": (
        "Gemm<alpha = 2.0, transB = 1>(x, ones, two)",
        "float[2,4] x",
        (10, 10**0.5 / 3**0.5, 0),
    ),
    "a product": ("MatMul(n, m)", "float[2,4] n, float[4,3] m", (0, 1, 1)),
    "a product in words": (
        'Einsum<equation = "ij,jk->ik">(n, m)',
        "float[2,4] n, float[4,3] m",
        (0, 1, 1),
    ),
    "a window": ("Conv(x, kernel)", "float[1,1,4,4] x", (4, (10 / 3) ** 0.5 / 2, 0)),
    "a window that grows": (
        "ConvTranspose<strides = [2, 2]>(x, kernel)",
        "float[1,1,4,4] x",
        (2, (10 / 3) ** 0.5 / 4, 0),
    ),
    "neighbours": (
        "LRN<size = 1, alpha = 9.0, beta = 0.5, bias = 4.0>(x)",
        "float[1,1,4,4] x",
        (0.25, 0.1443, 0),
    ),
    "neighbours as they are by default": (
        "LRN<size = 1, bias = 4.0>(x)",
        "float[1,1,4,4] x",
        (4**-0.75, 4**-0.75 / 3**0.5, 0),
    ),
    "products of one number": ("MatMul(x, halves)", "float[2,2,4] x", (2, (10 / 3) ** 0.5 / 4, 0)),
    "several": ("Concat<axis = 0>(n, two)", "float[4] n", (1, 3**0.5, 0.8749)),
    "one of two, within their bounds": ("Where(b, x, two)", "float[4] x, bool[4] b", (1.5, 1, 0)),
    "the largest": ("MaxPool<kernel_shape = [2]>(x)", "float[1,1,4] x", (1.5774, 0.5774, 0)),
    "a magnitude": ("Abs(n)", "float[4] n", (0.7979, 0.6028, 1)),
    "a difference": ("Sub(x, three)", "float[4] x", (-2, 0.5774, 0)),
    "twice": ("Add(x, x)", "float[4] x", (2, 1.1547, 0)),
    "several sums": ("Sum(x, x, three)", "float[4] x", (5, 0.8165, 0)),
    "the other sign": ("Neg(x)", "float[4] x", (-1, 0.5774, 0)),
}


@pytest.mark.parametrize("name", RULES)
def test_a_rule_follows_independent_numbers(name: str) -> None:
    node, inputs, expected = RULES[name]
    found = estimates(
        f"g ({inputs}) => (float[] y) <float[1] two = {{2}}, float[1] three = {{3}}, "
        "int64[1] last = {-1}, float[2,4] ones = {1, 1, 1, 1, 1, 1, 1, 1}, "
        f"float[1,1,2,2] kernel = {{1, 1, 1, 1}}> "
        "{ lengths = Constant<value_ints = [2, 4, 3]>() "
        f"halves = ConstantOfShape<value = float[1] {{0.5}}>(lengths) y = {node} }}",
        **({"x": (0.0, 2.0)} if " x" in inputs else {}),
    )["y"]
    assert (found or ())[:3] == pytest.approx(expected, rel=1e-3, abs=1e-6)


def test_the_sum_inside_a_norm_is_estimated() -> None:
    body = "y, m, i, s = com.microsoft.SkipLayerNormalization(x, n, g, g, b) e = Add(s, n)"
    graph = graph_of(body, "float[2,4] x, float[2,4] n",
                     g=np.ones(4, np.float32), b=np.array([1, 3, 1, 3], np.float32))  # fmt: skip
    found = estimate_of(graph, {"x": (0.0, 2.0)}, "s")
    assert found is not None
    assert found[:2] == pytest.approx((3.0, (1 / 3 + 1 + 1) ** 0.5))
    graph = graph_of(f"k = Cast<to = 1>(j) {body.replace('n, g', 'k, g')}",
                     "float[2,4] x, float[2,4] n, int64[2,4] j",
                     g=np.ones(4, np.float32), b=np.array([1, 3, 1, 3], np.float32))  # fmt: skip
    found = estimate_of(graph, {"x": (0.0, 2.0)}, "s")
    assert found is not None
    assert found[:2] == pytest.approx((3.0, (1 / 3 + 1) ** 0.5))


MEANS, DEVIATIONS = [123.675, 116.28, 103.53], [58.395, 57.12, 57.375]
NUMBERS: dict[str, Any] = {
    "byte": 255.0,
    "inverse": 1 / 255,
    "middle": 127.5,
    "square": 65025.0,
    "deviation": 58.5,
    "means": np.array(MEANS)[:, None, None],
    "minus": -np.array(MEANS)[:, None, None],
    "deviations": np.array(DEVIATIONS)[:, None, None],
    "ten": 10.0,
    "half": 0.5,
    "two": 2.0,
    "k": np.full((8, 3, 3, 3), 0.25),
}


def spread(body: str) -> float:
    """Return the estimated deviation of the input of a model."""
    context = context_of(
        model_of(f"g (float[N,3,H,W] x) => (float[N,A,B,C] y) {{ {body} }}", **NUMBERS)
    )
    estimate = context.values.estimates[context.type_graph.flat.main.inputs[0]]
    assert estimate is not None
    return estimate.spread


@pytest.mark.parametrize(
    "body",
    [
        "y = Div(x, byte)",
        "y = Mul(x, inverse)",
        "a = Sub(x, middle) y = Div(a, middle)",
        "a = Sub(x, means) y = Div(a, deviations)",
        "t = Transpose(x) a = Add(t, minus) y = Identity(a)",
        "y = Div(x, deviation)",
        "a = Mul(x, x) y = Div(a, square)",
        "a = Pow(x, two) y = Div(a, square)",
    ],
)
def test_constants_of_images_tell_of_bytes(body: str) -> None:
    assert spread(body) > 50


@pytest.mark.parametrize(
    "body",
    ["y = Mul(x, half)", "y = Div(x, ten)", "y = Conv(x, k)", "a = Sub(x, half) y = Div(a, half)"],
)
def test_other_constants_do_not(body: str) -> None:
    assert spread(body) == 1


def test_a_value_near_the_end_of_the_type_is_told() -> None:
    body = "a = Div(x, deviation) b = Conv(a, k) c = Conv(b, m) d = Relu(c) y = Conv(d, n)"
    numbers = {**NUMBERS, "m": np.full((8, 8, 3, 3), 4.0), "n": np.full((1, 8, 1, 1), 1e-3)}
    source = model_of(f"g (float[N,3,H,W] x) => (float[N,1,A,B] y) {{ {body} }}", **numbers)
    said = amp.rewrite(source, target="cuda").report.near_end
    assert said is not None
    assert "more than a quarter of float16's limit of 65504" in said
    assert amp.rewrite(source, target="cuda", precision="bfloat16").report.near_end is None


def test_layers_that_multiply_deviations_are_told_though_estimates_halve_them() -> None:
    generator = np.random.default_rng(0)
    weights = {
        f"w{i}": 3 * generator.normal(size=(16, 16, 3, 3)) * (2 / 144) ** 0.5 for i in range(10)
    }
    body = "r0 = Identity(x) "
    body += " ".join(f"h{i} = Conv(r{i}, w{i}) r{i + 1} = Relu(h{i})" for i in range(10))
    text = f"g (float[N,16,H,W] x) => (float[N,1,A,B] y) {{ {body} y = Conv(r10, last) }}"
    source = model_of(text, **weights, last=np.full((1, 16, 1, 1), 1e-4))
    assert (amp.rewrite(source, target="cuda").report.near_end or "").startswith("h9 may reach")
    calm = {name: weight / 3 for name, weight in weights.items()}
    source = model_of(text, **calm, last=np.full((1, 16, 1, 1), 1e-4))
    assert amp.rewrite(source, target="cuda").report.near_end is None
