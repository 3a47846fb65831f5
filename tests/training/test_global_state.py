"""Enabling mixed precision: the order of checks, errors, warnings, policies, registration."""

import gc
import warnings
from typing import Any

import numpy as np
import onnx
import pytest

import amp_rewrite as amp
from amp_rewrite import optimizers
from amp_rewrite.training.global_state import global_state

X = np.ones((2, 8), np.float32)


def loss_of() -> amp.GraphValue:
    text = """forward (float[n,8] x) => (float loss) {
        y = MatMul(x, w)
        z = Mul(y, y)
        loss = ReduceSum<keepdims=0>(z)
    }"""
    proto = onnx.parser.parse_graph(text)
    array = np.full((8, 8), 0.125, np.float32)
    proto.initializer.append(onnx.numpy_helper.from_array(array, "w"))
    opsets = [onnx.helper.make_opsetid("", 17)]
    model = onnx.helper.make_model(proto, opset_imports=opsets, ir_version=8)
    return amp.value(amp.load(model), "loss")


def op_of(optimizer: Any = None) -> optimizers.TrainOp:
    return (optimizer or optimizers.GradientDescent(0.1)).minimize(loss_of())


def test_enabling_wraps_the_optimizer_and_sets_the_flag() -> None:
    assert global_state.precision() is None
    inner = optimizers.Adam()
    optimizer = amp.enable_mixed_precision_graph_rewrite(inner)
    assert type(optimizer) is amp.LossScaleOptimizer
    assert optimizer.inner_optimizer is inner
    assert optimizer.loss_scale == amp.DynamicLossScale()
    assert optimizer.conditional == "if"
    assert global_state.precision() == "float16"


def test_loss_scale_and_condition_are_passed_on() -> None:
    made = amp.enable_mixed_precision_graph_rewrite(optimizers.Adam(), 8, conditional="select")
    assert made.loss_scale == amp.FixedLossScale(8)
    assert made.conditional == "select"


def test_bfloat16_needs_no_loss_scale() -> None:
    inner = optimizers.Adam()
    assert amp.enable_mixed_precision_graph_rewrite(inner, precision="bfloat16") is inner
    assert global_state.precision() == "bfloat16"
    made = amp.enable_mixed_precision_graph_rewrite(inner, 8, precision="bfloat16")
    assert made.loss_scale == amp.FixedLossScale(8)
    scale = amp.DynamicLossScale()
    made = amp.enable_mixed_precision_graph_rewrite(inner, scale, precision="bfloat16")
    assert made.loss_scale is scale


@pytest.mark.parametrize(
    ("opt", "arguments", "text"),
    [
        (None, {}, '"opt" must be an instance of amp_rewrite.optimizers.Optimizer'),
        (3, {}, '"opt" must be an instance of amp_rewrite.optimizers.Optimizer'),
        (3, {"precision": "bfloat16"}, '"opt" must be an instance of amp_rewrite.optimizers'),
        (optimizers.Adam(clipnorm=1.0), {}, "does not support wrapping optimizers with a clipnorm"),
        (amp.LossScaleOptimizer(optimizers.Adam()), {}, "must not already be an instance of a"),
        (optimizers.Adam(), {"loss_scale": None}, "loss_scale cannot be None"),
        (optimizers.Adam(), {"loss_scale": "big"}, "Could not interpret loss scale identifier"),
        (optimizers.Adam(), {"loss_scale": 0.5}, "must be at least 1"),
        (optimizers.Adam(), {"conditional": "never"}, "unknown way to make updates conditional"),
        (optimizers.Adam(), {"precision": "float8"}, "unknown precision"),
    ],
)
def test_a_failed_wrap_leaves_the_flag_as_it_was(
    opt: Any, arguments: dict[str, Any], text: str
) -> None:
    kind = amp.AmpError if "unknown" in text else ValueError
    with pytest.raises(kind, match=text):
        amp.enable_mixed_precision_graph_rewrite(opt, **arguments)
    assert global_state.precision() is None
    amp.enable_mixed_precision_graph_rewrite(optimizers.Adam(), precision="bfloat16")
    with pytest.raises(kind, match=text):
        amp.enable_mixed_precision_graph_rewrite(opt, **arguments)
    assert global_state.precision() == "bfloat16"


def test_a_mixed_policy_excludes_the_rewrite_and_is_checked_first() -> None:
    amp.set_global_policy("mixed_float16")
    with (
        amp.TrainingSession(op_of(), precision="float32"),
        # Neither the warning of the session nor the error of the optimizer comes before.
        pytest.raises(ValueError, match="enable_mixed_precision_graph_rewrite") as found,
    ):
        amp.enable_mixed_precision_graph_rewrite(None)
    assert "set_global_policy" in str(found.value)
    assert global_state.rewrite is None


def test_the_rewrite_excludes_a_mixed_policy() -> None:
    amp.enable_mixed_precision_graph_rewrite(optimizers.Adam())
    with pytest.raises(ValueError, match="set_global_policy") as found:
        amp.set_global_policy("mixed_float16")
    assert "enable_mixed_precision_graph_rewrite" in str(found.value)
    assert amp.global_policy().name == "float32"
    amp.set_global_policy("float16")  # whose compute type is its variable type
    assert amp.global_policy() == amp.Policy("float16")
    assert global_state.precision() == "float16"
    amp.disable_mixed_precision_graph_rewrite()
    amp.set_global_policy("mixed_bfloat16")
    assert global_state.precision() == "bfloat16"


