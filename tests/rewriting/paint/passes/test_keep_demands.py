"""Counts, angles and places stay float32, and so does what computes them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from pass_marks import context_of, marks_of, model_of, painting_of
from position_models import ANGLES, STARTS, constant, feeds, rotary, weight
from rewrite_text import rewritten

import amp_rewrite as amp
from amp_rewrite.dtypes import LOW
from amp_rewrite.oplists import OpLists
from amp_rewrite.rewriting.paint.passes.keep_demands import keep_demands

KEPT = {"count", "demand"}


def kept(result: amp.RewriteResult) -> set[str]:
    """Return the nodes that are float32 for a count or a demand."""
    return {n.name for n in result.report.nodes if KEPT & {v.reason for v in n.variables.values()}}


def low(result: amp.RewriteResult) -> set[str]:
    """Return the nodes that compute in low precision."""
    return {
        n.name
        for n in result.report.nodes
        if any(v.dtype != "float32" for v in n.variables.values())
    }


def model(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 22]> {text}')


def error(
    result: amp.RewriteResult, source: onnx.ModelProto, given: dict[str, np.ndarray]
) -> float:
    """Return the largest error of the first output, emulated, over its largest element."""
    expected = next(iter(amp.evaluate(source, given).values()))
    found = next(iter(amp.evaluate(amp.to_proto(result.model), given).values()))
    assert np.isfinite(found).all()
    return float(np.abs(found - expected).max() / np.abs(expected).max())


@pytest.mark.share(7, each="way")
@pytest.mark.parametrize("precision", LOW)
@pytest.mark.parametrize("way", ANGLES)
def test_rotary_scores_agree_at_every_position(way: str, precision: str) -> None:
    source = rotary(ANGLES[way])
    result = rewritten(source, precision=precision)
    assert {"query", "key", "scores"} <= low(result)
    for start in STARTS:
        assert error(result, source, feeds(start)) <= LOW[precision].rtol, start


@pytest.mark.parametrize(
    ("inputs", "made"),
    [
        (
            "int64 n",
            "r = Range(n, end, step) f = Cast<to = 1>(r) v = Unsqueeze(f, zero)",
        ),
        (
            "float n",
            "f = Range(n, fend, unit) v = Unsqueeze(f, zero)",
        ),
        (
            "int64[1,8] mask, int64 n",
            "r = CumSum(mask, axis) later = Add(r, n) v = Cast<to = 1>(later)",
        ),
        (
            "bool[1,8] mask, int64 n",
            "m = Cast<to = 1>(mask) r = CumSum(m, axis) o = Cast<to = 1>(n) v = Add(r, o)",
        ),
    ],
)
def test_positions_may_be_made_in_the_model(inputs: str, made: str) -> None:
    ends = "eight = Constant<value_int = 8>() end = Add(n, eight)"
    ends = (
        ends
        if "int64 n" in inputs
        else "feight = Constant<value_float = 8.0>() fend = Add(n, feight)"
    )
    source = rotary(f"{ends} {made} p = Unsqueeze(v, two) [angles] t = Mul(p, row)", inputs)
    result = rewritten(source)
    assert {"angles", "cos", "sin"} <= kept(result)
    assert {"query", "key", "scores"} <= low(result)
    given = {"x": feeds(0)["x"], "mask": np.ones((1, 8), bool if "bool" in inputs else np.int64)}
    names = [i.name for i in source.graph.input]
    for start in STARTS:
        given["n"] = np.array(start, np.float32 if "float n" in inputs else np.int64)
        assert error(result, source, {n: given[n] for n in names}) <= LOW["float16"].rtol


def test_small_whole_numbers_next_to_data_are_data() -> None:
    """Masks of shifted windows: numbers of regions, compared, and -100 where they differ."""
    result = rewritten(
        model(
            f"""g (float[8,16] x) => (float[8,16] y)
            <{weight("wq")}, {weight("wk", seed=1)}, float low = {{-100}}, float none = {{0}},
             int64[8] regions = {{0, 0, 1, 1, 2, 2, 3, 3}}, int64[1] axis = {{0}}>
            {{ q = MatMul(x, wq) k = MatMul(x, wk) kt = Transpose(k) s = MatMul(q, kt)
               c = Cast<to = 1>(regions) u = Unsqueeze(c, axis) d = Sub(u, c) e = Equal(d, none)
               b = Where(e, d, low) [added] a = Add(s, b) [soft] p = Softmax(a)
               y = MatMul(p, k) }}"""
        )
    )
    assert {"added", "soft"} <= low(result)


@pytest.mark.parametrize("precision", LOW)
def test_the_time_of_a_diffusion_model_keeps_float32_up_to_its_cosine(precision: str) -> None:
    frequencies = np.exp(-np.log(10_000) * np.arange(8) / 8)
    source = model(
        f"""g (float[2] time) => (float[2,16] y)
        <{constant("float[1,8] row", frequencies)}, {weight("w")}, float scale = {{1000}},
         int64[1] one = {{1}}>
        {{ [scaled] t = Mul(time, scale) u = Unsqueeze(t, one) [angles] a = MatMul(u, row)
           s = Sin(a) c = Cos(a) e = Concat<axis = 1>(s, c) [layer] h = MatMul(e, w)
           n = Tanh(h) [second] y = MatMul(n, w) }}"""
    )
    result = rewritten(source, precision=precision)
    assert {"scaled", "angles"} <= kept(result)
    assert {"layer", "second"} <= low(result)
    given = {"time": np.array([0.987654, 0.123456], np.float32)}
    assert error(result, source, given) <= LOW[precision].rtol


@pytest.mark.parametrize("precision", LOW)
def test_slopes_of_positions_keep_float32_up_to_the_softmax(precision: str) -> None:
    source = model(
        f"""g (int64[1,8] positions, float[8,16] x) => (float[8,16] y)
        <{weight("wq")}, {weight("wk", seed=1)}, {weight("wv", seed=2)}, float slope = {{0.5}}>
        {{ [q] q = MatMul(x, wq) [k] k = MatMul(x, wk) [v] v = MatMul(x, wv) kt = Transpose(k)
           [scores] s = MatMul(q, kt) f = Cast<to = 1>(positions) b = Mul(f, slope)
           [biased] sb = Add(s, b) [soft] p = Softmax(sb) [mixed] y = MatMul(p, v) }}"""
    )
    result = rewritten(source, precision=precision)
    assert {"biased", "soft"} <= kept(result)
    assert {"q", "k", "v", "scores", "mixed"} <= low(result)
    for start in STARTS:
        given = {"positions": feeds(start)["positions"], "x": feeds(start)["x"][0]}
        assert error(result, source, given) <= 2 * LOW[precision].rtol, start


@pytest.mark.parametrize("precision", LOW)
@pytest.mark.parametrize(
    "length",
    [
        "m = Cast<to = 1>(mask) n = ReduceSum(m, one)",
        "i = Cast<to = 7>(mask) s = ReduceSum(i, one) n = Cast<to = 1>(s)",
        "s = Shape<start = 1>(mask) n = Cast<to = 1>(s)",
        "s = Size(mask) n = Cast<to = 1>(s)",
        "many = Constant<value_int = 100000>() n = Cast<to = 1>(many)",
    ],
)
def test_a_length_divides_in_float32(length: str, precision: str) -> None:
    source = model(
        f"""g (bool[1,t] mask, float[1,16] total) => (float[1,16] y)
        <{weight("w")}, float least = {{1e-9}}, int64[1] one = {{1}}>
        {{ [first] h = MatMul(total, w) {length} c = Max(n, least) [mean] q = Div(h, c)
           [again] r = Mul(q, c) [last] y = MatMul(r, w) }}"""
    )
    result = rewritten(source, precision=precision)
    assert {"mean", "again"} <= kept(result)
    assert {"first", "last"} <= low(result)
    given = {
        "mask": np.ones((1, 100_000), np.bool_),
        "total": np.random.default_rng(0).standard_normal((1, 16)).astype(np.float32),
    }
    assert error(result, source, given) <= LOW[precision].rtol


def test_what_a_count_was_divided_by_may_be_low() -> None:
    result = rewritten(
        model(
            f"""g (float[t,16] x) => (float[t,16] y) <{weight("w")}, int64 zero = {{0}}>
            {{ h = MatMul(x, w) s = Shape(h) n = Gather(s, zero) f = Cast<to = 1>(n)
               [root] r = Sqrt(f) [scaled] d = Div(h, r) y = MatMul(d, w) }}"""
        )
    )
    assert {"root"} <= kept(result)
    assert {"scaled"} <= low(result)


UNCHANGED = {
    "a mask of truth values": (
        "bool[1,8] m",
        "c = Cast<to = 1>(m) i = Sub(unit, c) b = Mul(i, low)",
    ),
    "a mask of integers": (
        "int64[1,8] m",
        "c = Cast<to = 1>(m) i = Sub(unit, c) b = Mul(i, low)",
    ),
    "a mask of integers, turned round as such": (
        "int64[1,8] m",
        "i = Sub(one, m) c = Cast<to = 1>(i) u = Unsqueeze(c, axis) b0 = Mul(u, low)"
        " b = Squeeze(b0, axis)",
    ),
    "masks of queries and keys": (
        "int64[1,8] m",
        "c = Cast<to = 1>(m) ct = Transpose(c) o = Mul(ct, c) i = Sub(unit, o) b = Mul(i, low)",
    ),
    "a mask that is used as truth value, too": (
        "int64[1,8] m",
        "t = Cast<to = 9>(m) w0 = Where(t, zero, low) c = Cast<to = 1>(m) b = Mul(w0, c)",
    ),
}


@pytest.mark.parametrize("name", UNCHANGED)
@pytest.mark.parametrize("precision", LOW)
def test_masks_are_no_counts(name: str, precision: str) -> None:
    given, mask = UNCHANGED[name]
    result = rewritten(
        model(
            f"""g ({given}, float[8,16] x) => (float[8,16] y)
            <{weight("wq")}, {weight("wk", seed=1)}, int64 one = {{1}}, int64[1] axis = {{0}},
             float unit = {{1}}, float zero = {{0}}, float low = {{-10000}}>
            {{ q = MatMul(x, wq) k = MatMul(x, wk) kt = Transpose(k) s = MatMul(q, kt) {mask}
               [added] a = Add(s, b) [soft] p = Softmax(a) y = MatMul(p, k) }}"""
        ),
        precision=precision,
    )
    assert low(result)
    assert not kept(result)
    reasons = {n.name: v.reason for n in result.report.nodes for v in n.variables.values()}
    assert reasons["added"] == reasons["soft"] == "mask"


@pytest.mark.parametrize("type_", ["uint8", "int8", "int16", "bool"])
@pytest.mark.parametrize(
    "scaled",
    [
        "d = Div(f, full)",
        "d = Sub(f, mean)",
        "c = Sub(f, mean) d = Mul(c, inverse)",
        "d = Identity(f)",
    ],
)
def test_pixels_and_samples_are_no_counts(type_: str, scaled: str) -> None:
    result = rewritten(
        model(
            f"""g ({type_}[1,3,8,8] image) => (float[1,4,6,6] y)
            <float full = {{255}}, float mean = {{123.68}}, float inverse = {{0.017}},
             {constant("float[4,3,3,3] w", np.linspace(-1, 1, 108))}>
            {{ f = Cast<to = 1>(image) {scaled} [conv] y = Conv(d, w) }}"""
        )
    )
    assert "conv" in low(result)
    assert not kept(result)


@pytest.mark.parametrize("precision", LOW)
def test_a_network_of_sines_keeps_its_first_layer_alone(precision: str) -> None:
    """SIREN: the first layer's inputs are places, the others' what a layer computed."""
    widths = [(2, 64), (64, 64), (64, 64), (64, 64)]
    weights = []
    for i, (rows, columns) in enumerate(widths):
        bound = 1 / rows if i == 0 else (6 / rows) ** 0.5 / 30
        drawn = np.random.default_rng(i).uniform(-bound, bound, (rows, columns))
        weights.append(constant(f"float[{rows},{columns}] w{i}", drawn))
    layers = " ".join(
        f"[layer{i}] h{i} = MatMul({f's{i - 1}' if i else 'x'}, w{i})"
        f" [scaled{i}] a{i} = Mul(h{i}, omega) s{i} = Sin(a{i})"
        for i in range(len(widths))
    )
    source = model(
        f"""g (float[50,2] x) => (float[50,64] y) <{", ".join(weights)}, float omega = {{30}}>
        {{ {layers} y = Identity(s3) }}"""
    )
    result = rewritten(source, precision=precision)
    assert kept(result) == {"layer0", "scaled0"}
    assert {"layer1", "layer2", "layer3"} <= low(result)
    places = np.random.default_rng(9).uniform(-1, 1, (50, 2)).astype(np.float32)
    assert error(result, source, {"x": places}) <= 2 * LOW[precision].rtol


@pytest.mark.parametrize("second", ["Floor", "Ceil", "Round"])
def test_of_two_who_demand_one_value_both_stay(second: str) -> None:
    source = model(
        f"""g (float[2,8] x) => (float[2,8] y, float[2,8] z) {{
        a = Cast<to = 10>(x) [first] b = Round(a) y = Cast<to = 1>(b)
        [second] c = {second}(a) z = Cast<to = 1>(c) }}"""
    )
    report = amp.check(source, run=False)
    assert {"first", "second"} <= {danger.node for danger in report.dangers}


def test_the_user_can_overrule_it_for_a_node() -> None:
    source = rotary(ANGLES["matrix product"])
    result = rewritten(source, allow_nodes=["angles"])
    assert "angles" in low(result)
    assert {"cos", "sin"} <= kept(result)


def test_everything_is_forced_if_the_user_says_so() -> None:
    source = rotary(ANGLES["matrix product"])
    result = rewritten(source, lists=None, level="UNSAFE_FORCE_ALL")
    assert not kept(result)
    assert "angles" in low(result)


def test_explain_leads_to_who_demands_and_to_where_the_count_begins() -> None:
    result = rewritten(rotary(ANGLES["matrix product"]))
    assert amp.explain(result, "angles") == (
        "angles (MatMul) stays float32: small errors of it matter: angle of cos, count from"
        " positions, by way of Transpose_3, Concat_4, cos"
    )
    assert amp.explain(result, "cos") == (
        "cos (Cos) stays float32: counts keep float32 until they are normalised: count from"
        " positions, by way of Concat_4"
    )


@pytest.mark.parametrize("precision", LOW)
def test_an_angle_is_demanded_of_an_input_that_a_rewrite_made_low(precision: str) -> None:
    # rewritten() rewrites again, where x is a low input behind a Cast
    source = model(
        "g (float[2,2] x) => (float[2,2] y, float[2,2] z) {"
        "angle = Add(x, x) y = Cos(angle) z = MatMul(x, x) }"
    )
    source.graph.node[0].name = "angle"
    lists = OpLists.from_names(allow=["Add", "MatMul"], precision=precision)
    result = rewritten(source, precision=precision, lists=lists, keep_io_types=False)
    assert kept(result) == {"angle"}


GRAPH = "g (float[4,4] x, int64[4,4] n, float[1,1,4,4] m, float[4,4] d) => (float[N] y)"
NUMBERS = {
    "two": 2.0,
    "part": 0.3,
    "w": np.random.default_rng(0).standard_normal((4, 4)),
    "d": np.zeros((4, 4)),
    "p": np.array([0.1, 0.2, 0.3, 0.4]),
    "grid": np.stack(np.meshgrid(np.linspace(-1, 1, 4), np.linspace(-1, 1, 4)), -1)[None],
}


def details(body: str, given: bool = False, **options: Any) -> dict[str, str]:
    """Return what nodes make that are demanded or count, and why; all was low if `given`."""
    numbers = {n: options.pop(n, value) for n, value in NUMBERS.items()}
    context = context_of(model_of(f"{GRAPH} {{ {body} }}", **numbers), **options)
    if given:
        context = replace(context, given=painting_of(context).allow)
    found = marks_of(keep_demands, context)
    return {value: str(mark.detail) for value, mark in found.items()}


def test_everyone_who_demands_is_kept_where_all_was_low() -> None:
    assert details("b = Mul(x, two) [f] y = Cos(b)", True) == dict.fromkeys("by", "angle of f")


@pytest.mark.parametrize(
    ("largest", "function", "is_kept"),
    [(7.9, "Cos", False), (8.1, "Cos", True), (7.9, "Floor", True), (0.1, "Floor", True)],
)
def test_small_angles_are_harmless(largest: float, function: str, is_kept: bool) -> None:
    found = details(f"a = Neg(x) y = {function}(a)", ranges={"x": (0.0, largest)})
    assert ("a" in found) is is_kept


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("h = MatMul(x, w) e = Exp(h) a = Mul(e, p) [f] y = Sin(a)", "he"),
        ("h = MatMul(x, w) e = Exp(h) a = Mul(e, p) [f] y = Floor(a)", ""),
        ("h = MatMul(x, w) a = Mul(h, p) [f] y = Sin(a)", ""),
    ],
)
def test_what_makes_a_frequency_is_kept(body: str, expected: str) -> None:
    found = {v for v, detail in details(body).items() if detail == "frequency of f"}
    assert found == {*expected}


def test_a_run_of_places_has_four_elements() -> None:
    body = "h = MatMul(x, w) k = Add(p, h) y = Sub(k, p)"
    assert details(body, p=np.array([[0.1], [0.2], [0.3], [0.4]]))
    assert not details(body, p=np.array([[0.1], [0.2], [0.3]]))
