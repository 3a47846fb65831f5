"""LossScaleOptimizer: what it refuses, what it scales, and what it leaves to the wrapped one."""

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import amp_rewrite as amp
from amp_rewrite import optimizers
from amp_rewrite.loss_scaling import DynamicLossScale, FixedLossScale, LossScaleOptimizer
from amp_rewrite.optimizers import Optimizer

Feeds = dict[str, np.ndarray]
Make = Callable[[], ir.Model]
FeedsOf = Callable[[np.random.Generator], Feeds]


class Compressing(optimizers.GradientDescent):
    """Stands for a collective that a loss scale would disturb."""

    supports_loss_scaling = False


@pytest.mark.parametrize(
    ("optimizer", "text"),
    [
        (None, "must be an instance of amp_rewrite.optimizers.Optimizer"),
        ("adam", "must be an instance of amp_rewrite.optimizers.Optimizer"),
        (optimizers.Adam, "must be an instance of amp_rewrite.optimizers.Optimizer"),
        (optimizers.Adam(clipnorm=1.0), "does not support wrapping optimizers with a clipnorm"),
        (optimizers.Adam(clipvalue=1.0), "does not support wrapping optimizers with a clipvalue"),
        (optimizers.Adam(global_clipnorm=1.0), "wrapping optimizers with a global_clipnorm"),
        (LossScaleOptimizer(optimizers.Adam()), "must not already be an instance of a LossScale"),
        (Compressing(0.1), "Loss scaling is not supported with this collective"),
    ],
)
def test_what_cannot_be_wrapped_is_refused(optimizer: Any, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        LossScaleOptimizer(optimizer)


def test_a_loss_scale_is_needed() -> None:
    with pytest.raises(ValueError, match="loss_scale cannot be None"):
        LossScaleOptimizer(optimizers.Adam(), None)
    with pytest.raises(ValueError, match="Could not interpret loss scale identifier"):
        LossScaleOptimizer(optimizers.Adam(), "static")
    with pytest.raises(amp.AmpError, match="unknown way to make updates conditional"):
        LossScaleOptimizer(optimizers.Adam(), conditional="while")


def test_configurations_make_equal_optimizers() -> None:
    inner = optimizers.Adam(0.25, beta1=0.5, name="Own")
    optimizer = LossScaleOptimizer(inner, DynamicLossScale(8.0), conditional="select")
    config = json.loads(json.dumps(optimizer.get_config()))
    same = LossScaleOptimizer.from_config(config)
    assert type(same.inner_optimizer) is optimizers.Adam
    assert same.inner_optimizer.get_config() == inner.get_config()
    assert same.loss_scale == optimizer.loss_scale
    assert same.conditional == "select"
    assert same.get_config() == config
    assert "DynamicLossScale(initial_loss_scale=8.0" in repr(same)


def test_hyperparameters_are_those_of_the_wrapped_optimizer() -> None:
    inner = optimizers.Momentum(0.5, 0.25)
    optimizer: Any = LossScaleOptimizer(inner)
    assert (optimizer.learning_rate, optimizer.lr, optimizer.momentum) == (0.5, 0.5, 0.25)
    assert (optimizer.name, optimizer.get_name()) == ("Momentum", "Momentum")
    assert optimizer.touches_rows_only is inner.touches_rows_only
    optimizer.lr = 0.125
    assert inner.learning_rate == 0.125
    optimizer.learning_rate = 0.25
    assert inner.lr == 0.25
    optimizer.momentum = 0.75
    assert inner.momentum == 0.75
    optimizer.note = "set on both"
    assert vars(inner)["note"] == "set on both"
    assert not hasattr(optimizer, "absent")
    with pytest.raises(AttributeError):
        optimizer.loss_scale = FixedLossScale(1)


def test_members_of_a_class_of_the_users_own_are_reached() -> None:
    class Own(optimizers.GradientDescent):
        extra = 3

        def get_slot_names(self) -> list[str]:
            return ["mine"]

        def doubled(self) -> int:
            return 2 * self.extra

    optimizer: Any = LossScaleOptimizer(Own(0.5))
    assert optimizer.extra == 3
    assert optimizer.doubled() == 6
    assert optimizer.get_slot_names() == ["mine"]
    assert issubclass(type(optimizer), Optimizer)
    assert {"doubled", "extra", "loss_scale"} <= set(dir(optimizer))
    optimizer.extra = 4
    assert optimizer.doubled() == 8
    del optimizer.extra
    assert optimizer.doubled() == 6


@pytest.mark.parametrize("scale", ["dynamic", 64])
def test_scaling_and_unscaling_by_hand_is_what_compute_gradients_does(
    scale: Any, four_variables: Make, feeds_of: FeedsOf
) -> None:
    by_hand = LossScaleOptimizer(optimizers.Adam(0.1), scale)
    scaled = by_hand.get_scaled_loss(amp.value(four_variables(), "loss"))
    pairs = by_hand.inner_optimizer.compute_gradients(scaled)
    gradients = by_hand.get_unscaled_gradients([gradient for gradient, _ in pairs])
    op = by_hand.apply_gradients(zip(gradients, [v for _, v in pairs], strict=True))
    other = LossScaleOptimizer(optimizers.Adam(0.1), scale)
    minimized = other.minimize(amp.value(four_variables(), "loss"))
    feeds = feeds_of(np.random.default_rng(0))
    with amp.TrainingSession(op) as one, amp.TrainingSession(minimized) as two:
        assert one.run(feeds) == two.run(feeds)  # the loss itself, not what is scaled
        for name, array in one.state_dict().items():
            np.testing.assert_array_equal(array, two.state_dict()[name])


def test_unscaled_gradients_keep_none_and_indices(four_variables: Make, feeds_of: FeedsOf) -> None:
    inner = optimizers.GradientDescent(0.1)
    optimizer = LossScaleOptimizer(inner, DynamicLossScale(8.0))
    loss = amp.value(four_variables(), "loss")
    pairs = {v.name: g for g, v in inner.compute_gradients(loss)}
    dense, sparse = pairs["matrix"], pairs["table"]
    got = optimizer.get_unscaled_gradients([dense, None, sparse])
    assert got[1] is None
    assert isinstance(got[2], amp.IndexedSlices)
    assert isinstance(sparse, amp.IndexedSlices)
    indices: list[Any] = [got[2].indices, sparse.indices]  # values of a training graph
    assert indices[0].value is indices[1].value
    op = inner.minimize(loss)
    feeds = feeds_of(np.random.default_rng(0))
    with amp.TrainingSession(op) as session:
        names = [got[0].name, got[2].values.name]
        out = session.run(feeds, names)
    np.testing.assert_array_equal(out[names[0]], feeds["g2"] / 8)
    np.testing.assert_array_equal(out[names[1]], feeds["g3"] / 8)
    assert optimizer.get_unscaled_gradients([None]) == [None]
    with pytest.raises(TypeError, match="a gradient must be"):
        optimizer.get_unscaled_gradients([3])  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="do not tell which model"):
        optimizer.get_unscaled_gradients([dense.value])


