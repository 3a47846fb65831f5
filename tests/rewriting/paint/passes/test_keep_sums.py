"""What reads a float32 sum is low where a bound, or its length, allows the Cast behind the sum."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from pass_marks import context_of, marks_of, model_of, painting_of
from rewrite_text import parse, reasons, rewritten

from amp_rewrite.dtypes import BFLOAT16
from amp_rewrite.rewriting.paint.passes.keep_sums import keep_sums


@pytest.mark.parametrize(
    ("length", "ranges", "reason"),
    [
        ("n", {}, "unbounded-sum"),
        ("2048", {}, "unbounded-sum"),
        ("1024", {}, "allow-list"),
        ("2048", {"x": (-10.0, 10.0)}, "allow-list"),
    ],
)
def test_a_long_sum_is_cast_where_a_bound_allows_it(
    length: str, ranges: dict[str, tuple[float, float]], reason: str
) -> None:
    source = parse(
        f"g (float[2,{length},2] x) => (float[2,2] y) <int64[1] axis = {{1}}, "
        "float[2,2] w = {1, 0, 0, 1}> "
        "{ s = ReduceSum<keepdims = 0>(x, axis) [layer] y = MatMul(s, w) }"
    )
    result = rewritten(source, input_ranges=ranges)
    assert reasons(result)["MatMul"] == reason


SUM = "s = ReduceSum<keepdims = 0>(x, axis)"


def text(tail: str) -> str:
    return (
        "g (float[2,n,2] x) => (float[2,2] y) <int64[1] axis = {1}, float[2,2] w = {1, 0, 0, 1}> "
        f"{{ {SUM} {tail} }}"
    )


@pytest.mark.parametrize("between", ["Relu(s)", "Identity(s)", "Add(s, s)", "Gemm(s, w)"])
def test_what_may_be_as_large_as_the_sum_is_float32_too(between: str) -> None:
    result = rewritten(parse(text(f"t = {between} y = MatMul(t, w)")))
    assert reasons(result)["MatMul"] == "unbounded-sum"


@pytest.mark.parametrize("between", ["Softmax(s)", "Tanh(s)", "Div(s, s)", "Clip(s, one, one)"])
def test_what_is_normalised_or_bounded_may_be_low(between: str) -> None:
    one = "one = Constant<value_float = 1.0>()" if "one" in between else ""
    result = rewritten(parse(text(f"{one} t = {between} y = MatMul(t, w)")))
    assert reasons(result)["MatMul"] == "allow-list"


def test_a_node_that_the_user_allows_is_left_alone() -> None:
    result = rewritten(parse(text("[layer] y = MatMul(s, w)")), allow_nodes=["layer"])
    assert result.report.summary.nodes_converted == 1


def test_bfloat16_has_the_range_of_float32() -> None:
    result = rewritten(parse(text("y = MatMul(s, w)")), precision="bfloat16")
    assert reasons(result)["MatMul"] == "allow-list"


NUMBERS = {
    "axis": np.array([1]),
    "along": np.array(1),
    "w": np.linspace(0, 1, 4).reshape(2, 2),
    "one": 1.0,
    "step": np.array(8),
    "zero": np.array(0),
    "yes": np.array(True),
}


def held(body: str, inputs: str, **constants: Any) -> onnx.ModelProto:
    """Return a model with those of some constants that it reads."""
    text = f"g ({inputs}) => (float[N] y) {{ {body} }}"
    given = {**NUMBERS, **constants}
    return model_of(text, **given)


def kept(model: onnx.ModelProto, high: str = "s", **options: Any) -> set[str]:
    """Return what the nodes make that a float32 sum keeps; all but the sum is low."""
    context = context_of(model, **options)
    graph = context.type_graph
    names = {graph.flat.value_names[v] for v in graph.flat.outputs} - {*high}
    return set(marks_of(keep_sums, context, painting_of(context, names)))


LENGTHS = {
    "ReduceSum": ("s = ReduceSum(x, axis)", "float[2,{},3] x", 1024),
    "ReduceL1": ("s = ReduceL1(x, axis)", "float[2,{},3] x", 1024),
    "CumSum": ("s = CumSum(x, along)", "float[2,{},3] x", 1024),
    "ScatterElements": (
        'k = Exp(x) s = ScatterElements<reduction = "add">(k, i, u)',
        "float[3] x, int64[{}] i, float[N] u",
        1024,
    ),
    "ScatterND": (
        'k = Exp(x) s = ScatterND<reduction = "add">(k, i, u)',
        "float[3] x, int64[2,{},1] i, float[N] u",
        512,
    ),
    "DFT": ("s = DFT(x)", "float[99,{},1] x", 64),
    "DFT along an axis": ('s = DFT(x, "", along)', "float[99,{},1] x", 64),
    "STFT": ('s = STFT(x, step, f, "")', "float[1,900,1] x, float[{}] f", 64),
}


@pytest.mark.parametrize("name", LENGTHS)
def test_a_sum_is_open_from_some_length_on(name: str) -> None:
    body, inputs, longest = LENGTHS[name]
    for length, is_kept in ((longest, False), (longest + 1, True), ("L", True)):
        model = held(f"{body} y = Relu(s)", inputs.format(length))
        assert kept(model, "sk") == ({"y"} if is_kept else set()), length


@pytest.mark.parametrize(
    "body",
    [
        "s = ReduceMean(x, axis)",
        "s = ReduceMax(x, axis)",
        's = ScatterElements<reduction = "max">(x, i, x)',
        "s = ScatterElements(x, i, x)",
        's = ScatterND<reduction = "mul">(x, i, x)',
    ],
)
def test_what_adds_nothing_up_is_no_sum(body: str) -> None:
    assert not kept(held(f"{body} y = Relu(s)", "float[N,M] x, int64[N,M] i"))


BEHIND = {
    "moved": ("a = Transpose(s) y = Exp(a)", "ay"),
    "scaled": ("a = Mul(s, one) y = Exp(a)", "a"),
    "added": ("a = Add(s, s) y = Exp(a)", "ay"),
    "the largest few": ("a, i = TopK(s, axis) y = Exp(a)", "a"),
    "a product with weights": ("a = MatMul(s, w) y = Exp(a)", "ay"),
    "a product with weights first": ("a = MatMul(w, s) y = Exp(a)", "ay"),
    "a product with data": ("a = MatMul(s, s) y = Exp(a)", "a"),
    "a product with data and a constant bias": ("a = Gemm(s, s, w) y = Exp(a)", "a"),
    "compared": ("c = Less(s, one) a = Where(c, one, one) y = Exp(a)", ""),
    "compared first": ("c = Less(s, one) y = Exp(s)", "y"),
    "read twice": ("a = Neg(s) b = Neg(s) c = Add(a, b) y = Exp(c)", "abcy"),
    "cast": ("a = Cast<to = 7>(s) b = Cast<to = 1>(a) y = Exp(b)", "a"),
}


@pytest.mark.parametrize("name", BEHIND)
def test_what_is_as_large_as_the_sum_is_kept(name: str) -> None:
    body, nodes = BEHIND[name]
    model = held(f"s = ReduceSum<keepdims = 0>(x, axis) {body}", "float[2,N,2] x")
    assert kept(model) == {*nodes}


EXPONENTIALS = {
    "a product with ones": ("e = Exp(x) s = MatMul(e, w) y = Log(s)", "sy"),
    "a power": ("e = Pow(two, x) s = MatMul(e, w) y = Log(s)", "sy"),
    "moved": ("e = Exp(x) t = Transpose(e) s = MatMul(w, t) y = Log(s)", "tsy"),
    "a quotient": ("e = Exp(x) s = MatMul(e, z) d = MatMul(e, w) y = Div(s, d)", "sdy"),
    "Gemm": ("e = Exp(x) s = Gemm(e, w) y = Reciprocal(s)", "sy"),
    "Einsum": ('e = Exp(x) s = Einsum<equation = "ij,jk->ik">(e, w) y = Log(s)', "sy"),
}


def kept_of(body: str, **options: Any) -> set[str]:
    """Return what nodes make that reads an unbounded float32 value, Exp and Pow being float32."""
    graph = "g (float[4,4] x, float[4,4] z) => (float[4,4] y)"
    constants = {"w": np.ones((4, 4)), "two": 2.0, "five": 5.0}
    context = context_of(model_of(f"{graph} {{ {body} }}", **constants), **options)
    words = {word for word in body.split() if len(word) == 1 and word.isalpha()}
    return {*marks_of(keep_sums, context, painting_of(context, words - {"e"}))}


def test_a_branch_hands_an_exponential_on() -> None:
    text = (
        "g (float[4,4] x, bool c) => (float[4,4] y) { e = Exp(x) u = If(c) <then_branch = t () => "
        "(float[4,4] s) { s = MatMul(e, w) }, else_branch = f () => (float[4,4] v) "
        "{ v = MatMul(w, e) }> y = Log(u) }"
    )
    context = context_of(model_of(text, w=np.ones((4, 4))))
    painting = painting_of(context, {*"suvy"})
    assert {*marks_of(keep_sums, context, painting)} == {*"suvy"}


@pytest.mark.parametrize("name", EXPONENTIALS)
def test_exponentials_of_any_number_are_float32_up_to_a_quotient(name: str) -> None:
    body, expected = EXPONENTIALS[name]
    assert kept_of(body) == {*expected}
    assert not kept_of(body, low=BFLOAT16)
    if "Exp" in body:
        assert not kept_of(body, ranges={"x": (-5.0, 1.0), "z": (-1.0, 1.0)})


@pytest.mark.parametrize(
    "body",
    [
        "e = Exp(x) s = MatMul(e, w) y = Relu(s)",
        "m = ReduceMax(x) d = Sub(x, m) e = Exp(d) s = MatMul(e, w) y = Log(s)",
        "r = Relu(x) n = Neg(r) e = Exp(n) s = MatMul(e, w) y = Log(s)",
        "e = Exp(x) s = Mul(e, z) y = Log(s)",
    ],
)
def test_other_exponentials_are_cast(body: str) -> None:
    assert not kept_of(body)
