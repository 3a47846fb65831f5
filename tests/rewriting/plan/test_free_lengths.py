"""What a user says of free dimensions counts for every rule about sizes."""

from __future__ import annotations

from typing import Any

import onnx
import pytest
from rewrite_text import parse

import amp_rewrite as amp
from amp_rewrite.errors import OptionError
from amp_rewrite.rewriting.plan.free_lengths import free_lengths

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
        ({"M": 3}, "no input has a free dimension of this name; found 'M'; expected 'N'"),
    ],
)
def test_lengths_that_mean_nothing_are_refused(dims: Any, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        amp.rewrite(model(), dims=dims)
