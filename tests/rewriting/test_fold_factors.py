"""Constants around convolutions, computed into their weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import numpy_helper
from rewrite_text import parse

import amp_rewrite as amp
from amp_rewrite.dtypes import BFLOAT16
from amp_rewrite.numerics.emulate.evaluator import Evaluator
from amp_rewrite.rewriting.fold_factors import fold_factors

GRAPH = '<ir_version: 8, opset_import: ["" : 22]> g (float[1,3,8,8] x) => (float[1,?,?,?] y) {'
CONSTANTS = {
    "w": np.random.default_rng(0).normal(size=(4, 3, 3, 3)),
    "v": np.random.default_rng(1).normal(size=(5, 4, 3, 3)),
    "b": np.random.default_rng(2).normal(size=4),
    "each": np.random.default_rng(3).normal(size=(4, 1, 1)),
    "k": 0.3,
    "l": -1.7,
    "three": 3,
    "six": 6,
    "zero": 0,
    "tiny": 1e-30,
}
SPELLED = "a = Add(c, three) d = Clip(a, zero, six) e = Mul(c, d) y = Div(e, six)"


def model(rest: str) -> onnx.ModelProto:
    found = parse(f"{GRAPH} {rest} }}")
    read = {name for node in found.graph.node for name in node.input}
    for name in read & CONSTANTS.keys():
        array = np.asarray(CONSTANTS[name], np.float32)
        found.graph.initializer.append(numpy_helper.from_array(array, name))
    return found


def folded(rest: str) -> tuple[list[str], ir.Model]:
    """Return what is left of the operators, of a model that still computes the same."""
    source = amp.load(model(rest))
    result = amp.load(source)
    taken = fold_factors(result, BFLOAT16)
    before, after = ({*m.graph.initializers} for m in (source, result))
    assert (taken > 0) == (before != after)
    feeds: dict[str, Any] = {"x": np.random.default_rng(4).normal(size=(1, 3, 8, 8))}
    feeds["x"] = feeds["x"].astype(np.float32)
    expected, found = (np.asarray(Evaluator(m).run(feeds)["y"]) for m in (source, result))
    assert np.allclose(found, expected, rtol=0, atol=1e-4 * np.abs(expected).max())
    assert fold_factors(result, BFLOAT16) == 0
    return [node.op_type for node in result.graph], result


@pytest.mark.parametrize(
    ("rest", "left"),
    [
        ("c = Conv(x, w) y = Mul(k, c)", ["Conv"]),
        ("c = Conv(x, w, b) d = Mul(c, each) e = Add(d, k) y = Relu(e)", ["Conv", "Relu"]),
        (f"c = Conv(x, w) {SPELLED}", ["Conv", "HardSwish"]),
        ("c = Conv(x, w) r = Relu(c) m = Mul(r, k) y = Conv(m, v)", ["Conv", "Relu", "Conv"]),
        ("c = Conv(x, w) r = Relu(c) m = Add(r, k) y = Conv(m, v)", ["Conv", "Relu", "Conv"]),
        (
            "c = Conv(x, w) r = Relu(c) m = Mul(r, k) a = Add(l, m) y = Conv(a, v)",
            ["Conv", "Relu", "Conv"],
        ),
    ],
)
def test_constants_go_into_weights(rest: str, left: list[str]) -> None:
    assert folded(rest)[0] == left


@pytest.mark.parametrize(
    "rest",
    [
        "c = Conv(x, w) m = Mul(c, k) n = Neg(c) y = Add(m, n)",  # something else reads c
        "c = Conv(x, w) y = Mul(c, c)",
        "r = Relu(x) m = Add(r, k) n = Neg(m) c = Conv(m, w) d = Conv(n, w) y = Add(c, d)",
        "r = Relu(x) m = Add(r, k) y = Conv<pads = [1, 1, 1, 1]>(m, w)",  # zeros are not k
        'r = Relu(x) m = Add(r, k) y = Conv<auto_pad = "SAME_UPPER">(m, w)',
        SPELLED.replace("Add(c, three)", "Add(c, l)").replace("c", "x"),
        SPELLED.replace("Div(e, six)", "Div(e, three)").replace("c", "x"),
    ],
)
def test_what_is_read_elsewhere_or_means_something_else_stays(rest: str) -> None:
    assert folded(rest)[0] == [node.op_type for node in model(rest).graph.node]


def test_in_front_of_padding_the_low_type_holds_the_numbers_that_stay() -> None:
    pads = "Conv<pads = [1, 1, 1, 1]>"
    left, result = folded(f"r = Relu(x) m = Mul(r, k) a = Add(m, l) y = {pads}(a, w)")
    assert left == ["Relu", "Mul", "Add", "Conv"]
    stays = [v.const_value for v in result.graph.initializers.values() if "number" in str(v.name)]
    numbers = [tensor.numpy() for tensor in stays if tensor is not None]
    assert len(numbers) == 2
    for number in numbers:
        assert number.astype(BFLOAT16.numpy).astype(np.float32) == number
    assert numbers[0] / numbers[1] == pytest.approx(-1.7 / 0.3, rel=1e-3)


def test_a_name_that_stays_means_the_same_numbers() -> None:
    _, result = folded("c = Conv(x, w) s = Mul(c, k) y = Relu(s)")
    assert [node.outputs[0].name for node in result.graph] == ["s", "y"]


SCORES = "q = Relu(x) d = Mul(q, {}) h = Tanh(x) e = Mul({}, h) s = MatMul(d, e) y = Softmax(s)"


def test_factors_of_both_operands_are_one_behind_their_product() -> None:
    left, result = folded(SCORES.format("k", "l"))
    assert left == ["Relu", "Tanh", "MatMul", "Mul", "Softmax"]
    (held,) = (
        v.const_value for v in result.graph.initializers.values() if ":number" in str(v.name)
    )
    assert held is not None
    assert held.numpy() == pytest.approx(0.3 * -1.7)
    outputs = [node.outputs[0].name for node in result.graph]
    assert outputs == ["q", "h", "s:scaled", "s", "y"]


@pytest.mark.parametrize("factors", [("three", "six"), ("k", "x"), ("k", "tiny")])
def test_exact_factors_and_other_products_stay(factors: tuple[str, str]) -> None:
    assert folded(SCORES.format(*factors))[0].count("Mul") == 2


def test_scores_that_are_an_output_keep_their_name() -> None:
    source = amp.load(model("d = Mul(x, k) e = Mul(l, x) y = MatMul(d, e)"))
    assert fold_factors(source, BFLOAT16) == 1
    assert [node.outputs[0].name for node in source.graph] == ["y:scaled", "y"]


def test_only_the_opsets_that_have_it_get_a_hard_swish() -> None:
    old = model(f"c = Conv(x, w) {SPELLED}")
    old.opset_import[0].version = 13
    loaded = amp.load(old)
    assert fold_factors(loaded, BFLOAT16) == 0


@pytest.mark.parametrize("op", ["Mul", "Add"])
def test_an_output_that_a_convolution_gives_instead_keeps_type_and_shape(op: str) -> None:
    _, result = folded(f"c = Conv(x, w) y = {op}(c, k)")
    onnx.checker.check_model(amp.to_proto(result), full_check=True)
    assert result.graph.outputs[0].shape == amp.load(model("y = Relu(x)")).graph.outputs[0].shape


def test_a_reader_that_goes_is_in_the_way_of_no_factor() -> None:
    left, _ = folded("c = Conv(x, w) m = Mul(c, each) n = Conv(m, v) y = Mul(n, l) dead = Relu(c)")
    assert left == ["Conv", "Conv"]


IDLE = """<ir_version: 8, opset_import: ["": 17]>
    g (float[1,2,4] x, float[n,2,4] z) => (float[1,2,4] y)
    <float[2,1] ones = {1, 1}, float[4] zeros = {0, 0, 0, 0}, float one = {1},
     float[3,1,1] more = {1, 1, 1}, float[1,2,1] near = {1, 1.0000001}> { BODY y = Tanh(t) }"""


@pytest.mark.parametrize(
    ("body", "left"),
    [
        ("t = Mul(x, ones)", ["Tanh"]),
        ("t = Mul(ones, x)", ["Tanh"]),
        ("t = Add(zeros, x)", ["Tanh"]),
        ("a = Sub(x, zeros) t = Div(a, one)", ["Tanh"]),
        ("i = Exp(x) a = Mul(i, ones) t = Add(a, zeros)", ["Exp", "Tanh"]),
        ("t = Div(one, x)", ["Div", "Tanh"]),
        ("t = Sub(zeros, x)", ["Sub", "Tanh"]),
        ("t = Mul(x, near)", ["Mul", "Tanh"]),
        ("t = Mul(x, zeros)", ["Mul", "Tanh"]),
        ("m = Mul(x, more) t = ReduceSum(m)", ["Mul", "ReduceSum", "Tanh"]),
        ("m = Mul(z, more) t = ReduceSum(m)", ["Mul", "ReduceSum", "Tanh"]),
    ],
)
def test_what_changes_nothing_goes(body: str, left: list[str]) -> None:
    proto = onnx.parser.parse_model(IDLE.replace("BODY", body))
    changed = ir.from_proto(onnx.shape_inference.infer_shapes(proto))
    fold_factors(changed, BFLOAT16)
    assert [node.op_type for node in changed.graph] == left
    x = np.linspace(-2, 2, 8, dtype=np.float32).reshape(1, 2, 4)
    feeds = {"x": x, "z": np.zeros((3, 2, 4), np.float32)}
    outputs = [Evaluator(source).run(feeds)["y"] for source in (proto, changed)]
    np.testing.assert_array_equal(*outputs)
