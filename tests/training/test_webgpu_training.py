"""Training in real float16: what WebGPU computes, against the CPU and against its emulation."""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import train_models
from digits import digits
from low_steps import batch

import amp_rewrite as amp
from amp_rewrite.errors import OptionError
from amp_rewrite.graph.io.save import save
from amp_rewrite.loop.epoch_loop import train
from amp_rewrite.loop.plan_and_progress import Plan
from amp_rewrite.targets import CPU
from amp_rewrite.training.session.training_session import TrainingSession
from amp_rewrite.training.step.step import read_step

pytestmark = pytest.mark.webgpu

HIGHEST = 2.0**24
"""A loss scale from which float16 gradients overflow in the first steps."""

NETWORKS: dict[str, Any] = {
    "mlp": lambda: train_models.mlp((16, 32, 4)),
    "cnn": train_models.digits_cnn,
}


def op(proto: Any, conditional: str | None = None) -> Any:
    """Return the TrainOp of Adam, with a dynamic loss scale if updates are conditional."""
    model = amp.load(proto)
    optimizer: Any = amp.optimizers.Adam(1e-3)
    if conditional is not None:
        scale = amp.DynamicLossScale(initial_loss_scale=HIGHEST)
        optimizer = amp.LossScaleOptimizer(optimizer, scale, conditional=conditional)
    return optimizer.minimize(amp.value(model, "loss"))


def run(session: TrainingSession, feeds: Any, steps: int) -> np.ndarray[Any, Any]:
    return np.array([float(session.run(feeds)["loss"]) for _ in range(steps)])


@pytest.mark.share(4)
@pytest.mark.parametrize(
    ("network", "conditional"),
    [("mlp", None), ("cnn", None), ("mlp", "if"), ("mlp", "select"), ("cnn", "select")],
)
def test_float32_steps_are_those_of_the_cpu(
    network: str, conditional: str | None, webgpu: str
) -> None:
    losses, states = [], []
    for provider in (webgpu, CPU):
        with TrainingSession(op(NETWORKS[network](), conditional), [provider]) as session:
            losses.append(run(session, batch(network), 20))
            states.append(session.state_dict())
    np.testing.assert_allclose(losses[0], losses[1], atol=1e-4)
    for name, expected in states[1].items():
        # by the norm: Adam moves a weight whose gradient is next to 0 by its sign, which is chance
        distance = np.linalg.norm(np.asarray(states[0][name]) - expected)
        assert distance <= 1e-4 * (1 + np.linalg.norm(expected)), name


@pytest.mark.parametrize("conditional", ["if", "select"])
def test_float32_steps_with_states_on_the_host_are_those_of_the_cpu(
    conditional: str, webgpu: str, tmp_path: Path
) -> None:
    path = tmp_path / "step.onnx"
    save(amp.build_step(op(NETWORKS["mlp"](), conditional)), path)
    states = {state.name: state.output for state in read_step(path).info.states}
    results: list[dict[str, Any]] = []
    for provider in (webgpu, CPU):
        evaluator, feeds = amp.Evaluator(path, emulate=False, providers=[provider]), batch()
        losses: list[float] = []
        for _ in range(20):
            found = evaluator.run(feeds)
            losses.append(float(found["loss"]))
            feeds = {**feeds, **{given: found[made] for given, made in states.items()}}
        results.append({**{name: feeds[name] for name in states}, "losses": np.array(losses)})
    assert results[0]["losses"][-1] < results[0]["losses"][0]
    for name, expected in results[1].items():
        np.testing.assert_allclose(results[0][name], expected, atol=1e-4, err_msg=name)


@pytest.mark.parametrize("conditional", ["if", "select"])
def test_float16_steps_skip_what_overflows_as_the_emulation_does(
    conditional: str, webgpu: str
) -> None:
    feeds = batch()
    make = partial(op, NETWORKS["mlp"](), conditional)
    with (
        TrainingSession(make(), [webgpu], precision="float16") as real,
        TrainingSession(make(), precision="float16", emulate=True, target="webgpu") as emulated,
    ):
        first = real.state_dict()
        found, expected = run(real, feeds, 1), run(emulated, feeds, 1)
        after = real.state_dict()
        moved = {name for name, array in first.items() if not np.array_equal(array, after[name])}
        assert all(name.startswith("loss_scale/") for name in moved), "a skipped step moves nothing"
        assert after["loss_scale/current_loss_scale"] == HIGHEST / 2
        found = np.append(found, run(real, feeds, 19))
        expected = np.append(expected, run(emulated, feeds, 19))
        skipped = "loss_scale/skipped_steps"
        assert real.state_dict()[skipped] == emulated.state_dict()[skipped] > 0
    np.testing.assert_allclose(found, expected, atol=1e-3)
    assert found[-1] < found[0]


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("network", ["mlp", "cnn"])
def test_digits_are_recognised_in_98_of_100_cases(network: str, seed: int, webgpu: str) -> None:
    data, held = digits()
    proto = train_models.digits_cnn(seed)
    if network == "mlp":
        proto = train_models.mlp((64, 256, 256, 10), seed)
        data, held = (flattened(d) for d in (data, held))
    with TrainingSession(op(proto, "if"), [webgpu], precision="float16", seed=seed) as session:
        train(session, data, Plan(epochs=14 if network == "cnn" else 30, batch=64, seed=seed))
        logits = session.evaluate(held.arrays, "logits")["logits"]
        skipped = session.state_dict()["loss_scale/skipped_steps"]
    assert skipped > 0
    assert (logits.argmax(1) == held.arrays["t"]).mean() >= 0.98


def flattened(data: Any) -> Any:
    return type(data)({**data.arrays, "x": data.arrays["x"].reshape(len(data.arrays["x"]), -1)})


def test_bfloat16_is_refused(webgpu: str) -> None:
    with pytest.raises(OptionError, match="target webgpu does not compute in bfloat16"):
        TrainingSession(op(NETWORKS["mlp"]()), [webgpu], precision="bfloat16")
