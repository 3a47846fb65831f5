"""A skipped step keeps the running statistics, which a kernel would write over."""

import numpy as np
import pytest
import train_models

import amp_rewrite as amp
from amp_rewrite.loss_scaling import LossScaleOptimizer


@pytest.mark.parametrize("mode", ["if", "select"])
def test_a_skipped_step_keeps_the_running_statistics(mode: str):
    model = amp.load(train_models.digits_cnn())
    optimizer = LossScaleOptimizer(amp.optimizers.Adam(1e-3), conditional=mode)
    rng = np.random.default_rng(0)
    feeds = {"x": rng.normal(size=(4, 1, 8, 8)).astype(np.float32), "t": np.arange(4)}
    with amp.TrainingSession(optimizer.minimize(amp.value(model, "loss"))) as session:
        session.run(feeds)
        before = session.state_dict()
        feeds["x"][0, 0, 0, 0] = np.nan
        assert not session.run(feeds)["grads_finite"]
        after = session.state_dict()
    for name in ("conv1.mean", "conv1.var", "conv2.mean", "conv2.var"):
        assert after[name].tobytes() == before[name].tobytes(), name
