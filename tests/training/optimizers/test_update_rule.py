"""Hyperparameters that are set: before a step is built, and after it."""

from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

import amp_rewrite as amp
from amp_rewrite.optimizers import (
    GradientDescentRule,
    Momentum,
    Optimizer,
    ParameterGroups,
    WeightAverage,
)
from amp_rewrite.training.optimizers.registry import NAMES, get

SET: dict[str, Any] = {
    "momentum": 0.5,
    "use_nesterov": True,
    "clipnorm": 1.0,
    "clipvalue": 1.0,
    "global_clipnorm": 1.0,
    "rule": GradientDescentRule(),
}


def trained(optimizer: Optimizer, model: ir.Model) -> np.ndarray:
    with amp.TrainingSession(optimizer.minimize(amp.value(model, "loss"))) as session:
        for _ in range(2):
            session.run({"g": np.array([[3.0, -4.0]], np.float32)})
        return session.state_dict()["w"]


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


@pytest.mark.parametrize("name", SET)
def test_what_is_set_before_a_step_is_built_is_part_of_it(name: str, dense_model: Any) -> None:
    model = np.ones((1, 2), np.float32)
    optimizer = Momentum(0.1)
    plain = trained(Momentum(0.1), dense_model(model))
    setattr(optimizer, name, SET[name])
    assert (trained(optimizer, dense_model(model)) != plain).any()


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


def test_a_loss_scale_of_a_built_step_cannot_be_changed(dense_model: Any) -> None:
    for scale, name in ((amp.DynamicLossScale(8.0), "multiplier"), (amp.FixedLossScale(2), "x")):
        scale.multiplier = 4.0  # type: ignore[union-attr]
        optimizer = amp.LossScaleOptimizer(Momentum(0.1), scale)
        optimizer.minimize(amp.value(dense_model(np.ones((1, 2), np.float32)), "loss"))
        name = "loss_scale_value" if name == "x" else name
        with pytest.raises(ValueError, match=f"{name} is part of the step, .*another loss scale"):
            setattr(scale, name, 2.0)


def test_the_learning_rate_and_other_attributes_can_be_set_at_any_time(dense_model: Any) -> None:
    optimizer: Any = Momentum(0.1)
    optimizer.minimize(amp.value(dense_model(np.ones((1, 2), np.float32)), "loss"))
    optimizer.learning_rate = 0.5
    optimizer.note = "mine"
    assert (optimizer.lr, optimizer.note) == (0.5, "mine")
