"""What an optimizer knows of its states when their session is closed."""

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from sick_steps import BATCH, step

import amp_rewrite as amp
from amp_rewrite.errors import OptionError, RunError
from amp_rewrite.graph.metadata_keys import STEP_KEY

MODEL = """<ir_version: 8, opset_import: ["": 17]>
g (float[n, 3] x) => (float loss) <float[3, 2] w = {1, 2, 3, 4, 5, 6}> {
    y = MatMul(x, w)
    loss = ReduceMean<keepdims=0>(y)
}"""
X = {"x": np.ones((2, 3), np.float32)}


def test_weights_of_a_closed_session_are_an_error_and_not_the_initial_ones() -> None:
    optimizer = amp.LossScaleOptimizer(
        amp.optimizers.Adam(0.1), amp.DynamicLossScale(8.0, increment_period=2)
    )
    op = optimizer.minimize(amp.value(amp.load(onnx.parser.parse_model(MODEL)), "loss"))
    first = optimizer.get_weights()
    with amp.TrainingSession(op) as session:
        for _ in range(3):
            session.run(X)
        trained = optimizer.get_weights()
    with pytest.raises(RunError, match=r"w/Adam: the session that held the state is closed; read"):
        optimizer.get_weights()
    assert optimizer.iterations is not None
    assert optimizer.iterations.read() == trained[0] == 3
    assert (optimizer.current_loss_scale, optimizer.learning_rate) == (16.0, pytest.approx(0.1))
    optimizer.set_weights(trained)
    np.testing.assert_array_equal(optimizer.get_weights()[1], trained[1])
    assert (trained[1] != first[1]).any()
    with amp.TrainingSession(op) as session:
        assert session.global_step == 3
        np.testing.assert_array_equal(optimizer.get_weights()[1], trained[1])


def test_the_latest_session_answers_until_it_is_closed() -> None:
    optimizer = amp.optimizers.Adam(0.1)
    op = optimizer.minimize(amp.value(amp.load(onnx.parser.parse_model(MODEL)), "loss"))
    first, second = amp.TrainingSession(op), amp.TrainingSession(op)
    first.run(X)
    assert optimizer.iterations is not None
    assert optimizer.iterations.read() == 0
    first.close()
    second.run(X)
    second.run(X)
    assert optimizer.iterations.read() == 2
    second.close()
    assert optimizer.iterations.read() == 2


def test_states_are_numbers_and_arrays() -> None:
    optimizer = amp.LossScaleOptimizer(amp.optimizers.Adam(0.1, amsgrad=True))
    op = optimizer.minimize(amp.value(amp.load(onnx.parser.parse_model(MODEL)), "loss"))
    counter, slot = optimizer.iterations, optimizer.get_slot("w", "vhat")
    assert counter is not None
    assert slot is not None
    assert (int(counter), float(counter)) == (0, 0.0)
    with amp.TrainingSession(op) as session:
        fetches = ["loss", "global_step", "loss_scale"]
        found = [session.run(X, fetches) for _ in range(3)][-1]
        assert (int(counter), float(counter), counter.numpy()) == (3, 3.0, 3)
        assert np.asarray(counter).dtype == np.int64
        assert np.array(counter, np.float32).dtype == np.float32
        assert np.asarray(slot).shape == (3, 2)
        assert (int(found["global_step"]), float(found["loss_scale"])) == (3, 32768.0)
        assert isinstance(float(found["loss"]), float)
        array = np.asarray(counter)
        array[...] = 7
        assert int(counter) == 3
        with pytest.raises(TypeError):
            int(slot)


@pytest.mark.filterwarnings("ignore::amp_rewrite.errors.AmpWarning")
def test_rates_counters_and_the_loss_scale_are_states():
    own = amp.optimizers.CosineSchedule(1e-7, 100)
    groups = [amp.optimizers.ParameterGroup(variables="w", name="own", learning_rate=own)]
    rule = amp.optimizers.ParameterGroups(amp.optimizers.Momentum(1e-6), groups)
    made = step(optimizer=amp.LossScaleOptimizer(rule), accumulate=2)
    with amp.TrainingSession(made) as session:
        session.assign_state("learning_rate/own", np.array(0.0))
        session.assign_state("loss_scale/current_loss_scale", np.array(64.0))
        session.assign_state("global_step", np.array(7))
        before = session.read_state("w")
        session.run(BATCH)
        found = session.run(BATCH, ["loss_scale", "global_step"])
        np.testing.assert_array_equal(session.read_state("w"), before)
    assert (found["loss_scale"], found["global_step"]) == (64.0, 8)


@pytest.mark.filterwarnings("ignore::amp_rewrite.errors.AmpWarning")
@pytest.mark.parametrize(
    ("name", "number"),
    [("learning_rate", -1.0), ("learning_rate", np.inf), ("loss_scale/current_loss_scale", 0.0)]
    + [("loss_scale/current_loss_scale", number) for number in (-2.0, np.nan)],
)
def test_impossible_rates_and_scales_are_refused(name: str, number: float) -> None:
    made = step(optimizer=amp.LossScaleOptimizer(amp.optimizers.Momentum(0.1)))
    with amp.TrainingSession(made) as session:
        before = session.read_state(name)
        with pytest.raises(OptionError, match=f"impossible {name}; found .*finite number of at"):
            session.assign_state(name, np.array(number))
        assert session.read_state(name) == before


def test_a_step_that_an_earlier_release_described_is_read(tmp_path: Path) -> None:
    path = tmp_path / "step.onnx"
    amp.save(amp.build_step(step()), path)
    model = onnx.load(path)
    (entry,) = [e for e in model.metadata_props if e.key == STEP_KEY]
    entry.value = json.dumps({**json.loads(entry.value), "adapters": [], "gradient_rows": {}})
    onnx.save(model, path)
    with amp.TrainingSession(path) as session:
        assert np.isfinite(session.run(BATCH)["loss"])
