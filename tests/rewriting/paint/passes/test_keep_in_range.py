"""What leaves the range of float16 stays float32: for certain, or by an estimate."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from pass_marks import context_of, marks_of, model_of, painting_of
from rewrite_text import assert_close, parse, reasons, rewritten

import amp_rewrite as amp
from amp_rewrite.base.name_patterns import NamePattern
from amp_rewrite.rewriting.paint.node_rules import Findings, NodeRules
from amp_rewrite.rewriting.paint.passes.keep_in_range import keep_in_range

IDENTITY = "float[4,4] w = {1,0,0,0,0,1,0,0,0,0,1,0,0,0,0,1}"
X = np.array([[1, -2, 3, 0.5], [0, 0, 0, 0]], np.float32)


def text(body: str, constants: str, inputs: str = "float[2,4] x") -> str:
    return f"g ({inputs}) => (float[2,4] y) <{IDENTITY}, {constants}> {{ {body} }}"


COUNTS = {
    "constant": "n = Cast<to = 1>(count)",
    "Size": "s = Size(long) n = Cast<to = 1>(s)",
    "moved": "c = Cast<to = 1>(count) n = Identity(c)",
    "double": "n = Cast<to = 1>(wide)",
}
BEYOND = "int64 count = {100000}, double wide = {100000}"


def scaled(number: str) -> str:
    body = f"h = MatMul(x, w) {number} [div] d = Div(h, n) p = Mul(d, n) y = MatMul(p, w)"
    return text(body, BEYOND, "float[2,4] x, float[100000] long")


@pytest.mark.parametrize("spelling", COUNTS)
def test_a_number_beyond_the_range_divides_and_multiplies_in_float32(spelling: str) -> None:
    source = scaled(COUNTS[spelling])
    result = rewritten(source)
    feeds = {"x": X, "long": np.zeros(100000, np.float32)}
    np.testing.assert_allclose(assert_close(result, source, feeds)["y"], X, rtol=0.01)


def test_the_report_says_what_a_number_reaches() -> None:
    result = rewritten(scaled(COUNTS["double"]))
    assert reasons(result)["Div"] == reasons(result)["Mul"] == "certain-overflow"
    assert "reaches at least 1e+05, float16 ends at 65504" in amp.explain(result, "div")


def test_bfloat16_has_the_range_of_float32() -> None:
    result = rewritten(scaled(COUNTS["double"]), precision="bfloat16")
    assert reasons(result)["Div"] == "between-allow"


def test_a_number_within_the_range_is_low() -> None:
    source = scaled(COUNTS["double"]).replace("100000}", "1000}")
    assert reasons(rewritten(source))["Div"] == "between-allow"


def test_a_comparison_with_what_is_beyond_the_range_is_left_alone() -> None:
    source = text(
        "h = MatMul(x, w) n = Cast<to = 1>(wide) q = Greater(h, n) s = Where(q, none, h) "
        "y = MatMul(s, w)",
        f"{BEYOND}, float none = {{0}}",
    )
    assert reasons(rewritten(source))["Greater"] == "clear-next-to-allow"


def test_positive_weights_that_pile_up_are_likely_to_leave_the_range() -> None:
    ones = ",".join(["1"] * 64)
    layers = " ".join(f"h{i} = MatMul(r{i}, k) r{i + 1} = Relu(h{i})" for i in range(8))
    source = (
        "g (float[2,8] x) => (float[2,8] y) "
        f"<float[8,8] k = {{{ones}}}> {{ r0 = Relu(x) {layers} y = MatMul(r8, k) }}"
    )
    result = rewritten(source)
    found = reasons(result)
    assert found["MatMul_1"] == "allow-list"
    assert found["MatMul_17"] == "likely-overflow"
    feeds = {"x": np.ones((2, 8), np.float32)}
    assert np.isfinite(assert_close(result, source, feeds)["y"]).all()


def test_the_sum_of_squares_of_what_nobody_scaled_stays_float32() -> None:
    filters = ",".join(["1"] * 4096)
    source = (
        "g (float[1,64] x) => (float[1,4] y) "
        f"<float[64,64] f = {{{filters}}}, float[64,4] m = {{{','.join(['0.01'] * 256)}}}> "
        "{ s = MatMul(x, f) p = Mul(s, s) y = MatMul(p, m) }"
    )
    audio = np.full((1, 64), 300, np.float32)  # integers of 16 bits
    result = rewritten(source)
    assert reasons(result)["MatMul_2"] == "likely-overflow"
    assert np.isfinite(amp.evaluate(result.model, {"x": audio})["y"]).all()
    assert np.isfinite(amp.evaluate(parse(source), {"x": audio})["y"]).all()


def test_what_a_normalization_bounds_is_low_however_large_its_input() -> None:
    source = text(
        "a = Mul(x, big) n = LayerNormalization(a, g, b) y = MatMul(n, w)",
        "float big = {3000}, float[4] g = {1,1,1,1}, float[4] b = {0,0,0,0}",
    )
    assert reasons(rewritten(source))["MatMul"] == "allow-list"


def test_bodies_of_loops_read_what_is_beyond_the_range_in_float32() -> None:
    source = (
        "g (float[3,4,4] x) => (float[3,4,4] y) "
        f"<{IDENTITY}> {{ y = Scan<num_scan_inputs = 1, body = b (float[4,4] e) => (float[4,4] r) "
        "{ [inner] r = MatMul(e, w) }>(x) }"
    )
    result = rewritten(source, input_ranges={"x": (70000, 80000)})
    assert reasons(result)["MatMul"] == "certain-overflow"
    feeds = {"x": np.full((3, 4, 4), 75000, np.float32)}
    assert np.isfinite(assert_close(result, source, feeds)["y"]).all()


@pytest.mark.parametrize("shape", ["0,4", "2,4"])
def test_empty_tensors_are_no_different(shape: str) -> None:
    source = (
        f"g (float[{shape}] x) => (float[{shape}] y) <{IDENTITY}, float[0] none = {{}}> "
        "{ h = MatMul(x, w) s = ReduceSum(none) d = Add(h, s) y = MatMul(d, w) }"
    )
    assert reasons(rewritten(source))["MatMul_0"] == "allow-list"


GRAPH = "g (float[4,4] x, float[4,4] z, float[1,4,4] r, float e) => (float[N] y)"
FAR = {"x": (7e4, 8e4), "e": (7e4, 8e4), "z": (1.0, 2.0)}


def beyond(body: str, low: str | None = None, **options: Any) -> dict[str, str]:
    """Return what nodes make that leave the range or read what does, and why; all is low."""
    numbers = {"w": np.full((4, 4), 5e4), "one": 1.0, "least": -1e9}
    options = {"ranges": FAR, **options}
    context = context_of(model_of(f"{GRAPH} {{ {body} }}", **numbers), **options)
    names = None if low is None else low.split()
    found = marks_of(keep_in_range, context, painting_of(context, names))
    return {value: str(mark.reason).partition("-")[0] for value, mark in found.items()}


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("n = Neg(x) y = Exp(n)", "ny"),
        ("n = Neg(z) y = Exp(n)", ""),
        ("n = Neg(e) y = Clip(z, n)", "n"),
        ("n = Abs(e) y = Clip(z, one, n)", "n"),
        ("n = Neg(e) y = Clip(n, one)", "ny"),
        ("m = Mul(z, least) s = Add(r, m) y = Softmax(s)", "ms"),
        ("m = Mul(z, least) y = com.microsoft.MultiHeadAttention<num_heads = 1>(r, m, r)", "my"),
        (
            "m = Mul(z, least) y = com.microsoft.MultiHeadAttention<num_heads = 1>"
            '(r, r, r, "", "", m)',
            "m",
        ),
    ],
)
def test_who_minds_a_number_that_becomes_infinite(body: str, expected: str) -> None:
    assert beyond(body) == dict.fromkeys(expected, "certain")


def test_the_user_and_data_overrule_estimates_and_no_facts() -> None:
    likely, certain = "[n] h = MatMul(z, w) y = Exp(h)", "[n] h = Neg(x) y = Exp(h)"
    assert beyond(likely, ranges={}) == dict.fromkeys("hy", "likely")
    assert beyond(certain) == dict.fromkeys("hy", "certain")
    rules = NodeRules(allow=(NamePattern.of("n", "here"),))
    assert beyond(likely, ranges={}, rules=rules) == {"y": "likely"}
    assert beyond(certain, rules=rules) == dict.fromkeys("hy", "certain")
    measured = {"only_low": True, "found": Findings(measured=True)}
    assert beyond(likely, ranges={}, **measured) == {}
    assert beyond(certain, **measured) == dict.fromkeys("hy", "certain")


# Variances that a kernel keeps in the low type.

NORMS = {
    "LayerNormalization": "n = LayerNormalization(h, s, b)",
    "InstanceNormalization": "u = Unsqueeze(h, axes) n0 = InstanceNormalization(u, s1, b1) "
    "n = Squeeze(n0, axes)",
    "MeanVarianceNormalization": "n = MeanVarianceNormalization<axes = [1]>(h)",
    "SimplifiedLayerNormalization": "n = SimplifiedLayerNormalization(h, s)",
    "SkipSimplifiedLayerNormalization": "n = com.microsoft.SkipSimplifiedLayerNormalization("
    "h, x, s)",
    "SkipLayerNormalization": "n = com.microsoft.SkipLayerNormalization(h, x, s, b)",
}


@pytest.mark.parametrize("name", NORMS)
@pytest.mark.parametrize(("size", "is_kept"), [(62.0, True), (1.0, False)])
def test_the_variance_of_a_norm_is_estimated_where_it_is_low(
    name: str, size: float, is_kept: bool
) -> None:
    rng = np.random.default_rng(0)
    model = model_of(
        f"g (float[N,64] x) => (float[N,64] y) {{ h = MatMul(x, w) {NORMS[name]} y = Relu(n) }}",
        w=rng.normal(0, size, (64, 64)),
        s=np.ones(64),
        b=np.zeros(64),
        s1=np.ones(1),
        b1=np.zeros(1),
        axes=np.array([1]),
    )
    low = frozenset({("", name), ("com.microsoft", name)})
    context = context_of(model, squares_low=low)
    kept = {*marks_of(keep_in_range, context, painting_of(context))}
    assert kept == ({"n0" if "n0" in NORMS[name] else "n"} if is_kept else set())
    other = context_of(model)
    assert not marks_of(keep_in_range, other, painting_of(other))
