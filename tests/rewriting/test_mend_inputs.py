"""Float32 inputs that meet 16-bit weights are cast once, and all else follows."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from rewrite_text import parse

import amp_rewrite as amp
from amp_rewrite.runtimes.ort.sessions import Session

ATTENTION = """g (float[1,4,8] x) => (float[1,4,8] y) {
  q = MatMul(x, w) t = Transpose<perm = [0, 2, 1]>(q) s = MatMul(q, t) m = Mul(s, SCALE)
  p = Softmax(m) a = MatMul(p, q) n = Mul(a, SCALE) y = MatMul(n, w) }"""

TIME = """g (float[1,2,4,4] x, int64[1] step) => (float[1,2,4,4] y) <float[1,2] rates = {1, 0.01}> {
  f = Cast<to = 1>(step) u = Unsqueeze(f, one) r = Mul(u, rates)
  a = Sin(r) b = Cos(r) e = Concat<axis = 1>(a, b) t = MatMul(e, w) z = Reshape(t, shape)
  c = Conv(x, k) d = Add(c, z) y = Relu(d) }"""


def with_weights(text: str, **weights: np.ndarray) -> onnx.ModelProto:
    """Return a model with these initializers."""
    model = parse(text)
    model.graph.initializer.extend(numpy_helper.from_array(a, n) for n, a in weights.items())
    return model


def casts_of(model: onnx.ModelProto) -> list[tuple[str, int]]:
    """Return what is cast, and to which type."""
    found = (n for n in model.graph.node if n.op_type == "Cast")
    return [(n.input[0], helper.get_node_attr_value(n, "to")) for n in found]


def repaired(model: onnx.ModelProto) -> onnx.ModelProto:
    """Repair a model that ONNX Runtime refuses; see that it loads afterwards."""
    with pytest.raises(amp.errors.RunError):
        Session(amp.load(model))
    assert not amp.check(model, run=False).ok
    made = amp.to_proto(amp.repair(model).model)
    onnx.checker.check_model(made, full_check=True)
    Session(amp.load(made))
    return made


def test_single_constants_and_outputs_follow_an_input_that_is_cast() -> None:
    w = np.eye(8, dtype=np.float16)
    scales = {f"s{i}": np.array(0.25, np.float32) for i in range(2)}
    text = ATTENTION.replace("SCALE", "s0", 1).replace("SCALE", "s1")
    made = repaired(with_weights(text, w=w, **scales))
    low, wide = TensorProto.FLOAT16, TensorProto.FLOAT
    assert {("x", low), ("s0", low), ("s1", low)} <= {*casts_of(made)}
    assert [to for _, to in casts_of(made)].count(wide) == 1, "the output, which is float32"
    assert len(casts_of(made)) == 4
    x = np.random.default_rng(0).normal(0, 1, (1, 4, 8)).astype(np.float32)
    (y,) = Session(amp.load(made)).run({"x": x})
    s = x[0] @ x[0].T * 0.25
    p = np.exp(s - s.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    np.testing.assert_allclose(y[0], p @ x[0] * 0.25, atol=5e-3)


@pytest.mark.parametrize("scale", [1e-6, 1e6])
def test_a_constant_that_float16_does_not_hold_stays_float32(scale: float) -> None:
    w = np.eye(8, dtype=np.float16)
    text = ATTENTION.replace("SCALE", "s0")
    made = repaired(with_weights(text, w=w, s0=np.array(scale, np.float32)))
    assert ("s0", TensorProto.FLOAT16) not in casts_of(made)


def test_sines_of_a_time_step_are_cast_once_where_low_weights_read_them() -> None:
    weights = {
        "w": np.ones((4, 2), np.float16),
        "k": np.ones((2, 2, 1, 1), np.float16),
        "one": np.array([1], np.int64),
        "shape": np.array([1, 2, 1, 1], np.int64),
    }
    made = repaired(with_weights(TIME, **weights))
    low, wide = TensorProto.FLOAT16, TensorProto.FLOAT
    assert {(v, to) for v, to in casts_of(made) if to == low} == {("e", low), ("x", low)}
    assert [to for _, to in casts_of(made)].count(wide) == 2, "the step itself, and the output"


def test_what_is_computed_from_an_input_is_not_cast_for_a_weight() -> None:
    text = """g (float[1,4,8] x) => (float[1,4,8] y) {
      h = Mul(x, x) y = MatMul(h, w) }"""
    made = repaired(with_weights(text, w=np.eye(8, dtype=np.float16)))
    assert casts_of(made) == [("w", TensorProto.FLOAT)], "squares may leave float16"


def test_what_a_condition_of_the_caller_chooses_is_not_given_by_it() -> None:
    text = """g (float[1,4,8] x, bool[1,4,8] keep) => (float[1,4,8] y) <float zero = {0}> {
      h = Mul(x, x) s = Where(keep, h, zero) y = MatMul(s, w) }"""
    made = repaired(with_weights(text, w=np.eye(8, dtype=np.float16)))
    assert casts_of(made) == [("w", TensorProto.FLOAT)]


def test_an_input_of_which_a_condition_chooses_is_cast() -> None:
    text = """g (float[1,4,8] x, bool[1,4,8] keep) => (float[1,4,8] y) <float zero = {0}> {
      s = Where(keep, x, zero) y = MatMul(s, w) }"""
    made = repaired(with_weights(text, w=np.eye(8, dtype=np.float16)))
    assert ("s", TensorProto.FLOAT16) in casts_of(made)
