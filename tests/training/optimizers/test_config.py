"""Configurations that are none are refused by the name of the class and the key."""

from collections.abc import Mapping
from typing import Any

import pytest

import amp_rewrite as amp
from amp_rewrite import loss_scaling, optimizers
from amp_rewrite.loss_scaling import DynamicLossScale, FixedLossScale, LossScaleOptimizer
from amp_rewrite.training.optimizers import learning_rate

INNER = {"class_name": "Adam", "config": {}}
SCALE = {"class_name": "FixedLossScale", "config": {"loss_scale_value": 2.0}}
WRAPPED = {"optimizer": INNER, "loss_scale": SCALE}
STEPS = {"class_name": "ExponentialDecay", "decay_steps": 2}


@pytest.mark.parametrize(
    ("kind", "config", "message"),
    [
        (DynamicLossScale, None, "DynamicLossScale: a configuration must be a mapping; found an"),
        (DynamicLossScale, {"grow": 3}, "DynamicLossScale: .* does not fit: .* argument 'grow'"),
        (FixedLossScale, {}, "FixedLossScale: .* missing a required .* 'loss_scale_value'"),
        (LossScaleOptimizer, {}, "LossScaleOptimizer: .* has no key 'optimizer'"),
        (
            LossScaleOptimizer,
            {**WRAPPED, "when": "if"},
            "unexpected keyword argument 'when'; expected opt",
        ),
        (
            LossScaleOptimizer,
            {**WRAPPED, "loss_scale": {**SCALE, "config": {"value": 2.0}}},
            "FixedLossScale: the configuration does not fit: .* 'loss_scale_value'",
        ),
        (optimizers.Adam, 3, "Adam: a configuration must be a mapping; found .* of type int"),
        (optimizers.Adam, {"speed": 4}, r"Adam: unknown argument; found \['speed'\]"),
        (amp.CrossShardOptimizer, {}, "CrossShardOptimizer: .* missing a required argument: 'opt'"),
        (learning_rate, None, "schedule: a configuration must be a mapping"),
        (learning_rate, STEPS, "ExponentialDecay: .* a required argument: 'initial_learning_rate'"),
    ],
)
def test_a_wrong_configuration_names_the_class_and_the_key(
    kind: Any, config: object, message: str
) -> None:
    with pytest.raises(TypeError, match=message) as caught:
        kind.from_config(config)
    assert isinstance(caught.value, amp.AmpError)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({**WRAPPED, "optimizer": None}, "Could not interpret optimizer identifier; found None"),
        ({**WRAPPED, "optimizer": {**INNER, "config": 3}}, "Could not interpret optimizer"),
        ({**WRAPPED, "loss_scale": {}}, "Could not interpret loss scale identifier; found {}"),
    ],
)
@pytest.mark.parametrize("custom_objects", [None, {"Own": optimizers.Adam}])
def test_a_part_that_denotes_nothing_is_refused(
    config: Mapping[str, Any], custom_objects: Any, message: str
) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        LossScaleOptimizer.from_config(config, custom_objects)
    assert isinstance(caught.value, amp.AmpError)


@pytest.mark.parametrize(
    ("custom_objects", "message"),
    [
        (3, "custom_objects must be a mapping from names to classes .* found 3"),
        ({"Adam": "x"}, "custom_objects must be a mapping .* found 'x'"),
    ],
)
def test_custom_objects_are_classes_by_name(custom_objects: Any, message: str) -> None:
    with pytest.raises(loss_scaling.LossScaleTypeError, match=message):
        LossScaleOptimizer.from_config(WRAPPED, custom_objects)
