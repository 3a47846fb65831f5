"""A loss scale injected into a float32 step of this package, against LossScaleOptimizer."""

from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
import train_models

import amp_rewrite as amp
from amp_rewrite.errors import StepError
from amp_rewrite.graph.metadata_keys import PART_KEY
from amp_rewrite.graph.step_part import Part
from amp_rewrite.loss_scaling import DynamicLossScale, LossScaleOptimizer
from amp_rewrite.training.inject import inject_loss_scaling
from amp_rewrite.training.step.read_info import read_info

NETWORKS = {
    "mlp": lambda: (train_models.mlp((6, 12, 3)), "x"),
    "digits_cnn": lambda: (train_models.digits_cnn(dropout=0.25), "x"),
    "transformer": lambda: (train_models.transformer(11, 8, 8, 2, 1), None),
}
OPTIMIZERS = {
    "Adam": lambda: amp.optimizers.Adam(0.01),
    "Momentum": lambda: amp.optimizers.Momentum(0.05, 0.9),
    "clipped": lambda: amp.optimizers.GradientDescent(0.05, global_clipnorm=0.5),
}
MODES = ("if", "select")
SCALE = DynamicLossScale(2.0**10, increment_period=2)


def network(name: str) -> tuple[ir.Model, str | None]:
    proto, data = NETWORKS[name]()
    return amp.load(proto), data


def op_of(name: str, optimizer: Any) -> Any:
    model = network(name)[0]
    return optimizer.minimize(amp.value(model, "loss"))


def batch(session: Any, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    found = {}
    for name, value in session._inputs.declared.items():
        shape = [d if isinstance(d, int) else 5 for d in value.shape]
        integers = value.dtype is ir.DataType.INT64
        array = rng.integers(0, 3, shape) if integers else rng.normal(size=shape)
        found[name] = array.astype(value.dtype.numpy())
    return found


@pytest.mark.share(11)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", NETWORKS)
def test_it_trains_as_the_step_that_the_loss_scale_optimizer_builds(name: str, mode: str):
    plain = amp.build_step(op_of(name, OPTIMIZERS["Adam"]()))
    injected = inject_loss_scaling(plain, loss_scale=SCALE, conditional=mode)
    wrapped = LossScaleOptimizer(OPTIMIZERS["Adam"](), SCALE, conditional=mode)
    with (
        amp.TrainingSession(injected) as one,
        amp.TrainingSession(op_of(name, wrapped)) as other,
    ):
        for step in range(5):
            feeds = batch(one, step)
            found, expected = one.run(feeds), other.run(feeds)
            assert found["loss"] == pytest.approx(expected["loss"], rel=1e-5)
            assert found["grads_finite"]
        theirs = other.state_dict()
        assert theirs.keys() == one.state_dict().keys()
        for key, value in one.state_dict().items():
            np.testing.assert_allclose(value, theirs[key], rtol=1e-4, atol=1e-6, err_msg=key)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_power_of_two_changes_no_bit_of_the_updates(optimizer: str):
    plain = amp.build_step(op_of("mlp", OPTIMIZERS[optimizer]()))
    injected = inject_loss_scaling(plain, loss_scale=SCALE)
    with amp.TrainingSession(plain) as one, amp.TrainingSession(injected) as other:
        for step in range(3):
            feeds = batch(one, step)
            one.run(feeds)
            other.run(feeds)
        scaled = other.state_dict()
        for key, value in one.state_dict().items():
            np.testing.assert_array_equal(scaled[key], value, err_msg=key)


@pytest.mark.share(3)
@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ["mlp", "digits_cnn"])
def test_a_step_with_bad_gradients_changes_nothing_but_the_scale(name: str, mode: str, bad: float):
    plain = amp.build_step(op_of(name, OPTIMIZERS["Adam"]()))
    with amp.TrainingSession(inject_loss_scaling(plain, conditional=mode)) as session:
        session.run(batch(session))
        before = session.state_dict()
        feeds = batch(session, 1)
        feeds["x"].flat[0] = bad
        found = session.run(feeds, ["grads_finite", "loss_scale", "skipped_steps"])
        after = session.state_dict()
        assert not found["grads_finite"]
        assert found["loss_scale"] == 2**15
        assert found["skipped_steps"] == after["loss_scale/consecutive_skips"] == 1
        assert after["loss_scale/current_loss_scale"] == 2**14
        for key, value in before.items():
            if not key.startswith(("loss_scale/", "random/")):
                assert value.tobytes() == after[key].tobytes(), key
        assert session.run(batch(session, 2))["grads_finite"]
        assert session.global_step == 2


