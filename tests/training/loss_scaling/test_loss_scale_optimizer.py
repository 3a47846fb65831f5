"""LossScaleOptimizer: what it refuses, what it scales, and what it leaves to the wrapped one."""

from collections.abc import Callable

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import amp_rewrite as amp
from amp_rewrite import optimizers
from amp_rewrite.loss_scaling import LossScaleOptimizer

Feeds = dict[str, np.ndarray]
Make = Callable[[], ir.Model]
FeedsOf = Callable[[np.random.Generator], Feeds]


def test_schedules_stay_outside_the_conditional_update(
    four_variables: Make, feeds_of: FeedsOf
) -> None:
    rate = optimizers.LinearWarmUp(1.0, 10)
    optimizer = LossScaleOptimizer(optimizers.GradientDescent(rate))
    op = optimizer.minimize(amp.value(four_variables(), "loss"))
    feeds = feeds_of(np.random.default_rng(0))
    with amp.TrainingSession(op) as session:
        rates = [float(session.run(feeds, "learning_rate")["learning_rate"]) for _ in range(3)]
        bad = {**feeds, "g0": np.array(np.inf, np.float32)}
        skipped = session.run(bad, ["learning_rate", "global_step"])
    np.testing.assert_allclose(rates, [0, 0.1, 0.2], rtol=1e-6)
    np.testing.assert_allclose(skipped["learning_rate"], 0.3, rtol=1e-6)
    assert skipped["global_step"] == 3


@pytest.mark.parametrize("mode", ["if", "select"])
def test_double_precision_models_are_scaled_in_double_precision(mode: str) -> None:
    text = (
        "forward (double[2] g) => (double loss) { p = Mul(w, g) loss = ReduceSum<keepdims=0>(p) }"
    )
    proto = onnx.parser.parse_graph(text)
    proto.initializer.append(onnx.numpy_helper.from_array(np.zeros(2), "w"))
    opsets = [onnx.helper.make_opsetid("", 17)]
    model = amp.load(onnx.helper.make_model(proto, opset_imports=opsets, ir_version=8))
    optimizer = LossScaleOptimizer(optimizers.GradientDescent(1.0), conditional=mode)
    op = optimizer.minimize(amp.value(model, "loss"))
    third = np.array([1 / 3, 1e-200])
    with amp.TrainingSession(op) as session:
        assert session.run({"g": third})["grads_finite"]
        np.testing.assert_array_equal(session.state_dict()["w"], -third)
        assert not session.run({"g": np.array([np.inf, 0])})["grads_finite"]
        np.testing.assert_array_equal(session.state_dict()["w"], -third)
