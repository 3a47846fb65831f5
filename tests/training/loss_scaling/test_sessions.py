"""Sessions of steps with a loss scale: fetches, the collapse of the scale, checkpoints."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import amp_rewrite as amp
from amp_rewrite import optimizers
from amp_rewrite.loss_scaling import (
    DynamicLossScale,
    LossScaleOptimizer,
)

Feeds = dict[str, np.ndarray]
Make = Callable[[], ir.Model]
FeedsOf = Callable[[np.random.Generator], Feeds]
COUNTERS = ["loss_scale", "good_steps", "skipped_steps", "consecutive_skips", "grads_finite"]
STATES = {
    "loss_scale/current_loss_scale": np.float32,
    "loss_scale/good_steps": np.int64,
    "loss_scale/skipped_steps": np.int64,
    "loss_scale/consecutive_skips": np.int64,
}
MODES = pytest.mark.parametrize("mode", ["if", "select"])


def op_of(model: ir.Model, scale: Any = "dynamic", mode: str = "if") -> optimizers.TrainOp:
    optimizer = LossScaleOptimizer(optimizers.Adam(0.01), scale, conditional=mode)
    return optimizer.minimize(amp.value(model, "loss"))


@pytest.fixture
def good(feeds_of: FeedsOf) -> Feeds:
    return feeds_of(np.random.default_rng(0))


@pytest.fixture
def bad(good: Feeds) -> Feeds:
    return {**good, "g0": np.array(np.inf, np.float32)}


@MODES
def test_scale_and_counters_can_be_fetched(
    mode: str, four_variables: Make, good: Feeds, bad: Feeds
) -> None:
    scale = DynamicLossScale(8.0, increment_period=2)
    with amp.TrainingSession(op_of(four_variables(), scale, mode)) as session:
        found = [session.run(f, COUNTERS) for f in (good, bad, bad, good, good, good)]
    rows = [[out[name].item() for name in COUNTERS] for out in found]
    assert rows == [  # the scale is the one of the step, the counters are those after it
        [8, 1, 0, 0, True],
        [8, 0, 1, 1, False],
        [4, 0, 2, 2, False],
        [2, 1, 2, 0, True],
        [2, 0, 2, 0, True],
        [4, 1, 2, 0, True],
    ]
    kinds = [found[0][name].dtype for name in COUNTERS]
    assert kinds == [np.float32, np.int64, np.int64, np.int64, np.bool_]


def test_the_gradient_norm_is_global_and_unscaled(four_variables: Make, good: Feeds) -> None:
    op = op_of(four_variables(), DynamicLossScale(2.0**20))
    squares = [n for n in amp.build_step(op).graph if n.op_type == "ReduceSumSquare"]
    assert len(squares) == 4  # one pass over each gradient
    with amp.TrainingSession(op) as session:
        norm = session.run(good, "gradient_norm")["gradient_norm"]
    table = np.zeros((6, 3), np.float32)
    np.add.at(table, good["ids"], good["g3"])
    parts = [good["g0"].reshape(-1), good["g1"], good["g2"].reshape(-1), table.reshape(-1)]
    np.testing.assert_allclose(norm, np.linalg.norm(np.concatenate(parts)), rtol=1e-6)


@MODES
def test_a_step_file_trains_with_its_loss_scale(
    mode: str, four_variables: Make, good: Feeds, bad: Feeds, tmp_path: Path
) -> None:
    op = op_of(four_variables(), DynamicLossScale(8.0), mode)
    path = tmp_path / "step.onnx"
    amp.save(amp.build_step(op), path)
    onnx.checker.check_model(str(path), full_check=True)
    states = []
    for source in (op, path):
        with amp.TrainingSession(source, threads=1) as session:
            for feeds in (good, bad, good):
                out = session.run(feeds, [*COUNTERS, "gradient_norm"])
            assert [out[name].item() for name in COUNTERS] == [4, 1, 1, 0, True]
            states.append(session.state_dict())
    assert all(states[0][k].tobytes() == states[1][k].tobytes() for k in states[0])


def test_a_collapsed_scale_ends_training(four_variables: Make, good: Feeds, bad: Feeds) -> None:
    scale = DynamicLossScale(4.0, max_consecutive_skips=3)
    with amp.TrainingSession(op_of(four_variables(), scale)) as session:
        session.run(good)
        for _ in range(4):  # at scales 4, 2, 1 and 1
            assert set(session.run(bad)) == {"loss", "grads_finite"}
        before = session.state_dict()
        with pytest.raises(amp.LossScaleError) as found:
            session.run(bad)
        assert found.value.history == ((2, 4), (3, 2), (4, 1), (5, 1), (6, 1))
        text = str(found.value)
        assert "3 steps in a row were skipped at the lowest loss scale, 1" in text
        assert "step 2: 4, step 3: 2, step 4: 1, step 5: 1, step 6: 1" in text
        after = session.state_dict()
        assert {k for k in before if before[k].tobytes() != after[k].tobytes()} == {
            "loss_scale/skipped_steps",
            "loss_scale/consecutive_skips",
        }


def test_a_step_file_remembers_the_limit(four_variables: Make, bad: Feeds, tmp_path: Path) -> None:
    op = op_of(four_variables(), DynamicLossScale(1.0, max_consecutive_skips=2))
    path = tmp_path / "step.onnx"
    amp.save(amp.build_step(op), path)
    with amp.TrainingSession(path) as session:
        assert list(session.run(bad, "gradient_norm")) == ["gradient_norm"]
        with pytest.raises(amp.LossScaleError) as found:
            session.run(bad)
        assert found.value.history == ((1, 1), (2, 1))
