"""What a user says of free dimensions counts for every rule about sizes."""

from __future__ import annotations

from typing import Any

import onnx
import pytest
from rewrite_text import parse

import amp_rewrite as amp
from amp_rewrite.errors import OptionError
from amp_rewrite.graph.io.read_flat import read_flat
from amp_rewrite.rewriting.plan.input_ranges import free_lengths

PRODUCT = """g (float[2,N,8] x) => (float[2,8,8] y) <float[8,8] w = {WEIGHTS}>
    { a = MatMul(x, w) t = Transpose<perm = [0,2,1]>(a) [product] y = MatMul(t, a) }"""


def model() -> onnx.ModelProto:
    return parse(PRODUCT.replace("WEIGHTS", ", ".join(["0.125"] * 64)))


def reason(dims: Any) -> str:
    """Return why a product over a free dimension has its type for WebGPU."""
    report = amp.rewrite(model(), target="webgpu", dims=dims).report
    (node,) = [node for node in report.nodes if node.name == "product"]
    return next(iter(node.variables.values())).reason


def test_a_length_tells_how_long_a_sum_is() -> None:
    assert reason(()) == "long-sum"
    assert reason({"N": 16}) == "allow-list"
    assert reason(["N=5000"]) == "long-sum"


def test_a_sum_of_unknown_length_says_how_to_name_the_length() -> None:
    result = amp.rewrite(model(), target="webgpu")
    assert "an unknown number of terms" in amp.explain(result, "product")
    assert "name the length: --dim N=512" in amp.explain(result, "product")
    line = "sums of unknown length stay float32; name the largest length: --dim N=512"
    assert line in result.report.to_text().splitlines()


def test_no_length_is_asked_for_where_a_usual_one_would_be_too_long() -> None:
    body = "{ [product] y = ReduceSum<keepdims = 0>(x, axes) }"
    text = f"g (float[2,N,8] x) => (float[2,8] y) <int64[1] axes = {{1}}> {body}"
    report = amp.rewrite(parse(text), target="webgpu", allow_ops=["ReduceSum"]).report
    assert report.unknown_lengths == ()
    assert "--dim" not in amp.explain(report, "product")


@pytest.mark.parametrize(("target", "dims"), [("webgpu", {"N": 16}), ("cuda", ())])
def test_a_known_length_is_not_asked_for(target: str, dims: Any) -> None:
    result = amp.rewrite(model(), target=target, dims=dims)
    assert "--dim" not in amp.explain(result, "product")
    assert result.report.unknown_lengths == ()


@pytest.mark.parametrize(
    ("shapes", "names"),
    [
        ("float[B,T] x", ("T",)),
        ("float[B,T,3] x, int64[B,U] i", ("T", "U")),
        ("float[B,4] x", ("B",)),
        ("float[2,4] x", ()),
        ("float x", ()),
    ],
)
def test_the_batch_is_named_where_nothing_else_is_free(shapes: str, names: tuple[str, ...]) -> None:
    text = f"g ({shapes}) => (float y) {{ y = ReduceSum<keepdims = 0>(x) }}"
    assert read_flat(parse(text)).unknown_lengths == names


def test_a_dimension_stays_free_in_the_result() -> None:
    result = amp.rewrite(model(), target="webgpu", dims={"N": 16})
    graph = amp.to_proto(result.model).graph
    infos = {info.name: info for info in (*graph.input, *graph.value_info)}
    for name in ("x", "x-CastToFp16-0-AutoMixedPrecision"):
        assert infos[name].type.tensor_type.shape.dim[1].dim_param == "N"


def test_lengths_are_read_from_texts_and_mappings() -> None:
    assert free_lengths(["N=8", "a=b=3"]) == {"N": 8, "a=b": 3}
    assert free_lengths({"N": 8}) == {"N": 8}


@pytest.mark.parametrize(
    ("dims", "message"),
    [
        (["N"], "--dim is not a length; found N; expected NAME=LENGTH"),
        (["N=-1"], "--dim is not a length"),
        ({"N": -1}, "length of 'N'"),
        ({"M": 3}, "dims names nothing in the model; found 'M'; expected 'N'"),
    ],
)
def test_lengths_that_mean_nothing_are_refused(dims: Any, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        amp.rewrite(model(), dims=dims)
