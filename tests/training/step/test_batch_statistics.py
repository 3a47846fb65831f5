"""Gradients that read the statistics of BatchNormalization are those that compute them again."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import train_models
from onnx import TensorProto

import amp_rewrite as amp
from amp_rewrite import optimizers
from amp_rewrite.training.session import program_cache
from amp_rewrite.training.step.batch_statistics import share_statistics


def network(momentum: float = 0.9) -> Any:
    """Return a network with two normalizations of channels and one of features: x (N, 3, 6, 5)."""
    net = train_models.Net(0)
    x = net.input("x", TensorProto.FLOAT, "N", 3, 6, 5)
    t = net.input("t", TensorProto.INT64, "N")
    x = net.op("Relu", net.conv(x, "first", 3, 4))
    x = net.op("Tanh", net.conv(x, "second", 4, 8, step=2))
    x = net.linear(net.op("Flatten", x, axis=1), "hidden", 72, 6)
    parts = [("scale", 1), ("bias", 0), ("mean", 0.5), ("var", 2)]
    norm = [net.full(f"hidden.{part}", value, 6) for part, value in parts]
    x = net.op("BatchNormalization", x, *norm, momentum=momentum)
    net.loss(net.op("Identity", net.linear(x, "last", 6, 5), name="logits"), t, 5)
    return net.model("normalized")


def batch(seed: int, examples: int = 8) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    x = rng.normal(3, 2, (examples, 3, 6, 5)).astype(np.float32)
    return {"x": x, "t": rng.integers(0, 5, examples)}


def scaled(mode: str) -> Any:
    scale = amp.DynamicLossScale(initial_loss_scale=2.0**10, increment_period=3)
    return amp.LossScaleOptimizer(optimizers.Momentum(0.05, 0.9), scale, conditional=mode)


KINDS: dict[str, Callable[[], Any]] = {
    "plain": lambda: optimizers.Momentum(0.05, 0.9),
    "if": lambda: scaled("if"),
    "select": lambda: scaled("select"),
    "averages": lambda: optimizers.WeightAverage(optimizers.Momentum(0.05, 0.9), decay=0.9),
}


def trained(
    kind: str, fed: list[dict[str, Any]], momentum: float = 0.9, **options: Any
) -> dict[str, Any]:
    """Return what the last step gives, an evaluation, and the states."""
    loss = amp.value(amp.load(network(momentum)), "loss")
    with amp.TrainingSession(KINDS[kind]().minimize(loss, **options)) as session:
        losses = [session.run(feeds)["loss"] for feeds in fed]
        seen = session.evaluate(batch(99))["loss"]
        return {"losses": np.array(losses), "seen": seen, **session.state_dict()}


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Return what will hold how many means a program computes, before and after."""
    found: list[tuple[int, int]] = []

    def means(model: Any) -> int:
        return sum(node.op_type == "ReduceMean" for node in model.graph)

    def share(model: Any) -> None:
        before = means(model)
        share_statistics(model)
        found.append((before, means(model)))

    monkeypatch.setattr(program_cache, "share_statistics", share)
    return found


@pytest.mark.share(3, each="kind")
@pytest.mark.parametrize(
    ("kind", "momentum", "options"),
    [
        ("plain", 0.9, {}),
        ("plain", 0.0, {}),
        ("plain", 1.0, {}),
        ("if", 0.5, {}),
        ("select", 0.9, {}),
        ("averages", 0.9, {}),
        ("plain", 0.9, {"accumulate": 2}),
        ("plain", 0.9, {"recompute": "every block"}),
    ],
)
def test_steps_are_the_same(
    kind: str,
    momentum: float,
    options: dict[str, Any],
    counted: list[tuple[int, int]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fed = [batch(0), batch(1), batch(2, 5), batch(3)]
    found = trained(kind, fed, momentum, **options)
    assert counted[0][0] == 6
    assert counted[0][1] == 0 or "recompute" in options
    monkeypatch.setattr(program_cache, "share_statistics", lambda _: None)
    expected = trained(kind, fed, momentum, **options)
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_allclose(found[name], array, rtol=1e-5, atol=1e-6, err_msg=name)


@pytest.mark.usefixtures("counted")
@pytest.mark.parametrize("kind", ["if", "select"])
def test_a_skipped_step_moves_no_running_statistics(kind: str) -> None:
    loss = amp.value(amp.load(network()), "loss")
    with amp.TrainingSession(KINDS[kind]().minimize(loss)) as session:
        session.run(batch(0))
        before = session.state_dict()
        overflowing = batch(1)
        overflowing["x"][0, 0, 0, 0] = np.inf
        session.run(overflowing)
        after = session.state_dict()
        assert after["loss_scale/skipped_steps"] == 1
        for name in (n for n in before if n.endswith((".mean", ".var", ".weight", ".scale"))):
            np.testing.assert_array_equal(after[name], before[name], err_msg=name)
        assert np.isfinite(session.run(batch(2))["loss"])
        assert all(np.isfinite(a).all() for a in session.state_dict().values())


@pytest.mark.usefixtures("counted")
def test_steps_after_a_variance_overflowed_are_as_before() -> None:
    loss = amp.value(amp.load(network()), "loss")
    with amp.TrainingSession(optimizers.GradientDescent(0.05).minimize(loss)) as session:
        session.run({**batch(0), "x": np.full_like(batch(0)["x"], 1e25) * batch(1)["x"]})
        assert np.isinf(session.state_dict()["first.var"]).all()
        losses = [session.run(batch(2))["loss"] for _ in range(5)]
        assert np.all(np.diff(losses) < 0)


@pytest.mark.usefixtures("counted")
def test_a_mean_that_the_model_gives_stays_one() -> None:
    net = train_models.Net(0)
    x = net.input("x", TensorProto.FLOAT, "N", 3, 6, 5)
    t = net.input("t", TensorProto.INT64, "N")
    norm = [net.full(f"norm.{part}", value, 3) for part, value in (("s", 1), ("b", 0))]
    norm += [net.full(f"norm.{part}", value, 3) for part, value in (("m", 0), ("v", 1))]
    y = net.op("BatchNormalization", x, *norm)
    axes = net.constant("axes", np.array([0, 2, 3]))
    mean = net.op("ReduceMean", x, axes, name="mean")
    apart = net.op("Sub", x, mean)
    variance = net.op("ReduceMean", net.op("Mul", apart, apart), axes, name="variance")
    y = net.op("Add", net.op("Mul", y, variance), mean)
    y = net.linear(net.op("Flatten", y, axis=1), "last", 90, 5)
    net.loss(net.op("Identity", y, name="logits"), t, 5)
    loss = amp.value(amp.load(net.model("means")), "loss")
    with amp.TrainingSession(optimizers.GradientDescent(0.05).minimize(loss)) as session:
        got = session.run(batch(0), ["mean", "variance"])
    given = batch(0)["x"]
    np.testing.assert_allclose(got["mean"].ravel(), given.mean((0, 2, 3)), rtol=1e-5)
    np.testing.assert_allclose(got["variance"].ravel(), given.var((0, 2, 3)), rtol=1e-5)
