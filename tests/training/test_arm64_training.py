"""Steps in float16 on an Arm processor, against their emulation and float32 on this one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import train_models
from low_steps import batch

import amp_rewrite as amp
from amp_rewrite import targets
from amp_rewrite.dtypes import FLOAT16
from amp_rewrite.graph.io.save import save
from amp_rewrite.numerics.emulate.low_sums import kept_low
from amp_rewrite.training.step.step import read_step

pytestmark = pytest.mark.arm64

STEPS = 5
NETWORKS: dict[str, Any] = {
    "mlp": lambda: train_models.mlp((16, 32, 4)),
    "cnn": lambda: train_models.digits_cnn(dropout=0.0),
}


def step(network: str, path: Path, conditional: Any, **options: Any) -> Path:
    """Write a step of Adam with a dynamic loss scale."""
    scale = amp.DynamicLossScale(initial_loss_scale=2.0**10)
    optimizer = amp.LossScaleOptimizer(amp.optimizers.Adam(1e-3), scale, conditional=conditional)
    loss = amp.value(amp.load(NETWORKS[network]()), "loss")
    save(amp.build_step(optimizer.minimize(loss), **options), path)
    return path


def run(
    path: Path, evaluator: amp.Evaluator, feeds: dict[str, Any]
) -> tuple[list[float], dict[str, Any]]:
    """Run a step five times; return the losses and the states."""
    states = {state.name: state.output for state in read_step(path).info.states}
    losses = list[float]()
    for _ in range(STEPS):
        found = evaluator.run(feeds)
        losses.append(float(found["loss"]))
        feeds = {**feeds, **{given: found[made] for given, made in states.items()}}
    return losses, {name: feeds[name] for name in states}


def distance(found: dict[str, Any], expected: dict[str, Any]) -> float:
    """Return how far all states are from others, relative to their size."""
    pairs = [(np.ravel(found[name]), np.ravel(each)) for name, each in expected.items()]
    a, b = (np.concatenate([np.asarray(pair[k], np.float64) for pair in pairs]) for k in (0, 1))
    return float(np.linalg.norm(a - b) / np.linalg.norm(b))


@pytest.mark.parametrize(("network", "conditional"), [("mlp", "if"), ("cnn", "select")])
def test_five_float16_steps_are_those_of_the_emulation(
    network: str, conditional: str, arm64: Any, tmp_path: Path
) -> None:
    wide = step(network, tmp_path / "wide.onnx", conditional)
    given: dict[str, Any] = {"precision": "float16", "target": "cpu-arm64"}
    low = step(network, tmp_path / "low.onnx", conditional, **given)
    feeds = batch(network)
    losses, states = run(low, arm64(low), feeds)
    sums = kept_low(targets.find("cpu-arm64"), FLOAT16)
    predicted, emulated = run(low, amp.Evaluator(low, accumulate_low=sums), feeds)
    expected, original = run(wide, amp.Evaluator(wide, emulate=False), feeds)
    assert losses[-1] < losses[0]
    np.testing.assert_allclose(losses, predicted, rtol=0.01)
    np.testing.assert_allclose(losses, expected, rtol=0.03)
    for each in (states, emulated, original):  # counters and the scale would hide the others
        for name in list(each):
            if name.startswith("loss_scale/") or np.ndim(each[name]) == 0:
                del each[name]
    assert distance(states, emulated) <= distance(emulated, original) / 3
