"""Constants that round to zero: their consumers stay float32 where that matters."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx.parser
import pytest
from onnx import numpy_helper
from pass_marks import context_of, marks_of, model_of, painting_of, vertices_of
from rewrite_text import assert_close, parse, rewritten

import amp_rewrite as amp
from amp_rewrite.dtypes import BFLOAT16, FLOAT16, DType
from amp_rewrite.graph.build_type_graph import build_type_graph
from amp_rewrite.graph.io.read_flat import read_flat
from amp_rewrite.oplists import load_lists
from amp_rewrite.rewriting.paint.context import PaintContext
from amp_rewrite.rewriting.paint.painting import Mark, Reason
from amp_rewrite.rewriting.paint.passes.keep_underflows import keep_underflows
from amp_rewrite.rewriting.paint.pipeline import paint
from amp_rewrite.rewriting.paint.value_facts import ValueFacts

SQUARE = f"float[4,4] w = {{{','.join(['0.5'] * 16)}}}"


def model(body, constants="float eps = {1e-12}"):
    text = '<ir_version: 8, opset_import: ["" : 17]> g (float[2,4] x) => (float[2,4] y)'
    source = f"{text} <{SQUARE}, {constants}> {{[a] h = MatMul(x, w) {body} [z] y = MatMul(k, w)}}"
    return onnx.parser.parse_model(source)


def marks(source, low=FLOAT16):
    """Return node -> mark of what the painting excludes."""
    type_graph = build_type_graph(read_flat(source))
    lists, values = load_lists(precision=low.name, environ={}), ValueFacts(type_graph, low)
    painted = paint(PaintContext(type_graph, lists, low, values=values))
    assert not any(painted.painting.is_allow(vertex) for vertex in painted.context.excluded)
    return {type_graph.node_name(v): mark for v, mark in painted.context.excluded.items()}


@pytest.mark.parametrize(
    ("body", "kept"),
    [
        ("[add] d = Add(h, eps) [div] k = Div(h, d)", {"add", "div"}),
        ("[max] d = Max(h, eps) [log] k = Log(d)", {"a", "max", "log"}),
        ("[clip] d = Clip(h, eps) [inv] k = Reciprocal(d)", {"clip", "inv", "z"}),
        ("[add] d = Add(eps, h) [root] k = Sqrt(d)", {"add", "root"}),
        ("[add] d = Add(h, eps) [move] e = Transpose(d) [f] f = Transpose(e) [div] k = Div(h, f)",
         {"add", "move", "f", "div"}),
        ("[mul] k = Mul(h, eps)", {"mul"}),
        ("[div] k = Div(h, eps)", {"div", "z"}),
    ],
)  # fmt: skip
def test_a_constant_that_keeps_zero_away_keeps_its_consumers_float32(body, kept):
    found = marks(model(body))
    assert set(found) == kept
    reasons = {name: mark.reason for name, mark in found.items()}
    if kept == {"div", "z"}:  # the quotient itself is likely to be out of range
        assert reasons.pop("z") is Reason.LIKELY_OVERFLOW
    if "a" in kept:  # a product behind a logarithm of small numbers
        assert reasons.pop("a") is Reason.DEMAND
    assert set(reasons.values()) == {Reason.CONSTANT_UNDERFLOW}
    assert any("1e-12 rounds to zero in float16" in str(mark.detail) for mark in found.values())


@pytest.mark.parametrize(
    ("body", "constants"),
    [
        ("[add] k = Add(h, eps)", "float eps = {1e-12}"),
        ("[add] d = Add(h, eps) [div] k = Div(d, h)", "float eps = {1e-12}"),
        ("[add] d = Add(h, eps) [div] k = Div(h, d)", "float eps = {1e-5}"),
        ("[add] d = Add(h, eps) [div] k = Div(h, d)", "float eps = {0}"),
        ("[mul] k = Mul(h, eps)", "float[4] eps = {1, 1e-12, 0, 2}"),
        ("[pad] k = Where(c, h, eps)", "float eps = {1e-12}, bool c = {1}"),
    ],
)
def test_constants_that_do_not_matter_change_nothing(body, constants):
    assert marks(model(body, constants)) == {}


def test_bfloat16_reaches_down_as_far_as_float32():
    assert marks(model("[add] d = Add(h, eps) [div] k = Div(h, d)"), BFLOAT16) == {}


def test_a_factor_counts_from_where_rounding_takes_more_than_the_tolerance():
    edge = FLOAT16.smallest_subnormal / 2 / FLOAT16.rtol
    body = "[mul] k = Mul(h, eps)"
    assert set(marks(model(body, f"float eps = {{{edge * 0.999!r}}}"))) == {"mul"}
    assert marks(model(body, f"float eps = {{{edge * 1.001!r}}}")) == {}


def test_the_root_of_an_epsilon_may_be_large_enough_for_what_follows():
    body = "[add] d = Add(h, eps) [root] r = Sqrt(d) [div] k = Div(h, r)"
    assert set(marks(model(body))) == {"add", "root"}
    assert set(marks(model(body, "float eps = {1e-20}"))) == {"add", "root", "div"}


# h is zero in two of three rows; every spelling divides it by |h| + 1e-8, or the like.
SPELLINGS = {
    "Add": "d = Add(a, eps) y = Div(h, d)",
    "Identity": "e = Identity(eps) d = Add(a, e) y = Div(h, d)",
    "Unsqueeze": "e = Unsqueeze(eps, zero) d = Add(a, e) y = Div(h, d)",
    "Expand": "s = Shape(a) e = Expand(eps, s) d = Add(a, e) y = Div(h, d)",
    "CastLike": "e = CastLike(eps64, h) d = Add(a, e) y = Div(h, d)",
    "Cast from double": "e = Cast<to = 1>(eps64) d = Add(a, e) y = Div(h, d)",
    "ConstantOfShape": "s = Shape(a) e = ConstantOfShape<value = float[1] {1e-8}>(s) "
    "d = Add(a, e) y = Div(h, d)",
    "Constant": "e = Constant<value_float = 1e-8>() d = Add(a, e) y = Div(h, d)",
    "Mul of constants": "e = Mul(root, root) d = Add(a, e) y = Div(h, d)",
    "Max of two": "d = Max(a, eps) y = Div(h, d)",
    "Max of three": "d = Max(a, nil, eps) y = Div(h, d)",
    "Sum of three": "d = Sum(a, nil, eps) y = Div(h, d)",
    "Where": "q = Equal(h, nil) d = Where(q, eps, h) y = Div(h, d)",
    "Clip": "d = Clip(a, eps) y = Div(h, d)",
    "Clip of Identity": "e = Identity(eps) d = Clip(a, e) y = Div(h, d)",
    "Sub of a negative": "e = Neg(eps) d = Sub(a, e) y = Div(h, d)",
    "before Sub": "s = Add(a, eps) d = Sub(nil, s) y = Div(h, d)",
    "before Concat and Split": "s = Add(a, eps) c = Concat<axis = 0>(s, s) "
    "d, t = Split<num_outputs = 2>(c) y = Div(h, d)",
    "before Mul": "s = Add(a, bit) d = Mul(s, milli) y = Div(h, d)",
    "Reciprocal": "d = Add(a, eps) r = Reciprocal(d) y = Mul(h, r)",
    "Reciprocal out of range": "d = Add(a, bit) r = Reciprocal(d) y = Mul(h, r)",
    "Reciprocal moved": "d = Add(a, bit) r = Reciprocal(d) t = Identity(r) y = Mul(h, t)",
    "quotient out of range": "d = Add(a, bit) r = Div(one, d) y = Mul(h, r)",
    "root": "p = Mul(h, h) s = Add(p, tiny) d = Sqrt(s) y = Div(h, d)",
    "negative power": "d = Add(a, eps) r = Pow(d, minus) y = Mul(h, r)",
    "negative power out of range": "d = Add(a, bit) r = Pow(d, minus) y = Mul(h, r)",
    "If": "d = If(yes) <then_branch = t () => (float[3,4] p) { p = Add(a, eps) }, "
    "else_branch = f () => (float[3,4] q) { q = Max(a, eps) }> y = Div(h, d)",
}
GIVEN = (
    "float eps = {1e-8}, double eps64 = {1e-8}, float root = {1e-4}, float nil = {0}, "
    "float one = {1}, float bit = {1e-6}, float milli = {0.001}, float tiny = {1e-16}, "
    "float minus = {-1}, int64[1] zero = {0}, bool yes = {1}"
)


@pytest.mark.share(7)
@pytest.mark.parametrize("spelling", SPELLINGS)
def test_a_quotient_of_zeros_is_finite_however_its_epsilon_is_spelt(spelling: str) -> None:
    text = (
        f"g (float[3,4] x) => (float[3,4] z) <{SQUARE}, {GIVEN}> "
        f"{{ h = MatMul(x, w) a = Abs(h) {SPELLINGS[spelling]} z = MatMul(y, w) }}"
    )
    x = np.array([[0] * 4, [1, 2, -3, 0.5], [0] * 4], np.float32)
    for allowed in ([], ["Pow*"] if "Pow" in text else []):  # the deny list has Pow anyway
        result = rewritten(text, allow_nodes=allowed)
        assert np.isfinite(assert_close(result, text, {"x": x})["z"]).all()


@pytest.mark.parametrize("bounds", ["min = 1e-8", "min = 1e-8, max = 9.0"])
def test_a_bound_of_clip_may_be_an_attribute(bounds: str) -> None:
    text = (
        '<ir_version: 5, opset_import: ["" : 10]> g (float[3,4] x) => (float[3,4] z) '
        f"<{SQUARE}> {{ h = MatMul(x, w) a = Abs(h) d = Clip<{bounds}>(a) y = Div(h, d) "
        "z = MatMul(y, w) }"
    )
    x = np.array([[0] * 4, [1, 2, -3, 0.5], [0] * 4], np.float32)
    result = rewritten(text)
    assert np.isfinite(assert_close(result, text, {"x": x})["z"]).all()


def test_a_dequantized_factor_that_float16_cannot_hold_stays_float32() -> None:
    text = (
        f"g (uint8[3,4] x) => (float[3,4] z) <{SQUARE}, float s = {{1e-9}}> "
        "{ h = DequantizeLinear(x, s) t = Transpose(h) u = Transpose(t) z = MatMul(u, w) }"
    )
    x = np.arange(12, dtype=np.uint8).reshape(3, 4)
    result = rewritten(text)
    expected, found = amp.evaluate(parse(text), {"x": x}), amp.evaluate(result.model, {"x": x})
    np.testing.assert_allclose(found["z"], expected["z"], rtol=FLOAT16.rtol)


@pytest.mark.parametrize(
    ("precision", "smallest", "becomes_low"),
    [
        ("float16", 1e-5, True),  # rounded to half a step of 6e-8: a third of a percent
        ("float16", 1e-6, False),
        ("float16", 1e-8, False),
        ("bfloat16", 1e-8, True),
    ],
)
def test_one_scale_that_is_too_small_keeps_a_product_of_blocks_float32(
    precision: str, smallest: float, becomes_low: bool
) -> None:
    held = parse(
        """g (float[1,64] x) => (float[1,2] y) {
            y = com.microsoft.MatMulNBits<K = 64, N = 2, bits = 4, block_size = 32>(x, w, s)
        }"""
    )
    scales = np.array([[0.5, 0], [0.25, smallest]], np.float32)
    codes = np.arange(64, dtype=np.uint8).reshape(2, 2, 16)
    held.graph.initializer.append(numpy_helper.from_array(scales, "s"))
    held.graph.initializer.append(numpy_helper.from_array(codes, "w"))
    made = amp.rewrite(held, precision=precision)  # pyright: ignore[reportArgumentType]
    assert made.changed == becomes_low
    if not becomes_low:
        told = amp.explain(made, "MatMulNBits_0")
        assert f"constant s = {smallest:.3g}" in told
        assert "scales a block of weights" in told
    kept = [t for t in amp.to_proto(made.model).graph.initializer if t.name == "w"]
    assert kept == [numpy_helper.from_array(codes, "w")]


@pytest.mark.parametrize("number", ["1e-6", "1e-4"])
def test_a_reciprocal_of_a_constant_that_leaves_the_range_is_kept(number: str) -> None:
    body = "[inverse] i = Reciprocal(small) [moved] t = Identity(i) [read] k = Mul(h, t)"
    found = marks(model(body, f"float small = {{{number}}}"))
    assert ({"inverse", "moved", "read"} <= found.keys()) is (number == "1e-6")


GRAPH = "g (float[4,4] x, float[4,4] z, float e) => (float[N] y)"
TINY = 1e-12
ZERO_IS_NEAR = "1e-12 rounds to zero in float16, and"


def found_in(
    body: str,
    /,
    *,
    high: Sequence[str] = (),
    low_type: DType = FLOAT16,
    ranges: Mapping[str, tuple[float, float]] | None = None,
    **constants: Any,
) -> dict[str, Mark]:
    """Return the marks that the pass makes where all is low but what makes some values."""
    numbers = {"tiny": TINY, "one": 1.0, "bit": 1e-6, "nil": 0.0, **constants}
    context = context_of(model_of(f"{GRAPH} {{ {body} }}", **numbers), low_type, ranges)
    graph = context.type_graph
    kept = vertices_of(context, *high)
    named = [graph.flat.value_names[v] for v in graph.flat.outputs]
    painting = painting_of(context, [n for n in named if n not in high])
    assert not any(painting.is_allow(v) for v in kept)
    return marks_of(keep_underflows, context, painting)


def told(body: str, /, **options: Any) -> dict[str, str]:
    """Return the same, value -> what is said."""
    return {value: str(mark.detail) for value, mark in found_in(body, **options).items()}


@pytest.mark.parametrize(
    ("body", "role"),
    [
        ("y = Mul(x, tiny)", "multiplies"),
        ("y = Mul(tiny, x)", "multiplies"),
        ("y = Div(tiny, x)", "multiplies"),
        ("y = Div(x, tiny)", "divides"),
        ("y = MatMul(x, row)", "multiplies"),
        ("y = Gemm(row, x)", "multiplies"),
    ],
)
def test_a_faint_factor_is_named_with_its_part(body: str, role: str) -> None:
    name = "row" if "row" in body else "tiny"
    found = told(body, row=np.full((4, 4), TINY))
    assert found == {"y": f"constant {name} = {ZERO_IS_NEAR} {role}"}


# Normalizations.

SCALED = {
    "LayerNormalization": "y = LayerNormalization(x, scale, bias)",
    "InstanceNormalization": "u = Reshape(x, shape) y = InstanceNormalization(u, scale, bias)",
    "GroupNormalization": "u = Reshape(x, shape) "
    "y = GroupNormalization<num_groups = 2>(u, scale, bias)",
}
STATISTICS = {
    "scale": np.full(4, TINY),
    "bias": np.zeros(4),
    "shape": np.array([1, 4, 4]),
}


@pytest.mark.parametrize("name", SCALED)
def test_a_normalization_with_a_faint_scale_is_kept(name: str) -> None:
    fact = f"constant scale = {ZERO_IS_NEAR} multiplies"
    assert told(SCALED[name], **STATISTICS) == {"y": fact}
    for scale in ([1, TINY, 0, 1], [0.0, 0, 0, 0]):
        assert not found_in(SCALED[name], **{**STATISTICS, "scale": np.array(scale)})


def test_the_scales_of_all_experts_are_looked_at() -> None:
    text = """g (float[2,32] x, float[2,2] routes, float[2,64] s1) => (float[2,32] y) {
        y = com.microsoft.QMoE<k = 1, expert_weight_bits = 8>(x, routes, w1, s1, "", w2, s2) }"""
    model = model_of(
        text,
        w1=np.ones((2, 32, 64), np.uint8),
        w2=np.ones((2, 64, 32), np.uint8),
        s2=np.full((2, 32), 1e-7),
    )
    context = context_of(model)
    found = marks_of(keep_underflows, context, painting_of(context))
    detail = "constant s2 = 1e-07 is rounded by up to 30% in float16, and scales a block of weights"
    assert found["y"].detail == detail


# Constants that something is divided by.


@pytest.mark.parametrize(
    ("numbers", "fact"),
    [
        ([1, 1e-6], "1e-06 is rounded by up to 3%"),
        ([1, -1e-6], "1e-06 is rounded by up to 3%"),
        ([1, 1e-6, 1e-7], "1e-07 is rounded by up to 30%"),
        ([1, 1e-6, 1e-9], "1e-09 rounds to zero"),
        ([1.0, 2.0**-25], "2.98e-08 rounds to zero"),
        ([1.0, 0.0], ""),
        ([1.0, 1e-5], ""),
        ([1.0, 1e6], ""),
    ],
)
def test_each_element_that_divides_counts(numbers: list[float], fact: str) -> None:
    fact = f"constant c = {fact} in float16, and divides" if fact else ""
    expected = {"y": fact} if fact else {}
    assert told("y = Div(x, c)", c=np.array(numbers)) == expected
    assert not fact or told("y = Reciprocal(c)", c=np.array(numbers)) == expected


# Reciprocals that stay float32.


def test_what_is_float32_already_is_not_marked_again() -> None:
    body = "i = Reciprocal(c) t = Identity(i) y = Mul(t, x)"
    assert set(found_in(body, high=["i", "t"], c=np.array([1e-6]))) == {"i", "y"}


# Guards.


@pytest.mark.parametrize(
    ("body", "kept"),
    [
        ("a = Abs(x) d = Add(a, tiny) y = Div(z, d)", "dy"),
        ("a = Abs(x) d = Add(a, tiny) y = Reciprocal(d)", "dy"),
        ("a = Abs(x) d = Add(a, tiny) y = Log(d)", "dy"),
        ("a = Abs(x) d = Add(a, tiny) y = Sqrt(d)", "dy"),
        ("a = Abs(x) d = Add(a, tiny) y = Pow(d, one)", "dy"),
        ("a = Abs(x) d = Add(a, tiny) y = Div(d, z)", ""),
        ("a = Abs(x) d = Add(a, tiny) y = Exp(d)", ""),
        ("a = Abs(x) y = Div(z, a)", ""),
    ],
)
def test_a_guard_that_vanishes_is_kept_where_zero_would_upset(body: str, kept: str) -> None:
    assert set(found_in(body)) == {*kept}


# What a quotient reaches at its guard; d is at least 0.001.