@pytest.mark.parametrize(
    ("scale", "finite", "expected"),
    [
        (DynamicLossScale(1, 2), "TTTTTT", [1, 2, 2, 4, 4, 8]),
        (DynamicLossScale(16, 2), "FFFFFF", [8, 4, 2, 1, 1, 1]),
        (DynamicLossScale(1, 2), "TTTFT", [1, 2, 2, 1, 1]),
        (DynamicLossScale(1, 1), "TTTFTT", [2, 4, 8, 4, 8, 16]),
        (DynamicLossScale(4, 2, 3), "TTFTT", [4, 12, 4, 4, 12]),
    ],
)
def test_the_scale_follows_the_gradients(
    scale: DynamicLossScale, finite: str, expected: list[float]
):
    plain = amp.build_step(op_of("mlp", amp.optimizers.GradientDescent(1e-6)))
    with amp.TrainingSession(inject_loss_scaling(plain, loss_scale=scale)) as session:
        found = []
        for letter in finite:
            feeds = batch(session)
            feeds["x"] *= np.float32(1 if letter == "T" else np.nan)
            session.run(feeds)
            found.append(float(session.read_state("loss_scale/current_loss_scale")))
    assert found == expected


@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
def test_a_step_that_has_been_rewritten_keeps_its_precision(precision: str):
    plain = amp.build_step(op_of("mlp", OPTIMIZERS["Adam"]()), precision=precision)
    injected = inject_loss_scaling(plain)
    assert read_info(injected).precision == precision
    with amp.TrainingSession(injected, emulate=True) as session:
        out = session.run(batch(session), ["grads_finite", "logits"])
        assert out["grads_finite"]
        assert out["logits"].dtype == np.float32
    with pytest.raises(StepError, match="has been rewritten already"):
        inject_loss_scaling(plain, precision={"float16": "bfloat16"}.get(precision, "float16"))


def test_a_fixed_scale_skips_what_is_not_finite_and_counts_it():
    plain = amp.build_step(op_of("mlp", OPTIMIZERS["Adam"]()))
    injected = inject_loss_scaling(plain, loss_scale=8)
    with amp.TrainingSession(injected) as session:
        feeds = batch(session)
        assert str(session.run(feeds, "outcome")["outcome"]) == "applied"
        before = session.state_dict()
        bad = {k: np.full_like(v, np.nan) if v.dtype.kind == "f" else v for k, v in feeds.items()}
        found = session.run(bad, ["grads_finite", "skipped_steps", "loss_scale"])
        assert (bool(found["grads_finite"]), int(found["skipped_steps"])) == (False, 1)
        assert found["loss_scale"] == 8
        changed = [k for k, v in session.state_dict().items() if (v != before[k]).any()]
        assert changed == ["loss_scale/skipped_steps", "loss_scale/consecutive_skips"]


def test_an_unchecked_scale_checks_nothing_and_adds_no_state():
    plain = amp.build_step(op_of("mlp", OPTIMIZERS["Adam"]()))
    injected = inject_loss_scaling(plain, loss_scale=amp.UncheckedLossScale(8))
    assert {node.op_type for node in injected.graph}.isdisjoint({"If", "ReduceSumSquare"})
    assert read_info(injected).names == read_info(plain).names
    with amp.TrainingSession(plain) as one, amp.TrainingSession(injected) as other:
        feeds = batch(one)
        found = other.run(feeds)
        assert found == {"loss": one.run(feeds)["loss"]}
        for key, value in one.state_dict().items():
            np.testing.assert_array_equal(other.state_dict()[key], value)


