"""Training on OpenVINO: all that a session does, held to ONNX Runtime's on the same batches."""

import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import train_models
from digits import digits
from onnx import TensorProto
from thread_shards import on_threads

import amp_rewrite as amp
from amp_rewrite import optimizers
from amp_rewrite.cli.main import main
from amp_rewrite.graph.io.save import save
from amp_rewrite.graph.metadata_keys import DROPOUT_KEY
from amp_rewrite.loop.epoch_loop import train
from amp_rewrite.loop.plan_and_progress import Plan
from amp_rewrite.runtimes.openvino.compiled_model import Binding
from amp_rewrite.targets import CPU
from amp_rewrite.training.session.compiled_program import STATIC
from amp_rewrite.training.session.training_session import TrainingSession

pytestmark = [pytest.mark.openvino, pytest.mark.usefixtures("openvino")]

OPENVINO = "openvino"
NEAR = 1e-5
"""Relative to the norm of a tensor: float32 sums in another order."""


def network(static: int | None = None) -> Any:
    """Return a dense network with normalization and Dropout: x (N, 12), t (N)."""
    net = train_models.Net(0)
    batch = "N" if static is None else static
    x = net.input("x", TensorProto.FLOAT, batch, 12)
    t = net.input("t", TensorProto.INT64, batch)
    ratio = net.constant("ratio", np.float32(0.25))
    x = net.op("Tanh", net.norm(net.linear(x, "first", 12, 24), "norm", 24))
    x = net.op("Dropout", x, ratio)
    parts = [("scale", 1), ("bias", 0), ("mean", 0), ("var", 1)]
    known = [net.full(f"batch_norm.{part}", value, 24) for part, value in parts]
    x = net.op("BatchNormalization", x, *known, momentum=0.9)
    x = net.linear(net.op("Tanh", net.linear(x, "second", 24, 24)), "last", 24, 5)
    net.loss(net.op("Identity", x, name="logits"), t, 5)
    return net.model("dense")


def batch(seed: int, examples: int = 8) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(examples, 12)).astype(np.float32)
    return {"x": x, "t": rng.integers(0, 5, examples)}


def scaled(optimizer: Any, mode: str = "if") -> Any:
    scale = amp.DynamicLossScale(initial_loss_scale=2.0**10, increment_period=3)
    return amp.LossScaleOptimizer(optimizer, scale, conditional=mode)


def momentum() -> Any:
    return optimizers.Momentum(0.01, 0.9)


def minimized(optimizer: Callable[[], Any], **options: Any) -> Callable[[], Any]:
    """Return what builds a step of the network anew."""

    def build() -> Any:
        return optimizer().minimize(amp.value(amp.load(network()), "loss"), **options)

    return build


def grouped() -> Any:
    base = optimizers.AdamW(optimizers.LinearWarmUp(1e-3, 5), weight_decay=0.01)
    head = optimizers.ParameterGroup(variables="last*", name="head", learning_rate=0.01)
    slow = optimizers.ParameterGroup(variables="first*", rate_multiplier=0.1)
    return scaled(optimizers.ParameterGroups(base, [slow, head], no_decay="bias"))


def two_losses() -> Any:
    model = amp.load(network())
    loss, logits = amp.value(model, "loss"), amp.value(model, "logits")
    return optimizers.group(
        momentum().minimize(loss, var_list=["first.weight", "second.weight"]),
        optimizers.GradientDescent(0.01).minimize(
            (logits * logits).mean(), var_list=["last.weight"]
        ),
    )


FEATURES: dict[str, Callable[[], Any]] = {
    "sgd": minimized(lambda: optimizers.GradientDescent(0.01)),
    "adam with a schedule": minimized(lambda: optimizers.Adam(optimizers.LinearWarmUp(1e-3, 5))),
    "loss scale": minimized(lambda: scaled(momentum())),
    "loss scale by select": minimized(lambda: scaled(momentum(), "select")),
    "accumulation": minimized(lambda: scaled(momentum()), accumulate=2),
    "averages": minimized(lambda: scaled(optimizers.WeightAverage(momentum(), decay=0.9))),
    "clipping": minimized(lambda: optimizers.Momentum(0.01, 0.9, global_clipnorm=0.5)),
    "groups": minimized(grouped),
    "two losses": two_losses,
}


def near(found: Any, expected: Any, name: str, tolerance: float = NEAR) -> None:
    """Check a tensor against another one, by the norm; numbers must be the same."""
    if np.shape(expected) == () and np.asarray(expected).dtype.kind in "iub":
        np.testing.assert_array_equal(found, expected, err_msg=name)
        return
    wide = np.asarray(expected, np.float64)
    distance = np.linalg.norm(np.asarray(found, np.float64) - wide)
    assert distance <= tolerance * (np.linalg.norm(wide) + 1e-3), (name, distance)


