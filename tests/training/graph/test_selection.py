"""Variables chosen by names, by what they are, or by a function."""

from __future__ import annotations

import re
from typing import Any

import onnx
import pytest

from amp_rewrite.errors import OptionError
from amp_rewrite.graph.io.load import load
from amp_rewrite.training.graph.selection import selected
from amp_rewrite.training.graph.training_graph import State, training_graph

MODEL = """<ir_version: 8, opset_import: ["": 17]>
g (int64[n] ids, float[n, 4] x) => (float loss)
<float[9, 4] table, float[4, 4] "a.weight", float[4] "a.bias", float[1, 4] "a.added",
 float[4] "n.weight", float[4] "n.shift", float[4] scale, float[2, 4] "head.weight",
 float[2] "head.bias", int64[2] axes = {1, 4}> {
    e = Gather(table, ids)
    p = MatMul(e, "a.weight")
    q = Add(p, "a.bias")
    row = Reshape("a.added", axes)
    r = Add(row, q)
    s = LayerNormalization(r, "n.weight", "n.shift")
    t = Mul(s, scale)
    u = Mul(t, x)
    y = Gemm<transB = 1>(u, "head.weight", "head.bias")
    loss = ReduceMean<keepdims = 0>(y)
}"""


@pytest.fixture
def variables() -> list[State]:
    model = onnx.parser.parse_model(MODEL)
    for name, shape in {
        "table": (9, 4),
        "a.weight": (4, 4),
        "a.bias": (4,),
        "a.added": (1, 4),
        "n.weight": (4,),
        "n.shift": (4,),
        "scale": (4,),
        "head.weight": (2, 4),
        "head.bias": (2,),
    }.items():
        tensor = onnx.TensorProto(name=name, data_type=1, dims=shape)
        tensor.raw_data = bytes(4 * onnx.numpy_helper.to_array(_empty(shape)).size)
        model.graph.initializer.append(tensor)
    return training_graph(load(model)).weights()


def _empty(shape: tuple[int, ...]) -> onnx.TensorProto:
    return onnx.helper.make_tensor("", 1, shape, [0.0] * int(_product(shape)))


def _product(shape: tuple[int, ...]) -> int:
    return shape[0] * _product(shape[1:]) if shape else 1


@pytest.mark.parametrize(
    ("selection", "expected"),
    [
        ("a.*", {"a.weight", "a.bias", "a.added"}),
        ("a.weight|head.*", {"a.weight", "head.weight", "head.bias"}),
        ("a.weight, ?.shift", {"a.weight", "n.shift"}),
        ("bias", {"a.bias", "a.added", "head.bias"}),
        ("norm", {"n.weight", "n.shift", "scale"}),
        ("embedding", {"table"}),
        ("bias,norm", {"a.bias", "a.added", "head.bias", "n.weight", "n.shift", "scale"}),
        (re.compile(r"weight$"), {"a.weight", "n.weight", "head.weight"}),
        (lambda v: len(v.shape) == 2 and v.shape[0] == 2, {"head.weight"}),
        (["table", ["n.*"]], {"table", "n.weight", "n.shift"}),
        ([], set()),
    ],
)
def test_variables_are_chosen(variables: list[State], selection: Any, expected: set[str]) -> None:
    found = selected(variables, selection)
    assert {v.name for v in found} == expected
    assert found == [v for v in variables if v in found]


def test_a_variable_chooses_itself(variables: list[State]) -> None:
    assert selected(variables, variables[3]) == [variables[3]]


@pytest.mark.parametrize("selection", ["nothing.*", re.compile("zzz"), lambda v: False])
def test_what_matches_nothing_is_an_error(variables: list[State], selection: Any) -> None:
    with pytest.raises(OptionError, match=r"groups\[1\]: the pattern matches no variable"):
        selected(variables, selection, "groups[1]")


def test_a_word_may_match_nothing(variables: list[State]) -> None:
    assert selected([v for v in variables if v.name == "table"], "bias,norm") == []


def test_what_is_no_choice_is_an_error(variables: list[State]) -> None:
    with pytest.raises(OptionError, match="not a choice of variables"):
        selected(variables, 3)  # type: ignore[arg-type]
