"""TensorFlow 2.4's and Keras 3's optimizer APIs, and what people bring along with them."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx.parser
import pytest
from onnx import TensorProto, helper, numpy_helper
from tensorflow_model import FEEDS, INF, loss_of

import amp_rewrite as amp
from amp_rewrite import optimizers as opt
from amp_rewrite.oplists import environment
from amp_rewrite.training.global_state import global_state

THREE: Any = 3


def after(optimizer: opt.Optimizer, *feeds: Any) -> dict[str, np.ndarray]:
    with amp.TrainingSession(optimizer.minimize(loss_of())) as session:
        for each in feeds or (FEEDS,):
            session.run(each)
        return session.state_dict()


# LossScaleOptimizer as TensorFlow 2.4 and Keras 3 have it

FORMS: dict[str, Callable[[opt.Optimizer], amp.LossScaleOptimizer]] = {
    "inner_optimizer": lambda o: amp.LossScaleOptimizer(inner_optimizer=o),
    "dynamic by position": lambda o: amp.LossScaleOptimizer(o, True),
    "dynamic by keyword": lambda o: amp.LossScaleOptimizer(o, dynamic=True),
    "initial_scale": lambda o: amp.LossScaleOptimizer(o, initial_scale=2.0**15),
    "growth steps": lambda o: amp.LossScaleOptimizer(o, dynamic_growth_steps=2000),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_spelling_of_2_4_scales_dynamically_and_counts(form: str) -> None:
    optimizer = FORMS[form](opt.SGD(1.0))
    assert (optimizer.dynamic, optimizer.initial_scale) == (True, 2.0**15)
    assert optimizer.dynamic_growth_steps == 2000
    assert optimizer.dynamic_counter == 0
    with amp.TrainingSession(optimizer.minimize(loss_of())) as session:
        session.run(FEEDS)
        session.run(FEEDS)
        assert optimizer.dynamic_counter == 2
        session.run(INF)
        assert optimizer.dynamic_counter == 0
        assert optimizer.current_loss_scale == 2.0**14
        assert session.state_dict()["w"].tolist() == [-5, 10]


def test_a_scale_that_is_not_dynamic_stays_and_skips_what_is_not_finite() -> None:
    optimizer = amp.LossScaleOptimizer(opt.SGD(1.0), False, initial_scale=64.0)
    assert optimizer.loss_scale == amp.FixedLossScale(64.0)
    assert (optimizer.dynamic_counter, optimizer.dynamic_growth_steps) == (None, None)
    assert after(optimizer, INF)["w"].tolist() == after(opt.SGD(0.0), FEEDS)["w"].tolist()
    assert optimizer.current_loss_scale == 64.0


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        ({"clipnorm": 1.0}, [1 - 0.6, 2 + 0.8]),
        ({"clipvalue": 2.0}, [-1, 4]),
        ({"global_clipnorm": 0.5}, None),
    ],
)
def test_inner_limits_clip_unscaled_gradients(limit: Any, expected: list[float] | None) -> None:
    plain = after(opt.SGD(1.0, **limit))["w"]
    scaled = after(amp.LossScaleOptimizer(opt.SGD(1.0, **limit), dynamic=True))["w"]
    np.testing.assert_allclose(scaled, plain, rtol=1e-6)
    if expected is not None:
        np.testing.assert_allclose(scaled, expected, rtol=1e-6)


def test_a_limit_does_not_hide_an_infinity_from_the_check() -> None:
    optimizer = amp.LossScaleOptimizer(inner_optimizer=opt.SGD(1.0, clipvalue=2.0))
    found = after(optimizer, INF)
    assert found["w"].tolist() == [1, 2]
    assert found["loss_scale/skipped_steps"] == 1


def test_the_experimental_form_refuses_limits_and_names_the_form_that_takes_them() -> None:
    with pytest.raises(ValueError, match=r"clipnorm.*pass it as inner_optimizer="):
        amp.LossScaleOptimizer(opt.SGD(1.0, clipnorm=1.0))


def test_scale_loss_is_keras_3s_name() -> None:
    optimizer = amp.LossScaleOptimizer(opt.SGD(1.0), initial_scale=8.0)
    loss = loss_of()
    scaled = optimizer.scale_loss(loss)
    with amp.TrainingSession(optimizer.minimize(loss)) as session:
        found = session.run(FEEDS, [scaled.name, "loss"])
    assert found[scaled.name] == 8 * found["loss"]


@pytest.mark.parametrize(
    "config",
    [
        {
            "inner_optimizer": {"class_name": "Adam", "config": {"learning_rate": 0.5}},
            "dynamic": True,
            "initial_scale": 128.0,
            "dynamic_growth_steps": 7,
        },
        {
            "name": "scaler",
            "inner_optimizer": {
                "module": "keras.optimizers",
                "class_name": "Adam",
                "config": {"learning_rate": 0.5, "beta_1": 0.9, "amsgrad": False},
                "registered_name": None,
            },
            "initial_scale": 128.0,
            "dynamic_growth_steps": 7,
            "weight_decay": None,
            "clipnorm": None,
            "use_ema": False,
            "loss_scale_factor": None,
        },
    ],
    ids=["2.4", "Keras 3"],
)
def test_configurations_of_both_are_read_and_written_again(config: dict[str, Any]) -> None:
    for optimizer in (
        amp.LossScaleOptimizer.from_config(config),
        opt.get({"class_name": "LossScaleOptimizer", "config": config}),
    ):
        assert isinstance(optimizer, amp.LossScaleOptimizer)
        assert (optimizer.initial_scale, optimizer.dynamic_growth_steps) == (128, 7)
        assert isinstance(optimizer.inner_optimizer, opt.Adam)
        assert optimizer.name == config.get("name", "Adam")
        again = amp.LossScaleOptimizer.from_config(optimizer.get_config())
        assert again.get_config() == optimizer.get_config()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: amp.LossScaleOptimizer(opt.SGD(), False), "initial_scale must be given"),
        (
            lambda: amp.LossScaleOptimizer(
                opt.SGD(), dynamic=False, initial_scale=2.0, dynamic_growth_steps=3
            ),
            "dynamic_growth_steps must be None",
        ),
        (lambda: amp.LossScaleOptimizer(opt.SGD(), 8.0, dynamic=True), "two ways to say"),
        (lambda: amp.LossScaleOptimizer(opt.SGD(), dynamic=THREE), "True or False; found 3"),
        (lambda: amp.LossScaleOptimizer(opt.SGD(), inner_optimizer=opt.SGD()), "two optimizers"),
        (lambda: amp.LossScaleOptimizer(), "must be an instance of"),
    ],
)
def test_arguments_that_exclude_each_other_are_refused(make: Any, message: str) -> None:
    with pytest.raises(amp.AmpError, match=message):
        make()


# arguments of Keras's optimizers


def test_hyperparameters_have_keras_s_names_too() -> None:
    adam: Any = opt.Adam(0.5, beta_1=0.75, beta_2=0.5)
    assert (adam.beta1, adam.beta_1, adam.beta_2) == (0.75, 0.75, 0.5)
    adam.beta_1 = 0.5
    assert adam.beta1 == 0.5
    rms: Any = opt.RMSProp(0.5, rho=0.75)
    assert (rms.rho, rms.decay) == (0.75, 0.75)
    momentum: Any = amp.LossScaleOptimizer(opt.Momentum(0.5, nesterov=True))
    assert momentum.nesterov is True
    with pytest.raises(TypeError, match=r"unknown argument; found \['beta_1'\]"):
        opt.SGD(0.5, beta_1=0.9)
    with pytest.raises(AttributeError, match="beta_1"):
        _ = opt.SGD(0.5).beta_1  # type: ignore[attr-defined]


def test_what_is_spelled_differently_here_says_how() -> None:
    cases: tuple[tuple[dict[str, Any], str], ...] = (
        ({"loss_scale_factor": 8.0}, r"LossScaleOptimizer\(optimizer, FixedLossScale"),
        ({"weight_decay": 0.1}, "use AdamW"),
        ({"exclude_from_weight_decay": ["bias"]}, "use ParameterGroups"),
        ({"use_ema": True, "ema_overwrite_frequency": 5}, "averaged=True"),
    )
    for given, remedy in cases:
        with pytest.raises(ValueError, match=remedy):
            opt.Adam(0.1, **given)
    with pytest.raises(ValueError, match="only Adam and AdamW have AMSGrad"):
        opt.RMSprop(0.1, amsgrad=True)
    off: dict[str, Any] = dict.fromkeys(("amsgrad", "loss_scale_factor", "weight_decay", "use_ema"))
    assert opt.Adam(0.1, **off, jit_compile=True).get_config() == opt.Adam(0.1).get_config()


@pytest.mark.parametrize("wrap", [lambda o: o, lambda o: amp.LossScaleOptimizer(o, dynamic=True)])
def test_use_ema_averages_as_keras_does(wrap: Callable[[Any], Any]) -> None:
    optimizer = wrap(opt.SGD(1.0, use_ema=True, ema_momentum=0.75))
    steps = [np.array([1, 2]) - n * np.array([3, -4]) for n in (1, 2, 3)]
    average = steps[0]
    for w in steps[1:]:
        average = 0.75 * average + 0.25 * w
    found = after(optimizer, FEEDS, FEEDS, FEEDS)
    np.testing.assert_allclose(found["w/average"], average, rtol=1e-6)
    config = opt.SGD(1.0, use_ema=True, ema_momentum=0.75).get_config()
    assert (config["use_ema"], config["ema_momentum"]) == (True, 0.75)
    with pytest.raises(ValueError, match="put WeightAverage around ParameterGroups"):
        opt.ParameterGroups(opt.SGD(1.0, use_ema=True))


def test_gradients_accumulate_over_the_steps_of_the_optimizer() -> None:
    second = {**FEEDS, "g": np.array([1, 0], np.float32)}
    optimizer = opt.SGD(1.0, gradient_accumulation_steps=2)
    assert after(optimizer, FEEDS)["w"].tolist() == [1, 2]
    assert after(opt.SGD(1.0, gradient_accumulation_steps=2), FEEDS, second)["w"].tolist() == [
        -1,
        4,
    ]
    with pytest.raises(ValueError, match="gradient_accumulation_steps"):
        opt.SGD(1.0, gradient_accumulation_steps=0)


def rates(schedule: opt.Schedule, steps: int) -> list[float]:
    with amp.TrainingSession(opt.SGD(schedule).minimize(loss_of())) as session:
        return [float(session.run(FEEDS, ["learning_rate"])["learning_rate"]) for _ in range(steps)]


SCHEDULES: dict[str, tuple[Callable[[], opt.Schedule], Callable[[int], float]]] = {
    "exponential": (lambda: opt.ExponentialDecay(0.5, 3, 0.25), lambda t: 0.5 * 0.25 ** (t / 3)),
    "staircase": (
        lambda: opt.ExponentialDecay(0.5, 3, 0.25, staircase=True),
        lambda t: 0.5 * 0.25 ** (t // 3),
    ),
    "polynomial": (
        lambda: opt.PolynomialDecay(0.5, 4, 0.125, power=2.0),
        lambda t: 0.375 * (1 - min(t, 4) / 4) ** 2 + 0.125,
    ),
    "polynomial, again and again": (
        lambda: opt.PolynomialDecay(0.5, 4, 0.125, cycle=True),
        lambda t: 0.375 * (1 - t / (4 * max(1, -(-t // 4)))) + 0.125,
    ),
    "piecewise": (
        lambda: opt.PiecewiseConstantDecay([2, 5], [0.5, 0.25, 0.125]),
        lambda t: 0.5 if t <= 2 else 0.25 if t <= 5 else 0.125,
    ),
    "piecewise from 0": (
        lambda: opt.PiecewiseConstantDecay([1], [0.0, 0.25]),
        lambda t: 0.0 if t <= 1 else 0.25,
    ),
}


@pytest.mark.parametrize("case", SCHEDULES)
def test_schedules_under_keras_s_names_follow_their_formulas(case: str) -> None:
    make, formula = SCHEDULES[case]
    np.testing.assert_allclose(rates(make(), 10), [formula(t) for t in range(10)], rtol=1e-5)
    config = make().get_config()
    again = opt.get({"class_name": "Adam", "config": {"learning_rate": config}})
    assert again.learning_rate == make()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: opt.PiecewiseConstantDecay([1, 2], [0.5, 0.25]), "one value more"),
        (lambda: opt.PiecewiseConstantDecay([2, 2], [3, 2, 1]), "boundaries must grow"),
        (lambda: opt.ExponentialDecay(0.5, 0, 0.5), "decay_steps"),
        (lambda: opt.PolynomialDecay(0.0, 5), "initial_learning_rate"),
    ],
)
def test_impossible_schedules_are_refused(make: Any, message: str) -> None:
    with pytest.raises(amp.AmpError, match=message):
        make()


# what was wrong, silently or late


def test_variables_come_in_the_order_of_the_model() -> None:
    sizes = {"big": 40, "small": 2, "bigger": 50, "tiny": 1}
    nodes, last = [], "x"
    for name in sizes:
        nodes += [helper.make_node("ReduceSum", [name], [f"s_{name}"], keepdims=0)]
        nodes += [helper.make_node("Mul", [last, f"s_{name}"], [f"p_{name}"])]
        last = f"p_{name}"
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [])],
        [helper.make_tensor_value_info(last, TensorProto.FLOAT, [])],
        [numpy_helper.from_array(np.ones((n, n), np.float32), k) for k, n in sizes.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    loss = amp.value(amp.load(model), last)
    optimizer = opt.Momentum(0.1)
    pairs = optimizer.compute_gradients(loss)
    assert [variable.name for _, variable in pairs] == list(sizes)
    optimizer.apply_gradients(pairs)
    assert [s.name for s in optimizer.weights[1:]] == [f"{name}/Momentum" for name in sizes]


@pytest.mark.parametrize("name", ["conter", "crt"])
def test_a_counter_that_the_model_lacks_is_refused_by_its_nearest_name(name: str) -> None:
    for call in (
        lambda: opt.SGD(0.1).minimize(loss_of(), name),
        lambda: opt.SGD(0.1).apply_gradients(opt.SGD(0.1).compute_gradients(loss_of()), name),
    ):
        with pytest.raises(ValueError, match="no counter of this name; expected 'counter'"):
            call()
    optimizer = opt.SGD(0.1)
    optimizer.iterations = name
    assert after(optimizer)[name] == 1


def test_sparse_gradients_are_scaled_and_refuse_to_be_added() -> None:
    optimizer = opt.SGD(1.0)
    ((gradient, _),) = optimizer.compute_gradients(loss_of(), ["table"])
    assert isinstance(gradient, opt.IndexedSlices)
    for scaled in (gradient * 2, 2.0 * gradient, gradient / 0.5, -gradient * -2):
        assert isinstance(scaled, opt.IndexedSlices)
    op = optimizer.apply_gradients([(gradient * 2, "table")])
    with amp.TrainingSession(op) as session:
        session.run(FEEDS)
        assert session.state_dict()["table"].tolist() == [[0, 1], [3, 4], [3, 4]]
    for add in (lambda: gradient + gradient, lambda: gradient - 1, lambda: sum([gradient])):
        with pytest.raises(TypeError, match="differentiate the sum of the losses"):
            add()
    with pytest.raises(TypeError, match="by a number or a scalar"):
        _ = gradient * np.ones(3, np.float32)


def test_warnings_point_at_the_line_of_the_user() -> None:
    global_state.reset()
    op = opt.SGD(0.1).minimize(loss_of())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        amp.CrossShardOptimizer(opt.SGD(0.1)).minimize(loss_of())
        with amp.TrainingSession(op, precision="float16"):
            pass
        amp.disable_mixed_precision_graph_rewrite()
    texts = {str(w.message): w.filename for w in caught if w.category is amp.AmpWarning}
    for words in ("outside a shard context", "without a loss scale", "not enabled"):
        assert [f for text, f in texts.items() if words in text] == [__file__]


def test_the_remedy_for_a_built_loss_scale_works() -> None:
    fixed, dynamic = amp.FixedLossScale(8.0), amp.DynamicLossScale(8.0)
    for scale in (fixed, dynamic):
        optimizer = amp.LossScaleOptimizer(opt.SGD(1.0), scale)
        with amp.TrainingSession(optimizer.minimize(loss_of())) as session:
            with pytest.raises(ValueError, match="make another loss scale, optimizer") as caught:
                setattr(scale, next(iter(scale.get_config())), 4.0)
            assert (
                "session.assign_state('loss_scale/current_loss_scale', number)" in str(caught.value)
            ) is (scale is dynamic)
            if scale is dynamic:
                session.assign_state("loss_scale/current_loss_scale", np.array(4.0))
                assert optimizer.current_loss_scale == 4


# TensorFlow's environment variables

PREFIX = "TF_AUTO_MIXED_PRECISION_GRAPH_REWRITE_"
PLAIN = """<ir_version: 8, opset_import: ["": 17]>
m (float[2, 2] x) => (float[2, 2] y) <float[2, 2] w = {1, 2, 3, 4}> {
    a = MatMul(x, w)
    b = Softmax(a)
    c = Add(b, a)
    y = MatMul(c, w)
}"""


def low_nodes() -> int:
    return amp.rewrite(onnx.parser.parse_model(PLAIN)).report.summary.nodes_converted


def test_tensorflow_s_variables_change_lists_and_level(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    environment._log_variables.cache_clear()
    before = low_nodes()
    monkeypatch.setenv(f"{PREFIX}INFERLIST_REMOVE", "Softmax,Add")
    monkeypatch.setenv(f"{PREFIX}DENYLIST_ADD", "Softmax,Conv2D")
    with caplog.at_level(logging.WARNING):
        assert low_nodes() < before
        low_nodes()
    (line,) = [r.getMessage() for r in caplog.records if "TensorFlow" in r.getMessage()]
    assert f"{PREFIX}DENYLIST_ADD" in line
    assert line.endswith("no operators of ONNX: Conv2D")
    # ours win, variable by variable
    monkeypatch.setenv("AMP_REWRITE_DENYLIST_ADD", "")
    monkeypatch.setenv("AMP_REWRITE_INFERLIST_REMOVE", "")
    assert low_nodes() == before


def test_older_names_and_the_level_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    before = low_nodes()
    monkeypatch.setenv(f"{PREFIX}LEVEL", "tensor_cores_only")
    assert low_nodes() < before
    monkeypatch.delenv(f"{PREFIX}LEVEL")
    monkeypatch.setenv(f"{PREFIX}WHITELIST_REMOVE", "MatMul")
    assert low_nodes() == 0


def test_reports_are_written_where_a_variable_says(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(f"{PREFIX}LOG_PATH", str(tmp_path / "theirs"))
    low_nodes()
    low_nodes()
    assert len(list((tmp_path / "theirs").glob("*.json"))) == 2
    monkeypatch.setenv("AMP_REWRITE_LOG_PATH", str(tmp_path / "ours"))
    low_nodes()
    (text,) = (tmp_path / "ours").glob("*.txt")
    assert "MatMul" in text.read_text("utf-8") or "float16" in text.read_text("utf-8")
    (tmp_path / "file").write_text("x")
    monkeypatch.setenv("AMP_REWRITE_LOG_PATH", str(tmp_path / "file"))
    with pytest.raises(amp.AmpError, match="AMP_REWRITE_LOG_PATH: the folder for reports"):
        low_nodes()


def test_a_variable_enables_the_rewrite_of_sessions_until_the_program_decides(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    global_state.reset()
    monkeypatch.setenv("TF_ENABLE_AUTO_MIXED_PRECISION", "1")
    assert global_state.precision() == "float16"
    amp.disable_mixed_precision_graph_rewrite()
    assert global_state.precision() is None
    global_state.reset()
    amp.set_global_policy("float32")
    assert global_state.precision() is None
    global_state.reset()
    monkeypatch.setenv("TF_ENABLE_AUTO_MIXED_PRECISION", "0")
    assert global_state.precision() is None