def agree(found: TrainingSession, expected: TrainingSession, tolerance: float = NEAR) -> None:
    """Check all states of a session against those of another one."""
    states, wanted = found.state_dict(), expected.state_dict()
    assert states.keys() == wanted.keys()
    for name, array in wanted.items():
        assert states[name].dtype == array.dtype, name
        near(states[name], array, name, tolerance)


@pytest.mark.share(7)
@pytest.mark.parametrize("feature", FEATURES)
def test_what_a_session_does_is_what_it_does_on_onnx_runtime(feature: str) -> None:
    build = FEATURES[feature]
    # where a sum is off by a bit, what is rounded by chance may be off by a bit of bfloat16
    tolerance = 1e-2 if "bfloat16" in feature else NEAR
    with TrainingSession(build(), [OPENVINO]) as found, TrainingSession(build()) as expected:
        for step in range(20):
            fed = batch(step, examples=5 if step % 7 == 6 else 8)
            losses = [session.run(fed)["loss"] for session in (found, expected)]
            near(losses[0], losses[1], f"loss of step {step}", tolerance)
        agree(found, expected, tolerance)
        fed = batch(99)
        near(found.evaluate(fed)["loss"], expected.evaluate(fed)["loss"], "evaluated", tolerance)
        if found.info.averages:
            losses = [s.evaluate(fed, averaged=True)["loss"] for s in (found, expected)]
            near(losses[0], losses[1], "averaged")


@pytest.mark.parametrize("mode", ["if", "select"])
def test_a_skipped_step_changes_no_bit_but_those_of_the_loss_scale(mode: str) -> None:
    build = minimized(lambda: scaled(optimizers.Adam(1e-3), mode))
    fetches = ["loss", "grads_finite", "loss_scale", "outcome"]
    with TrainingSession(build(), [OPENVINO]) as found, TrainingSession(build()) as expected:
        for step in range(8):
            fed = batch(step)
            if step in (3, 4):
                fed["x"][:] = np.inf
            before = found.state_dict()
            told, wanted = (session.run(fed, fetches) for session in (found, expected))
            assert {k: str(v) for k, v in told.items() if k != "loss"} == {
                k: str(v) for k, v in wanted.items() if k != "loss"
            }
            assert bool(told["grads_finite"]) == (step not in (3, 4))
            kept = {n for n in before if n.partition("/")[0] not in ("loss_scale", "random")}
            after = found.state_dict()
            same = {name for name in kept if np.array_equal(before[name], after[name])}
            assert same == (kept if step in (3, 4) else {"learning_rate"})
        agree(found, expected)


def test_a_checkpoint_goes_on_in_either_engine(tmp_path: Path) -> None:
    build, path = FEATURES["loss scale"], tmp_path / "c.safetensors"
    with TrainingSession(build(), [OPENVINO]) as first, TrainingSession(build()) as second:
        for step in range(3):
            first.run(batch(step))
        first.save(path, {"step": 3})
        assert second.restore(path) == {"step": 3}
        for name, array in first.state_dict().items():
            np.testing.assert_array_equal(second.state_dict()[name], array, err_msg=name)
        first.run(batch(3))
        second.run(batch(3))
        agree(first, second)
        second.save(path)
        first.restore(path)
        first.run(batch(4))
        second.run(batch(4))
        agree(first, second)


@pytest.mark.parametrize("static", [None, 8])
def test_step_files_run_with_free_and_fixed_lengths(static: int | None, tmp_path: Path) -> None:
    loss = amp.value(amp.load(network(static)), "loss")
    path = tmp_path / "step.onnx"
    save(amp.build_step(scaled(momentum()).minimize(loss)), path)
    with TrainingSession(path, [OPENVINO]) as found, TrainingSession(path) as expected:
        for step in range(3):
            losses = [s.run(batch(step))["loss"] for s in (found, expected)]
            near(losses[0], losses[1], "loss")
        agree(found, expected)
        exported = found.export()
        near(amp.evaluate(exported, batch(9))["loss"], found.evaluate(batch(9))["loss"], "exported")


