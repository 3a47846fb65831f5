"""Hyperparameters that are set: before a step is built, and after it."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import onnx
import pytest

import amp_rewrite as amp
from amp_rewrite.graph.io.save import to_proto
from amp_rewrite.optimizers import (
    GradientDescentRule,
    Momentum,
    ParameterGroups,
    WeightAverage,
)
from amp_rewrite.training.optimizers.registry import NAMES, get
from amp_rewrite.training.optimizers.update_rule import DOMAIN
from amp_rewrite.training.step.build_step import build_step

SET: dict[str, Any] = {
    "momentum": 0.5,
    "use_nesterov": True,
    "clipnorm": 1.0,
    "clipvalue": 1.0,
    "global_clipnorm": 1.0,
    "rule": GradientDescentRule(),
}


@pytest.mark.parametrize("name", SET)
@pytest.mark.parametrize("wrap", [lambda o: o, amp.LossScaleOptimizer], ids=["plain", "wrapped"])
def test_what_is_part_of_a_built_step_cannot_be_set(name: str, wrap: Any, dense_model: Any) -> None:
    optimizer = wrap(Momentum(0.1))
    optimizer.minimize(amp.value(dense_model(np.ones((1, 2), np.float32)), "loss"))
    before = getattr(optimizer, name)
    text = rf"Momentum: {name} is part of the step, which has been built; .* learning rate"
    with pytest.raises(ValueError, match=text) as raised:
        setattr(optimizer, name, SET[name])
    assert isinstance(raised.value, amp.AmpError)
    assert getattr(optimizer, name) == before


@pytest.mark.parametrize("name", NAMES)
def test_every_hyperparameter_of_every_optimizer_is_a_part_of_steps(
    name: str, dense_model: Any
) -> None:
    optimizer = get(name)
    optimizer.minimize(amp.value(dense_model(np.ones((1, 2), np.float32)), "loss"))
    own = set(optimizer.get_config()) - {"learning_rate", "use_locking", "name"}
    for parameter in own - {"initial_accumulator_value"}:
        with pytest.raises(ValueError, match=f"({parameter}|rule) is part of the step"):
            setattr(optimizer, parameter, getattr(optimizer, parameter))


@pytest.mark.parametrize(
    ("name", "slip", "meant"),
    [
        ("adam", "eps", "epsilon"),
        ("adam", "clip_norm", "clipnorm"),
    ],
)
@pytest.mark.parametrize("wrap", [lambda o: o, amp.LossScaleOptimizer], ids=["plain", "wrapped"])
def test_a_name_that_only_looks_like_a_hyperparameter_is_refused(
    name: str, slip: str, meant: str, wrap: Any
) -> None:
    optimizer = wrap(get(name))
    with pytest.raises(ValueError, match=f"{slip}: .* no hyperparameter .*; expected '{meant}'"):
        setattr(optimizer, slip, 0.5)
    keras: Any = get("adadelta")
    keras.rho = 0.9
    assert keras.rho == 0.9


def test_what_wrappers_are_made_of_cannot_be_set() -> None:
    average: Any = WeightAverage(Momentum(0.1), decay=0.9)
    with pytest.raises(ValueError, match="decay of WeightAverage cannot be changed; make another"):
        average.decay = 0.5
    scaled: Any = amp.LossScaleOptimizer(Momentum(0.1))
    with pytest.raises(ValueError, match="optimizer of LossScaleOptimizer cannot be changed"):
        scaled.optimizer = Momentum(0.2)
    groups: Any = ParameterGroups(Momentum(0.1), [{"variables": "w", "rate_multiplier": 2}])
    with pytest.raises(ValueError, match=r"momentum of groups .*found 2 members.* `members`"):
        groups.momentum = 0.5
    groups.learning_rate = 0.5
    assert groups.inner_optimizer.learning_rate == 0.5


def test_the_learning_rate_and_other_attributes_can_be_set_at_any_time(dense_model: Any) -> None:
    optimizer: Any = Momentum(0.1)
    optimizer.minimize(amp.value(dense_model(np.ones((1, 2), np.float32)), "loss"))
    optimizer.learning_rate = 0.5
    optimizer.note = "mine"
    assert (optimizer.lr, optimizer.note) == (0.5, "mine")


OPTIMIZERS = [
    amp.optimizers.GradientDescent,
    amp.optimizers.Momentum,
    amp.optimizers.Adagrad,
    amp.optimizers.Adadelta,
    amp.optimizers.RMSProp,
    amp.optimizers.Adam,
    amp.optimizers.AdamW,
    amp.optimizers.LAMB,
]


FORWARD = """forward (float[n, 6] x, int64[n] t) => (float loss) {
    y = Gemm(x, w1, bias1)
    h = Tanh(y)
    z = Gemm(h, w2, bias2)
    loss = SoftmaxCrossEntropyLoss(z, t)
}"""
SHAPES = {"w1": (6, 5), "bias1": (5,), "w2": (5, 3), "bias2": (3,)}


def forward():
    graph, rng = onnx.parser.parse_graph(FORWARD), np.random.default_rng(0)
    for name, shape in SHAPES.items():
        array = rng.normal(size=shape).astype(np.float32)
        graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    opsets = [onnx.helper.make_opsetid("", 17)]
    return amp.load(onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8))


def step_of(optimizer):
    return to_proto(build_step(optimizer.minimize(amp.value(forward(), "loss"))))


def calls(step):
    return Counter(node.op_type for node in step.graph.node if node.domain == DOMAIN)


@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=lambda o: o.__name__)
def test_every_variable_is_updated_by_one_call(optimizer):
    step = step_of(optimizer())
    assert calls(step) == {optimizer.__name__: len(SHAPES)}
    assert [f.name for f in step.functions] == [optimizer.__name__]
    onnx.checker.check_model(step, full_check=True)


def test_variables_that_do_not_decay_have_a_function_of_their_own():
    step = step_of(ParameterGroups(amp.optimizers.AdamW(), no_decay="bias"))
    assert calls(step) == {"AdamW": len(SHAPES) // 2, "AdamW_1": len(SHAPES) // 2}
    sizes = {function.name: len(function.node) for function in step.functions}
    assert sizes["AdamW_1"] < sizes["AdamW"]


def test_a_rule_of_a_user_becomes_a_function_too():
    class SignRule(amp.optimizers.UpdateRule):
        def update(self, given, shared, slots):
            b = given.b
            return b.sub(given.value, b.mul(b.sign(given.gradient), shared)), slots

    step = step_of(amp.optimizers.Optimizer(name="Sign", rule=SignRule()))
    assert calls(step) == {"Sign": len(SHAPES)}
    assert [node.op_type for node in step.functions[0].node] == ["Sign", "Mul", "Sub"]
