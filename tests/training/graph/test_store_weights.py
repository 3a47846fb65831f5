"""Weights in bfloat16 and float16: what a step computes and stores, and what is exported."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
import pytest

import amp_rewrite as amp
from amp_rewrite.errors import OptimizerValueError, OptionError
from amp_rewrite.optimizers import GradientDescent

RANDOM = np.random.default_rng(1)
WEIGHTS = {
    "table": RANDOM.normal(size=(9, 4)).astype(np.float32),
    "w": RANDOM.normal(size=(4, 2)).astype(np.float32),
    "b": RANDOM.normal(size=2).astype(np.float32),
}
FEEDS = {"ids": np.array([1, 5, 5])}
KINDS = {"float16": np.dtype(np.float16), "bfloat16": np.dtype(ml_dtypes.bfloat16)}
TEXT = """<ir_version: 8, opset_import: ["": 17]>
g (int64[n] ids) => (float loss) {
    e = Gather(table, ids)
    h = MatMul(e, w)
    y = Add(h, b)
    s = Mul(y, y)
    loss = ReduceMean<keepdims = 0>(s)
}"""


def network(**weights: np.ndarray) -> ir.Model:
    proto = onnx.parser.parse_model(TEXT)
    for name, array in (WEIGHTS | weights).items():
        proto.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    return amp.load(proto)


def session_of(model: ir.Model) -> amp.TrainingSession:
    return amp.TrainingSession(GradientDescent(0.5).minimize(amp.value(model, "loss")))


@pytest.mark.parametrize("dtype", KINDS)
def test_a_step_computes_with_what_is_stored(dtype: str) -> None:
    model = network()
    amp.freeze(model, "table|w")
    assert amp.store_weights(model, "table|w", dtype) == ["table", "w"]
    low = {n: WEIGHTS[n].astype(KINDS[dtype]).astype(np.float32) for n in ("table", "w")}
    same_model = network(**low)
    amp.freeze(same_model, "table|w")
    with session_of(model) as session, session_of(same_model) as same:
        assert session.run(FEEDS)["loss"] == same.run(FEEDS)["loss"]
        np.testing.assert_array_equal(session.state_dict()["b"], same.state_dict()["b"])


@pytest.mark.parametrize("dtype", KINDS)
def test_a_weight_that_is_stored_low_is_not_trained(dtype: str) -> None:
    model = network()
    amp.store_weights(model, "w", dtype)
    with pytest.raises(OptimizerValueError, match=f"w: a weight stored in {dtype} cannot be train"):
        session_of(model)


def test_frozen_weights_are_exported_as_they_were_used() -> None:
    model = network()
    amp.freeze(model, "table|b")
    amp.store_weights(model, "table", "bfloat16")
    with session_of(model) as session:
        session.run(FEEDS)
        exported = session.export()
        table = exported.graph.initializers["table"].const_value.numpy()
        rounded = WEIGHTS["table"].astype(KINDS["bfloat16"]).astype(np.float32)
        np.testing.assert_array_equal(table, rounded)
        bias = exported.graph.initializers["b"].const_value.numpy()
        np.testing.assert_array_equal(bias, WEIGHTS["b"])


def test_adapters_are_trained_on_a_base_that_is_stored_low() -> None:
    model = network()
    amp.store_weights(model, "*", "bfloat16")
    amp.lora(model, "w", rank=1)
    with session_of(model) as session:
        losses = [float(session.run(FEEDS)["loss"]) for _ in range(10)]
        assert losses[-1] < losses[0]
        adapted = session.evaluate(FEEDS, "loss")["loss"]
        merged = session.export()
    with session_of(merged) as session:
        np.testing.assert_allclose(session.evaluate(FEEDS, "loss")["loss"], adapted, rtol=1e-5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"dtype": "int8"}, "unknown precision"),
        ({"variables": "k"}, "store_weights: the pattern matches no variable"),
        ({"dtype": "float16"}, "'?table'?.*too large for the type; found magnitudes up to 1e.05"),
    ],
)
def test_what_cannot_be_stored_is_refused(arguments: Any, message: str) -> None:
    model = network(table=np.full((9, 4), 1e5, np.float32))
    with pytest.raises(OptionError, match=message):
        amp.store_weights(model, **{"variables": "*", "dtype": "bfloat16", **arguments})
    with session_of(model) as session:
        assert session.state_dict()["w"].dtype == np.float32


def test_it_is_too_late_behind_gradients() -> None:
    model = network()
    session_of(model).close()
    with pytest.raises(OptionError, match="gradients have been computed"):
        amp.store_weights(model, "*", "bfloat16")