def test_counters_go_past_what_32_bits_hold() -> None:
    build = minimized(lambda: scaled(optimizers.Adam(optimizers.LinearWarmUp(1e-3, 5))))
    with TrainingSession(build(), [OPENVINO]) as found, TrainingSession(build()) as expected:
        numbers = {name: a for name, a in found.state_dict().items() if a.dtype == np.int64}
        assert {"global_step", "random/counter", "loss_scale/skipped_steps"} <= numbers.keys()
        for start in (2**31 - 2, 2**32 - 2, 2**40):
            far = {"global_step": start, "random/counter": start, "loss_scale/skipped_steps": start}
            for session in (found, expected):
                for name, number in far.items():
                    session.assign_state(name, np.array(number, np.int64))
            for step in range(4):
                losses = [s.run(batch(step))["loss"] for s in (found, expected)]
                near(losses[0], losses[1], "loss")
            assert found.state_dict()["global_step"] == start + 4
            agree(found, expected)


def mask_of(session: TrainingSession, feeds: Any) -> Any:
    """Run a step; return what Dropout let through."""
    nodes = session._step.model.graph  # pyright: ignore[reportPrivateUsage]
    name = next(str(node.inputs[0].name) for node in nodes if DROPOUT_KEY in node.metadata_props)
    return session.run(feeds, name)[name]


@pytest.mark.parametrize("steps", [20, pytest.param(1000, marks=pytest.mark.slow)])
def test_masks_and_counters_are_the_same_bit_for_bit(steps: int) -> None:
    build = FEATURES["adam with a schedule"]
    with (
        TrainingSession(build(), [OPENVINO], seed=7) as found,
        TrainingSession(build(), seed=7) as expected,
    ):
        for step in range(steps):
            fed = batch(step, examples=4096 if step % 5 == 0 else 7)
            masks = [mask_of(session, fed) for session in (found, expected)]
            np.testing.assert_array_equal(masks[0], masks[1], err_msg=str(step))
        states, wanted = found.state_dict(), expected.state_dict()
        for name in ("global_step", "random/counter", "beta1_power", "beta2_power"):
            np.testing.assert_array_equal(states[name], wanted[name], err_msg=name)


def test_shards_sum_gradients_that_openvino_computes() -> None:
    def run(shards: Any, provider: str) -> tuple[dict[str, Any], list[float]]:
        with shards:
            optimizer = scaled(amp.CrossShardOptimizer(momentum()))
            train_op = optimizer.minimize(amp.value(amp.load(network()), "loss"))
        with TrainingSession(train_op, [provider], shards=shards, threads=1) as session:
            losses = [
                float(session.run(batch(10 * step + shards.rank))["loss"]) for step in range(4)
            ]
            return session.state_dict(), losses

    found, expected = (
        on_threads(2, lambda shards, provider=provider: run(shards, provider))
        for provider in (OPENVINO, CPU)
    )
    for rank in range(2):
        near(found[rank][1], expected[rank][1], "losses")
        for name, array in expected[rank][0].items():
            near(found[rank][0][name], array, name)


def test_a_trainer_trains_on_it(tmp_path: Path) -> None:
    whole = batch(0, examples=50)
    with amp.Trainer(FEATURES["loss scale"](), providers=[OPENVINO]) as trainer:
        history = trainer.train(
            whole, epochs=3, batch=16, eval=whole, checkpoint=tmp_path / "c.safetensors"
        )
        assert history.evaluation is not None
        trainer.session.export(tmp_path / "trained.onnx")
    assert (tmp_path / "trained.onnx").exists()
    assert (tmp_path / "c.safetensors").exists()


@pytest.mark.usefixtures("bfloat16_processor")
def test_steps_in_real_bfloat16_follow_float32() -> None:
    build = FEATURES["adam with a schedule"]
    with (
        TrainingSession(build(), [OPENVINO], precision="bfloat16", target="openvino") as low,
        TrainingSession(build()) as expected,
    ):
        assert low.info.precision == "bfloat16"
        rewriting = low._step.rewriting  # pyright: ignore[reportPrivateUsage]
        assert rewriting is not None
        assert rewriting.report.summary.compute_converted == 1.0
        runs = [[float(s.run(batch(step))["loss"]) for step in range(20)] for s in (low, expected)]
        assert runs[0] != runs[1], "the products are rounded"
        assert runs[0] == pytest.approx(runs[1], rel=0.02)
        found, wanted = low.state_dict(), expected.state_dict()
        for name in ("global_step", "random/counter", "beta1_power", "beta2_power"):
            np.testing.assert_array_equal(found[name], wanted[name], err_msg=name)
        assert found["first.weight"].dtype == np.float32


def command(*arguments: str | Path) -> int:
    """Return the exit status of the command."""
    with pytest.raises(SystemExit) as end:
        main([str(argument) for argument in arguments])
    return int(end.value.code or 0)


