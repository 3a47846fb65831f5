"""Optimizers, and the parts of their configurations, are found by name."""

import json
from dataclasses import dataclass
from typing import Any

import pytest

import amp_rewrite as amp
from amp_rewrite import optimizers
from amp_rewrite.loss_scaling import FixedLossScale
from amp_rewrite.optimizers import Adam, Optimizer, Schedule


class Own(Adam):
    """An optimizer of a user's own."""


class OwnScale(FixedLossScale):
    """A loss scale of a user's own."""


@dataclass(frozen=True)
class OwnSchedule(Schedule):
    """A schedule of a user's own."""

    rate: float

    @property
    def base(self) -> float:
        return self.rate

    def factor(self, b, step):
        return b.reciprocal(b.add(step, 1.0))


CUSTOM = {kind.__name__: kind for kind in (Own, OwnScale, OwnSchedule)}


def nested(kind: type[Adam] = Own, schedule: Any = OwnSchedule) -> Optimizer:
    """Return an optimizer in an optimizer in an optimizer, with a schedule in a schedule."""
    inner = kind(optimizers.LinearWarmUp(schedule(0.5), 10))
    return amp.LossScaleOptimizer(amp.CrossShardOptimizer(inner), OwnScale(8.0))


def test_classes_of_the_users_own_are_restored_at_every_depth() -> None:
    config = json.loads(json.dumps(nested().get_config()))
    again = amp.LossScaleOptimizer.from_config(config, CUSTOM)
    assert again.get_config() == config
    assert type(again.loss_scale) is OwnScale
    inner: Any = again.inner_optimizer
    assert type(inner.inner_optimizer) is Own
    assert inner.learning_rate == optimizers.LinearWarmUp(OwnSchedule(0.5), 10)


@pytest.mark.parametrize(
    ("missing", "text"),
    [
        ("Own", "Could not interpret optimizer identifier; found 'Own'"),
        ("OwnScale", "Could not interpret loss scale identifier"),
        ("OwnSchedule", "unknown schedule; found 'OwnSchedule'"),
    ],
)
def test_a_class_that_is_not_known_is_refused(missing: str, text: str) -> None:
    custom = {name: kind for name, kind in CUSTOM.items() if name != missing}
    with pytest.raises(ValueError, match=text):
        amp.LossScaleOptimizer.from_config(nested().get_config(), custom)