def test_half_precision_gradients_are_unscaled_in_float32() -> None:
    text = (
        "forward (float16[2] g) => (float16 loss) { p = Mul(w, g) loss = ReduceSum<keepdims=0>(p) }"
    )
    proto = onnx.parser.parse_graph(text)
    proto.initializer.append(onnx.numpy_helper.from_array(np.zeros(2, np.float16), "w"))
    opsets = [onnx.helper.make_opsetid("", 17)]
    model = amp.load(onnx.helper.make_model(proto, opset_imports=opsets, ir_version=8))
    optimizer = LossScaleOptimizer(optimizers.GradientDescent(1.0), DynamicLossScale(2.0**12))
    pairs = optimizer.compute_gradients(amp.value(model, "loss"))
    gradient = pairs[0][0]
    assert gradient.dtype is ir.DataType.FLOAT
    tiny = np.array([2.0**-24, 2.0**-20], np.float16)  # divided by 4096 they are zero in float16
    with amp.TrainingSession(optimizer.apply_gradients(pairs)) as session:
        out = session.run({"g": tiny}, [gradient.name])
    np.testing.assert_array_equal(out[gradient.name], tiny.astype(np.float32))


def test_a_gradient_of_the_loss_is_scaled_too(four_variables: Make, feeds_of: FeedsOf) -> None:
    model = four_variables()
    loss = amp.value(model, "p2")  # a matrix
    optimizer = LossScaleOptimizer(optimizers.GradientDescent(1.0), DynamicLossScale(16.0))
    op = optimizer.minimize(loss, grad_loss=amp.value(model, "g2"))
    feeds = feeds_of(np.random.default_rng(0))
    with amp.TrainingSession(op) as session:
        before = session.state_dict()["matrix"]
        session.run({"g2": feeds["g2"]}, ["grads_finite"])
        moved = before - session.state_dict()["matrix"]
    np.testing.assert_allclose(moved, feeds["g2"] ** 2, rtol=1e-5, atol=1e-6)
    with pytest.raises(TypeError, match="grad_loss must be a value"):
        optimizer.compute_gradients(loss, grad_loss=1.0)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("mode", ["if", "select"])
def test_two_optimizers_on_one_model_have_a_scale_each(
    mode: str, four_variables: Make, feeds_of: FeedsOf
) -> None:
    model = four_variables()
    loss = amp.value(model, "loss")
    scalers = [
        LossScaleOptimizer(optimizers.Adam(0.1), DynamicLossScale(scale), conditional=mode)
        for scale in (4.0, 32.0)
    ]
    for scaler, counter in zip(scalers, ("first", "second"), strict=True):
        scaler.iterations = counter
    first = scalers[0].minimize(loss, var_list=["matrix"])
    second = scalers[1].minimize(loss, var_list=["matrix", "table"])
    feeds = feeds_of(np.random.default_rng(0))
    for op, scale in ((first, 4), (second, 32)):
        with amp.TrainingSession(op) as session:
            out = session.run(feeds, ["loss_scale", "grads_finite"])
            assert out["loss_scale"] == scale
            assert out["grads_finite"]


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
