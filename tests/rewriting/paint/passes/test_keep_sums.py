"""What reads a float32 sum is low where a bound, or its length, allows the Cast behind the sum."""

from __future__ import annotations

import pytest
from rewrite_text import parse, reasons, rewritten


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
