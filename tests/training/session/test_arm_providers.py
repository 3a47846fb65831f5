"""Sessions for Arm begin on Arm machines only, or where they emulate."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import train_models

import amp_rewrite as amp
from amp_rewrite.errors import OptionError
from amp_rewrite.training.session import arm_providers
from amp_rewrite.training.session.arm_providers import on_arm

ON_ARM: Any = [
    {"target": "cpu-arm64"},
    {"providers": ["cpu-arm64"]},
    {"providers": ["CPUExecutionProvider"], "target": "cpu-arm64"},
]


def session(**given: Any) -> amp.TrainingSession:
    loss = amp.value(amp.load(train_models.mlp((8, 16, 3))), "loss")
    return amp.TrainingSession(amp.optimizers.Adam().minimize(loss), **given)


@pytest.mark.parametrize("given", ON_ARM)
def test_a_session_for_arm_is_refused_on_other_machines(
    given: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arm_providers, "is_arm", lambda: False)
    with pytest.raises(OptionError, match=r"on Arm machines only.*emulate=True") as caught:
        session(**given)
    assert "\n" not in str(caught.value)


def test_an_emulated_session_begins_anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arm_providers, "is_arm", lambda: False)
    assert session(target="cpu-arm64", emulate=True).info.states


@pytest.mark.parametrize("given", ON_ARM)
def test_a_session_trains_on_an_arm_machine(
    given: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arm_providers, "is_arm", lambda: True)
    trained = session(**given)
    found = trained.run({"x": np.ones((4, 8), np.float32), "t": np.zeros(4, np.int64)})
    assert np.isfinite(found["loss"])


def test_options_of_providers_and_other_targets_stay() -> None:
    given = [("CUDAExecutionProvider", {"device_id": 1}), "CPUExecutionProvider"]
    assert on_arm(given, None, emulate=False) == given
    assert on_arm(given, "webgpu", emulate=False) == given
