"""Quotients by numbers, computed into weights from which only linear arithmetic leads to them."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import numpy_helper
from rewrite_text import parse

import amp_rewrite as amp
from amp_rewrite.dtypes import BFLOAT16
from amp_rewrite.numerics.emulate.evaluator import Evaluator
from amp_rewrite.rewriting import scale_weights as scaling
from amp_rewrite.rewriting.scale_weights import scale_weights

SHAPE = (2, 5, 8)
CONSTANTS = {
    **{w: np.random.default_rng(ord(w)).normal(size=(8, 8)) for w in "uvw"},
    "b": np.random.default_rng(0).normal(size=8),
    "cos": np.cos(np.arange(8)),
    "sin": np.sin(np.arange(8)),
    "ten": 10.0,
    "eight": 8.0,
    "half": 0.5,
    "third": 1 / 3,
    "at": np.array([0], np.int64),
    "four": np.array([4], np.int64),
    "eight_": np.array([8], np.int64),
    "last": np.array([-1], np.int64),
    "flat": np.array([10, 8], np.int64),
    "heads": np.array([2, 5, 2, 4], np.int64),
}
ROTATED = """
l = Slice(q, at, four, last) r = Slice(q, four, eight_, last) n = Neg(r) o = Concat<axis = -1>(n, l)
c = Mul(q, cos) s = Mul(o, sin) z = Add(c, s)
"""


def model(nodes: str) -> onnx.ModelProto:
    text = '<ir_version: 8, opset_import: ["" : 22]> g (float[2,5,8] x) => (float[?,?,?] y)'
    found = parse(f"{text} {{ {nodes} }}")
    read = {name for node in found.graph.node for name in node.input}
    for name in sorted(read & CONSTANTS.keys()):
        array = np.asarray(CONSTANTS[name])
        kept = array if array.dtype == np.int64 else array.astype(np.float32)
        found.graph.initializer.append(numpy_helper.from_array(kept, name))
    return found


def scaled(source: onnx.ModelProto) -> tuple[int, ir.Model]:
    """Return how many quotients went, and the model, which still computes the same."""
    result = amp.load(source)
    found = scale_weights(result, BFLOAT16)
    feeds = {"x": np.random.default_rng(1).normal(size=SHAPE).astype(np.float32)}
    expected, got = Evaluator(source).run(feeds), Evaluator(result).run(feeds)
    for name, array in expected.items():
        assert np.allclose(got[name], array, rtol=0, atol=1e-5 * np.abs(array).max()), name
    assert scale_weights(result, BFLOAT16) == 0
    return found, result


@pytest.mark.parametrize(
    "nodes",
    [
        "q = MatMul(x, w) d = Div(q, ten) y = Softmax(d)",
        "t = Transpose<perm = [1, 0]>(w) q = MatMul(x, t) a = Add(q, b) d = Div(a, ten) "
        "y = Tanh(d)",
        "h = Reshape(x, flat) q = Gemm<transB = 1>(h, w, b) d = Div(q, ten) y = Tanh(d)",
        f"q = MatMul(x, w) {ROTATED} k = MatMul(x, v) t = Transpose<perm = [0, 2, 1]>(k) "
        "m = MatMul(z, t) h = Mul(m, half) d = Div(h, ten) y = Tanh(d)",
        "q = MatMul(x, w) i = Shape(q) r = Reshape(q, heads) e = Reshape(r, i) d = Div(e, ten) "
        "y = Tanh(d)",
        "q = MatMul(x, w) d = Div(q, ten) e = Div(q, ten) t = Tanh(d) s = Sin(e) y = Add(t, s)",
        "q = MatMul(x, w) a = Add(b, q) d = Mul(a, third) y = Softmax(d)",
        "q = MatMul(x, w) k = MatMul(x, v) t = Transpose<perm = [0, 2, 1]>(k) d = Mul(third, q) "
        "e = Mul(t, third) m = MatMul(d, e) y = Softmax(m)",
    ],
    ids=["softmax", "transposed", "gemm", "rotated", "shape", "two", "product", "both"],
)
def test_quotients_go_into_weights(nodes: str) -> None:
    found, result = scaled(model(nodes))
    assert found == nodes.count("Div") + nodes.count("third")
    assert not [node for node in result.graph if node.op_type in ("Div", "Mul")] or "cos" in nodes


@pytest.mark.parametrize(
    "nodes",
    [
        "q = MatMul(x, w) d = Div(q, eight) y = Tanh(d)",  # 1 / 8 is held
        "q = MatMul(x, w) y = Div(q, ten)",  # what the model gives
        "q = MatMul(x, w) d = Div(q, ten) y = Add(d, q)",  # q itself is read as well
        "q = MatMul(x, w) t = Tanh(q) d = Div(q, ten) y = Add(d, t)",
        "q = Relu(x) d = Div(q, ten) y = Tanh(d)",  # no weights
        "q = MatMul(x, w) s = Mul(q, q) d = Div(s, ten) y = Tanh(d)",
        "q = MatMul(x, w) a = Add(q, x) d = Div(a, ten) y = Tanh(d)",  # an input of the model
        "m = Mul(x, sin) d = Div(m, ten) y = Tanh(d)",  # a number that would be cut as well
        "q = MatMul(x, w) k = MatMul(x, w) d = Div(q, ten) t = Tanh(d) y = Add(t, k)",
    ],
)
def test_what_is_read_elsewhere_or_is_no_linear_arithmetic_stays(nodes: str) -> None:
    source = model(nodes)
    found, result = scaled(source)
    assert found == 0
    assert [node.op_type for node in result.graph] == [node.op_type for node in source.graph.node]


def test_either_factor_of_a_product_may_be_scaled() -> None:
    found, result = scaled(
        model(
            "q = MatMul(x, w) k = MatMul(x, v) t = Transpose<perm = [0, 2, 1]>(k) m = MatMul(q, t) "
            "n = Tanh(q) d = Div(m, ten) s = Softmax(d) y = MatMul(s, n)"
        )
    )
    assert found == 1
    (value,) = (v for name, v in result.graph.initializers.items() if ":" in name)
    assert value.const_value is not None
    expected = (np.asarray(CONSTANTS["v"], np.float32) / 10).astype(np.float32)
    assert np.allclose(value.const_value.numpy(), expected, rtol=1e-6)


def test_products_of_many_values_are_given_up_after_some_tries() -> None:
    nodes = "m0 = Relu(x) " + "".join(f"m{i + 1} = Mul(m{i}, m{i}) " for i in range(40))
    pairs = "".join(f"a{i} = Relu(x) p{i + 1} = Mul(p{i}, a{i}) " for i in range(40))
    for text in (f"{nodes} d = Div(m40, ten)", f"p0 = Relu(x) {pairs} d = Div(p40, ten)"):
        assert scale_weights(amp.load(model(f"{text} y = Tanh(d)")), BFLOAT16) == 0


def test_numbers_beyond_the_tries_of_a_whole_model_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = (
        "q = MatMul(x, w) d = Div(q, ten) s = Tanh(d) k = MatMul(s, v) e = Mul(k, third) y = Sin(e)"
    )
    assert scale_weights(amp.load(model(nodes)), BFLOAT16) == 2
    monkeypatch.setattr(scaling, "MOST_TRIES_IN_ALL", 1)
    assert scale_weights(amp.load(model(nodes)), BFLOAT16) == 1