def test_policies_have_two_types() -> None:
    amp.set_global_policy(amp.Policy("mixed_float16"))
    policy = amp.global_policy()
    assert (policy.compute_dtype, policy.variable_dtype) == ("float16", "float32")
    assert policy.is_mixed
    assert global_state.precision() == "float16"
    amp.set_global_policy("float64")
    assert (amp.global_policy().compute_dtype, amp.global_policy().is_mixed) == ("float64", False)
    assert global_state.precision() is None
    with pytest.raises(amp.AmpError, match="unknown policy"):
        amp.set_global_policy("mixed_float64")
    assert amp.global_policy().name == "float64"


def test_sessions_without_mixed_precision_are_warned_of() -> None:
    session = amp.TrainingSession(op_of())
    with pytest.warns(amp.AmpWarning, match="1 training session without mixed precision exists"):
        amp.enable_mixed_precision_graph_rewrite(optimizers.Adam())
    with (
        amp.TrainingSession(op_of(), precision="float32"),
        pytest.warns(amp.AmpWarning, match="2 training sessions without mixed precision"),
    ):
        amp.enable_mixed_precision_graph_rewrite(optimizers.Adam())
    assert session.info.precision == "float32"  # it stays as it is
    session.run({"x": X})
    session.close()
    amp.enable_mixed_precision_graph_rewrite(optimizers.Adam())  # no warning: none is open


def test_a_session_that_is_gone_is_not_warned_of() -> None:
    session = amp.TrainingSession(op_of())
    assert global_state.float32_sessions == 1
    del session
    gc.collect()
    amp.enable_mixed_precision_graph_rewrite(optimizers.Adam())


def test_disabling_ends_rewriting_but_not_scaling() -> None:
    optimizer = amp.enable_mixed_precision_graph_rewrite(optimizers.GradientDescent(0.01))
    op = op_of(optimizer)
    plain = op_of()  # an optimizer that is not wrapped
    for each in (op, plain):
        step = amp.build_step(each)
        assert any(n.op_type == "Cast" for n in step.graph)
    amp.disable_mixed_precision_graph_rewrite()
    assert global_state.precision() is None
    with amp.TrainingSession(op) as session:
        assert session.info.precision == "float32"
        assert session.run({"x": X}, "loss_scale")["loss_scale"] == 2**15


def test_disabling_what_is_off_warns() -> None:
    with pytest.warns(amp.AmpWarning, match="rewrite is not enabled"):
        amp.disable_mixed_precision_graph_rewrite()
    assert global_state.precision() is None


def test_other_families_of_optimizers_can_join() -> None:
    class Foreign:
        pass

    class Wrapped:
        def __init__(self, optimizer: Any, loss_scale: Any) -> None:
            self.optimizer, self.loss_scale = optimizer, loss_scale

    class Special(Foreign):
        pass

    amp.register_loss_scale_wrapper(Foreign, Wrapped)
    opt = Foreign()
    made = amp.enable_mixed_precision_graph_rewrite(opt, 4)
    assert type(made) is Wrapped
    assert made.optimizer is opt
    assert made.loss_scale == amp.FixedLossScale(4)
    with pytest.raises(ValueError, match=r"Optimizer or .*Foreign"):
        amp.enable_mixed_precision_graph_rewrite(object())
    with pytest.raises(ValueError, match='"opt" must be an instance of'):
        amp.enable_mixed_precision_graph_rewrite(made)
    amp.register_loss_scale_wrapper(Wrapped, Wrapped)
    with pytest.raises(ValueError, match="must not already be an instance of a Wrapped"):
        amp.enable_mixed_precision_graph_rewrite(made)
    amp.register_loss_scale_wrapper(Special, lambda opt, loss_scale: (opt, loss_scale))
    special = Special()
    assert amp.enable_mixed_precision_graph_rewrite(special, 2) == (special, amp.FixedLossScale(2))
    global_state.reset()
    with pytest.raises(ValueError, match='"opt" must be an instance of'):
        amp.enable_mixed_precision_graph_rewrite(opt)


def test_registration_takes_a_class_and_a_callable() -> None:
    with pytest.raises(TypeError, match="base must be a class"):
        amp.register_loss_scale_wrapper("Adam", lambda a, b: a)  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match="wrapper must be callable"):
        amp.register_loss_scale_wrapper(optimizers.Adam, 3)  # pyright: ignore[reportArgumentType]


def test_float16_on_a_cpu_warns_once_with_the_reason_and_is_done() -> None:
    optimizer = amp.enable_mixed_precision_graph_rewrite(optimizers.GradientDescent(0.01))
    op = op_of(optimizer)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):
            with amp.TrainingSession(op) as session:
                assert session.info.precision == "float16"
                assert session.run({"x": X})["grads_finite"]
    assert [w.category for w in caught] == [amp.AmpWarning]
    text = str(caught[0].message)
    assert "float16 on a CPU is slower than float32" in text
    assert "compute capability 7.0 or more" in text


def test_emulating_float16_does_not_warn() -> None:
    op = op_of(amp.enable_mixed_precision_graph_rewrite(optimizers.GradientDescent(0.01)))
    with amp.TrainingSession(op, emulate=True) as session:
        # The gradient of w is 4 times the scale: 2^16 overflows in float16, and 2^15 does not.
        found = [bool(session.run({"x": X})["grads_finite"]) for _ in range(3)]
    assert found == [False, False, True]