@pytest.mark.parametrize("mode", MODES)
def test_the_result_is_valid_and_runs_from_a_file(mode: str, tmp_path: Any):
    plain = amp.build_step(op_of("mlp", OPTIMIZERS["Adam"]()))
    before = amp.to_proto(plain).SerializeToString(deterministic=True)
    injected = inject_loss_scaling(plain, conditional=mode)
    assert amp.to_proto(plain).SerializeToString(deterministic=True) == before
    onnx.checker.check_model(amp.to_proto(injected), full_check=True)
    amp.save(injected, tmp_path / "step.onnx")
    with amp.TrainingSession(tmp_path / "step.onnx") as session:
        assert session.run(batch(session))["grads_finite"]
        assert session.export().graph.num_nodes() == 5
    again = inject_loss_scaling(plain, conditional=mode)
    assert amp.to_proto(again) == amp.to_proto(injected)


def test_select_holds_no_control_flow_and_if_holds_the_whole_update():
    plain = amp.build_step(op_of("mlp", OPTIMIZERS["Adam"]()))
    select = inject_loss_scaling(plain, conditional="select")
    assert "If" not in {node.op_type for node in select.graph}
    branching = inject_loss_scaling(plain, conditional="if")
    outside = [n.name for n in branching.graph if n.metadata_props.get(PART_KEY) == Part.UPDATE]
    assert outside == ["next/learning_rate"]


def test_fetches_tell_about_scale_and_norm():
    plain = amp.build_step(op_of("mlp", OPTIMIZERS["Adam"]()), ["global_step", "learning_rate"])
    names = ["loss_scale", "good_steps", "consecutive_skips", "gradient_norm", "global_step"]
    with amp.TrainingSession(inject_loss_scaling(plain)) as session:
        found = session.run(batch(session), names)
        assert (found["loss_scale"], found["good_steps"], found["global_step"]) == (2**15, 1, 1)
        assert 0 < found["gradient_norm"] < 100
        feeds = batch(session)
        feeds["x"] *= np.float32(np.nan)
        assert session.run(feeds, "global_step")["global_step"] == 1


EMBEDDING = """<ir_version: 8, opset_import: ["": 17]>
    g (int64[N, 3] x, float[N, 2] t) => (float loss) <float[7, 4] table, float[4, 2] w> {
        e = Gather (table, x)
        axes = Constant <value: tensor = int64[1] {1}> ()
        s = ReduceSum <keepdims: int = 0> (e, axes)
        y = MatMul (s, w)
        d = Sub (y, t)
        q = Mul (d, d)
        loss = ReduceMean <keepdims: int = 0> (q)
    }"""


def embedding() -> ir.Model:
    proto = onnx.parser.parse_model(EMBEDDING)
    del proto.graph.value_info[:]
    rng = np.random.default_rng(0)
    for name, shape in (("table", (7, 4)), ("w", (4, 2))):
        array = rng.normal(size=shape).astype(np.float32)
        proto.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    return amp.load(proto)


@pytest.mark.parametrize("gate", [1, 2], ids=["open", "gate-graph"])
@pytest.mark.parametrize("mode", MODES)
def test_sparse_gradients_and_barriers_are_scaled_too(mode: str, gate: int):
    def build() -> ir.Model:
        loss = amp.value(embedding(), "loss")
        optimizer = amp.optimizers.Adagrad(0.1)
        return amp.build_step(optimizer.minimize(loss, gate_gradients=gate))

    plain, injected = build(), inject_loss_scaling(build(), loss_scale=SCALE, conditional=mode)
    rng = np.random.default_rng(1)
    feeds = {"x": np.array([[0, 0, 5], [1, 5, 2]]), "t": rng.normal(size=(2, 2))}
    feeds["t"] = feeds["t"].astype(np.float32)
    with amp.TrainingSession(plain) as one, amp.TrainingSession(injected) as other:
        for _ in range(3):
            one.run(feeds)
            assert other.run(feeds)["grads_finite"]
        for key, value in one.state_dict().items():
            np.testing.assert_array_equal(other.read_state(key), value, err_msg=key)
        bad = {**feeds, "t": feeds["t"] * np.float32(np.inf)}
        assert not other.run(bad)["grads_finite"]
        for key, value in one.state_dict().items():
            np.testing.assert_array_equal(other.read_state(key), value, err_msg=key)
