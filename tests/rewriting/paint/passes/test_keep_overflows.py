"""A constant out of range keeps its consumers float32, unless it is a mask or bounds nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from pass_marks import context_of, marks_of, model_of, painting_of
from rewrite_text import actions, assert_close, initializer, reasons, rewritten

import amp_rewrite as amp
from amp_rewrite.dtypes import BFLOAT16, FLOAT16, DType
from amp_rewrite.rewriting.paint.passes.keep_overflows import keep_overflows

W = "float[4,4] w = {1,0,0,0,0,1,0,0,0,0,1,0,0,0,0,1}"
ROWS = np.array([[-30, -40, -20, -50], [1, 2, 3, 4]], np.float32)
MASK = "bool[2,4] blocked = {1,1,1,1,0,0,1,0}, float least = {-3.4e38}"


def model(body: str, extra: str = "", inputs: str = "float[2,4] x") -> str:
    more = f", {extra}" if extra else ""
    return f"g ({inputs}) => (float[2,4] y) <{W}{more}> {{ {body} }}"


@pytest.mark.parametrize("weights", ["convert", "cast"])
def test_a_mask_that_float32_arithmetic_makes_keeps_the_softmax_float32(weights: str) -> None:
    text = model(
        "h = MatMul(x, w) m = Mul(keep, least) s = Add(h, m) p = Softmax(s) y = MatMul(p, w)",
        "float least = {-3.4e38}",
        "float[2,4] x, float[2,4] keep",
    )
    result = rewritten(text, weights=weights)
    assert reasons(result)["Add"] == reasons(result)["Softmax"] == "mask"
    keep = np.array([[1, 1, 1, 1], [0, 0, 1, 0]], np.float32)
    found = assert_close(result, text, {"x": ROWS, "keep": keep})
    assert np.isfinite(found["y"]).all()  # the cast of -3.4e38 would be -inf, the first row NaN


def test_a_mask_that_would_be_cast_at_run_time_stays_float32() -> None:
    text = model(
        "h = MatMul(x, w) s = Where(blocked, least, h) p = Softmax(s) y = MatMul(p, w)", MASK
    )
    result = rewritten(text, weights="cast")
    assert reasons(result)["Where"] == "constant-overflow"
    found = assert_close(result, text, {"x": ROWS})
    assert np.isfinite(found["y"]).all()


def test_a_mask_that_reaches_anything_but_an_ordering_operator_stays_float32() -> None:
    text = model("h = MatMul(x, w) s = Where(blocked, least, h) y = MatMul(s, w)", MASK)
    result = rewritten(text)
    assert reasons(result)["Where"] == "constant-overflow"
    assert actions(result) == {"least": "kept"}


@pytest.mark.parametrize("constant", ["98000000", "1048576", "-98000000"])
def test_a_constant_out_of_range_keeps_its_consumer_float32_and_is_reported(
    constant: str,
) -> None:
    text = model(
        "h = MatMul(x, w) s = Div(h, c) y = MatMul(s, w)", f"float[4] c = {{{constant},1,1,1}}"
    )
    result = rewritten(text)
    assert initializer(result, "c").dtype == np.float32
    assert reasons(result) == {
        "MatMul_0": "allow-list",
        "Div": "constant-overflow",
        "MatMul_2": "allow-list",
    }
    (record,) = result.report.weights.overflow
    assert (record.name, record.count, record.action) == ("c", 1, "kept")
    assert record.consumers == ("Div_1/T",)
    assert_close(result, text, {"x": ROWS})


def test_a_batch_normalization_variance_out_of_range_keeps_it_float32() -> None:
    text = """
    g (float[1,2,4,4] x) => (float[1,2,4,4] y)
    <float[2,2,1,1] k = {1,0,0,1}, float[2] one = {1,1}, float[2] zero = {0,0},
     float[2] var = {98000000.0, 1}>
    { h = Conv(x, k) n = BatchNormalization(h, one, zero, zero, var) y = Conv(n, k) }
    """
    result = rewritten(text, target="cuda")
    assert reasons(result)["BatchNormalization"] == "constant-overflow"
    assert actions(result) == {"var": "kept"}
    assert_close(result, text)


def test_a_clip_bound_out_of_range_bounds_nothing() -> None:
    text = model(
        "h = MatMul(x, w) c = Clip(h, lowest, highest) y = MatMul(c, w)",
        "float lowest = {-1e9}, float highest = {1e9}",
    )
    result = rewritten(text)
    assert reasons(result)["Clip"] == "between-allow"
    assert actions(result) == {"lowest": "unbounded", "highest": "unbounded"}
    assert_close(result, text, {"x": ROWS})


def test_a_mask_in_a_branch_is_one_if_what_follows_the_branch_orders() -> None:
    branches = (
        "m = If(c) <then_branch = a () => (float[2,4] t) { t = Where(blocked, least, h) },"
        " else_branch = b () => (float[2,4] e) { e = Where(blocked, least, h) }>"
    )
    inputs = "float[2,4] x, bool c"
    ordered = model(f"h = MatMul(x, w) {branches} p = Softmax(m) y = MatMul(p, w)", MASK, inputs)
    assert actions(rewritten(ordered)) == {"least": "saturated"}
    shown = model(f"h = MatMul(x, w) {branches} y = MatMul(m, w)", MASK, inputs)
    assert actions(rewritten(shown)) == {"least": "kept"}


COMPUTED_MASK = model(
    "k = Sub(one, m) f = Mul(k, least) h = MatMul(x, w) s = Add(h, f) p = Softmax(s) "
    "y = MatMul(p, w)",
    "float one = {1}, float least = {-3.4028234e38}",
    "float[2,4] x, float[2,4] m",
)
SEEN = np.array([[0, 0, 0, 0], [1, 1, 0, 1]], np.float32)


def test_a_computed_mask_saturates_in_float32_where_bfloat16_swallows_scores_as_well() -> None:
    result = rewritten(COMPUTED_MASK, precision="bfloat16")
    low = {
        n.name
        for n in result.report.nodes
        if {v.dtype for v in n.variables.values()} != {"float32"}
    }
    assert {"Add_3", "Softmax_4"} <= low
    assert actions(result) == {"least": "saturated"}
    assert float(initializer(result, "least")) == -BFLOAT16.max / 2
    assert_close(result, COMPUTED_MASK, {"x": ROWS, "m": SEEN})


def test_a_computed_mask_keeps_the_sum_float32_in_float16() -> None:
    result = rewritten(COMPUTED_MASK)
    assert "a mask is added" in amp.explain(result, "Add_3")
    assert_close(result, COMPUTED_MASK, {"x": ROWS, "m": SEEN})


@pytest.mark.parametrize(
    ("outputs", "changes"),
    [("float[2,4] y, float[2,4] f", {}), ("float[2,4] y", {"weights": "cast"})],
    ids=["read elsewhere", "cast at run time"],
)
def test_a_computed_mask_whose_constant_may_not_change_ends_in_front_of_its_cast(
    outputs: str, changes: Any
) -> None:
    text = COMPUTED_MASK.replace("float[2,4] y)", f"{outputs})")
    result = rewritten(text, precision="bfloat16", **changes)
    assert [n.op_type for n in result.model.graph].count("Clip") == 1
    assert "bfloat16" in amp.explain(result, "Softmax_4")
    assert_close(result, text, {"x": ROWS, "m": SEEN})


GRAPH = "g (float[4,4] x, float[4,4] z, bool[4,4] keep) => (float[N] y)"
NUMBERS = {
    "huge": 1e6,
    "least": -1e9,
    "infinite": -np.inf,
    "one": 1.0,
    "flat": np.array([16]),
    "shape": np.array([4, 4]),
    "yes": np.array(True),
}


def details(body: str, high: str = "", low: DType = FLOAT16, **fields: Any) -> dict[str, str]:
    """Return what nodes make that constants keep, and why; all but `high` is low."""
    text = f"{GRAPH} {{ {body} }}"
    given = {**NUMBERS, **{n: fields.pop(n) for n in [*fields] if n in NUMBERS}}
    model = model_of(text, **given)
    context = context_of(model, low, **fields)
    graph = context.type_graph
    names = {graph.flat.value_names[v] for v in graph.flat.outputs} - {*high.split()}
    found = marks_of(keep_overflows, context, painting_of(context, names))
    return {value: str(mark.detail) for value, mark in found.items()}


REACHED = {
    "a divisor": ("y = Div(x, huge)", "y"),
    "a dividend": ("y = Div(huge, x)", "y"),
    "behind an Identity": ("a = Identity(huge) y = Mul(x, a)", "ay"),
    "negated": ("a = Neg(huge) y = Mul(x, a)", "ay"),
    "behind arithmetic": ("a = Mul(x, huge) y = Exp(a)", "a"),
    "held by a node": ("a = Constant<value_float = 1e6>() y = Mul(x, a)", "y"),
    "repeated": ("a = ConstantOfShape<value = float[1] {1e6}>(shape) y = Mul(x, a)", "ay"),
    "read twice": ("a = Mul(x, huge) y = Mul(z, huge)", "ay"),
    "a bound": ("y = Clip(x, least, huge)", ""),
    "what is clipped": ("a = Clip(huge, one) y = Mul(x, a)", "a"),
    "in range": ("y = Mul(x, one)", ""),
    "of a branch": (
        "b = If(yes) <then_branch = t () => (float p) { p = Constant<value_float = 1e6>() },"
        " else_branch = e () => (float q) { q = Constant<value_float = 1.0>() }> y = Mul(x, b)",
        "by",
    ),
}


@pytest.mark.parametrize("name", REACHED)
def test_what_a_constant_out_of_range_reaches_is_kept(name: str) -> None:
    body, nodes = REACHED[name]
    found = details(body)
    assert set(found) == {*nodes}
    assert all(" reaches 1e+06, float16 ends at 65504" in why for why in found.values())
    assert not details(body, low=BFLOAT16)


def test_numbers_that_are_taken_to_fit_keep_nothing() -> None:
    context = context_of(model_of(f"{GRAPH} {{ y = Mul(x, huge) }}", huge=1e6))
    context = replace(context, values=context.values.fitting())
    assert not marks_of(keep_overflows, context, painting_of(context))


@pytest.mark.parametrize(("default", "kept"), [(1e6, "ab"), (-1e6, "ab"), (1.0, "")])
def test_what_reads_a_default_out_of_range_is_kept(default: float, kept: str) -> None:
    text = """g (float[4,4] x, float state) => (float[N] y)
        { a = Mul(x, state) b = Clip(x, state) c = Exp(x) y = Mul(state, x) }"""
    context = context_of(model_of(text, state=default))
    low = painting_of(context, "abc")
    found = marks_of(keep_overflows, context, low)
    assert set(found) == {*kept}


MASKED = "s = Where(keep, x, least)"
MASKS = {
    "in front of a Softmax": (f"{MASKED} y = Softmax(s)", ""),
    "in front of a maximum": (f"{MASKED} y = ReduceMax(s)", ""),
    "in front of a function": (f"{MASKED} y = Exp(s)", "sy"),
    "in front of two": (f"{MASKED} t = Softmax(s) y = Exp(s)", "sy"),
    "an output": ("y = Where(keep, x, least)", "y"),
}


@pytest.mark.parametrize("name", MASKS)
def test_a_mask_only_has_to_be_lower_than_everything(name: str) -> None:
    body, nodes = MASKS[name]
    assert set(details(body)) == {*nodes}
    above = details(body, least=1e9)
    assert above
    assert all("reaches 1e+09" in why for why in above.values())


ATTENTION = "com.microsoft.MultiHeadAttention<num_heads = 1>"


@pytest.mark.parametrize(
    ("body", "kept"),
    [
        (f'y = {ATTENTION}(r, r, r, b, "", m)', ""),
        (f'i = Identity(m) y = {ATTENTION}(r, r, r, b, "", i)', ""),
        (f'y = {ATTENTION}(r, m, r, b, "", m)', "y"),
        (f'y = {ATTENTION}(r, m, r, b, "", s)', "y"),
    ],
)
@pytest.mark.parametrize("last", ["m", "b"])
def test_the_mask_of_an_attention_only_has_to_be_lower_than_everything(
    body: str, kept: str, last: str
) -> None:
    numbers = {"m": np.full((1, 4, 4), -1e9), "b": np.ones(12)}
    numbers = {name: numbers[name] for name in ("mb" if last == "b" else "bm")}
    text = f"g (float[1,4,4] r, float[1,1,4,4] s) => (float[N] y) {{ {body} }}"
    context = context_of(model_of(text, **numbers))
    assert set(marks_of(keep_overflows, context, painting_of(context))) == {*kept}


SUM = "k = Exp(z) m = Mul(k, least) s = Add(x, m) y = Softmax(s)"


def test_a_mask_that_float32_arithmetic_made_becomes_infinite_in_its_cast() -> None:
    assert set(details(SUM, high="k m")) == {"s"}
    assert set(details(SUM, high="k m", low=BFLOAT16, least=-3.4e38, converts_weights=False)) == {
        "s"
    }
