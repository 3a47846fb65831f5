"""A skipped step keeps the running statistics, which a kernel would write over."""

import numpy as np
import pytest
import train_models

import amp_rewrite as amp
from amp_rewrite.loss_scaling import LossScaleOptimizer

WRAP = {
    "alone": lambda inner, mode: LossScaleOptimizer(inner, conditional=mode),
    "around shards": lambda inner, mode: LossScaleOptimizer(
        amp.CrossShardOptimizer(inner), conditional=mode
    ),
    "inside shards": lambda inner, mode: amp.CrossShardOptimizer(
        LossScaleOptimizer(inner, conditional=mode)
    ),
}


@pytest.mark.filterwarnings("ignore:CrossShardOptimizer is used outside a shard context")
@pytest.mark.parametrize("mode", ["if", "select"])
@pytest.mark.parametrize("kind", WRAP)
def test_a_skipped_step_keeps_the_running_statistics(kind: str, mode: str):
    model = amp.load(train_models.digits_cnn())
    optimizer = WRAP[kind](amp.optimizers.Adam(1e-3), mode)
    rng = np.random.default_rng(0)
    feeds = {"x": rng.normal(size=(4, 1, 8, 8)).astype(np.float32), "t": np.arange(4)}
    with amp.TrainingSession(optimizer.minimize(amp.value(model, "loss"))) as session:
        session.run(feeds)
        before = session.state_dict()
        feeds["x"][0, 0, 0, 0] = np.nan
        assert not session.run(feeds)["grads_finite"]
        after = session.state_dict()
    for name, array in before.items():
        if not name.startswith(("loss_scale/", "random/")):
            assert after[name].tobytes() == array.tobytes(), name