@pytest.mark.usefixtures("bfloat16_processor")
def test_the_command_trains_a_step_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, step, trained = (tmp_path / f"{name}.onnx" for name in ("model", "step", "trained"))
    save(amp.load(network()), model)
    np.savez(tmp_path / "data.npz", **batch(0, examples=40))
    precision = ["--precision", "bfloat16", "--target", OPENVINO]
    assert not command("train-step", model, "-o", step, "--loss", "loss", *precision)
    run = ["train", step, "--data", tmp_path / "data.npz", "--epochs", "2", "--batch", "16"]
    assert not command(*run, "--provider", OPENVINO, "-o", trained)
    assert "2 epochs, 6 steps" in capsys.readouterr().out
    assert trained.exists()


def test_batches_of_many_sizes_share_what_is_compiled_for_any() -> None:
    build = FEATURES["sgd"]
    with TrainingSession(build(), [OPENVINO]) as found, TrainingSession(build()) as expected:
        # from 3 on: what BatchNormalization makes of two examples depends on their rounding
        for size in (*range(3, STATIC + 6), 3):
            losses = [s.run(batch(size, size))["loss"] for s in (found, expected)]
            near(losses[0], losses[1], f"loss of {size}")
        agree(found, expected)


@pytest.mark.parametrize("size", [3, 7])
def test_convolutions_train_with_small_and_large_kernels(size: int) -> None:
    net = train_models.Net(0)
    x = net.input("x", TensorProto.FLOAT, "N", 16, 9, 9)
    t = net.input("t", TensorProto.INT64, "N")
    x = net.op("Tanh", net.conv(x, "first", 16, 8, size, 2))
    x = net.linear(net.op("Flatten", x, axis=1), "last", 8 * 25, 5)
    net.loss(net.op("Identity", x, name="logits"), t, 5)
    proto = net.model("convolved")

    def fed(step: int, examples: int) -> dict[str, Any]:
        rng = np.random.default_rng(step)
        images = rng.normal(size=(examples, 16, 9, 9)).astype(np.float32)
        return {"x": images, "t": rng.integers(0, 5, examples)}

    def build() -> Any:
        return momentum().minimize(amp.value(amp.load(proto), "loss"))

    with TrainingSession(build(), [OPENVINO]) as found, TrainingSession(build()) as expected:
        for step in range(6):
            losses = [s.run(fed(step, 4 + step))["loss"] for s in (found, expected)]
            near(losses[0], losses[1], f"loss of step {step}")
        agree(found, expected)


def test_a_step_that_is_interrupted_in_the_middle_changes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    build, run = FEATURES["loss scale"], Binding.run
    with TrainingSession(build(), [OPENVINO]) as session, TrainingSession(build()) as expected:
        session.run(batch(0))
        before = session.state_dict()

        def interrupted(binding: Binding, failure: str) -> None:
            run(binding, failure)
            signal.raise_signal(signal.SIGINT)

        monkeypatch.setattr(Binding, "run", interrupted)
        with pytest.raises(KeyboardInterrupt):
            session.run(batch(1))
        monkeypatch.undo()
        for name, array in session.state_dict().items():
            np.testing.assert_array_equal(array, before[name], err_msg=name)
        session.run(batch(1))
        for step in range(2):
            expected.run(batch(step))
        agree(session, expected)


def accuracy(proto: Any, data: Any, held: Any, seed: int, **options: Any) -> float:
    """Return what share of held-out digits a network recognises after 10 epochs of Adam."""
    train_op = optimizers.Adam(1e-3).minimize(amp.value(amp.load(proto), "loss"))
    with TrainingSession(train_op, seed=seed, **options) as session:
        train(session, data, Plan(epochs=10, batch=64, seed=seed))
        logits = session.evaluate(held.arrays, "logits")["logits"]
    return float((logits.argmax(1) == held.arrays["t"]).mean())


def flattened(data: Any) -> Any:
    return type(data)({**data.arrays, "x": data.arrays["x"].reshape(len(data.arrays["x"]), -1)})


@pytest.mark.slow
@pytest.mark.usefixtures("bfloat16_processor")
@pytest.mark.parametrize("network", ["mlp", "cnn"])
def test_bfloat16_recognises_as_many_digits_as_float32(network: str) -> None:
    shares: list[list[float]] = []
    for seed in range(3):
        data, held = digits()
        proto = train_models.digits_cnn(seed)
        if network == "mlp":
            proto = train_models.mlp((64, 256, 256, 10), seed)
            data, held = (flattened(d) for d in (data, held))
        run = partial(accuracy, proto, data, held, seed)
        shares.append([run(), run(providers=[OPENVINO]), run(providers=[OPENVINO],
                                                             precision="bfloat16")])  # fmt: skip
    found = np.array(shares)
    assert found.min() > 0.96, found
    spread = np.ptp(found[:, 0])
    assert abs(found[:, 2].mean() - found[:, 0].mean()) <= max(spread, 0.005), found
